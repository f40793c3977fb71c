"""Checkpoints in SQL; ``base.Journal`` has the rules."""

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from cmdc_runtime.ids import SessionId
from supervisor.adapters.journal.base import CheckpointRow
from supervisor.adapters.journal.database import Database

_COLUMNS: Final = tuple(field.name for field in fields(CheckpointRow))
_VALUES: Final = attrgetter(*_COLUMNS)
_BARE: Final = tuple(name for name in _COLUMNS if name != "body")
_NAMED: Final = " WHERE session_id = ? AND checkpoint_id = ?"
# A saved one gets a new rowid, so of two in one millisecond the later one comes first.
_NEWEST_FIRST: Final = " WHERE session_id = ? ORDER BY saved_ms DESC, rowid DESC"


def save(db: Database, row: CheckpointRow) -> None:
    """Keep a checkpoint, in the place of one with the same id."""
    remove(db, row.session_id, row.checkpoint_id)
    db.execute(
        f"INSERT INTO checkpoints ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
        _VALUES(row),
    )


def remove(db: Database, session_id: SessionId, checkpoint_id: str | None) -> None:
    """Delete one checkpoint, or all of a session."""
    if checkpoint_id is None:
        db.execute("DELETE FROM checkpoints WHERE session_id = ?", (session_id,))
    else:
        db.execute(f"DELETE FROM checkpoints{_NAMED}", (session_id, checkpoint_id))  # noqa: S608 - our names


def listed(db: Database, session_id: SessionId) -> list[CheckpointRow]:
    """Return all of a session without their bodies, last saved first."""
    query = f"SELECT {', '.join(_BARE)} FROM checkpoints{_NEWEST_FIRST}"  # noqa: S608 - our names
    found = db.execute(query, (session_id,)).fetchall()
    return [CheckpointRow(body=b"", **dict(zip(_BARE, row, strict=True))) for row in found]


def one(db: Database, session_id: SessionId, checkpoint_id: str | None) -> CheckpointRow | None:
    """Return one, or the last saved."""
    query = f"SELECT {', '.join(_COLUMNS)} FROM checkpoints"  # noqa: S608 - our names
    row: tuple[Any, ...] | None  # Any: what SQL returns, in the order of the columns
    if checkpoint_id is None:
        row = db.execute(f"{query}{_NEWEST_FIRST} LIMIT 1", (session_id,)).fetchone()
    else:
        row = db.execute(f"{query}{_NAMED}", (session_id, checkpoint_id)).fetchone()
    return None if row is None else CheckpointRow(**dict(zip(_COLUMNS, row, strict=True)))
