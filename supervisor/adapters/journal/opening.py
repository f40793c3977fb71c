"""Which journal a daemon has: ``journal`` of its configuration up to the first colon is the row."""

from collections.abc import Callable, Mapping
from typing import Final

from supervisor.adapters.journal.base import JournalRefused
from supervisor.adapters.journal.memory import MemoryJournal
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.journal.store import Journal
from supervisor.config import DaemonConfig

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
