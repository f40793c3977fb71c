"""A store over a SQL database: each operation is carried out by its statements.

``WRITES`` has the function of each write over a ``Database`` and the live heads. A write checks
everything first and changes then, so that a refusal has nothing to undo; ``operations`` says what
each one promises. To add one, add its class there and its row here. ``Heads`` are what the writer's
thread remembers of the live sessions, to check a write without a query.

The table ``marks`` has what a session's row is too large for, two numbers that change often:
``written``, the number of the last write of the current incarnation, and ``forgotten``, the index
of the last event that was dropped. A session without a row there has 0 for both.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.errors import InvalidPart, InvalidSession, SessionExists
from cmdc_runtime.ids import DownSeq, EventIndex, SessionId
from cmdc_runtime.message_parts import SESSION_PARTS_BYTES_MAX, SESSION_PARTS_MAX
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.base import (
    Accepted,
    BlobRow,
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
)
from supervisor.adapters.journal.operations import (
    AcceptCommand,
    AppendRecords,
    BeginIncarnation,
    CreateSession,
    DeleteCheckpoint,
    EndSession,
    KeepBlob,
    Operation,
    PruneSessions,
    PublishEvents,
    Query,
    RecordDown,
    RestoreSession,
    SaveCheckpoint,
    Write,
)
from supervisor.adapters.journal.schema import Bounds, Database
from supervisor.adapters.journal.sql_reads import (
    CHECKPOINT,
    COMMAND,
    DOWN,
    READS,
    RECORD,
    SESSION,
    find_command,
)
from supervisor.adapters.journal.store import Store
from supervisor.core.limits import DOWNS_KEPT_MAX

# --- heads ----------------------------------------------------------------------------------------

_HEAD: Final = """
    SELECT incarnation,
           (SELECT max(seq) FROM records WHERE session_id = :id AND seq <= :high),
           (SELECT max(seq) FROM commands WHERE session_id = :id AND seq <= :high),
           (SELECT max(seq) FROM snapshots WHERE session_id = :id AND seq <= :high),
           (SELECT written FROM marks WHERE session_id = :id),
           (SELECT count(*) FROM commands WHERE session_id = :id),
           (SELECT count(*) FROM events WHERE session_id = :id)
    FROM sessions WHERE session_id = :id AND ended_ms IS NULL
"""
# What is no number, in a file that somebody has edited, is above every number for SQLite.


@dataclass(slots=True)
class Head:
    """The newest of one live session."""

    incarnation: int
    seq: int
    """The last one given, to a record or a command."""
    written: int
    """The number of the last write of the incarnation."""
    commands: int
    """How many are kept."""
    events: int
    """How many batches are kept."""


class Heads:
    """The heads of live sessions only, so bounded by their number; read again when forgotten."""

    def __init__(self, bounds: Bounds) -> None:
        """Prepare; ``bounds`` say how much of a live session is kept."""
        self.bounds = bounds
        self._by_id: dict[SessionId, Head] = {}

    def of(self, db: Database, session_id: SessionId) -> Head | None:
        """Return the head of a live session, from memory if it is there; None: not alive."""
        head = self._by_id.get(session_id)
        if head is not None:
            return head
        row = db.execute(_HEAD, {"id": session_id, "high": INDEX_MAX}).fetchone()
        if row is None:
            return None
        incarnation, *seqs, written, commands, events = row
        last = max(seq or 0 for seq in seqs)
        head = Head(incarnation, last, written or 0, commands, events)
        self._by_id[session_id] = head
        return head

    def forget(self, session_id: SessionId | None = None) -> None:
        """Forget one session, or with None all: what they were may have been undone."""
        if session_id is None:
            self._by_id.clear()
        else:
            self._by_id.pop(session_id, None)


# --- statements -----------------------------------------------------------------------------------

_INSERT_COMMAND: Final = """
    INSERT INTO commands (session_id, command_id, seq, at_ms, body, answer)
    VALUES (?, ?, ?, ?, ?, NULL)
    ON CONFLICT (session_id, command_id) DO NOTHING
"""
_INSERT_RECORD: Final = (
    "INSERT INTO records (session_id, seq, incarnation, kind, body) VALUES (?, ?, ?, ?, ?)"
)
_SET_ANSWER: Final = (
    "UPDATE commands SET answer = ? WHERE session_id = ? AND command_id = ? AND answer IS NULL"
)
_SET_WRITTEN: Final = """
    INSERT INTO marks (session_id, written, forgotten) VALUES (?, ?, 0)
    ON CONFLICT (session_id) DO UPDATE SET written = excluded.written
