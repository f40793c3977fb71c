"""All sessions of the daemon, and what clients get of them: answers and last reasons.

A session with a parent belongs to one process of it: it is started only for a live one, and ends
with it. Of those that an earlier daemon left, each goes on with its process where that lives, and
else with a new one; ``adoption`` says how.
"""

import asyncio
import itertools
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import (
    Busy,
    CmdcError,
    DaemonUnavailable,
    InvalidOptions,
    InvalidSession,
    Overloaded,
    ProtocolError,
    SessionExists,
    SessionNotAlive,
    SessionParked,
)
from cmdc_runtime.ids import SUPERVISOR, EventIndex, Incarnation, SessionId
from cmdc_runtime.provider_keys import keys_problem
from cmdc_runtime.reasons import AnyReason, Down, NoProcess, Normal, Other, Shutdown, StartFailed
from cmdc_runtime.requests import SessionInfo, SessionPhase, StartSession
from cmdc_runtime.wire.codec import decode_as, encode
from cmdc_runtime.wire.frames import FromClient, ToClient
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import SessionRow, check_row, shown_row
from supervisor.adapters.journal.operations import (
    CreateSession,
    EndSession,
    FindLastIndex,
    FindSession,
    ListEndedSessions,
    LoadSession,
    RestoreSession,
)
from supervisor.adapters.journal.store import Journal
from supervisor.adapters.keyring import Keyring
from supervisor.adapters.router import Router
from supervisor.adapters.self_check import FlushBarrier
from supervisor.core.exits import ExitRecord, evidence_of
from supervisor.core.limits import (
    INACTIVE_LISTED_MAX,
    READERS_MAX,
    REASONS_KEPT_MAX,
    SESSIONS_DEEP_MAX,
    STARTS_WAITING_MAX,
)
from supervisor.core.session_phase import Phase
from supervisor.core.session_tree import ALL_SESSIONS, check_session, session_path, session_spec
from supervisor.core.tree.messages import CallResult, Outcome, ProcessEnded
from supervisor.processes.pool import WorkerPool
from supervisor.sessions.assignment import Brought, brought_from, spec_bytes, spec_of
from supervisor.sessions.monitors import NOBODY, MonitorService
from supervisor.sessions.reader import EndedSession, EndedSessions
from supervisor.sessions.server_hosts import ServerHosts
from supervisor.sessions.session import Session
from supervisor.sessions.tree_runtime import TreeRuntime

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parked:
    """A session that is not gone on with, and the id that the journal has of it."""

    info: SessionInfo
    kept_as: SessionId

    def error(self) -> SessionParked:
        """Return the error for who asks for it."""
        return SessionParked(str(self.info.reason))


