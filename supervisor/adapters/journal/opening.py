"""Which journal a daemon has, the one in memory, and fault points around any of them.

``journal`` of the daemon's configuration up to the first colon is the row of ``_JOURNALS``.

The journal in memory is for tests, and for daemons whose sessions need not outlive them. It has the
same operations over SQLite's own memory database, so that it keeps every promise but one: what was
acknowledged is gone with the process.

Fault points stand before and after the commit of every write. Each class in ``operations.WRITES``
has its points as soon as it is there, by its ``name``; ``AppendRecords`` is called by the kinds of
records that it is given.
"""

import sqlite3
from asyncio import Future, ensure_future, get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, NoReturn, TypeVar

from cmdc_runtime import faults
from cmdc_runtime.errors import UsageError
from supervisor.adapters.journal.base import JournalFailed, JournalRefused
from supervisor.adapters.journal.operations import SNAPSHOT, WRITES, AppendRecords, Query, Write
from supervisor.adapters.journal.schema import Bounds, migrate
from supervisor.adapters.journal.sql_store import SqlStore
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.journal.store import Health, Journal
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

    def begin_copy(self, path: Path) -> NoReturn:
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


# --- fault points ---------------------------------------------------------------------------------

__all__ = ["APPEND", "SNAPSHOT", "with_fault_points", "writes"]

T = TypeVar("T")

APPEND: Final = AppendRecords.name

PidsOf = Callable[[str, str], Iterable[int]]
"""Returns the pids of a victim, by its name and the session at whose point it dies."""


def writes() -> list[str]:
    """Return the names of all writes, in the order of ``operations``."""
    return [one.name for one in WRITES]


def with_fault_points(journal: Journal, names: Iterable[str], pids_of: PidsOf) -> Journal:
    """Return the journal as it is, or with fault points where this process looks for plans.

    ``names`` are the victims that ``pids_of`` knows.
    """
    if not faults.is_armed():
        return journal
    return _Faulted(journal, tuple(names), pids_of)


class _Faulted:
    """Hands everything on; passes points around each write."""

    def __init__(self, journal: Journal, names: tuple[str, ...], pids_of: PidsOf) -> None:
        self._journal = journal
        self._names = names
        self._pids_of = pids_of
        self.open = journal.open
        self.close = journal.close
        self.copy = journal.copy

    @property
    def health(self) -> Health:
        return self._journal.health

    def read(self, query: Query[T]) -> Awaitable[T]:
        return self._journal.read(query)

    def write(self, operation: Write[T]) -> Awaitable[T]:
        session_id = str(getattr(operation, "session_id", faults.DAEMON_ITSELF))
        victims: faults.Victims = {
            victim: partial(self._pids_of, victim, session_id) for victim in self._names
        }
        point = operation.point
        faults.pass_point(session_id, f"{point}.before", victims)
        written = ensure_future(self._journal.write(operation))
        known: Future[T] = get_running_loop().create_future()

        def committed(done: Future[T]) -> None:
            # Nobody knows of the commit before: a future of the journal itself may be done by when
            # somebody begins to wait for it, who then goes on ahead of all that it calls back.
            if not done.cancelled() and done.exception() is None:
                faults.pass_point(session_id, f"{point}.after", victims)
            _hand_on(done, known)

        written.add_done_callback(committed)
        return known


def _hand_on(done: Future[T], known: Future[T]) -> None:
    """Complete ``known`` as ``done`` was, unless who waits for it has gone."""
    if known.done():
        return
    if done.cancelled():
        known.cancel()
    elif (error := done.exception()) is not None:
        known.set_exception(error)
    else:
        known.set_result(done.result())