"""
_SET_FORGOTTEN: Final = """
    INSERT INTO marks (session_id, written, forgotten) VALUES (?, 0, ?)
    ON CONFLICT (session_id) DO UPDATE SET forgotten = excluded.forgotten
"""
# Of two after the same record the later one stays.
_SET_SNAPSHOT: Final = """
    INSERT INTO snapshots (session_id, seq, body) VALUES (?, ?, ?)
    ON CONFLICT (session_id, seq) DO UPDATE SET body = excluded.body
"""
_INSERT_DOWN: Final = """
    INSERT INTO downs (seq, session_id, incarnation, restarting, at_ms, body)
    VALUES (:seq, :session_id, :incarnation, :restarting, :at_ms, :body)
    ON CONFLICT (session_id, incarnation, restarting) DO NOTHING
"""
_KNOWN_DOWN: Final = """
    SELECT seq FROM downs
    WHERE session_id = :session_id AND incarnation = :incarnation AND restarting = :restarting
"""
_RENUMBER_DOWN: Final = """
    UPDATE downs SET seq = :seq
    WHERE session_id = :session_id AND incarnation = :incarnation AND restarting = :restarting
"""
_LAST_DOWNS: Final = """
    SELECT (SELECT max(seq) FROM downs WHERE seq <= :counted),
           (SELECT max(seq) FROM downs WHERE session_id = :session_id AND seq < :high)
"""
_COUNTED_MAX: Final = INDEX_MAX // 2
"""Of the ends of all sessions; far beyond every time, and as far below what a number may be."""
# The first number from ``seq`` on that is free: behind one that is taken, unless it is that itself.
_FREE_DOWN: Final = """
    SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM downs WHERE seq = :seq) THEN :seq
    ELSE (SELECT min(seq) + 1 FROM downs AS taken WHERE seq >= :seq AND seq < :high
          AND NOT EXISTS (SELECT 1 FROM downs WHERE downs.seq = taken.seq + 1)) END
"""
# A session that hibernates often must not push out the ends that somebody is to be notified of.
_DROP_DOWNS: Final = """
    DELETE FROM downs
    WHERE session_id = :session_id AND seq < :seq
      AND (length(body) = 0 OR seq <= (SELECT seq FROM downs WHERE session_id = :session_id
                                 ORDER BY seq DESC LIMIT 1 OFFSET :kept))
"""
_INSERT_BLOB: Final = """
    INSERT INTO blobs (digest, body) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING
"""
_INSERT_HOLD: Final = """
    INSERT INTO holds (session_id, digest, size) VALUES (?, ?, ?)
    ON CONFLICT (session_id, digest) DO NOTHING
"""
_SHARE_BLOBS: Final = """
    INSERT INTO holds (session_id, digest, size)
    SELECT ?, digest, size FROM holds WHERE session_id = ?
    ON CONFLICT (session_id, digest) DO NOTHING
