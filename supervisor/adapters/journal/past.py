"""A session read as a whole, and written as a whole; in SQL. ``base.Journal`` has the rules."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from cmdc_runtime.ids import SessionId
from cmdc_runtime.ranges import INDEX_MAX
from cmdc_runtime.requests import PastPart
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
from supervisor.core.limits import HISTORY_ITEMS_MAX, PAST_BYTES_MAX

_COLUMNS: Final = tuple(field.name for field in fields(SessionRow) if field.name != "written")
_COMMAND: Final = tuple(field.name for field in fields(CommandRow))
_RECORD: Final = tuple(field.name for field in fields(RecordRow))
_SESSIONS: Final = f"""
    SELECT {", ".join(_COLUMNS)}, coalesce(
        (SELECT written FROM marks WHERE marks.session_id = sessions.session_id), 0)
    FROM sessions
"""  # noqa: S608 - our names
_SNAPSHOTS: Final = "SELECT seq, body FROM snapshots WHERE session_id = ? ORDER BY seq"


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
    newest = db.execute(f"{_SNAPSHOTS} DESC LIMIT 1", (session_id,)).fetchone()
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
    base = _base_seq(db, session_id)
    return Past(
        row=row,
        snapshot=_snapshot(db, session_id, base),
        records=_records(db, session_id, 0),
        commands=_commands(db, session_id),
        snapshot_seq=base or 0,
    )


def part_of(db: Database, session_id: SessionId, part: PastPart, after: int) -> Past | None:
    """Return of a past what one answer may have of it, and one row more where there is one.

    What an answer has no room for is not read: a page costs the same however long the past is.
    """
    row = find(db, session_id)
    if row is None:
        return None
    base = _base_seq(db, session_id)
    found = Past(row=row, snapshot=b"", records=(), commands=(), snapshot_seq=base or 0)
    match part:
        case "spec":
            return found
        case "snapshot":
            return replace(found, snapshot=_snapshot(db, session_id, base))
        case "records":
            last = _last_fitting(db, "records", "length(body)", session_id, after)
            return replace(found, records=_records(db, session_id, after, last))
        case "commands":
            size = "length(body) + coalesce(length(answer), 0)"
            last = _last_fitting(db, "commands", size, session_id, after)
            which = f"AND seq > {int(after)} AND seq <= {int(last)}"
            return replace(found, commands=_commands(db, session_id, which))


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


def _base_seq(db: Database, session_id: SessionId) -> int | None:
    """Return the seq of the snapshot that a past begins with, None: it begins with its records."""
    query = (
        "SELECT (SELECT min(seq) FROM snapshots WHERE session_id = :id),"
        " (SELECT min(seq) FROM records WHERE session_id = :id)"
    )
    oldest, first = db.execute(query, {"id": session_id}).fetchone()
    return None if oldest is None or (first is not None and first <= oldest) else int(oldest)


def _snapshot(db: Database, session_id: SessionId, seq: int | None) -> bytes:
    if seq is None:
        return b""
    query = "SELECT body FROM snapshots WHERE session_id = ? AND seq = ?"
    body: tuple[bytes] = db.execute(query, (session_id, seq)).fetchone()
    return body[0]


def _last_fitting(db: Database, table: str, size: str, session_id: SessionId, after: int) -> int:
    """Return the seq of the first row that an answer has no room for, or of the last one."""
    query = f"SELECT seq, {size} FROM {table} WHERE session_id = ? AND seq > ?"  # noqa: S608 - our names
    found = db.execute(
        f"{query} ORDER BY seq LIMIT ?", (session_id, after, HISTORY_ITEMS_MAX + 1)
    ).fetchall()
    last, total = after, 0
    for seq, bytes_ in found:
        is_first, last, total = last == after, seq, total + bytes_
        if total > PAST_BYTES_MAX and not is_first:
            break
    return last


def _records(
    db: Database, session_id: SessionId, after: int, through: int = INDEX_MAX
) -> tuple[RecordRow, ...]:
    query = f"SELECT {', '.join(_RECORD)} FROM records"  # noqa: S608 - our names
    found = db.execute(
        f"{query} WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (session_id, after, through),
    ).fetchall()
    return tuple(RecordRow(**dict(zip(_RECORD, row, strict=True))) for row in found)


def _commands(db: Database, session_id: SessionId, which: str = "") -> tuple[CommandRow, ...]:
    query = f"SELECT {', '.join(_COMMAND)} FROM commands WHERE session_id = ?"  # noqa: S608 - our names
    found = db.execute(f"{query} {which} ORDER BY seq", (session_id,)).fetchall()
    return tuple(CommandRow(**dict(zip(_COMMAND, row, strict=True))) for row in found)


def _session(row: Any) -> SessionRow:  # Any: what SQL returns, in the order of the columns
    return SessionRow(**dict(zip((*_COLUMNS, "written"), row, strict=True)))
