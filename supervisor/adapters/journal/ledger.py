"""The operations of a journal over a database, as the writer's thread sees them.

Every method runs on that thread. An operation checks everything first and writes then, so that a
refusal has nothing to undo; ``base.Journal`` says what each one promises. To add an operation, add
it there, here, and as one method to ``queued.QueuedJournal``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cmdc_runtime.errors import InvalidSession, SessionExists
from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId
from cmdc_runtime.requests import PastPart
from supervisor.adapters.journal import checkpoints, downs, marks, past, retention
from supervisor.adapters.journal.base import (
    Accepted,
    CheckpointRow,
    DownRow,
    Duplicate,
    EventConflict,
    EventRow,
    MissingWrite,
    Past,
    SessionEnded,
    SessionRow,
    StaleIncarnation,
    Stored,
)
from supervisor.adapters.journal.database import Database
from supervisor.adapters.journal.retention import Bounds
from supervisor.core.limits import REPLAY_BATCHES_MAX, REPLAY_BYTES_MAX
from supervisor.core.ring import filling

_HEAD: Final = """
    SELECT incarnation,
           (SELECT max(seq) FROM records WHERE session_id = :id),
           (SELECT max(seq) FROM commands WHERE session_id = :id),
           (SELECT max(seq) FROM snapshots WHERE session_id = :id),
           (SELECT written FROM marks WHERE session_id = :id),
           (SELECT count(*) FROM commands WHERE session_id = :id),
           (SELECT count(*) FROM events WHERE session_id = :id)
    FROM sessions WHERE session_id = :id AND ended_ms IS NULL
"""
# A batch that starts before the range may reach into it: start at the last one that does.
_IN_RANGE: Final = """
    FROM events WHERE session_id = :session_id
      AND first >= coalesce((SELECT max(first) FROM events
                             WHERE session_id = :session_id AND first <= :after + 1), :after + 1)
      AND first <= :through AND first + count - 1 > :after
    ORDER BY first LIMIT :limit
