"""What goes from a journal, and when; in SQL. ``operations`` has the rules.

A live session's tables are bounded when a snapshot is written: the state is then in one row, and
what led to it is of use only for a way back, for late duplicates and for late readers. An ended
session goes as a whole. Whether one has ended cannot be said of a damaged ``ended_ms``: such a
session is neither gone on with nor deleted.
"""

from dataclasses import dataclass
from typing import Final

from cmdc_runtime.checked_struct import TIME_MS_MAX
from cmdc_runtime.ids import SessionId
from supervisor.adapters.journal.database import Database
from supervisor.core.limits import COMMANDS_KEPT, EVENTS_KEPT, PRUNED_MAX, SNAPSHOTS_KEPT

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


def prune(db: Database, before_ms: int, limit: int) -> int:
    """Delete sessions that ended before a time, and return how many."""
    ended = db.execute(
        f"SELECT session_id FROM sessions WHERE ended_ms < ? AND NOT {IS_DAMAGED_END}"  # noqa: S608 - our names
        " ORDER BY ended_ms LIMIT ?",
        (before_ms, max(0, min(limit, PRUNED_MAX))),
    ).fetchall()
    for (session_id,) in ended:
        _delete(db, session_id, _ALL_TABLES)
    return len(ended)


def _delete(db: Database, session_id: SessionId, tables: tuple[str, ...]) -> None:
    for table in tables:
        db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))  # noqa: S608 - our names
