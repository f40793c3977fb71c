"""A journal over any store: each method hands one call of ``ledger.Ledger`` to the writer's thread.

``base.Journal`` says what the methods promise, docs/adr/0004 why one thread does it all.
"""

from asyncio import Future
from collections.abc import Sequence
from functools import partial

from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId
from cmdc_runtime.requests import PastPart
from supervisor.adapters.journal.base import (
    Accepted,
    CheckpointRow,
    DownRow,
    Duplicate,
    EventRow,
    Past,
    SessionRow,
    Stored,
)
from supervisor.adapters.journal.health import Health
from supervisor.adapters.journal.ledger import Ledger
from supervisor.adapters.journal.writer import GroupWriter
from supervisor.core.limits import JOURNAL_QUEUED_BYTES_MAX
from supervisor.core.storage import Need


class QueuedJournal:
    """A ``base.Journal`` whose operations wait in a queue for the one thread that has the store."""

    def __init__(self, store: Ledger, writer: GroupWriter) -> None:
        """Prepare; ``writer`` drives ``store``, and ``open`` starts it."""
        self._store = store
        self._writer = writer

    @property
    def health(self) -> Health:
        """How it stands."""
        return self._writer.health

    async def open(self) -> None:
        """Open the store, and bring an older one up to date."""
        await self._writer.open()

    async def close(self) -> None:
        """Finish what was called before, within ``JOURNAL_CLOSE_S``, and close the store."""
        await self._writer.close()

    def create(self, row: SessionRow) -> Future[None]:
        """Start a session; the history of an ended one with this id is deleted."""
        return self._writer.write(partial(self._store.create, row), len(row.spec), Need.NEW)

    def accept(
        self, session_id: SessionId, command_id: CommandId, body: bytes, at_ms: int
    ) -> Future[Accepted | Duplicate]:
        """Take a command once, however often it comes."""
        call = partial(self._store.accept, session_id, command_id, body, at_ms)
        known = partial(self._store.accepted, session_id, command_id)
        return self._writer.write(call, len(body), Need.NEW, known)

    def append(  # noqa: PLR0913 - what belongs together is written together
        self,
        session_id: SessionId,
        incarnation: Incarnation,
        records: Sequence[tuple[str, bytes]],
        answers: Sequence[tuple[CommandId, bytes]],
        *,
        number: int = 0,
        snapshot: bytes = b"",
        events: Sequence[EventRow] = (),
    ) -> Future[None]:
        """Add records as (kind, body), answers and the events that tell of them, or nothing."""
        call = partial(
            self._store.append,
            session_id,
            incarnation,
            records,
            answers,
            number=number,
            snapshot=snapshot,
            events=events,
        )
        size = len(snapshot) + sum(len(body) for _, body in (*records, *answers))
        size += sum(len(row.body) for row in events)
        return self._writer.write(call, size)

    def publish(
        self, session_id: SessionId, first: EventIndex, count: int, body: bytes
    ) -> Future[None]:
        """Keep a batch of durable events; the same batch again changes nothing."""
        call = partial(self._store.publish, session_id, first, count, body)
        return self._writer.write(call, len(body))

    def began(self, session_id: SessionId, incarnation: Incarnation, restarts: int) -> Future[None]:
        """Make ``incarnation`` the current one: earlier ones can write no more."""
        return self._writer.write(partial(self._store.began, session_id, incarnation, restarts), 0)

    def ended(self, session_id: SessionId, reason: bytes, at_ms: int) -> Future[None]:
        """Close the session's history; the first reason stays."""
        call = partial(self._store.ended, session_id, reason, at_ms)
        return self._writer.write(call, len(reason), Need.END)

    def note_down(self, row: DownRow) -> Future[DownSeq]:
        """Record an end and return its number; the first of (incarnation, restarting) stays."""
        return self._writer.write(partial(self._store.note_down, row), len(row.body), Need.END)

    def restore(
        self,
        past: Past,
        events: Sequence[EventRow] = (),
        checkpoints: Sequence[CheckpointRow] = (),
    ) -> Future[None]:
        """Create a live session from what another journal had of it, all of it or nothing."""
        size = len(past.row.spec) + len(past.snapshot)
        size += sum(len(row.body) for row in past.records)
        size += sum(len(row.body) + len(row.answer or b"") for row in past.commands)
        size += sum(len(row.body) for row in events) + sum(len(row.body) for row in checkpoints)
        # One that is larger than the queue may be still goes, alone.
        call = partial(self._store.restore, past, events, checkpoints)
        return self._writer.write(call, min(size, JOURNAL_QUEUED_BYTES_MAX), Need.NEW)

    def prune(self, before_ms: int, limit: int) -> Future[int]:
        """Delete sessions that ended before ``before_ms``, and return how many."""
        return self._writer.write(partial(self._store.prune, before_ms, limit), 0)

    def save_checkpoint(self, row: CheckpointRow) -> Future[None]:
        """Keep a checkpoint, in the place of one with the same id."""
        size = min(len(row.body) + len(row.metadata), JOURNAL_QUEUED_BYTES_MAX)
        return self._writer.write(partial(self._store.save_checkpoint, row), size, Need.NEW)

    def delete_checkpoint(self, session_id: SessionId, checkpoint_id: str | None) -> Future[None]:
        """Delete one checkpoint, or with None all of the session."""
        call = partial(self._store.delete_checkpoint, session_id, checkpoint_id)
        return self._writer.write(call, 0)

    def load(self, session_id: SessionId) -> Future[Stored | None]:
        """Return what the session is rebuilt from, or None when it was never there."""
        return self._writer.read(partial(self._store.load, session_id))

    def history(self, session_id: SessionId) -> Future[Past | None]:
        """Return all that is kept of a session, or None when it was never there."""
        return self._writer.read(partial(self._store.history, session_id))

    def past_part(self, session_id: SessionId, part: PastPart, after: int) -> Future[Past | None]:
        """Return of a past what one answer may have of it, and one row more where there is one."""
        return self._writer.read(partial(self._store.past_part, session_id, part, after))

    def alive(self) -> Future[list[SessionRow]]:
        """Return the sessions that have not ended, oldest first."""
        return self._writer.read(self._store.alive)

    def find(self, session_id: SessionId) -> Future[SessionRow | None]:
        """Return one session, ended or not, or None when it was never there."""
        return self._writer.read(partial(self._store.find, session_id))

    def replay(
        self,
        session_id: SessionId,
        after_index: EventIndex,
        through_index: EventIndex,
        limit: int,
    ) -> Future[list[EventRow]]:
        """Return batches with events after ``after_index`` up to ``through_index``."""
        call = partial(self._store.replay, session_id, after_index, through_index, limit)
        return self._writer.read(call)

    def last_index(self, session_id: SessionId) -> Future[EventIndex]:
        """Return the index of the last durable event, 0 when there is none."""
        return self._writer.read(partial(self._store.last_index, session_id))

    def answer(self, session_id: SessionId, command_id: CommandId) -> Future[bytes | None]:
        """Return the recorded answer to a command, or None."""
        return self._writer.read(partial(self._store.answer, session_id, command_id))

    def downs(self, session_id: SessionId, after: DownSeq, limit: int) -> Future[list[DownRow]]:
        """Return ends that somebody is told of, numbered after ``after``, oldest first."""
        return self._writer.read(partial(self._store.downs, session_id, after, limit))

    def newest_down(self, session_id: SessionId) -> Future[DownRow | None]:
        """Return the newest end, also one that nobody is told of, or None."""
        return self._writer.read(partial(self._store.newest_down, session_id))

    def checkpoints(self, session_id: SessionId) -> Future[list[CheckpointRow]]:
        """Return the checkpoints of a session without their bodies, last saved first."""
        return self._writer.read(partial(self._store.checkpoints, session_id))

    def checkpoint(
        self, session_id: SessionId, checkpoint_id: str | None
    ) -> Future[CheckpointRow | None]:
        """Return a checkpoint, or with None the last saved one."""
        return self._writer.read(partial(self._store.checkpoint, session_id, checkpoint_id))
