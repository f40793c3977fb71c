"""How a new daemon goes on with what an earlier one left: the order, and which process is kept.

Parents come before their subagents. A session whose agent lives, speaks this version of the wire
and is of the journal's incarnation keeps it: same process, same incarnation, the next event has the
next index. Of every other one the end is recorded first, and a new process takes its place; a
subagent gets none, since its parent's process is another one, too. A process that nobody goes on
with is ended before the one that takes its place is started.

A session that cannot be gone on with, whatever the reason, is parked: it hinders no other, and all
that is kept of it stays.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import CmdcError, UsageError
from cmdc_runtime.ids import EventIndex, Incarnation, SessionId
from cmdc_runtime.plain import SHOWN_CHARS_MAX, whole_problem
from cmdc_runtime.process import UNWATCHED
from cmdc_runtime.reasons import AnyReason, Other, Shutdown, Unkillable
from cmdc_runtime.requests import StartSession
from cmdc_runtime.wire.codec import encode
from supervisor.adapters.journal.base import JournalFull, SessionRow, row_problem
from supervisor.adapters.journal.operations import (
    EndSession,
    FindLastIndex,
    FindNewestDown,
    ListLiveSessions,
)
from supervisor.adapters.orphans import Survivor
from supervisor.core.limits import ADOPT_WAIT_S, ADOPTED_AT_ONCE_MAX, INDEX_JUMP
from supervisor.core.session_phase import Phase
from supervisor.core.session_tree import (
    PARENT_ENDED,
    check_session,
    own_ancestors,
    parks,
    session_path,
)
from supervisor.sessions.assignment import spec_of
from supervisor.sessions.session import Session
from supervisor.sessions.sessions import Sessions
from supervisor.sessions.start_attempt import Inherited, reject

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AdoptionResult:
    """What became of an earlier daemon's sessions."""

    resumed: int
    """Those that go on, with the process that they had or with a new one."""
    adopted: int
    """Those of them that keep their process."""


