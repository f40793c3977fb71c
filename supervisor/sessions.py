"""All sessions of the daemon, and what clients get of them: answers, Down notices, last reasons.

A session with a parent belongs to one process of it: it is started only for a live one, and ends
with it. So none of them is taken over from an earlier daemon, whose processes are all gone.
"""

import contextlib
from collections import OrderedDict
from dataclasses import dataclass, field

import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.codec import decode_as, encode
from cmdc_runtime.errors import InvalidSession, Overloaded, SessionExists, SessionNotAlive
from cmdc_runtime.frames import FromClient, Notify, ToClient
from cmdc_runtime.ids import EventIndex, Incarnation, MonitorRef, SessionId
from cmdc_runtime.reasons import AnyReason, NoProcess, Shutdown
from cmdc_runtime.requests import SessionInfo, StartSession
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import Journal, SessionRow
from supervisor.adapters.router import Router
from supervisor.core import lifecycle
from supervisor.core.lifecycle import Life, Phase
from supervisor.core.limits import INDEX_JUMP, MONITORS_MAX, REASONS_KEPT_MAX
from supervisor.core.monitors import Monitor, Monitors, down
from supervisor.session import Session
from supervisor.specs import spec_bytes, spec_of
from supervisor.workforce import Workforce

log = structlog.get_logger()


