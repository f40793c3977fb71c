"""A session read as a whole, and written as a whole; in SQL. ``base.Journal`` has the rules."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from cmdc_runtime.ids import SessionId
from supervisor.adapters.journal import marks
from supervisor.adapters.journal.base import (
    CommandRow,
    EventRow,
    Past,
    RecordRow,
    SessionRow,
    Stored,
)
from supervisor.adapters.journal.database import Database

_COLUMNS: Final = tuple(field.name for field in fields(SessionRow) if field.name != "written")
_COMMAND: Final = tuple(field.name for field in fields(CommandRow))
_RECORD: Final = tuple(field.name for field in fields(RecordRow))
_SESSIONS: Final = f"""
    SELECT {", ".join(_COLUMNS)}, coalesce(
        (SELECT written FROM marks WHERE marks.session_id = sessions.session_id), 0)
    FROM sessions
"""  # noqa: S608 - our names
_SNAPSHOT: Final = "SELECT seq, body FROM snapshots WHERE session_id = ? ORDER BY seq"


def alive(db: Database) -> list[SessionRow]:
    """Return the live sessions, oldest first."""
    found = db.execute(f"{_SESSIONS} WHERE ended_ms IS NULL ORDER BY created_ms, rowid").fetchall()
    return [_session(row) for row in found]


def find(db: Database, session_id: SessionId) -> SessionRow | None:
    """Return one session."""
    row = db.execute(f"{_SESSIONS} WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else _session(row)


def load(db: Database, session_id: SessionId) -> Stored | None:
    """Return what a session is rebuilt from."""
    row = find(db, session_id)
    if row is None:
        return None
    newest = db.execute(f"{_SNAPSHOT} DESC LIMIT 1", (session_id,)).fetchone()
    seq, snapshot = newest or (0, b"")
    return Stored(
        row=row,
        records=_records(db, session_id, seq),
        unanswered=_commands(db, session_id, "AND answer IS NULL"),
        snapshot=snapshot,
    )


def history(db: Database, session_id: SessionId) -> Past | None:
    """Return all that is kept of a session but its events."""
    row = find(db, session_id)
    if row is None:
        return None
    records = _records(db, session_id, 0)
    oldest = db.execute(f"{_SNAPSHOT} LIMIT 1", (session_id,)).fetchone()
    if oldest is None or (records and records[0].seq <= oldest[0]):
        oldest = 0, b""
    return Past(
        row=row,
        snapshot=oldest[1],
        records=records,
        commands=_commands(db, session_id),
        snapshot_seq=oldest[0],
    )


def insert_session(db: Database, row: SessionRow) -> None:
    """Start a session."""
    db.execute(
        f"INSERT INTO sessions ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
        [getattr(row, name) for name in _COLUMNS],
    )
    if row.written:
        marks.set_written(db, row.session_id, row.written)


def insert_snapshot(db: Database, session_id: SessionId, seq: int, body: bytes) -> None:
    """Keep a snapshot; of two after the same record the later one stays."""
    db.execute(
        "INSERT INTO snapshots (session_id, seq, body) VALUES (?, ?, ?)"
        " ON CONFLICT (session_id, seq) DO UPDATE SET body = excluded.body",
        (session_id, seq, body),
    )


def insert_past(db: Database, past: Past) -> None:
    """Start a session with all that another journal had of it."""
    session_id = past.row.session_id
    insert_session(db, replace(past.row, ended_ms=None, reason=None))
    if past.snapshot:
        insert_snapshot(db, session_id, past.snapshot_seq, past.snapshot)
    db.executemany(
        f"INSERT INTO records (session_id, {', '.join(_RECORD)}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - our names
        [(session_id, *(getattr(row, name) for name in _RECORD)) for row in past.records],
    )
    db.executemany(
        f"INSERT INTO commands (session_id, {', '.join(_COMMAND)}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
        [(session_id, *(getattr(row, name) for name in _COMMAND)) for row in past.commands],
    )


def insert_events(db: Database, session_id: SessionId, events: Sequence[EventRow]) -> None:
    """Keep the events of a session that has none."""
    db.executemany(
        "INSERT INTO events (session_id, first, count, body) VALUES (?, ?, ?, ?)",
        [(session_id, row.first, row.count, row.body) for row in events],
    )


def _records(db: Database, session_id: SessionId, after: int) -> tuple[RecordRow, ...]:
    query = f"SELECT {', '.join(_RECORD)} FROM records"  # noqa: S608 - our names
    found = db.execute(
        f"{query} WHERE session_id = ? AND seq > ? ORDER BY seq", (session_id, after)
    ).fetchall()
    return tuple(RecordRow(**dict(zip(_RECORD, row, strict=True))) for row in found)


def _commands(db: Database, session_id: SessionId, which: str = "") -> tuple[CommandRow, ...]:
    query = f"SELECT {', '.join(_COMMAND)} FROM commands WHERE session_id = ?"  # noqa: S608 - our names
    found = db.execute(f"{query} {which} ORDER BY seq", (session_id,)).fetchall()
    return tuple(CommandRow(**dict(zip(_COMMAND, row, strict=True))) for row in found)


def _session(row: Any) -> SessionRow:  # Any: what SQL returns, in the order of the columns
    return SessionRow(**dict(zip((*_COLUMNS, "written"), row, strict=True)))
