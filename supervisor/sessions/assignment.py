"""What a session begins with, and what each process that works for it gets and needs.

A session's definition is in the journal as the request that started it. A session may begin with a
history: of a checkpoint, of another session, of another daemon. What it begins with, events and
checkpoints included, is one transaction of the journal: where the daemon dies meanwhile, the id is
as it was before.
"""

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog
from msgspec.structs import replace

from cmdc_runtime.errors import CheckpointNotFound, CheckpointUnreadable
from cmdc_runtime.ids import CommandId, EventIndex, Incarnation, SessionId
from cmdc_runtime.plain import short
from cmdc_runtime.process import RESUMED
from cmdc_runtime.reasons import AnyReason, Other
from cmdc_runtime.requests import Origin, StartSession
from cmdc_runtime.wire.codec import decode_as, encode
from cmdc_runtime.wire.frames import Assign, ToClient, ToWorker
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import (
    BlobRow,
    CheckpointRow,
    CommandRow,
    EventRow,
    Past,
    SessionRow,
    Stored,
    checkpoint_problem,
)
from supervisor.adapters.journal.operations import (
    BeginIncarnation,
    FindCheckpoint,
    FindLastIndex,
    LoadSession,
    ReadHistory,
    ReplayEvents,
)
from supervisor.adapters.journal.store import Journal
from supervisor.adapters.self_check import FlushBarrier
from supervisor.core.history import command_problem, delivery, hole_text, slices
from supervisor.core.limits import INDEX_JUMP, REPLAY_BATCHES_MAX
from supervisor.processes.pool import WorkerPool
from supervisor.sessions.pending import PendingCommands
from supervisor.sessions.server_hosts import ServerHosts
from supervisor.sessions.tree_runtime import TreeRuntime

# --- definitions ----------------------------------------------------------------------------------


def spec_bytes(spec: StartSession) -> bytes:
    """Return a session's definition as the journal keeps it."""
    return encode(spec)


def spec_of(data: bytes) -> StartSession:
    """Return the definition that ``spec_bytes`` made.

    Raises:
        ProtocolError: it is damaged, or of another program.
    """
    spec: StartSession = decode_as(StartSession, data)
    return spec


# --- histories ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Brought:
    """What a session begins with; ``last`` is its newest event index."""

    past: Past
    events: tuple[EventRow, ...] = ()
    last: EventIndex = EventIndex(0)
    incarnation: Incarnation = Incarnation(0)
    """The one that ended, 0 where there was none of this session."""
    reason: AnyReason = Other(detail=RESUMED)  # noqa: RUF009 - frozen
    checkpoints: tuple[CheckpointRow, ...] = ()
    blobs: tuple[BlobRow, ...] = ()
    holds_of: SessionId | None = None
    """Whose blobs it holds, too."""


async def brought_from(journal: Journal, origin: Origin, row: SessionRow) -> Brought:
    """Return what a session of ``row`` has from its origin.

    A fork begins anew, with the state and no word of how it came to it. A session that ended goes
    on: its incarnations, its events, and what it has answered. What it had not answered was refused
    when it ended.

    Raises:
        CheckpointNotFound: there is no such checkpoint.
        JournalFailed: it could not be read.
    """
    is_fork = origin.session_id != row.session_id
    old = await journal.read(ReadHistory(origin.session_id))
    past = await _past(journal, origin, row, old)
    if is_fork or old is None:
        return Brought(dataclasses.replace(past, row=row, commands=()), holds_of=origin.session_id)
    answered = tuple(one for one in old.commands if one.answer is not None)
    again = dataclasses.replace(row, incarnation=old.row.incarnation, created_ms=old.row.created_ms)
    last = await journal.read(FindLastIndex(origin.session_id))
    return Brought(
        dataclasses.replace(past, row=again, commands=answered),
        await all_events(journal, origin.session_id),
        EventIndex(last + INDEX_JUMP),
        old.row.incarnation,
    )


async def _past(journal: Journal, origin: Origin, row: SessionRow, old: Past | None) -> Past:
    if origin.checkpoint_id is None and old is not None:
        return old
    kept = await checkpoint_row(journal, origin.session_id, origin.checkpoint_id)
    # What was numbered before the checkpoint keeps its numbers.
    newest = 0
    if old is not None:
        records, commands = (row.seq for row in old.records), (row.seq for row in old.commands)
        newest = max((*records, *commands), default=old.snapshot_seq)
    return Past(row=row, snapshot=kept.body, records=(), commands=(), snapshot_seq=newest)


async def checkpoint_row(
    journal: Journal, session_id: SessionId, checkpoint_id: str | None
) -> CheckpointRow:
    """Return a checkpoint, or with None the newest.

    Raises:
        CheckpointNotFound: it is not there.
        CheckpointUnreadable: its row is damaged, so that there is no state.
    """
    row = await journal.read(FindCheckpoint(session_id, checkpoint_id))
    if row is None:
        which = "no checkpoint" if checkpoint_id is None else f"no checkpoint {checkpoint_id!r}"
        raise CheckpointNotFound(f"session {session_id} has {which}; list_checkpoints lists them")
    problem = checkpoint_problem(row)
    if problem is not None and not isinstance(row.body, bytes):
        raise CheckpointUnreadable(f"the checkpoint's row in the journal is damaged: {problem}")
    return row


