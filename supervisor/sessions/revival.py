"""A session that begins with a history: of a checkpoint, of another session, of another daemon.

What it begins with, events and checkpoints included, is one transaction of the journal: where the
daemon dies meanwhile, the id is as it was before.
"""

from dataclasses import dataclass, replace

from cmdc_runtime.errors import CheckpointNotFound, CheckpointUnreadable
from cmdc_runtime.ids import EventIndex, Incarnation, SessionId
from cmdc_runtime.process import RESUMED
from cmdc_runtime.reasons import AnyReason, Other
from cmdc_runtime.requests import Origin
from supervisor.adapters.journal.base import (
    BlobRow,
    CheckpointRow,
    EventRow,
    Past,
    SessionRow,
    checkpoint_problem,
)
from supervisor.adapters.journal.operations import (
    FindCheckpoint,
    FindLastIndex,
    ReadHistory,
    ReplayEvents,
)
from supervisor.adapters.journal.store import Journal
from supervisor.core.limits import INDEX_JUMP, REPLAY_BATCHES_MAX


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
        return Brought(replace(past, row=row, commands=()), holds_of=origin.session_id)
    answered = tuple(one for one in old.commands if one.answer is not None)
    again = replace(row, incarnation=old.row.incarnation, created_ms=old.row.created_ms)
    last = await journal.read(FindLastIndex(origin.session_id))
    return Brought(
        replace(past, row=again, commands=answered),
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
