"""The tables of a journal: what is asked of a database, how they migrate, and what goes from them.

Statements are SQL that SQLite and PostgreSQL both take, with values as ``?`` or ``:name``, and no
question mark or colon for anything else. ``sqlite3.Connection`` is a ``Database`` as it is.

``PRAGMA user_version`` counts the steps of ``MIGRATIONS`` that a SQLite file has behind it. A step
that was released is never edited: to change a table, add a step at the end and an ADR.
``application_id`` marks the file as ours, so that no other database is ever written to. The rows of
a session hang on ``session_id`` alone, and bodies are opaque. Blobs alone are shared: ``holds``
has which session holds which.

What goes, and when, ``operations`` has the rules of. A live session's tables are bounded when a
snapshot is written: the state is then in one row, and what led to it is of use only for a way back,
for late duplicates and for late readers. An ended session goes as a whole. Whether one has ended
cannot be said of a damaged ``ended_ms``: such a session is neither gone on with nor deleted.
"""

import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from cmdc_runtime.checked_struct import TIME_MS_MAX
from cmdc_runtime.ids import SessionId
from supervisor.adapters.journal.base import JournalRefused
from supervisor.core.limits import COMMANDS_KEPT, EVENTS_KEPT, PRUNED_MAX, SNAPSHOTS_KEPT

# --- the database ---------------------------------------------------------------------------------

# Any: what a column may hold; the tables of ``schema`` say which has what.
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Found(Protocol):
    """The outcome of one statement."""

    @property
    def rowcount(self) -> int:
        """How many rows were written."""

    def fetchone(self) -> Any:
        """Return the next row as a tuple, or None."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left, as tuples."""


class Database(Protocol):
    """One connection, used by one thread."""

    def execute(self, statement: str, values: Any = ..., /) -> Found:
        """Carry out one statement; ``values`` are ``Values``."""

    def executemany(self, statement: str, values: Iterable[Any], /) -> Any:
        """Carry out one statement for each of ``values``."""


# --- tables ---------------------------------------------------------------------------------------

