"""A store over a SQL database: each operation is carried out by its statements."""

from abc import abstractmethod
from typing import Any, TypeVar

from supervisor.adapters.journal.database import Database
from supervisor.adapters.journal.heads import Heads
from supervisor.adapters.journal.operations import Operation, Query
from supervisor.adapters.journal.retention import Bounds
from supervisor.adapters.journal.sql_reads import READS
from supervisor.adapters.journal.sql_writes import WRITES
from supervisor.adapters.journal.store import Store

T = TypeVar("T")


class SqlStore(Store):
    """The operations over ``db``, and what is remembered of the live sessions between two of them.

    A backend adds how a connection is made, and how a transaction begins and ends; where one is
    undone, and where the store is closed, ``heads`` forget.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        """Prepare; ``bounds`` say how much of a live session is kept."""
        self.heads = Heads(bounds or Bounds())

    @property
    @abstractmethod
    def db(self) -> Database:
        """The open connection."""

    def perform(self, operation: Operation[T]) -> T:
        """Carry out one operation, by its row of ``READS`` or ``WRITES``."""
        found: Any  # the tables say what each operation returns, which no type can
        if isinstance(operation, Query):
            found = READS[type(operation)](self.db, operation)
        else:
            found = WRITES[type(operation)](self.db, self.heads, operation)
        return found  # type: ignore[no-any-return]
