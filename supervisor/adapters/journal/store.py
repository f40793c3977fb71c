"""The SQLite file behind the journal, as the writer's thread sees it.

Every method but the constructor runs on that thread. An operation checks everything first and
writes then, so that a refusal has nothing to undo; ``base.Journal`` says what each one promises.
To add an operation, add it there, here, and as one method to ``sqlite.SqliteJournal``.
"""

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import structlog

from cmdc_runtime.errors import InvalidSession, SessionExists
from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId
from supervisor.adapters.endpoint import make_private
from supervisor.adapters.journal import downs
from supervisor.adapters.journal.base import (
    Accepted,
    CommandRow,
    DownRow,
    Duplicate,
    Durability,
    EventConflict,
    EventRow,
    JournalFailed,
    RecordRow,
    SessionEnded,
    SessionRow,
    StaleIncarnation,
    Stored,
)
from supervisor.adapters.journal.schema import check_file, migrate
from supervisor.core.limits import JOURNAL_LOCK_WAIT_S, JOURNAL_WAL_BYTES_MAX, REPLAY_BATCHES_MAX

log = structlog.get_logger(__name__)

JOURNAL_FILE: Final = "journal.sqlite3"

_SYNCHRONOUS: Final[dict[Durability, str]] = {"process": "NORMAL", "power": "FULL"}
_SESSION_COLUMNS: Final = tuple(field.name for field in fields(SessionRow))
_SESSION: Final = f"SELECT {', '.join(_SESSION_COLUMNS)} FROM sessions"  # noqa: S608 - our names
_SESSION_VALUES: Final = attrgetter(*_SESSION_COLUMNS)
# A batch that starts before the range may reach into it: start at the last one that does.
_REPLAY: Final = """
    SELECT first, count, body FROM events
    WHERE session_id = :session_id
      AND first >= coalesce((SELECT max(first) FROM events
                             WHERE session_id = :session_id AND first <= :after + 1), :after + 1)
      AND first <= :through AND first + count - 1 > :after
    ORDER BY first LIMIT :limit
"""


@dataclass(slots=True)
class _Head:
    """What the writer must know of a live session to check a write without a query."""

    incarnation: int
    seq: int