"""
_HELD: Final = "SELECT count(*), coalesce(sum(size), 0) FROM holds WHERE session_id = ?"
_SESSION_VALUES: Final = attrgetter(*SESSION)
_CHECKPOINT_VALUES: Final = attrgetter(*CHECKPOINT)


# --- sessions -------------------------------------------------------------------------------------


def create(db: Database, _heads: Heads, write: CreateSession) -> None:
    """Start a session."""
    session_id = write.row.session_id
    if _make_room(db, session_id) and not _has_checkpoints(db, session_id):
        schema.drop_holds(db, session_id)
    _insert_session(db, write.row)


def restore(db: Database, _heads: Heads, write: RestoreSession) -> None:
    """Start a session with what another journal had of it."""
    _make_room(db, write.session_id)
    _insert_past(db, write.past)
    _insert_events(db, write.session_id, None, write.events)
    for row in write.checkpoints:
        _insert_checkpoint(db, row)
    for blob in write.blobs:
        _insert_blob(db, write.session_id, blob)
    db.execute(_SHARE_BLOBS, (write.session_id, write.holds_of))


def begin_incarnation(db: Database, heads: Heads, write: BeginIncarnation) -> None:
    """Make an incarnation the current one."""
    session_id, incarnation = write.session_id, write.incarnation
    head = heads.of(db, session_id)
    if head is None:
        _check_known(db, session_id)
    if head is None or incarnation < head.incarnation:
        raise StaleIncarnation(
            f"incarnation {incarnation} of the session {session_id} cannot begin any more"
        )
    db.execute(
        "UPDATE sessions SET incarnation = ?, restarts = ? WHERE session_id = ?",
        (incarnation, write.restarts, session_id),
    )
    head.incarnation = incarnation
    if head.written:
        db.execute(_SET_WRITTEN, (session_id, 0))
        head.written = 0


def end_session(db: Database, heads: Heads, write: EndSession) -> None:
    """End a session."""
    # Without its head: damaged rows have none.
    has_ended = schema.end(db, write.session_id, write.at_ms, write.reason)
    heads.forget(write.session_id)
    if not has_ended:
        _check_known(db, write.session_id)


def prune(db: Database, _heads: Heads, write: PruneSessions) -> int:
    """Delete sessions that ended before a time."""
    return schema.prune(db, write.before_ms, write.limit)


def _check_known(db: Database, session_id: SessionId) -> None:
    known = db.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,))
    if known.fetchone() is None:
        raise InvalidSession(f"there is no session {session_id}")


def _make_room(db: Database, session_id: SessionId) -> bool:
    """Delete an ended session, whose id is to be used again; say whether there was one."""
    is_alive = f"SELECT ended_ms IS NULL OR {schema.IS_DAMAGED_END} FROM sessions"  # noqa: S608 - our names
    old = db.execute(f"{is_alive} WHERE session_id = ?", (session_id,)).fetchone()
    if old is None:
        return False
    if old[0]:
        raise SessionExists(f"the session {session_id} is alive")
    schema.delete_history(db, session_id)
    db.execute("UPDATE downs SET incarnation = NULL WHERE session_id = ?", (session_id,))
    return True


def _has_checkpoints(db: Database, session_id: SessionId) -> bool:
    found = db.execute("SELECT 1 FROM checkpoints WHERE session_id = ? LIMIT 1", (session_id,))
    return found.fetchone() is not None


def _insert_session(db: Database, row: SessionRow) -> None:
    db.execute(
        f"INSERT INTO sessions ({', '.join(SESSION)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
        _SESSION_VALUES(row),
    )
    if row.written:
        db.execute(_SET_WRITTEN, (row.session_id, row.written))


def _insert_past(db: Database, past: Past) -> None:
    session_id = past.row.session_id
    _insert_session(db, replace(past.row, ended_ms=None, reason=None))
    if past.snapshot:
        db.execute(_SET_SNAPSHOT, (session_id, past.snapshot_seq, past.snapshot))
    db.executemany(
        f"INSERT INTO records (session_id, {', '.join(RECORD)}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - our names
        [(session_id, *(getattr(row, name) for name in RECORD)) for row in past.records],
    )
    db.executemany(
        f"INSERT INTO commands (session_id, {', '.join(COMMAND)}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
        [(session_id, *(getattr(row, name) for name in COMMAND)) for row in past.commands],
    )


# --- commands, records and events -----------------------------------------------------------------


def accept(db: Database, heads: Heads, write: AcceptCommand) -> Accepted | Duplicate:
    """Accept a command once."""
    session_id = write.session_id
    head = heads.of(db, session_id)
    if head is not None:
        seq = head.seq + 1
        written = db.execute(
            _INSERT_COMMAND, (session_id, write.command_id, seq, write.at_ms, write.body)
        )
        if written.rowcount == 1:
            head.seq = seq
            head.commands += 1
            return Accepted(seq)
    # A client that asks again is answered even when the session has ended since.
    known = find_command(db, write.known)
    if known is not None:
        return known
    _check_known(db, session_id)
    raise SessionEnded(f"the session {session_id} is over")


def append(db: Database, heads: Heads, write: AppendRecords) -> None:
    """Add records, answers, events and a snapshot."""
    session_id, number = write.session_id, write.number
    head = _current(db, heads, write)
    if number > head.written + 1:
        raise MissingWrite(
            f"write {number} of the session {session_id} came before write {head.written + 1}: "
            "without it the history would have a hole"
        )
    fresh = [row for row in write.events if _is_new(db, session_id, row)]
    _insert_events(db, session_id, head, fresh)
    if 0 < number <= head.written:
        return
    db.executemany(
        _INSERT_RECORD,
        [
            (session_id, seq, write.incarnation, kind, body)
            for seq, (kind, body) in enumerate(write.records, head.seq + 1)
        ],
    )
    head.seq += len(write.records)
    db.executemany(
        _SET_ANSWER, [(body, session_id, command_id) for command_id, body in write.answers]
    )
    if number:
        db.execute(_SET_WRITTEN, (session_id, number))
        head.written = number
    if write.snapshot:
        db.execute(_SET_SNAPSHOT, (session_id, head.seq, write.snapshot))
        _drop_old(db, session_id, head, heads.bounds)


def _current(db: Database, heads: Heads, write: AppendRecords) -> Head:
    """Return the head of the incarnation that writes, or refuse one that is not current."""
    head = heads.of(db, write.session_id)
    if head is None or head.incarnation != write.incarnation:
        current = f"incarnation {head.incarnation}" if head else "not alive"
        raise StaleIncarnation(
            f"incarnation {write.incarnation} of the session {write.session_id} may not write: "
            f"the session is {current}"
        )
    return head


def publish(db: Database, heads: Heads, write: PublishEvents) -> None:
    """Keep a batch of events."""
    head = heads.of(db, write.session_id)
    if head is None:
        _check_known(db, write.session_id)
    row = EventRow(first=write.first, count=write.count, body=write.body)
    if _is_new(db, write.session_id, row):
        _insert_events(db, write.session_id, head, [row])


def _is_new(db: Database, session_id: SessionId, row: EventRow) -> bool:
    """Say whether a batch is not there yet, and was not dropped; EventConflict for another."""
    last = row.first + row.count - 1
    before = db.execute(
        "SELECT first, count, body FROM events WHERE session_id = ? AND first <= ?"
        " ORDER BY first DESC LIMIT 1",
        (session_id, last),
    ).fetchone()
    if before == (row.first, row.count, row.body):
        return False
    # Only below the oldest batch that is kept may it be one that was dropped.
    forgotten = _forgotten(db, session_id) if before is None else 0
    if last <= forgotten:
        return False
    if row.first <= forgotten or (before is not None and before[0] + before[1] > row.first):
        raise EventConflict(
            f"events {row.first} to {last} of the session {session_id} overlap those "
            + (f"from {before[0]}" if before is not None else f"dropped up to {forgotten}")
        )
    return True


def _forgotten(db: Database, session_id: SessionId) -> EventIndex:
    row = db.execute("SELECT forgotten FROM marks WHERE session_id = ?", (session_id,)).fetchone()
    return EventIndex(0 if row is None else row[0])


def _insert_events(
    db: Database, session_id: SessionId, head: Head | None, rows: Sequence[EventRow]
) -> None:
    db.executemany(
        "INSERT INTO events (session_id, first, count, body) VALUES (?, ?, ?, ?)",
        [(session_id, row.first, row.count, row.body) for row in rows],
    )
    if head is not None:
        head.events += len(rows)


def _drop_old(db: Database, session_id: SessionId, head: Head, bounds: schema.Bounds) -> None:
    """Bound what is kept of a session that has just written a snapshot."""
    schema.drop_records(db, session_id)
    if bounds.too_many_commands(head.commands):
        head.commands = schema.drop_commands(db, session_id, bounds.commands)
    if bounds.too_many_events(head.events):
        last = schema.drop_events(db, session_id, bounds.events)
        if last is not None:
            db.execute(_SET_FORGOTTEN, (session_id, last))
        head.events = bounds.events


# --- ends and checkpoints -------------------------------------------------------------------------


def record_down(db: Database, heads: Heads, write: RecordDown) -> DownSeq:
    """Record an end, and return its number or that of the one that was there first.

    The number of an end is the time in milliseconds, or one more than the last: in a new file too,
    numbers are larger than those that a client remembers of another. One that is far beyond all
    times is of a damaged row, and counts for no session but its own. The ends of an ended session
    whose id is used again lose their incarnation, and with it their place among those of the new
    one.
    """
    row = write.row
    head = heads.of(db, row.session_id)
    if head is None:
        _check_known(db, row.session_id)
    seq = _insert_down(db, write)
    if head is not None and row.incarnation is not None and row.incarnation > head.incarnation:
        db.execute(
            "UPDATE sessions SET incarnation = ? WHERE session_id = ?",
            (row.incarnation, row.session_id),
        )
        head.incarnation = row.incarnation
    return seq


def _insert_down(db: Database, write: RecordDown) -> DownSeq:
    row = write.row
    given = {name: getattr(row, name) for name in DOWN}
    given |= {"seq": _next_down(db, row), "restarting": int(row.restarting)}
    if db.execute(_INSERT_DOWN, given).rowcount == 0:
        known: tuple[DownSeq] = db.execute(_KNOWN_DOWN, given).fetchone()
        if 0 <= known[0] <= INDEX_MAX:
            return known[0]
        db.execute(_RENUMBER_DOWN, given)
        return DownSeq(given["seq"])
    db.execute(
        _DROP_DOWNS,
        {"session_id": row.session_id, "seq": given["seq"], "kept": DOWNS_KEPT_MAX},
    )
    return DownSeq(given["seq"])


def _next_down(db: Database, row: DownRow) -> DownSeq:
    """Return the number of a new end: larger than those of its session, and of nobody else's."""
    bounds = {"session_id": row.session_id, "high": INDEX_MAX}
    lasts = db.execute(_LAST_DOWNS, bounds | {"counted": _COUNTED_MAX}).fetchone()
    last, own = (found or 0 for found in lasts)
    lowest = max(row.at_ms, 1 + last)
    free: tuple[int | None] = (None,)
    for first in (max(lowest, 1 + own), lowest):  # without its own, where those have come to an end
        free = db.execute(_FREE_DOWN, {"seq": first, "high": INDEX_MAX}).fetchone()
        if free[0] is not None:
            break
    return DownSeq(free[0] or lowest)


