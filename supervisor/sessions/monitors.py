"""Reports the end of a process to those who monitor its session, each once, and never loses one.

An end is recorded first and sent when the record is committed. A daemon that dies before that has
recorded nothing, and the next one finds an incarnation without an end and says what it knows. One
that dies after it is healed by the client, which sets its monitors again and names the newest end
that it has had. A client whose connection broke sees by its count of notices that some are missing,
and does the same.

The ends of one session are sent in the order in which they were published, whatever becomes of
their records. Where the journal fails, those who are there hear of the end all the same.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import CmdcError, InvalidSession, Overloaded
from cmdc_runtime.ids import DownSeq, Incarnation, MonitorRef, SessionId
from cmdc_runtime.reasons import AnyReason, Down, NoProcess
from cmdc_runtime.requests import Monitor as MonitorRequest
from cmdc_runtime.requests import Monitored, SessionInfo
from cmdc_runtime.wire.codec import decode_as, encode
from cmdc_runtime.wire.frames import Notify
from supervisor.adapters.journal.base import DownRow, SessionRow
from supervisor.adapters.journal.operations import FindNewestDown, ListDowns, RecordDown
from supervisor.adapters.journal.store import Journal
from supervisor.core.limits import (
    CLIENT_SILENT_S,
    DOWNS_READ_MAX,
    MONITORS_MAX,
    MONITORS_SWEEP_MIN,
    NOTICE_COUNTS_MAX,
)
from supervisor.core.monitors import Monitor, Monitors, MonitorState, Notice, RecordedDown, Tally

log = structlog.get_logger()

NOBODY: Final = MonitorRef("")
"""The reference of a Down before it is addressed."""


@dataclass(slots=True)
class _Recording:
    """An end on its way to its record; ``recorded`` is what came of it."""

    down: Down
    count: int
    recorded: RecordedDown | None = None


@dataclass(slots=True)
class MonitorService:
    """The monitors of all clients.

    ``look_up`` says what is known of a session, ``phase`` "ended" as soon as its last end was
    published, or raises InvalidSession. ``send`` says whether the client is there.
    """

    journal: Journal
    look_up: Callable[[SessionId], Awaitable[SessionInfo]]
    send: Callable[[bytes, Notify], bool]
    clock: Callable[[], float] = time.monotonic
    _monitors: Monitors = field(default_factory=Monitors)
    _tally: Tally = field(default_factory=lambda: Tally(NOTICE_COUNTS_MAX))
    _recordings: dict[SessionId, deque[_Recording]] = field(default_factory=dict)
    _count: int = 0
    """Of the ends that were published."""
    _sweep_at: int = MONITORS_SWEEP_MIN

    def __len__(self) -> int:
        """Return how many monitors are set."""
        return len(self._monitors)

    # --- what clients ask -----------------------------------------------------------------------

    async def set(self, request: MonitorRequest, client: bytes) -> Monitored:
        """Set a monitor, or set it again; notices that are due are sent before this returns.

        Raises:
            Overloaded: there are too many monitors.
            CmdcError: the journal could not be read; the monitor is not set.
        """
        monitor = Monitor(request.ref, request.session_id, client, request.persistent)
        if request.since is None and (known := self._monitors.find(monitor)) is not None:
            return Monitored(since=known.since)  # the answer was lost, so it is asked again
        if request.ref not in self._monitors:
            self._make_room()
        if request.since is None:
            state = self._monitors.open(monitor, DownSeq(0), self._count)
            setting = self._begin(state)
        else:
            state = self._monitors.open(monitor, request.since)
            setting = self._catch_up(state, request.since)
        try:
            return await setting
        except BaseException:
            if self._monitors.holds(state):
                self._monitors.remove(monitor.ref)
            raise

    def demonitor(self, ref: MonitorRef) -> None:
        """Forget a monitor: nothing of it is sent any more."""
        self._monitors.remove(ref)

    def notices(self, client: bytes) -> int:
        """Return the number of the newest notice to ``client``, which asks for it."""
        return self._tally.ask(client, self.clock())

    # --- what sessions report -------------------------------------------------------------------

    def publish(self, down: Down) -> None:
        """Record an end and then send it; returns at once. ``down.ref`` is ``NOBODY``.

        It is called after every event of the incarnation was published, and before the journal
        hears of the next one or of the session's end.
        """
        if not down.at_ms:
            down = msgspec.structs.replace(down, at_ms=now_ms())
        self._count += 1
        recording = _Recording(down, self._count)
        self._recordings.setdefault(down.session_id, deque()).append(recording)
        try:
            writing: asyncio.Future[DownSeq] = asyncio.ensure_future(
                self.journal.write(RecordDown(_row(down, encode(down))))
            )
        except CmdcError as error:  # its queue is full, or it is closed
            writing = asyncio.get_running_loop().create_future()
            writing.set_exception(error)
        writing.add_done_callback(partial(self._on_recorded, recording))

    def record_hibernation(self, session_id: SessionId, incarnation: Incarnation) -> None:
        """Record that an incarnation ended and nobody is notified: the session hibernates."""
        row = DownRow(
            session_id=session_id,
            incarnation=incarnation,
            restarting=True,
            at_ms=now_ms(),
            body=b"",
        )
        try:
            writing = asyncio.ensure_future(self.journal.write(RecordDown(row)))
        except CmdcError as error:
            log.error("hibernation.not_journaled", session_id=session_id, problem=str(error))
            return
        writing.add_done_callback(partial(_on_hibernation_recorded, session_id))

    async def recover(self, row: SessionRow, reason: AnyReason, *, restarting: bool) -> Down | None:
        """Record what an earlier daemon left unrecorded; return the last Down of what is over.

        For every session that the journal has as alive, before the first client is heard. The
        current incarnation ended with that daemon, for ``reason``, unless its end is recorded. None
        means that the session goes on.

        Raises:
            JournalFailed: it could not be read or written.
        """
        newest = await self.journal.read(FindNewestDown(row.session_id))
        if newest is not None and _is_last(newest):
            return _down(newest)
        if restarting and newest is not None and (newest.incarnation or 0) >= row.incarnation:
            return None
        down = Down(
            ref=NOBODY,
            session_id=row.session_id,
            reason=reason,
            incarnation=row.incarnation,
            restarting=restarting,
            restarts=row.restarts + restarting,
            at_ms=now_ms(),
        )
        await self.journal.write(RecordDown(_row(down, encode(down))))
        return None if restarting else down

    # --- setting --------------------------------------------------------------------------------

    async def _begin(self, state: MonitorState) -> Monitored:
        """Watch from now on, or answer at once where there is nothing to wait for."""
        info = await self._find(state.monitor.session_id)
        newest = await self.journal.read(FindNewestDown(state.monitor.session_id))
        if newest is not None and newest.incarnation is None:
            # It is the end of another session of this id: the present one began since we looked.
            info = await self._find(state.monitor.session_id)
        self._send(self._monitors.start(state, DownSeq(0) if newest is None else newest.seq))
        is_over = info is not None and info.phase == "ended"
        if is_over and newest is not None and _is_last(newest) and self._monitors.holds(state):
            self._send(self._monitors.conclude(state, RecordedDown(_down(newest), newest.seq)))
        self._conclude(state, info)
        return Monitored(since=state.since)

    async def _catch_up(self, state: MonitorState, since: DownSeq) -> Monitored:
        """Send what was recorded after ``since``, and watch from there."""
        session_id = state.monitor.session_id
        seen = since
        is_all = False
        while not is_all and self._monitors.holds(state):
            rows = await self.journal.read(ListDowns(session_id, seen, DOWNS_READ_MAX))
            self._send(
                self._monitors.give(state, [RecordedDown(_down(row), row.seq) for row in rows])
            )
            is_all = len(rows) < DOWNS_READ_MAX
            seen = rows[-1].seq if rows else seen
        self._send(self._monitors.start(state, seen))
        self._conclude(state, await self._find(session_id))
        return Monitored(since=since)  # not ``seen``: what was sent may be lost

    def _conclude(self, state: MonitorState, info: SessionInfo | None) -> None:
        """Answer a monitor of a session that is over and has no record of it, or never was."""
        session_id = state.monitor.session_id
        if info is None:
            down = _last(session_id, Incarnation(0), NoProcess())
        elif info.phase == "ended" and session_id not in self._recordings:
            reason = info.reason or NoProcess()
            down = _last(session_id, info.incarnation, reason, info.restarts)
        else:
            return  # it goes on, or its end is on its way to the journal and comes from there
        self._send(self._monitors.conclude(state, RecordedDown(down, None)))

    async def _find(self, session_id: SessionId) -> SessionInfo | None:
        try:
            return await self.look_up(session_id)
        except InvalidSession:
            return None

    # --- recording --------------------------------------------------------------------------------

    def _on_recorded(self, recording: _Recording, writing: "asyncio.Future[DownSeq]") -> None:
        down = recording.down
        error = None if writing.cancelled() else writing.exception()
        if writing.cancelled() or error is not None:
            if self.journal.health.has_failed:
                return  # the daemon ends, and the next one reports it
            log.error(
                "down.not_journaled",
                session_id=down.session_id,
                incarnation=down.incarnation,
                problem=str(error),
            )
            recording.recorded = RecordedDown(down, None)
        else:
            recording.recorded = RecordedDown(down, writing.result())
        waiting = self._recordings[down.session_id]
        while waiting and (recorded := waiting[0].recorded) is not None:
            self._send(self._monitors.fire(recorded, waiting.popleft().count))
        if not waiting:
            del self._recordings[down.session_id]

    def _send(self, notices: Iterable[Notice]) -> None:
        """Send notices; a client that is gone sets its monitors anew when it is back."""
        now_s = self.clock()
        for client, down, seq, after in notices:
            number = self._tally.add(client, now_s)
            if not self.send(client, Notify(down=down, seq=seq, after=after, number=number)):
                self._forget(client)

    def _forget(self, client: bytes) -> None:
        self._monitors.forget(client)
        self._tally.drop(client)

    def _make_room(self) -> None:
        """Forget the monitors of silent clients, now and then."""
        if len(self._monitors) >= self._sweep_at:
            since_s = self.clock() - CLIENT_SILENT_S
            for client in list(self._monitors.clients):
                if self._tally.is_silent(client, since_s):
                    self._forget(client)
            self._sweep_at = min(max(MONITORS_SWEEP_MIN, 2 * len(self._monitors)), MONITORS_MAX)
        if len(self._monitors) >= MONITORS_MAX:
            raise Overloaded(f"{MONITORS_MAX} monitors are set already")


def _on_hibernation_recorded(session_id: SessionId, writing: "asyncio.Future[DownSeq]") -> None:
    if not writing.cancelled() and (error := writing.exception()) is not None:
        log.error("hibernation.not_journaled", session_id=session_id, problem=str(error))


def _row(down: Down, body: bytes) -> DownRow:
    return DownRow(
        session_id=down.session_id,
        incarnation=down.incarnation,
        restarting=down.restarting,
        at_ms=down.at_ms,
        body=body,
    )


def _is_last(row: DownRow) -> bool:
    """Say whether it is the end of the session that has the id now."""
    return row.incarnation is not None and not row.restarting


def _down(row: DownRow) -> Down:
    found: Down = decode_as(Down, row.body)
    return found


def _last(
    session_id: SessionId, incarnation: Incarnation, reason: AnyReason, restarts: int = 0
) -> Down:
    """Return the notice of a session of which no end is recorded."""
    return Down(
        ref=NOBODY,
        session_id=session_id,
        reason=reason,
        incarnation=incarnation,
        restarting=False,
        restarts=restarts,
    )