@dataclass(slots=True)
class Adoption:
    """One daemon's beginning; ``reason`` is why the processes that are gone ended."""

    sessions: Sessions
    survivors: Sequence[Survivor]
    reason: AnyReason
    _survivors: dict[SessionId, Survivor] = field(default_factory=dict)
    _adopted: list[Session] = field(default_factory=list)
    _unheard: list[Session] = field(default_factory=list)
    """Of these, who was not waited for yet: nobody is twice."""
    _stuck: dict[SessionId, Unkillable] = field(default_factory=dict)
    """Sessions with a process that SIGKILL does not end: no other takes its place."""
    _rejected: set[tuple[SessionId, int]] = field(default_factory=set)
    """Processes, by session and incarnation, that were there and were ended here."""
    _resumed: int = 0

    async def run(self) -> AdoptionResult:
        """Go on with all of them; return when those that were kept have called, or do not soon."""
        found = await self.sessions.journal.read(ListLiveSessions())
        rows = self._below_others([row for row in found if self._is_sound(row)])
        await self._match(rows)
        top = [row for row in rows if row.parent_id is None]
        below = [row for row in rows if row.parent_id is not None]
        await self._go_on(top)
        while below:
            await self._await_announced()
            above = {row.session_id for row in below}
            level = [row for row in below if row.parent_id not in above] or below
            below = [row for row in below if row not in level]
            await self._go_on(level)
        await self._await_announced()
        self.sessions.keyring.keep_only(self.sessions.ids)
        return AdoptionResult(self._resumed, sum(one.phase is Phase.UP for one in self._adopted))

    def _is_sound(self, row: SessionRow) -> bool:
        """Say whether a row can be worked with at all; else it is parked."""
        if (problem := row_problem(row)) is not None:
            self._park_damaged(row, problem)
        return problem is None

    def _below_others(self, rows: Sequence[SessionRow]) -> list[SessionRow]:
        """Return the rows but for those that are below themselves, which are parked."""
        above = {row.session_id: row.parent_id for row in rows if row.parent_id is not None}
        rings = own_ancestors(above)
        for row in rows:
            if row.session_id in rings:
                self._park_damaged(row, f"parent_id: {row.parent_id!r} is below the session itself")
        return [row for row in rows if row.session_id not in rings]

    def _park_damaged(self, row: SessionRow, problem: str) -> None:
        why = f"the journal's row of the session is damaged: {problem}"
        self.sessions.park(row, Other(detail=why))

    async def _match(self, rows: Iterable[SessionRow]) -> None:
        """Find out which agent is whose; the others are ended."""
        wanted = {row.session_id: row.incarnation for row in rows}
        strays = []
        for one in self.survivors:
            session_id = one.entry.session_id
            if one.speaks and wanted.get(session_id) == one.entry.incarnation:
                self._survivors[session_id] = one
            else:
                strays.append(one)
        await asyncio.gather(*(self._end(one) for one in strays))

    async def _end(self, survivor: Survivor) -> None:
        """End an agent that is not kept, with everything that it has started."""
        self._rejected.add((survivor.entry.session_id, survivor.entry.incarnation))
        stuck = await reject(self.sessions.pool, survivor)
        if stuck is not None:
            self._stuck[survivor.entry.session_id] = stuck

    async def _go_on(self, rows: Sequence[SessionRow]) -> None:
        for first in range(0, len(rows), ADOPTED_AT_ONCE_MAX):
            some = rows[first : first + ADOPTED_AT_ONCE_MAX]  # they share the journal's commits
            self._resumed += sum(await asyncio.gather(*(self._resume(row) for row in some)))

    async def _await_announced(self) -> None:
        """Wait for those that were kept to call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ADOPT_WAIT_S):
                for one in self._unheard:
                    await one.announced.wait()
        self._unheard.clear()

    async def _resume(self, row: SessionRow) -> bool:
        """Go on with one of them; False: it is over, or parked, whatever is wrong with it.

        Raises:
            JournalFailed: nothing can be read or written, of no session.
        """
        survivor = self._survivors.pop(row.session_id, None)
        try:
            spec = _own_spec(row)
            return await self._continue(row, spec, survivor)
        except Exception as error:
            if isinstance(error, JournalFull) or self.sessions.journal.health.has_failed:
                raise
            if not isinstance(error, CmdcError):
                log.exception("session.not_resumed", session_id=row.session_id)
            if survivor is not None:
                await self._end(survivor)
            self.sessions.park(row, Other(detail=f"{type(error).__name__}: {error}"))
            return False

    async def _continue(
        self, row: SessionRow, spec: StartSession, survivor: Survivor | None
    ) -> bool:
        parent = None if row.parent_id is None else self.sessions.live.get(row.parent_id)
        if survivor is not None and await self._may_keep(row, parent):
            self._adopt(row, spec, parent, survivor, await self._last_index(row))
            return True
        if survivor is not None:
            await self._end(survivor)
        return await self._start_anew(row, spec)

    async def _last_index(self, row: SessionRow) -> EventIndex:
        """Return the session's newest event index in the journal.

        Raises:
            UsageError: no session can have come so far.
        """
        last = await self.sessions.journal.read(FindLastIndex(row.session_id))
        if (problem := whole_problem(last, 0, INDEX_MAX - INDEX_JUMP)) is not None:
            raise UsageError(f"the journal's events of the session are damaged: index: {problem}")
        return last

    async def _may_keep(self, row: SessionRow, parent: Session | None) -> bool:
        """Say whether the agent's end is not recorded yet, and its parent was kept, too."""
        newest = await self.sessions.journal.read(FindNewestDown(row.session_id))
        if newest is not None and (newest.incarnation or 0) >= row.incarnation:
            return False
        if row.parent_id is None:
            return True
        return self._is_kept(parent)

    def _is_kept(self, session: Session | None) -> bool:
        """Say whether a session goes on in the process that it had."""
        return session is not None and session in self._adopted and session.phase is Phase.UP

    def _why_down(self, row: SessionRow) -> AnyReason:
        """Say why a session's process is gone: of a child, whether its parent's end was the cause.

        Whose process was there at the beginning of this daemon ended with the one before.
        """
        if (stuck := self._stuck.get(row.session_id)) is not None:
            return stuck
        if row.parent_id is None:
            return self.reason
        if not self._is_kept(self.sessions.live.get(row.parent_id)):
            return Shutdown(detail=PARENT_ENDED)
        is_here = (row.session_id, row.incarnation) in self._rejected
        return self.reason if is_here else Other(detail=UNWATCHED)

    def _adopt(
        self,
        row: SessionRow,
        spec: StartSession,
        parent: Session | None,
        survivor: Survivor,
        last: EventIndex,
    ) -> None:
        path = session_path(None if parent is None else parent.path, row.session_id)
        before = Incarnation(row.incarnation - 1)
        session = Session(self.sessions, spec, path, row.created_ms, before)
        session.inherited = Inherited(survivor, row.written)
        session.restarts, session.was_up = row.restarts, True
        if parent is not None:
            parent.children.add(session)
        self._begin(session, last)
        self._adopted.append(session)
        self._unheard.append(session)

    async def _start_anew(self, row: SessionRow, spec: StartSession) -> bool:
        sessions = self.sessions
        reason = self._why_down(row)
        goes_on = row.parent_id is None and row.session_id not in self._stuck
        last_down = await sessions.monitors.recover(row, reason, restarting=goes_on)
        if last_down is not None and parks(last_down.reason):
            sessions.park(row, last_down.reason)
            return False
        if last_down is not None:
            await sessions.journal.write(
                EndSession(row.session_id, encode(last_down.reason), now_ms())
            )
            return False
        path = session_path(None, row.session_id)
        session = Session(sessions, spec, path, row.created_ms, row.incarnation)
        session.restarts, session.was_up, session.last_reason = row.restarts + 1, True, reason
        self._begin(session, EventIndex(await self._last_index(row) + INDEX_JUMP))
        return True

    def _begin(self, session: Session, last: EventIndex) -> None:
        sessions = self.sessions
        session.keys = sessions.keyring.keys_of(session.id)
        sessions.live[session.id] = session
        sessions.hub.open_channel(session.id, session.spec.supervision.event_buffer_size, last)
        sessions.begin(session)


def _own_spec(row: SessionRow) -> StartSession:
    """Return a row's definition, whose names are those that the tree knows the session by.

    Raises:
        UsageError: it is another session's, which it would end or speak for, or it has another
            parent than the row: that one's end would be the session's.
        CmdcError: no session can be kept like that.
    """
    spec = spec_of(row.spec)
    problem = ""
    if spec.session_id != row.session_id:
        problem = f"spec: session_id: {_shown(spec.session_id)}, and the row is of another session"
    elif spec.parent_id != row.parent_id:
        problem = f"parent_id: {_shown(row.parent_id)}, and by its definition it has "
        problem += "none" if spec.parent_id is None else f"the parent {_shown(spec.parent_id)}"
    if problem:
        raise UsageError(f"the journal's row of the session is damaged: {problem}")
    check_session(spec)
    return spec


def _shown(session_id: SessionId | None) -> str:
    return "none" if session_id is None else repr(session_id[:SHOWN_CHARS_MAX])
