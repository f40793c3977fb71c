"""The ends of processes and sessions, in SQL; ``base.Journal`` has the rules.

A number is the time in milliseconds, or one more than the last: in a new file too, numbers are
larger than those that a client remembers of another. The ends of an ended session whose id is used
again lose their incarnation, and with it their place among those of the new one.
"""

from dataclasses import fields
from typing import Any, Final

from cmdc_runtime.ids import DownSeq, SessionId
from supervisor.adapters.journal.base import DownRow
from supervisor.adapters.journal.database import Database
from supervisor.core.limits import DOWNS_KEPT_MAX, DOWNS_READ_MAX

_NOTE: Final = """
    INSERT INTO downs (seq, session_id, incarnation, restarting, at_ms, body)
    VALUES (:seq, :session_id, :incarnation, :restarting, :at_ms, :body)
    ON CONFLICT (session_id, incarnation, restarting) DO NOTHING
"""
_KNOWN: Final = """
    SELECT seq FROM downs
    WHERE session_id = :session_id AND incarnation = :incarnation AND restarting = :restarting
"""
# A session that dozes often must not push out the ends that somebody is to be told of.
_FORGET: Final = """
    DELETE FROM downs
    WHERE session_id = :session_id AND seq < :seq
      AND (length(body) = 0 OR seq <= (SELECT seq FROM downs WHERE session_id = :session_id
                                 ORDER BY seq DESC LIMIT 1 OFFSET :kept))
"""
_COLUMNS: Final = tuple(field.name for field in fields(DownRow))
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM downs"  # noqa: S608 - our names


def note(db: Database, row: DownRow) -> DownSeq:
    """Record an end and return its number, or that of the one that was there first."""
    last: tuple[int | None] = db.execute("SELECT max(seq) FROM downs").fetchone()
    seq = DownSeq(max(row.at_ms, 1 + (last[0] or 0)))
    given = {name: getattr(row, name) for name in _COLUMNS}
    given |= {"seq": seq, "restarting": int(row.restarting)}
    if db.execute(_NOTE, given).rowcount == 0:
        known: tuple[DownSeq] = db.execute(_KNOWN, given).fetchone()
        return known[0]
    db.execute(_FORGET, {"session_id": row.session_id, "seq": seq, "kept": DOWNS_KEPT_MAX})
    return seq


def retire(db: Database, session_id: SessionId) -> None:
    """Make all ends those of earlier sessions."""
    db.execute("UPDATE downs SET incarnation = NULL WHERE session_id = ?", (session_id,))


def told(db: Database, session_id: SessionId, after: DownSeq, limit: int) -> list[DownRow]:
    """Return the ends that somebody is told of."""
    rows = db.execute(
        f"{_SELECT} WHERE session_id = ? AND seq > ? AND length(body) > 0 ORDER BY seq LIMIT ?",
        (session_id, after, max(0, min(limit, DOWNS_READ_MAX))),
    )
    return [_row(*row) for row in rows.fetchall()]


def newest(db: Database, session_id: SessionId) -> DownRow | None:
    """Return the newest end."""
    row = db.execute(
        f"{_SELECT} WHERE session_id = ? ORDER BY seq DESC LIMIT 1", (session_id,)
    ).fetchone()
    return None if row is None else _row(*row)


def _row(*values: Any) -> DownRow:  # Any: what SQL returns, in the order of the columns
    found = dict(zip(_COLUMNS, values, strict=True))
    return DownRow(**found | {"restarting": bool(found["restarting"])})