class SqliteStore:
    """The file, its open connection, and what is remembered of the live sessions."""

    def __init__(self, directory: Path, durability: Durability) -> None:
        """Prepare; ``open`` touches the disk."""
        self._path = directory / JOURNAL_FILE
        self._durability: Durability = durability
        self._connection: sqlite3.Connection | None = None
        self._heads: dict[SessionId, _Head] = {}  # live sessions only, so bounded by their number

    def open(self) -> None:
        """Make the directory and the file private, check the format, and open it."""
        make_private(self._path.parent)
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            self._path.chmod(0o600)
            check_file(self._path)
            self._connection = self._connect()
        except (OSError, sqlite3.Error) as error:
            raise JournalFailed(f"cannot open the journal {self._path}: {error}") from error

    def begin(self) -> None:
        """Begin a transaction; open the file again if a failure closed it."""
        if self._connection is None:
            self._connection = self._connect()
            log.info("journal.reopened")
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the transaction durable."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """Undo, and forget what the transaction had taught us.

        The connection stays: its view is that the frames of a failed commit are not there, and the
        next commit writes over them; a new one would find them in the file and take them for good.
        """
        self._heads.clear()
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.warning("journal.rollback_failed", error=str(error))
            self.close()

    def close(self) -> None:
        """Close the file; never raises."""
        self._heads.clear()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except sqlite3.Error as error:
            log.warning("journal.close_failed", error=str(error))

    def create(self, row: SessionRow) -> None:
        """Start a session."""
        old = self._db.execute(
            "SELECT ended_ms FROM sessions WHERE session_id = ?", (row.session_id,)
        ).fetchone()
        if old is not None:
            if old[0] is None:
                raise SessionExists(f"the session {row.session_id} is alive")
            for table in ("events", "records", "commands", "sessions"):
                self._db.execute(f"DELETE FROM {table} WHERE session_id = ?", (row.session_id,))  # noqa: S608 - our names
            downs.retire(self._db, row.session_id)
        self._db.execute(
            f"INSERT INTO sessions ({', '.join(_SESSION_COLUMNS)})"  # noqa: S608 - our names
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            _SESSION_VALUES(row),
        )

    def accept(
        self, session_id: SessionId, command_id: CommandId, body: bytes, at_ms: int
    ) -> Accepted | Duplicate:
        """Take a command once."""
        head = self._head(session_id)
        if head is not None:
            written = self._db.execute(
                "INSERT INTO commands VALUES (?, ?, ?, ?, ?, NULL)"
                " ON CONFLICT (session_id, command_id) DO NOTHING",
                (session_id, command_id, head.seq + 1, at_ms, body),
            )
            if written.rowcount == 1:
                head.seq += 1
                return Accepted(head.seq)
        # A client that asks again is answered even when the session has ended since.
        known = self._db.execute(
            "SELECT answer FROM commands WHERE session_id = ? AND command_id = ?",
            (session_id, command_id),
        ).fetchone()
        if known is not None:
            return Duplicate(known[0])
        self._check_known(session_id)
        raise SessionEnded(f"the session {session_id} is over")

    def append(
        self,
        session_id: SessionId,
        incarnation: Incarnation,
        records: Sequence[tuple[str, bytes]],
        answers: Sequence[tuple[CommandId, bytes]],
    ) -> None:
        """Add records and answers."""
        head = self._head(session_id)
        if head is None or head.incarnation != incarnation:
            current = f"incarnation {head.incarnation}" if head else "not alive"
            raise StaleIncarnation(
                f"incarnation {incarnation} of the session {session_id} may not write: "
                f"the session is {current}"
            )
        self._db.executemany(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?)",
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

    def publish(self, session_id: SessionId, first: EventIndex, count: int, body: bytes) -> None:
        """Keep a batch of events."""
        if self._head(session_id) is None:
            self._check_known(session_id)
        before = self._db.execute(
            "SELECT first, count, body FROM events WHERE session_id = ? AND first <= ?"
            " ORDER BY first DESC LIMIT 1",
            (session_id, first + count - 1),
        ).fetchone()
        if before == (first, count, body):
            return
        if before is not None and before[0] + before[1] > first:
            raise EventConflict(
                f"events {first} to {first + count - 1} of the session {session_id} overlap "
                f"those from {before[0]}"
            )
        self._db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (session_id, first, count, body))

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

    def ended(self, session_id: SessionId, reason: bytes, at_ms: int) -> None:
        """End a session."""
        if self._head(session_id) is None:
            self._check_known(session_id)
            return
        self._db.execute(
            "UPDATE sessions SET ended_ms = ?, reason = ? WHERE session_id = ?",
            (at_ms, reason, session_id),
        )
        del self._heads[session_id]

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

    def load(self, session_id: SessionId) -> Stored | None:
        """Return what a session is rebuilt from."""
        row = self.find(session_id)
        if row is None:
            return None
        records = self._db.execute(
            "SELECT seq, incarnation, kind, body FROM records WHERE session_id = ? ORDER BY seq",
            (session_id,),
        )
        commands = self._db.execute(
            "SELECT command_id, seq, at_ms, body FROM commands"
            " WHERE session_id = ? AND answer IS NULL ORDER BY seq",
            (session_id,),
        )
        return Stored(
            row=row,
            records=tuple(
                RecordRow(seq=seq, incarnation=incarnation, kind=kind, body=body)
                for seq, incarnation, kind, body in records
            ),
            unanswered=tuple(
                CommandRow(command_id=command_id, seq=seq, at_ms=at_ms, body=body)
                for command_id, seq, at_ms, body in commands
            ),
        )

    def alive(self) -> list[SessionRow]:
        """Return the live sessions, oldest first."""
        rows = self._db.execute(f"{_SESSION} WHERE ended_ms IS NULL ORDER BY created_ms, rowid")
        return [_session(*row) for row in rows]

    def find(self, session_id: SessionId) -> SessionRow | None:
        """Return one session."""
        row = self._db.execute(f"{_SESSION} WHERE session_id = ?", (session_id,)).fetchone()
        return None if row is None else _session(*row)

    def replay(
        self,
        session_id: SessionId,
        after_index: EventIndex,
        through_index: EventIndex,
        limit: int,
    ) -> list[EventRow]:
        """Return the batches of a range."""
        asked = {
            "session_id": session_id,
            "after": after_index,
            "through": through_index,
            "limit": max(0, min(limit, REPLAY_BATCHES_MAX)),
        }
        rows = self._db.execute(_REPLAY, asked)
        return [EventRow(first=first, count=count, body=body) for first, count, body in rows]

    def last_index(self, session_id: SessionId) -> EventIndex:
        """Return the index of the last event, or 0."""
        row = self._db.execute(
            "SELECT first + count - 1 FROM events WHERE session_id = ? ORDER BY first DESC LIMIT 1",
            (session_id,),
        ).fetchone()
        return EventIndex(0) if row is None else EventIndex(row[0])

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

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=JOURNAL_LOCK_WAIT_S, isolation_level=None, cached_statements=64
        )
        try:
            # Exclusive: a second daemon on the same file is refused, and no lock is taken per
            # transaction. The mode takes hold with the first write lock.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self._durability]}")
            connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_WAL_BYTES_MAX}")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
            migrate(connection, self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _head(self, session_id: SessionId) -> _Head | None:
        """Return the head of a live session, from memory if it is there; None: not alive."""
        head = self._heads.get(session_id)
        if head is not None:
            return head
        row = self._db.execute(
            "SELECT incarnation, max("
            " (SELECT coalesce(max(seq), 0) FROM records WHERE session_id = :id),"
            " (SELECT coalesce(max(seq), 0) FROM commands WHERE session_id = :id))"
            " FROM sessions WHERE session_id = :id AND ended_ms IS NULL",
            {"id": session_id},
        ).fetchone()
        if row is None:
            return None
        head = self._heads[session_id] = _Head(*row)
        return head

    def _check_known(self, session_id: SessionId) -> None:
        known = self._db.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,))
        if known.fetchone() is None:
            raise InvalidSession(f"there is no session {session_id}")


def _session(*row: Any) -> SessionRow:  # Any: what SQL returns, in the order of the columns
    return SessionRow(**dict(zip(_SESSION_COLUMNS, row, strict=True)))
