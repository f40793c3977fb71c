"""What the writer's thread remembers of the live sessions, to check a write without a query."""

from dataclasses import dataclass
from typing import Final

from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.ids import SessionId
from supervisor.adapters.journal.database import Database
from supervisor.adapters.journal.retention import Bounds

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