@dataclass(slots=True)
class Sessions:
    """The live sessions, the monitors, and the newest of the dead."""

    workforce: Workforce
    hub: Hub
    journal: Journal
    sessions_max: int
    control: Router[FromClient, ToClient] = field(init=False)
    is_leaving: bool = False
    """The daemon ends: what stops now is not over, the next daemon goes on with it."""
    live: dict[SessionId, Session] = field(default_factory=dict)
    monitors: Monitors = field(default_factory=Monitors)
    _ended: OrderedDict[SessionId, SessionInfo] = field(default_factory=OrderedDict)

    async def start(self, spec: StartSession) -> Session:
        """Start a session and return when its agent is up.

        Raises:
            SessionExists: the id is taken by a live session.
            InvalidSession: there never was such a parent.
            SessionNotAlive: the parent ended.
            StartFailed: the agent can't be built, or its process died while it was.
            Overloaded: there are too many sessions.
        """
        parent = await self.find(spec.parent_id) if spec.parent_id is not None else None
        if parent is not None:
            parent.check_child(spec.parent_incarnation)
        if spec.session_id in self.live:
            raise SessionExists(f"session {spec.session_id!r} is alive; stop it or use another id")
        if len(self.live) >= self.sessions_max:
            raise Overloaded(f"max_sessions: {self.sessions_max} sessions are alive already")
        at_ms = now_ms()
        session = Session(self, spec, Life(spec.supervision), at_ms)
        self.live[spec.session_id] = session
        if parent is not None:  # known to it before anything is waited for: it may end meanwhile
            parent.children.add(session)
        row = SessionRow(
            session_id=spec.session_id,
            created_ms=at_ms,
            spec=spec_bytes(spec),
            parent_id=spec.parent_id,
            group_id=spec.group_id,
            incarnation=Incarnation(1),
        )
        try:
            await self.journal.create(row)
        except BaseException:
            self._strike(session)
            session.ended.set_result(NoProcess())
            raise
        self._ended.pop(spec.session_id, None)
        events_max = spec.supervision.event_buffer_size
        self.hub.open_channel(spec.session_id, events_max, EventIndex(0))
        if spec.group_id is not None:
            self.hub.announce(spec.group_id, spec.session_id)
        session.take(lifecycle.Begin())
        await session.started
        return session

    async def take_over(self, reason: AnyReason) -> int:
        """Go on with the sessions that an earlier daemon left; return how many there are."""
        rows = await self.journal.alive()
        orphaned = encode(Shutdown(detail=lifecycle.PARENT_ENDED))
        for child in [row for row in rows if row.parent_id is not None]:
            await self.journal.ended(child.session_id, orphaned, now_ms())
        rows = [row for row in rows if row.parent_id is None]
        for row in rows:
            spec = spec_of(row.spec)
            life = Life(
                spec.supervision,
                incarnation=row.incarnation,
                restarts=row.restarts + 1,
                was_up=True,
                last_reason=reason,
            )
            session = Session(self, spec, life, row.created_ms)
            self.live[row.session_id] = session
            last = await self.journal.last_index(row.session_id)
            last = EventIndex(last + INDEX_JUMP)
            self.hub.open_channel(row.session_id, spec.supervision.event_buffer_size, last)
            session.take(lifecycle.Begin())
        return len(rows)

    async def stop(self, session_id: SessionId, reason: str, grace_s: float | None) -> None:
        """End a session and return when no process of it and its children is left."""
        session = await self.find(session_id)
        session.take(lifecycle.Stop(reason, grace_s))
        await session.ended

    async def find(self, session_id: SessionId) -> Session:
        """Return a live session.

        Raises:
            InvalidSession: there never was one of this id.
            SessionNotAlive: it ended; the error says why.
        """
        session = self.live.get(session_id)
        if session is not None:
            return session
        info = await self.look_up(session_id)
        raise SessionNotAlive(info.reason or NoProcess())

    async def look_up(self, session_id: SessionId) -> SessionInfo:
        """Return what is known of a session, also of one that ended.

        Raises:
            InvalidSession: there never was one of this id.
        """
        if (session := self.live.get(session_id)) is not None:
            return session.info()
        if (info := self._ended.get(session_id)) is not None:
            return info
        row = await self.journal.find(session_id)
        if row is None:
            raise InvalidSession(f"no session {session_id!r} was ever seen here")
        last = await self.journal.last_index(session_id)
        return SessionInfo(
            session_id=session_id,
            phase="ended",
            incarnation=row.incarnation,
            restarts=row.restarts,
            pid=None,
            parent_id=row.parent_id,
            group_id=row.group_id,
            last_index=max(last, self.hub.last_index(session_id)),
            reason=decode_as(AnyReason, row.reason) if row.reason is not None else None,
        )

    async def monitor(self, monitor: Monitor) -> None:
        """Set a monitor; a session that is not there any more answers it at once."""
        if monitor.ref not in self.monitors and len(self.monitors) >= MONITORS_MAX:
            raise Overloaded(f"{MONITORS_MAX} monitors are set already")
        session = self.live.get(monitor.session_id)
        if session is not None and session.phase is not Phase.ENDING:  # its end is told already
            self.monitors.add(monitor)
            return
        reason: AnyReason = NoProcess()
        incarnation = Incarnation(0)
        with contextlib.suppress(InvalidSession):
            info = await self.look_up(monitor.session_id)
            reason, incarnation = info.reason or reason, info.incarnation
        notice = down(monitor, reason, incarnation, restarting=False)
        self.control.send(monitor.client, Notify(down=notice))

    def demonitor(self, ref: MonitorRef) -> None:
        """Forget a monitor."""
        self.monitors.remove(ref)

    # --- what a session needs -------------------------------------------------------------------

    def answer(self, client: bytes, frame: ToClient | bytes) -> None:
        """Send one frame to one client; a client that is gone asks again when it is back."""
        if isinstance(frame, bytes):
            self.control.send_encoded(client, frame)
        else:
            self.control.send(client, frame)

    def notify(self, session: Session, effect: lifecycle.TellDown) -> None:
        """Tell the monitors that a process ended; not when it only ends with the daemon."""
        if self.is_leaving:
            return
        notices = self.monitors.fire(
            session.id, effect.reason, effect.incarnation, restarting=effect.restarting
        )
        for client, notice in notices:
            self.control.send(client, Notify(down=notice))

    def forget(self, session: Session, reason: AnyReason) -> None:
        """Strike an ended session off the list, and write its end down."""
        self._strike(session)
        self._ended[session.id] = session.info()
        if len(self._ended) > REASONS_KEPT_MAX:
            self._ended.popitem(last=False)
        self.hub.close_channel(session.id)
        if not self.is_leaving:
            session.record_end(encode(reason))

    def _strike(self, session: Session) -> None:
        self.live.pop(session.id, None)
        parent = self.live.get(session.spec.parent_id) if session.spec.parent_id else None
        if parent is not None:
            parent.children.discard(session)