def save_checkpoint(db: Database, _heads: Heads, write: SaveCheckpoint) -> None:
    """Keep a checkpoint."""
    _check_known(db, write.row.session_id)
    _insert_checkpoint(db, write.row)


def delete_checkpoint(db: Database, _heads: Heads, write: DeleteCheckpoint) -> None:
    """Delete one checkpoint, or all of a session."""
    if write.checkpoint_id is None:
        db.execute("DELETE FROM checkpoints WHERE session_id = ?", (write.session_id,))
    else:
        _delete_checkpoint(db, write.session_id, write.checkpoint_id)


def _insert_checkpoint(db: Database, row: CheckpointRow) -> None:
    _delete_checkpoint(db, row.session_id, row.checkpoint_id)
    db.execute(
        f"INSERT INTO checkpoints ({', '.join(CHECKPOINT)}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
        _CHECKPOINT_VALUES(row),
    )


def _delete_checkpoint(db: Database, session_id: SessionId, checkpoint_id: str) -> None:
    db.execute(
        "DELETE FROM checkpoints WHERE session_id = ? AND checkpoint_id = ?",
        (session_id, checkpoint_id),
    )


# --- blobs ----------------------------------------------------------------------------------------


def keep_blob(db: Database, _heads: Heads, write: KeepBlob) -> None:
    """Keep a blob, if the session has room for it."""
    session_id, blob = write.session_id, write.blob
    _check_known(db, session_id)
    held = "SELECT 1 FROM holds WHERE session_id = ? AND digest = ?"
    if db.execute(held, (session_id, blob.digest)).fetchone() is not None:
        return
    count, size = map(int, db.execute(_HELD, (session_id,)).fetchone())
    if count >= SESSION_PARTS_MAX or size + len(blob.body) > SESSION_PARTS_BYTES_MAX:
        raise InvalidPart(
            f"session {session_id} keeps {count:,} images and files of {size:,} bytes, at most"
            f" {SESSION_PARTS_MAX:,} of {SESSION_PARTS_BYTES_MAX:,} are kept: give an address, let"
            " a tool read it, or start another session"
        )
    _insert_blob(db, session_id, blob)


