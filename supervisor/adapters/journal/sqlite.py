"""The journal in one SQLite file: write-ahead log, one writer thread, group commit."""

import sqlite3
from pathlib import Path

from supervisor.adapters.journal.base import Durability
from supervisor.adapters.journal.queued import QueuedJournal
from supervisor.adapters.journal.retention import Bounds
from supervisor.adapters.journal.store import SqliteStore
from supervisor.adapters.journal.writer import GroupWriter


class SqliteJournal(QueuedJournal):
    """A ``base.Journal`` in ``directory``, which is this user's alone; made if it is not there."""

    def __init__(
        self, directory: Path, *, durability: Durability = "process", bounds: Bounds | None = None
    ) -> None:
        """Prepare; ``open`` touches the disk."""
        store = SqliteStore(directory, durability, bounds)
        writer = GroupWriter(store, failures=(sqlite3.OperationalError,), guard=store)
        super().__init__(store, writer)