APPLICATION_ID: Final = int.from_bytes(b"CMDC", "big")

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE sessions (
            session_id  TEXT PRIMARY KEY NOT NULL,
            created_ms  INTEGER NOT NULL,
            spec        BLOB NOT NULL,
            parent_id   TEXT,
            group_id    TEXT,
            incarnation INTEGER NOT NULL,
            restarts    INTEGER NOT NULL,
            ended_ms    INTEGER,
            reason      BLOB
        )
        """,
        # Few sessions of many are alive: the start of a daemon reads these only.
        "CREATE INDEX sessions_alive ON sessions (created_ms) WHERE ended_ms IS NULL",
        # No index on seq: a commit pays for every page it touches, and only a load sorts by it.
        """
        CREATE TABLE commands (
            session_id TEXT NOT NULL,
            command_id TEXT NOT NULL,
            seq        INTEGER NOT NULL,
            at_ms      INTEGER NOT NULL,
            body       BLOB NOT NULL,
            answer     BLOB,
            PRIMARY KEY (session_id, command_id)
        )
        """,
        """
        CREATE TABLE records (
            session_id  TEXT NOT NULL,
            seq         INTEGER NOT NULL,
            incarnation INTEGER NOT NULL,
            kind        TEXT NOT NULL,
            body        BLOB NOT NULL,
            PRIMARY KEY (session_id, seq)
        )
        """,
        """
        CREATE TABLE events (
            session_id TEXT NOT NULL,
            first      INTEGER NOT NULL,
            count      INTEGER NOT NULL,
            body       BLOB NOT NULL,
            PRIMARY KEY (session_id, first)
        )
        """,
    ),
    (
        # incarnation: NULL once the session has ended and its id is used again.
        """
        CREATE TABLE downs (
            seq         INTEGER PRIMARY KEY NOT NULL,
            session_id  TEXT NOT NULL,
            incarnation INTEGER,
            restarting  INTEGER NOT NULL,
            at_ms       INTEGER NOT NULL,
            body        BLOB NOT NULL,
            UNIQUE (session_id, incarnation, restarting)
        )
        """,
        "CREATE INDEX downs_in_order ON downs (session_id, seq)",
    ),
    (
        # seq: of the last record that it holds.
        """
        CREATE TABLE snapshots (
            session_id TEXT NOT NULL,
            seq        INTEGER NOT NULL,
            body       BLOB NOT NULL,
            PRIMARY KEY (session_id, seq)
        )
        """,
        # Apart from sessions, whose rows hold a spec and should not be written with every step.
        """
        CREATE TABLE marks (
            session_id TEXT PRIMARY KEY NOT NULL,
            written    INTEGER NOT NULL,
            forgotten  INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE checkpoints (
            session_id     TEXT NOT NULL,
            checkpoint_id  TEXT NOT NULL,
            label          TEXT,
            saved_ms       INTEGER NOT NULL,
            schema_version INTEGER NOT NULL,
            body           BLOB NOT NULL,
            metadata       BLOB NOT NULL,
            PRIMARY KEY (session_id, checkpoint_id)
        )
        """,
        "CREATE INDEX sessions_ended ON sessions (ended_ms) WHERE ended_ms IS NOT NULL",
    ),
    (
        # digest: the SHA-256 of the body, in hex. Sessions share it; the last one takes it along.
        "CREATE TABLE blobs (digest TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL)",
        """
        CREATE TABLE holds (
            session_id TEXT NOT NULL,
            digest     TEXT NOT NULL,
            size       INTEGER NOT NULL,
            PRIMARY KEY (session_id, digest)
        )
        """,
        "CREATE INDEX holds_by_digest ON holds (digest)",
    ),
)
VERSION: Final = len(MIGRATIONS)

# https://www.sqlite.org/fileformat.html: magic at 0, user_version at 60, application_id at 68.
_MAGIC: Final = b"SQLite format 3\0"
_HEADER: Final = struct.Struct(">16s44xI4xI")


_REMEDY: Final = "it was left untouched: start the newer program, or choose another state directory"


def check_file(path: Path, remedy: str = _REMEDY) -> None:
    """Check by its header alone, without opening it as a database, that the file may be migrated.

    ``remedy`` is what to do where it may not.

    Raises:
        JournalRefused: it is another kind of file, or a newer journal.

    """
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if not header:
        return
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise _refused(path, "is not an SQLite database", remedy)
    _, version, application_id = _HEADER.unpack(header)
    _check(path, version, application_id, remedy)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring an open journal to ``VERSION``, all steps or none.

    Raises:
        JournalRefused: it holds somebody else's tables, or is a newer journal.

    """
    # Once more: what is in the write-ahead log is not in the header yet.
    version = _number(connection, "PRAGMA user_version")
    application_id = _number(connection, "PRAGMA application_id")
    _check(path, version, application_id)
    if application_id == 0 and _number(connection, "SELECT count(*) FROM sqlite_master"):
        raise _refused(path, "belongs to another program")
    if version == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    # Into the header, so that an older program can see it without touching the file.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _check(path: Path, version: int, application_id: int, remedy: str = _REMEDY) -> None:
    if application_id not in (0, APPLICATION_ID):
        raise _refused(path, "belongs to another program", remedy)
    if version > VERSION:
        why = f"has format {version}, and this program knows formats up to {VERSION}"
        raise _refused(path, why, remedy)


def _number(connection: sqlite3.Connection, query: str) -> int:
    row: tuple[int] = connection.execute(query).fetchone()
    return row[0]


def _refused(path: Path, why: str, remedy: str = _REMEDY) -> JournalRefused:
    return JournalRefused(f"{path} {why}; {remedy}")


# --- retention ------------------------------------------------------------------------------------

IS_DAMAGED_END: Final = (
    f"(ended_ms < 0 OR ended_ms > {TIME_MS_MAX} OR ended_ms <> CAST(ended_ms AS BIGINT))"
)
"""Of a session's row; what is no number is above every number for SQLite, in a file that somebody
has edited."""
HISTORY_TABLES: Final = ("events", "records", "commands", "snapshots", "marks", "sessions")
"""What makes room for a new session of the same id."""
_ALL_TABLES: Final = (*HISTORY_TABLES, "downs", "checkpoints")
_OLDEST_KEPT: Final = """
    SELECT seq FROM snapshots WHERE session_id = ? ORDER BY seq DESC LIMIT 1 OFFSET ?
"""
_OLD_COMMAND: Final = """
    SELECT seq FROM commands WHERE session_id = ? AND answer IS NOT NULL
    ORDER BY seq DESC LIMIT 1 OFFSET ?
"""
_OLD_EVENTS: Final = """
    SELECT first, count FROM events WHERE session_id = ? ORDER BY first DESC LIMIT 1 OFFSET ?
"""

_FREE_BLOBS: Final = """
    DELETE FROM blobs WHERE digest IN (SELECT digest FROM holds WHERE session_id = :session_id)
      AND NOT EXISTS (SELECT 1 FROM holds AS others
                      WHERE others.digest = blobs.digest AND others.session_id <> :session_id)
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a live session stays when it writes a snapshot; a tenth more may, for speed."""

    commands: int = COMMANDS_KEPT
    events: int = EVENTS_KEPT

    def too_many_commands(self, count: int) -> bool:
        """Say whether it is worth the time to look for those that can go."""
        return count > self.commands + self.commands // 10

    def too_many_events(self, count: int) -> bool:
        """Say whether it is worth the time to look for those that can go."""
        return count > self.events + self.events // 10


def drop_records(db: Database, session_id: SessionId) -> None:
    """Delete the older snapshots, and the records that the oldest kept one holds."""
    kept = db.execute(_OLDEST_KEPT, (session_id, SNAPSHOTS_KEPT - 1)).fetchone()
    if kept is None:
        return
    db.execute("DELETE FROM snapshots WHERE session_id = ? AND seq < ?", (session_id, kept[0]))
    db.execute("DELETE FROM records WHERE session_id = ? AND seq <= ?", (session_id, kept[0]))


def drop_commands(db: Database, session_id: SessionId, keep: int) -> int:
    """Delete all but the newest answered commands, and return how many are left in all."""
    old = db.execute(_OLD_COMMAND, (session_id, keep)).fetchone()
    if old is not None:
        db.execute(
            "DELETE FROM commands WHERE session_id = ? AND seq <= ? AND answer IS NOT NULL",
            (session_id, old[0]),
        )
    left: tuple[int] = db.execute(
        "SELECT count(*) FROM commands WHERE session_id = ?", (session_id,)
    ).fetchone()
    return left[0]


def drop_events(db: Database, session_id: SessionId, keep: int) -> int | None:
    """Delete all but the newest batches, and return the last index that went, None for none."""
    old = db.execute(_OLD_EVENTS, (session_id, keep)).fetchone()
    if old is None:
        return None
    first, count = old
    db.execute("DELETE FROM events WHERE session_id = ? AND first <= ?", (session_id, first))
    last: int = first + count - 1
    return last


def delete_history(db: Database, session_id: SessionId) -> None:
    """Delete an ended session, so that its id can be used again."""
    _delete(db, session_id, HISTORY_TABLES)


def drop_holds(db: Database, session_id: SessionId) -> None:
    """Let go of the blobs of a session; those that nobody else holds are deleted."""
    db.execute(_FREE_BLOBS, {"session_id": session_id})
    db.execute("DELETE FROM holds WHERE session_id = ?", (session_id,))


def end(db: Database, session_id: SessionId, at_ms: int, reason: bytes) -> bool:
    """End a live session, or one of which nobody can say whether it ended; False: it is neither."""
    ended = db.execute(
        "UPDATE sessions SET ended_ms = ?, reason = ?"  # noqa: S608 - our names
        f" WHERE session_id = ? AND (ended_ms IS NULL OR {IS_DAMAGED_END})",
        (at_ms, reason, session_id),
    )
    return ended.rowcount > 0


def prune(db: Database, before_ms: int, limit: int) -> int:
    """Delete sessions that ended before a time, and return how many."""
    ended = db.execute(
        f"SELECT session_id FROM sessions WHERE ended_ms < ? AND NOT {IS_DAMAGED_END}"  # noqa: S608 - our names
        " ORDER BY ended_ms LIMIT ?",
        (before_ms, max(0, min(limit, PRUNED_MAX))),
    ).fetchall()
    for (session_id,) in ended:
        drop_holds(db, session_id)
        _delete(db, session_id, _ALL_TABLES)
    return len(ended)


def _delete(db: Database, session_id: SessionId, tables: tuple[str, ...]) -> None:
    for table in tables:
        db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))  # noqa: S608 - our names
