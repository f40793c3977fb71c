"""Fault points of the daemon: before and after the commit of every write.

Each class in ``operations.WRITES`` has its points as soon as it is there, by its ``name``;
``AppendRecords`` is called by the kinds of records that it is given.
"""

from asyncio import Future, ensure_future
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from cmdc_runtime import faults
from supervisor.adapters.journal.operations import SNAPSHOT, WRITES, AppendRecords, Query, Write
from supervisor.adapters.journal.store import Health, Journal

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

        def committed(done: Future[T]) -> None:
            # The first to be called back: nobody else knows of the commit yet.
            if not done.cancelled() and done.exception() is None:
                faults.pass_point(session_id, f"{point}.after", victims)

        written.add_done_callback(committed)
        return written
