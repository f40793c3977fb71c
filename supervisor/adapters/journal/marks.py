"""What a session's row is too large for: two numbers that change often.

``written`` is the number of the last write of the current incarnation, ``forgotten`` the index of
the last event that was dropped. A session without a row here has 0 for both.
"""

from typing import Final

from cmdc_runtime.ids import EventIndex, SessionId
from supervisor.adapters.journal.database import Database

_SET_WRITTEN: Final = """
    INSERT INTO marks (session_id, written, forgotten) VALUES (?, ?, 0)
    ON CONFLICT (session_id) DO UPDATE SET written = excluded.written
"""
_SET_FORGOTTEN: Final = """
    INSERT INTO marks (session_id, written, forgotten) VALUES (?, 0, ?)
    ON CONFLICT (session_id) DO UPDATE SET forgotten = excluded.forgotten
"""


def set_written(db: Database, session_id: SessionId, number: int) -> None:
    """Note the number of the last write."""
    db.execute(_SET_WRITTEN, (session_id, number))


def set_forgotten(db: Database, session_id: SessionId, index: int) -> None:
    """Note the last index that was dropped."""
    db.execute(_SET_FORGOTTEN, (session_id, index))


def forgotten(db: Database, session_id: SessionId) -> EventIndex:
    """Return the last index that was dropped, 0 for none."""
    row = db.execute("SELECT forgotten FROM marks WHERE session_id = ?", (session_id,)).fetchone()
    return EventIndex(0 if row is None else row[0])