@dataclass(slots=True)
class Sessions:
    """The live sessions, and the newest of the dead."""

    runtime: TreeRuntime
    pool: WorkerPool
    hub: Hub
    journal: Journal
    flush_barrier: FlushBarrier
    sessions_max: int
    starts_max: int = STARTS_WAITING_MAX
    """Sessions that are being started at a time."""
    keyring: Keyring = field(default_factory=Keyring)
    control: Router[FromClient, ToClient] = field(init=False)
    monitors: MonitorService = field(init=False)
    server_hosts: ServerHosts = field(init=False)
    is_leaving: bool = False
    """The daemon ends: what stops now is not over, the next daemon goes on with it."""
    state_dir: str = ""
    readers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READERS_MAX))
    live: dict[SessionId, Session] = field(default_factory=dict)
    _ended: OrderedDict[SessionId, SessionInfo] = field(default_factory=OrderedDict)
    _parked: dict[SessionId, Parked] = field(default_factory=dict)
    _starting: int = 0
    _read: EndedSessions = field(init=False)

    def __post_init__(self) -> None:
        """Read no ended session yet, and have no server that sessions share."""
        self._read = EndedSessions(self)
        self.server_hosts = ServerHosts(self.pool, self.runtime, lambda: self.is_leaving)

    @property
    def ids(self) -> set[SessionId]:
        """The ids of the sessions that live or are parked."""
        return {*self.live, *self._parked}

    async def start(self, spec: StartSession, brought: Brought | None = None) -> Session:
        """Start a session and return when its agent is up; ``brought`` is what it begins with.

        Raises:
            Busy: as many are being started as may.
            InvalidOptions: no session can be kept like that.
            CheckpointNotFound: there is no state to begin with.
            SessionExists: the id is taken by a live session.
            InvalidSession: there never was such a parent.
            TransientError: the parent has no process now, or not the one that asks.
            SessionNotAlive: the parent ended.
            StartFailed: the agent can't be built, or its process died while it was.
            Overloaded: there are too many sessions.
            SessionParked: the id is that of a parked one, which this does not resume.
        """
        if self._starting >= self.starts_max:
            raise Busy(self._starting, self.pool.starts.retry_after_s(self._starting))
        self._starting += 1
        try:
            return await self._start(spec, brought)
        finally:
            self._starting -= 1

    async def _start(self, spec: StartSession, brought: Brought | None) -> Session:
        """Start it; raises what ``start`` does, but for ``Busy``."""
        keys, spec = spec.keys, msgspec.structs.replace(spec, keys={})  # not for the journal
        check_session(spec)
        if (problem := keys_problem(keys)) is not None:
            raise InvalidOptions([f"keys: {problem}"])
        parent = await self.find(spec.parent_id) if spec.parent_id is not None else None
        asks = spec.parent_incarnation
        if parent is not None:
            parent.check_child(asks)
            asks = parent.incarnation
        self._check_room(spec)
        at_ms = now_ms()
        path = session_path(None if parent is None else parent.path, spec.session_id)
        if len(path) > len(ALL_SESSIONS) + 1 + 2 * SESSIONS_DEEP_MAX:
            raise InvalidOptions([f"parent_id: {SESSIONS_DEEP_MAX} sessions are above it already"])
        session = Session(self, spec, path, at_ms)
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
        keys_before = self.keyring.keys_of(spec.session_id)
        try:
            self.keyring.put(spec.session_id, keys)
            session.keys = self.keyring.keys_of(spec.session_id)
            last = await self._write_down(session, row, brought)
        except BaseException as error:
            self._unregister(session)
            if keys:
                self.keyring.drop(spec.session_id)
                self.keyring.put(spec.session_id, keys_before)  # those of a parked one
            session.unwritten(
                error if isinstance(error, CmdcError) else DaemonUnavailable("the daemon ends")
            )
            raise
        self._ended.pop(spec.session_id, None)
        self._read.forget(spec.session_id)
        events_max = spec.supervision.event_buffer_size
        self.hub.open_channel(spec.session_id, events_max, last)
        if not _may_begin(session, parent, asks):
            session.begun(CallResult(Outcome.NO_PROCESS))
            await session.started
        if spec.group_id is not None:
            self.hub.announce(spec.group_id, spec.session_id)
        self.begin(session)
        await session.started
        return session

    def _check_room(self, spec: StartSession) -> None:
        """Refuse a session whose id is taken, or for which there is no place."""
        session_id = spec.session_id
        if session_id in self.live:
            raise SessionExists(f"session {session_id!r} is alive; stop it or use another id")
        is_resumed = spec.origin is not None and spec.origin.session_id == session_id
        if (parked := self._parked.get(session_id)) is not None and not is_resumed:
            raise parked.error()
        if len(self.live) >= self.sessions_max:
            raise Overloaded(f"max_sessions: {self.sessions_max} sessions are alive already")

    async def _write_down(
        self, session: Session, row: SessionRow, brought: Brought | None
    ) -> EventIndex:
        """Have a session in the journal, and return its newest event index."""
        origin = session.spec.origin
        if brought is None and origin is not None:
            brought = await brought_from(self.journal, origin, row)
        if brought is None:
            await self.journal.write(CreateSession(row))
            return EventIndex(0)
        check_row(brought.past.row)
        session.incarnation, session.last_reason = brought.incarnation, brought.reason
        session.created_ms = brought.past.row.created_ms
        if (parked := self._parked.get(session.id)) is not None:  # it is resumed
            await self._end_in_journal(parked, session.last_reason)
        await self.journal.write(
            RestoreSession(
                brought.past, brought.events, brought.checkpoints, brought.blobs, brought.holds_of
            )
        )
        self._parked.pop(session.id, None)
        return brought.last

    def begin(self, session: Session) -> None:
        """Give the session to the tree."""
        child = session_spec(
            session.spec,
            session,
            incarnation=session.incarnation,
            restarts=session.restarts,
            has_lived=session.was_up,
        )
        self.runtime.start_child(session.path[:-1], child, session.begun, session.over)

    async def stop(self, session_id: SessionId, reason: str, grace_s: float | None) -> None:
        """End a session and return when no process of it and its children is left."""
        if (parked := self._parked.get(session_id)) is not None:
            await self._end_parked(
                parked, Normal() if reason == "normal" else Shutdown(detail=reason)
            )
            return
        session = await self.find(session_id)
        session.stop(reason, grace_s)
        await session.ended

    def park(self, row: SessionRow, reason: AnyReason) -> None:
        """Set aside a session that can't be adopted: its rows stay, and it is found by its id.

        What was begun of it is undone. It is parked until it is resumed or stopped.
        """
        shown = shown_row(row)
        if (session := self.live.get(shown.session_id)) is not None:
            self._unregister(session)
            session.unwritten(SessionParked(str(reason)))
            self.hub.close_channel(session.id)
        self._list_parked(info_of(shown, phase="parked", reason=reason), row.session_id)

    def _list_parked(self, info: SessionInfo, kept_as: SessionId) -> None:
        log.error("session.parked", session_id=info.session_id, problem=str(info.reason))
        self._parked[info.session_id] = Parked(info, kept_as)

    async def _end_parked(self, parked: Parked, reason: AnyReason) -> None:
        await self._end_in_journal(parked, reason)
        self._parked.pop(parked.info.session_id, None)
        at_ms = now_ms()
        self._remember(
            msgspec.structs.replace(parked.info, phase="ended", reason=reason, ended_ms=at_ms)
        )

    async def _end_in_journal(self, parked: Parked, reason: AnyReason) -> None:
        await self.journal.write(EndSession(parked.kept_as, encode(reason), now_ms()))

    async def inactive(self) -> tuple[SessionInfo, ...]:
        """Return the parked sessions and the newest of the ended, as clients see them.

        What ended before this daemon began is in the journal until it is pruned.
        """
        earlier = await self.journal.read(ListEndedSessions(INACTIVE_LISTED_MAX))
        known = (*(one.info for one in self._parked.values()), *reversed(self._ended.values()))
        listed = {info.session_id: info for info in known}
        for row, last in earlier:
            info = self._ended_info(row, last)
            if info.session_id not in self.live:  # it is resumed meanwhile
                listed.setdefault(info.session_id, info)
        return tuple(itertools.islice(listed.values(), INACTIVE_LISTED_MAX))

    def _ended_info(self, row: SessionRow, last: EventIndex) -> SessionInfo:
        """Return what the journal says of a session that ended; ``last`` is its last event."""
        info = info_of(shown_row(row), phase="ended", reason=_reason_of(row.reason))
        newest = max(last, self.hub.last_index(row.session_id))
        return msgspec.structs.replace(info, last_index=newest)

    async def find(self, session_id: SessionId) -> Session:
        """Return a live session.

        Raises:
            InvalidSession: there never was one of this id.
            SessionNotAlive: it ended; the error says why.
        """
        session = self.live.get(session_id)
        if session is not None:
            return session
        if session_id == SUPERVISOR:
            raise InvalidSession(f"{SUPERVISOR} is no session; its events can be followed")
        info = await self.look_up(session_id)
        raise SessionNotAlive(info.reason or NoProcess())

    async def find_ended(self, session_id: SessionId) -> EndedSession:
        """Return a session that has ended and is in the journal, to be asked how things were.

        Raises:
            InvalidSession: there never was one of this id.
            SessionNotAlive: nothing of it is kept.
            SessionParked: it is not gone on with.
            ProtocolError: its definition is damaged.
        """
        info = await self.look_up(session_id)
        row = None
        if info.phase == "ended":
            row = await self.journal.read(FindSession(session_id))
        if row is not None and isinstance(info.reason, StartFailed):
            stored = await self.journal.read(LoadSession(session_id))
            if stored is None or not (stored.snapshot or stored.records):
                row = None  # it never was up: no process has to say so
        if row is None:
            raise SessionNotAlive(info.reason or NoProcess())
        return self._read.of(row, info.reason)

    async def look_up(self, session_id: SessionId) -> SessionInfo:
        """Return what is known of a session, also of one that ended.

        Raises:
            InvalidSession: there never was one of this id.
            SessionParked: it is not gone on with.
        """
        if (session := self.live.get(session_id)) is not None:
            return session.info()
        if (parked := self._parked.get(session_id)) is not None:
            raise parked.error()
        if session_id == SUPERVISOR:
            return _tree_itself(self.hub.taken_index(session_id))
        if (info := self._ended.get(session_id)) is not None:
            return info
        row = await self.journal.read(FindSession(session_id))
        if row is None:
            raise InvalidSession(f"no session {session_id!r} was ever seen here")
        info = self._ended_info(row, await self.journal.read(FindLastIndex(session_id)))
        return msgspec.structs.replace(info, own_checkpoints=_has_own_checkpoints(row))

    # --- what a session needs -------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """Whether clients get nothing of their sessions any more, and ask the next daemon.

        Where the journal has failed, too: whether a command is safe will be known there only.
        """
        return self.is_leaving or self.journal.health.has_failed

    def answer(self, client: bytes, frame: ToClient | bytes) -> None:
        """Send one frame to one client; a client that is gone asks again when it is back.

        Bytes are an outcome that the journal has, which every daemon would send.
        """
        if isinstance(frame, bytes):
            self.control.send_encoded(client, frame)
        elif not self.is_silent:
            self.control.send(client, frame)

    def notify(self, session: Session, ended: ProcessEnded) -> None:
        """Notify the monitors that a process ended; not when it only ends with the daemon."""
        if self.is_leaving:
            return
        record = ended.record if isinstance(ended.record, ExitRecord) else ExitRecord()
        wait_ms = round(ended.delay_s * 1000) if ended.restarting else None
        self.monitors.publish(
            Down(
                ref=NOBODY,
                session_id=session.id,
                reason=ended.reason,
                incarnation=ended.ref.generation,
                restarting=ended.restarting,
                restarts=ended.restarts,
                next_attempt_ms=wait_ms,
                evidence=evidence_of(record),
            )
        )

    def record_hibernation(self, session: Session) -> None:
        """Record that a process ended and nobody is notified."""
        if not self.is_leaving:
            self.monitors.record_hibernation(session.id, session.incarnation)

    def forget(self, session: Session, reason: AnyReason) -> None:
        """Remove an ended session, and write its end down; not one that goes on.

        One that is parked stays in the journal as it is; that it is, the next daemon reads in the
        Down of its last process.
        """
        if self.is_leaving:
            return
        self._unregister(session)
        info = session.info()
        self.hub.close_channel(session.id)
        if session.is_parked:
            self._list_parked(msgspec.structs.replace(info, phase="parked"), session.id)
            return
        self._remember(msgspec.structs.replace(info, ended_ms=now_ms()))
        self.keyring.drop(session.id)
        self._record_end(session.id, encode(reason))

    def _remember(self, info: SessionInfo) -> None:
        self._ended[info.session_id] = info
        if len(self._ended) > REASONS_KEPT_MAX:
            self._ended.popitem(last=False)

    def _record_end(self, session_id: SessionId, reason: bytes) -> None:
        """Write a session's end down: asked for now, ahead of a new session of this id."""
        try:
            recorded = asyncio.ensure_future(
                self.journal.write(EndSession(session_id, reason, now_ms()))
            )
        except CmdcError as error:
            log.error("end.not_journaled", session_id=session_id, problem=str(error))
            return
        recorded.add_done_callback(partial(_log_unrecorded, session_id))

    def _unregister(self, session: Session) -> None:
        self.live.pop(session.id, None)
        parent = self.live.get(session.spec.parent_id) if session.spec.parent_id else None
        if parent is not None:
            parent.children.discard(session)


