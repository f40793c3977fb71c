"""What the operations of a journal need of a database: to carry out statements in one transaction.

Statements are SQL that SQLite and PostgreSQL both take, with values as ``?`` or ``:name``, and no
question mark or colon for anything else. ``sqlite3.Connection`` is a ``Database`` as it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

# Any: what a column may hold; the tables of ``schema`` say which has what.
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Found(Protocol):
    """The outcome of one statement."""

    @property
    def rowcount(self) -> int:
        """How many rows were written."""

    def fetchone(self) -> Any:
        """Return the next row as a tuple, or None."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left, as tuples."""


class Database(Protocol):
    """One connection, used by one thread."""

    def execute(self, statement: str, values: Any = ..., /) -> Found:
        """Carry out one statement; ``values`` are ``Values``."""

    def executemany(self, statement: str, values: Iterable[Any], /) -> Any:
        """Carry out one statement for each of ``values``."""