"""
_REPLAY_SIZES: Final = f"SELECT length(body) {_IN_RANGE}"
_REPLAY: Final = f"SELECT first, count, body {_IN_RANGE}"


@dataclass(slots=True)
class _Head:
    """What the writer must know of a live session to check a write without a query."""

    incarnation: int
    seq: int
    """The last one given, to a record or a command."""
    written: int
    commands: int
    """How many are kept."""
    events: int
    """How many batches are kept."""


class Ledger(ABC):
    """The operations, and what is remembered of the live sessions between two of them."""

    def __init__(self, bounds: Bounds) -> None:
        """Prepare; ``bounds`` say how much of a live session is kept."""
        self._bounds = bounds
        self._heads: dict[SessionId, _Head] = {}  # live sessions only, so bounded by their number

    @property
    @abstractmethod
    def _db(self) -> Database:
        """The open connection."""

    def create(self, row: SessionRow) -> None:
        """Start a session."""
        self._make_room(row.session_id)
        past.insert_session(self._db, row)

    def restore(
        self, found: Past, events: Sequence[EventRow], saved: Sequence[CheckpointRow]
    ) -> None:
        """Start a session with what another journal had of it."""
        self._make_room(found.row.session_id)
        past.insert_past(self._db, found)
        past.insert_events(self._db, found.row.session_id, events)
        for row in saved:
            checkpoints.save(self._db, row)

    def accept(
        self, session_id: SessionId, command_id: CommandId, body: bytes, at_ms: int
    ) -> Accepted | Duplicate:
        """Take a command once."""
        head = self._head(session_id)
        if head is not None:
            written = self._db.execute(
                "INSERT INTO commands (session_id, command_id, seq, at_ms, body, answer)"
                " VALUES (?, ?, ?, ?, ?, NULL)"
                " ON CONFLICT (session_id, command_id) DO NOTHING",
                (session_id, command_id, head.seq + 1, at_ms, body),
            )
            if written.rowcount == 1:
                head.seq += 1
                head.commands += 1
                return Accepted(head.seq)
        # A client that asks again is answered even when the session has ended since.
        known = self.accepted(session_id, command_id)
        if known is not None:
            return known
        self._check_known(session_id)
        raise SessionEnded(f"the session {session_id} is over")

    def accepted(self, session_id: SessionId, command_id: CommandId) -> Duplicate | None:
        """Return what has come of a command that was taken, None for one that was not."""
        known = self._db.execute(
            "SELECT answer FROM commands WHERE session_id = ? AND command_id = ?",
            (session_id, command_id),
        ).fetchone()
        return None if known is None else Duplicate(known[0])

    def append(  # noqa: PLR0913 - what belongs together is written together
        self,
        session_id: SessionId,
        incarnation: Incarnation,
        records: Sequence[tuple[str, bytes]],
        answers: Sequence[tuple[CommandId, bytes]],
        *,
        number: int,
        snapshot: bytes,
        events: Sequence[EventRow] = (),
    ) -> None:
        """Add records, answers, events and a snapshot."""
        head = self._head(session_id)
        if head is None or head.incarnation != incarnation:
            current = f"incarnation {head.incarnation}" if head else "not alive"
            raise StaleIncarnation(
                f"incarnation {incarnation} of the session {session_id} may not write: "
                f"the session is {current}"
            )
        if number > head.written + 1:
            raise MissingWrite(
                f"write {number} of the session {session_id} came before write {head.written + 1}: "
                "without it the history would have a hole"
            )
        fresh = [row for row in events if self._is_new(session_id, row)]
        self._keep(session_id, head, fresh)
        if 0 < number <= head.written:
            return
        self._db.executemany(
            "INSERT INTO records (session_id, seq, incarnation, kind, body) VALUES (?, ?, ?, ?, ?)",
            [
                (session_id, seq, incarnation, kind, body)
                for seq, (kind, body) in enumerate(records, head.seq + 1)
            ],
        )
        head.seq += len(records)
        self._db.executemany(
            "UPDATE commands SET answer = ?"
            " WHERE session_id = ? AND command_id = ? AND answer IS NULL",
            [(body, session_id, command_id) for command_id, body in answers],
        )
        if number:
            marks.set_written(self._db, session_id, number)
            head.written = number
        if snapshot:
            past.insert_snapshot(self._db, session_id, head.seq, snapshot)
            self._drop_old(session_id, head)

    def publish(self, session_id: SessionId, first: EventIndex, count: int, body: bytes) -> None:
        """Keep a batch of events."""
        head = self._head(session_id)
        if head is None:
            self._check_known(session_id)
        row = EventRow(first=first, count=count, body=body)
        if self._is_new(session_id, row):
            self._keep(session_id, head, [row])

    def _is_new(self, session_id: SessionId, row: EventRow) -> bool:
        """Say whether a batch is not there yet, and was not dropped; EventConflict for another."""
        last = row.first + row.count - 1
        before = self._db.execute(
            "SELECT first, count, body FROM events WHERE session_id = ? AND first <= ?"
            " ORDER BY first DESC LIMIT 1",
            (session_id, last),
        ).fetchone()
        if before == (row.first, row.count, row.body):
            return False
        # Only below the oldest batch that is kept may it be one that was dropped.
        forgotten = marks.forgotten(self._db, session_id) if before is None else 0
        if last <= forgotten:
            return False
        if row.first <= forgotten or (before is not None and before[0] + before[1] > row.first):
            raise EventConflict(
                f"events {row.first} to {last} of the session {session_id} overlap those "
                + (f"from {before[0]}" if before is not None else f"dropped up to {forgotten}")
            )
        return True

    def _keep(self, session_id: SessionId, head: _Head | None, rows: Sequence[EventRow]) -> None:
        past.insert_events(self._db, session_id, rows)
        if head is not None:
            head.events += len(rows)

    def began(self, session_id: SessionId, incarnation: Incarnation, restarts: int) -> None:
        """Make an incarnation the current one."""
        head = self._head(session_id)
        if head is None:
            self._check_known(session_id)
        if head is None or incarnation < head.incarnation:
            raise StaleIncarnation(
                f"incarnation {incarnation} of the session {session_id} cannot begin any more"
            )
        self._db.execute(
            "UPDATE sessions SET incarnation = ?, restarts = ? WHERE session_id = ?",
            (incarnation, restarts, session_id),
        )
        head.incarnation = incarnation
        if head.written:
            marks.set_written(self._db, session_id, 0)
            head.written = 0

    def ended(self, session_id: SessionId, reason: bytes, at_ms: int) -> None:
        """End a session."""
        ended = self._db.execute(  # without its head: damaged rows have none
            "UPDATE sessions SET ended_ms = ?, reason = ?"
            " WHERE session_id = ? AND ended_ms IS NULL",
            (at_ms, reason, session_id),
        )
        self._heads.pop(session_id, None)
        if not ended.rowcount:
            self._check_known(session_id)

    def note_down(self, row: DownRow) -> DownSeq:
        """Record an end."""
        head = self._head(row.session_id)
        if head is None:
            self._check_known(row.session_id)
        seq = downs.note(self._db, row)
        if head is not None and row.incarnation is not None and row.incarnation > head.incarnation:
            self._db.execute(
                "UPDATE sessions SET incarnation = ? WHERE session_id = ?",
                (row.incarnation, row.session_id),
            )
            head.incarnation = row.incarnation
        return seq

    def prune(self, before_ms: int, limit: int) -> int:
        """Delete sessions that ended before a time."""
        return retention.prune(self._db, before_ms, limit)

    def save_checkpoint(self, row: CheckpointRow) -> None:
        """Keep a checkpoint."""
        self._check_known(row.session_id)
        checkpoints.save(self._db, row)

    def delete_checkpoint(self, session_id: SessionId, checkpoint_id: str | None) -> None:
        """Delete one checkpoint, or all."""
        checkpoints.remove(self._db, session_id, checkpoint_id)

    def load(self, session_id: SessionId) -> Stored | None:
        """Return what a session is rebuilt from."""
        return past.load(self._db, session_id)

    def history(self, session_id: SessionId) -> Past | None:
        """Return all that is kept of a session but its events."""
        return past.history(self._db, session_id)

    def past_part(self, session_id: SessionId, part: PastPart, after: int) -> Past | None:
        """Return of a past what one answer may have of it, and one row more."""
        return past.part_of(self._db, session_id, part, after)

    def alive(self) -> list[SessionRow]:
        """Return the live sessions, oldest first."""
        return past.alive(self._db)

    def find(self, session_id: SessionId) -> SessionRow | None:
        """Return one session."""
        return past.find(self._db, session_id)

    def replay(
        self,
        session_id: SessionId,
        after_index: EventIndex,
        through_index: EventIndex,
        limit: int,
    ) -> list[EventRow]:
        """Return the batches of a range; how long they are is asked first, which reads no body.

        Otherwise each answer took all that was left: four readers of five batches of 7.2 MiB cost
        265 MiB, now 72; one reader of twenty 256 MiB.
        """
        asked = {
            "session_id": session_id,
            "after": after_index,
            "through": through_index,
            "limit": max(0, min(limit, REPLAY_BATCHES_MAX)),
        }
        sizes = (size for (size,) in self._db.execute(_REPLAY_SIZES, asked).fetchall())
        asked["limit"] = filling(sizes, REPLAY_BYTES_MAX)
        rows = self._db.execute(_REPLAY, asked).fetchall()
        return [EventRow(first=first, count=count, body=body) for first, count, body in rows]

    def last_index(self, session_id: SessionId) -> EventIndex:
        """Return the index of the last event, or 0."""
        row = self._db.execute(
            "SELECT first + count - 1 FROM events WHERE session_id = ? ORDER BY first DESC LIMIT 1",
            (session_id,),
        ).fetchone()
        return EventIndex(0 if row is None else row[0])

    def answer(self, session_id: SessionId, command_id: CommandId) -> bytes | None:
        """Return the answer to a command."""
        row: tuple[bytes | None] | None = self._db.execute(
            "SELECT answer FROM commands WHERE session_id = ? AND command_id = ?",
            (session_id, command_id),
        ).fetchone()
        return None if row is None else row[0]

    def downs(self, session_id: SessionId, after: DownSeq, limit: int) -> list[DownRow]:
        """Return the ends that somebody is told of."""
        return downs.told(self._db, session_id, after, limit)

    def newest_down(self, session_id: SessionId) -> DownRow | None:
        """Return the newest end."""
        return downs.newest(self._db, session_id)

    def checkpoints(self, session_id: SessionId) -> list[CheckpointRow]:
        """Return the checkpoints of a session without their bodies, last saved first."""
        return checkpoints.listed(self._db, session_id)

    def checkpoint(self, session_id: SessionId, checkpoint_id: str | None) -> CheckpointRow | None:
        """Return one checkpoint, or the last saved."""
        return checkpoints.one(self._db, session_id, checkpoint_id)

    def _head(self, session_id: SessionId) -> _Head | None:
        """Return the head of a live session, from memory if it is there; None: not alive."""
        head = self._heads.get(session_id)
        if head is not None:
            return head
        row = self._db.execute(_HEAD, {"id": session_id}).fetchone()
        if row is None:
            return None
        incarnation, *seqs, written, commands, events = row
        last = max(seq or 0 for seq in seqs)
        head = _Head(incarnation, last, written or 0, commands, events)
        self._heads[session_id] = head
        return head

    def _drop_old(self, session_id: SessionId, head: _Head) -> None:
        """Bound what is kept of a session that has just written a snapshot."""
        retention.drop_records(self._db, session_id)
        if self._bounds.too_many_commands(head.commands):
            head.commands = retention.drop_commands(self._db, session_id, self._bounds.commands)
        if self._bounds.too_many_events(head.events):
            retention.drop_events(self._db, session_id, self._bounds.events)
            head.events = self._bounds.events

    def _make_room(self, session_id: SessionId) -> None:
        """Delete an ended session, whose id is to be used again."""
        old = self._db.execute(
            "SELECT ended_ms FROM sessions WHERE session_id = ?", (session_id,)
        ).fetchone()
        if old is None:
            return
        if old[0] is None:
            raise SessionExists(f"the session {session_id} is alive")
        retention.delete_history(self._db, session_id)
        downs.retire(self._db, session_id)

    def _check_known(self, session_id: SessionId) -> None:
        known = self._db.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,))
        if known.fetchone() is None:
            raise InvalidSession(f"there is no session {session_id}")