def _log_unrecorded(session_id: SessionId, recorded: "asyncio.Future[None]") -> None:
    if not recorded.cancelled() and (error := recorded.exception()) is not None:
        log.error("end.not_journaled", session_id=session_id, problem=str(error))


def info_of(
    row: SessionRow, *, phase: SessionPhase, reason: AnyReason | None = None
) -> SessionInfo:
    """Return what a row says of a session that has no process."""
    return SessionInfo(
        session_id=row.session_id,
        phase=phase,
        incarnation=row.incarnation,
        restarts=row.restarts,
        pid=None,
        parent_id=row.parent_id,
        group_id=row.group_id,
        last_index=EventIndex(0),
        reason=reason,
        created_ms=row.created_ms,
        ended_ms=row.ended_ms or 0,
    )


def _has_own_checkpoints(row: SessionRow) -> bool:
    try:
        return spec_of(row.spec).own_checkpoints
    except (ProtocolError, TypeError):  # a damaged definition names no backend
        return False


def _reason_of(packed: bytes | None) -> AnyReason | None:
    if packed is None:
        return None
    try:
        found: AnyReason = decode_as(AnyReason, packed)
    except (ProtocolError, TypeError) as error:
        return Other(detail=f"its reason cannot be read: {error}")
    return found


def _tree_itself(last: EventIndex) -> SessionInfo:
    """Return the supervision tree as those see it who follow its reports."""
    return SessionInfo(
        session_id=SUPERVISOR,
        phase="up",
        incarnation=Incarnation(0),
        restarts=0,
        pid=None,
        parent_id=None,
        group_id=None,
        last_index=last,
    )


def _may_begin(session: Session, parent: Session | None, asks: Incarnation | None) -> bool:
    """Say whether the session is still wanted, by the process of its parent that asked for it."""
    if session.phase is not Phase.STARTING:
        return False
    if parent is None:
        return True
    try:
        parent.check_child(asks)
    except CmdcError:
        return False
    return True
