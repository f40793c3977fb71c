"""Which journal a daemon has, and the one in memory.

``journal`` of the daemon's configuration up to the first colon is the row of ``_JOURNALS``.

The journal in memory is for tests, and for daemons whose sessions need not outlive them. It has the
same operations over SQLite's own memory database, so that it keeps every promise but one: what was
acknowledged is gone with the process.
"""

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from cmdc_runtime.errors import UsageError
from supervisor.adapters.journal.base import JournalFailed, JournalRefused
from supervisor.adapters.journal.schema import Bounds, migrate
from supervisor.adapters.journal.sql_store import SqlStore
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.journal.store import Copying, Journal
from supervisor.adapters.journal.writer import GroupWriter
from supervisor.config import DaemonConfig

# --- in memory ------------------------------------------------------------------------------------


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

    def begin_copy(self, path: Path) -> Copying:
        """Refuse: what is in memory ends with the daemon."""
        del path
        raise UsageError(
            "the journal is in memory and ends with the daemon, so there is no backup of it: start "
            'the daemon without journal = "memory" to keep what its sessions do'
        )

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


# --- by configuration -----------------------------------------------------------------------------

MEMORY: Final = "memory"


def open_journal(config: DaemonConfig) -> Journal:
    """Return the journal that was chosen; its ``open`` is the caller's.

    Raises:
        JournalRefused: it is in PostgreSQL, and the driver is not installed.

    """
    return _JOURNALS[config.journal.partition(":")[0]](config)


def _postgres(config: DaemonConfig) -> Journal:
    try:
        # A daemon without PostgreSQL has no use for the driver, which is an extra.
        from supervisor.adapters.journal.postgres import PostgresJournal  # noqa: PLC0415
    except ImportError as error:
        raise JournalRefused(
            "a journal in PostgreSQL needs psycopg: pip install 'cmdc-runtime[postgres]'"
        ) from error
    return PostgresJournal(
        config.journal, schema=config.journal_schema, durability=config.durability
    )


_JOURNALS: Final[Mapping[str, Callable[[DaemonConfig], Journal]]] = {
    "": lambda config: SqliteJournal(config.state_dir, durability=config.durability),
    MEMORY: lambda _config: MemoryJournal(),
    "postgres": _postgres,
    "postgresql": _postgres,
}
"""What ``DaemonConfig.journal`` lets through, and nothing else."""