def _insert_blob(db: Database, session_id: SessionId, blob: BlobRow) -> None:
    db.execute(_INSERT_BLOB, (blob.digest, blob.body))
    db.execute(_INSERT_HOLD, (session_id, blob.digest, len(blob.body)))


# --- the store ------------------------------------------------------------------------------------

Carry: TypeAlias = Callable[[Database, Heads, Any], Any]  # Any: the write of its row, its result

WRITES: Final[Mapping[type[Write[Any]], Carry]] = {
    CreateSession: create,
    AcceptCommand: accept,
    AppendRecords: append,
    BeginIncarnation: begin_incarnation,
    EndSession: end_session,
    RestoreSession: restore,
    PruneSessions: prune,
    PublishEvents: publish,
    RecordDown: record_down,
    SaveCheckpoint: save_checkpoint,
    DeleteCheckpoint: delete_checkpoint,
    KeepBlob: keep_blob,
}


T = TypeVar("T")


class SqlStore(Store):
    """The operations over ``db``, and what is remembered of the live sessions between two of them.

    A backend adds how a connection is made, and how a transaction begins and ends; where one is
    undone, and where the store is closed, ``heads`` forget.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        """Prepare; ``bounds`` say how much of a live session is kept."""
        self.heads = Heads(bounds or Bounds())

    @property
    @abstractmethod
    def db(self) -> Database:
        """The open connection."""

    def perform(self, operation: Operation[T]) -> T:
        """Carry out one operation, by its row of ``READS`` or ``WRITES``."""
        found: Any  # the tables say what each operation returns, which no type can
        if isinstance(operation, Query):
            found = READS[type(operation)](self.db, operation)
        else:
            found = WRITES[type(operation)](self.db, self.heads, operation)
        return found  # type: ignore[no-any-return]