async def all_events(journal: Journal, session_id: SessionId) -> tuple[EventRow, ...]:
    """Return all durable events that are kept of a session, oldest first."""
    found: list[EventRow] = []
    last = await journal.read(FindLastIndex(session_id))
    after = EventIndex(0)
    while after < last:
        rows = await journal.read(ReplayEvents(session_id, after, last, REPLAY_BATCHES_MAX))
        if not rows:
            break
        found += rows
        after = EventIndex(rows[-1].first + rows[-1].count - 1)
    return tuple(found)


# --- assignments ----------------------------------------------------------------------------------

log = structlog.get_logger()


class Services(Protocol):
    """What each process that works for a session needs of the rest of the daemon.

    ``Sessions`` is that. It is a protocol, since the module of that class imports this one.
    """

    runtime: TreeRuntime
    pool: WorkerPool
    hub: Hub
    journal: Journal
    flush_barrier: FlushBarrier
    server_hosts: ServerHosts
    is_leaving: bool
    state_dir: str
    """The folder for what outlives the daemon."""
    readers: asyncio.Semaphore
    """Places for processes that answer for sessions without one."""

    def answer(self, client: bytes, frame: ToClient | bytes) -> None:
        """Send one frame to one client."""


class SessionView(Protocol):
    """What each process that works for a session needs of it, be it alive or ended."""

    spec: StartSession
    incarnation: Incarnation
    restarts: int
    last_reason: AnyReason | None
    keys: Mapping[str, str]
    pending: PendingCommands

    @property
    def id(self) -> SessionId:
        """The session's id."""

    @property
    def set_aside(self) -> tuple[int, ...]:
        """The steps of rebuilding that are to be left out."""

    def reply(self, command_id: CommandId, frame: ToClient | bytes) -> None:
        """Answer a command or a question."""

    def reader_fell(self, step: int) -> bool:
        """Record the step of rebuilding that a reader died at; say whether to try again."""


async def assignment_frames(services: Services, session: SessionView) -> tuple[ToWorker, ...]:
    """Return the frames for the process of the current incarnation, in their order.

    From now on no earlier process of the session can write to the journal.

    Raises:
        CmdcError: the journal could not be read or written.
    """
    spec, assign = session.spec, _assign(services, session)
    stored = None
    if assign.incarnation > 1:
        await services.journal.write(
            BeginIncarnation(spec.session_id, assign.incarnation, assign.restarts)
        )
    if assign.incarnation > 1 or spec.origin is not None:
        stored = await _stored(services, spec)
    if stored is not None:
        _log_left_out(spec.session_id, stored.unanswered)
        if stored.missing:
            gone = ", ".join(map(hole_text, stored.missing))
            log.error("rows.missing", session_id=spec.session_id, seqs=gone)
    next_index = EventIndex(services.hub.taken_index(spec.session_id) + 1)
    return (replace(assign, next_index=next_index), *slices(stored))


async def reading(services: Services, session: SessionView) -> tuple[ToWorker, ...]:
    """Return the frames for a process that only answers how the session stands.

    Raises:
        CmdcError: the journal could not be read.
    """
    stored = await _stored(services, session.spec)
    return (replace(_assign(services, session), looks=True), *slices(stored))


async def _stored(services: Services, spec: StartSession) -> Stored | None:
    """Return what a session is rebuilt from.

    One that began with the history of another has rows of its own, of which none may be missing,
    only behind its second snapshot: that history may be without its commands.

    Raises:
        CmdcError: the journal could not be read.
    """
    stored = await services.journal.read(LoadSession(spec.session_id))
    if stored is None or spec.origin is None or stored.snapshots > 1:
        return stored
    return dataclasses.replace(stored, missing=())


def deliveries(session_id: SessionId, stored: Stored | None) -> Iterator[ToWorker]:
    """Return the frames that give a process what nobody has answered yet."""
    unanswered = () if stored is None else stored.unanswered
    _log_left_out(session_id, unanswered)
    return (delivery(one) for one in unanswered if command_problem(one) is None)


def _log_left_out(session_id: SessionId, commands: Iterable[CommandRow]) -> None:
    """Log which rows hold a command that can't be given to a process; they stay as they are."""
    for one in commands:
        if (problem := command_problem(one)) is not None:
            log.error(
                "command.set_aside", session_id=session_id, seq=short(one.seq), problem=problem
            )


def _assign(services: Services, session: SessionView) -> Assign:
    spec = session.spec
    return Assign(
        session_id=spec.session_id,
        incarnation=session.incarnation,
        restarts=session.restarts,
        next_index=EventIndex(services.hub.taken_index(spec.session_id) + 1),
        agent=spec.agent,
        parent_id=spec.parent_id,
        group_id=spec.group_id,
        last_reason=session.last_reason,
        unresponsive_after=spec.supervision.unresponsive_after,
        max_open_files=spec.supervision.max_open_files,
        set_aside=session.set_aside,
        is_contained=False,
        keys=dict(session.keys),
        state_dir=services.state_dir,
    )
