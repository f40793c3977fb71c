"""The journal in memory: for tests, and for daemons whose sessions need not outlive them.

The same operations over SQLite's own memory database, so that it keeps every promise but one: what
was acknowledged is gone with the process.
"""

import sqlite3
from pathlib import Path
from typing import ClassVar

from supervisor.adapters.journal.base import JournalFailed
from supervisor.adapters.journal.retention import Bounds
from supervisor.adapters.journal.schema import migrate
from supervisor.adapters.journal.sql_store import SqlStore
from supervisor.adapters.journal.writer import GroupWriter


class MemoryStore(SqlStore):
    """A store without a file. A connection that was closed had everything, so none follows it."""

    failures: ClassVar = (sqlite3.OperationalError,)

    def __init__(self, bounds: Bounds | None = None) -> None:
        """Prepare; ``open`` makes the tables."""
        super().__init__(bounds)
        self._connection: sqlite3.Connection | None = None

    @property
    def db(self) -> sqlite3.Connection:
        """The open connection."""
        if self._connection is None:
            raise JournalFailed("the journal in memory is closed, and what was in it is gone")
        return self._connection

    def open(self) -> None:
        """Make the tables."""
        self._connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=64)
        migrate(self._connection, Path("the journal in memory"))

    def begin(self) -> None:
        """Begin a transaction."""
        self.db.execute("BEGIN")

    def commit(self) -> None:
        """Keep what was done."""
        self.db.execute("COMMIT")

    def rollback(self) -> None:
        """Undo, and forget what the transaction had taught us."""
        self.heads.forget()
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def close(self) -> None:
        """Let everything go."""
        self.heads.forget()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class MemoryJournal(GroupWriter):
    """A journal that ends with its process."""

    def __init__(self, *, bounds: Bounds | None = None) -> None:
        """Prepare; ``open`` makes the tables."""
        super().__init__(MemoryStore(bounds))
