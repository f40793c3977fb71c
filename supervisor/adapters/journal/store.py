"""The two faces of a journal: ``Journal`` to the daemon, ``Store`` to a backend.

``Health`` is how a journal stands, as the loop sees it, and who is notified when that changes.

A new backend is one module: a ``Store``, and its journal, which is a ``writer.GroupWriter`` over
it. One for a database that takes the statements of ``sql_store`` and ``sql_reads`` extends
``sql_store.SqlStore``, as ``opening.MemoryStore`` does; another one performs the operations its own
way. It gets a row in ``tests/contract/journal/conftest.py``, which holds it to everything that
``operations`` says. Where a daemon can be configured to have it, it gets a line in ``opening`` and
its name in ``DaemonConfig.journal``.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol, TypeVar

from cmdc_runtime.errors import UsageError
from supervisor.adapters.journal.backup import PageCopy
from supervisor.adapters.journal.operations import Operation, Query, Write
from supervisor.core.storage import Condition, Level, Trouble

# --- health ---------------------------------------------------------------------------------------

FINE: Final = "open"


def _nobody(_condition: Condition) -> None:
    pass


@dataclass(slots=True)
class Health:
    """Written by the journal in the loop; ``on_change`` is called there after each change."""

    condition: Condition = Condition.OPEN
    cause: str = ""
    """What is wrong and what helps, for a person; empty while nothing is."""
    on_change: Callable[[Condition], None] = field(default=_nobody)

    @property
    def has_failed(self) -> bool:
        """Whether nothing is stored any more, and the daemon has to end."""
        return self.condition is Condition.FAILED

    def __str__(self) -> str:
        """Return it for people: ``open``, or the condition and its cause."""
        return FINE if self.condition is Condition.OPEN else f"{self.condition}: {self.cause}"

    def turn(self, condition: Condition, cause: str) -> None:
        """Record a change and notify; a store that has failed stays so."""
        if self.has_failed or (condition, cause) == (self.condition, self.cause):
            return
        self.condition, self.cause = condition, cause
        self.on_change(condition)


# --- journal and store ----------------------------------------------------------------------------

T = TypeVar("T")


class Journal(Protocol):
    """The store of everything that was acknowledged."""

    @property
    def health(self) -> Health:
        """How the store stands, for the loop: open, full for now, or failed for good."""
        ...

    async def open(self) -> None:
        """Open the store, and bring an older one up to date.

        Raises:
            JournalRefused: it is newer than this program, or no journal; it was left untouched.
            JournalFailed: it cannot be opened, or another daemon has it.
        """
        ...

    async def close(self) -> None:
        """Finish what was asked before, within ``JOURNAL_CLOSE_S``, and close the store."""
        ...

    def write(self, operation: Write[T]) -> Awaitable[T]:
        """Queue a write; the class of ``operation`` says what it does, returns and refuses.

        Raises:
            JournalOverloaded: by the call itself, too much waits already; nothing was queued.
            JournalFailed: it is not open; or, when awaited, it was not committed.
        """
        ...

    def read(self, query: Query[T]) -> Awaitable[T]:
        """Queue a query, behind everything that was queued before; raises as ``write``."""
        ...

    def copy(self, path: Path) -> Awaitable[None]:
        """Copy the store to a new file beside it, in steps between commits; one at a time.

        The file has all that was committed before this was called, and is one state of the store;
        it is not durable yet.

        Raises:
            JournalFailed: it could not be made, and nothing of it is left.
            UsageError: a store of this kind is not copied so; says how.
        """
        ...


class Store(ABC):
    """What the writer's thread drives; every method runs on that thread.

    What concerns room has an answer for a store that has no disk of its own: every error passes.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = ()
    """The store's own errors: such a one fails the group, any other one a single operation."""

    @abstractmethod
    def open(self) -> None:
        """Open it; what is raised here comes out of ``Journal.open``."""

    @abstractmethod
    def perform(self, operation: Operation[T]) -> T:
        """Carry out one operation, a write within a transaction.

        A refusal is raised before anything was changed, as a ``CmdcError``.
        """

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction; open the store again if a failure closed it."""

    @abstractmethod
    def commit(self) -> None:
        """Make the transaction durable; raises when it is not."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo the transaction, if there is still one, and whatever was remembered of it."""

    @abstractmethod
    def close(self) -> None:
        """Close it; never raises."""

    def begin_copy(self, path: Path) -> PageCopy:
        """Prepare a copy to ``path``; the caller goes on with it step by step.

        Raises:
            UsageError: a store of this kind is not copied so; says how.
        """
        raise UsageError(
            f"this journal can't be copied to {path}: {type(self).__name__} has no way"
        )

    def look(self) -> None:
        """Put right what somebody else did to it, before it is read; raises when it can't be."""
        return

    # --- room and errors ------------------------------------------------------------------------

    @property
    def level(self) -> Level:
        """What room there is."""
        return Level.PLENTY

    @property
    def cause(self) -> str:
        """Why there is none and what helps, for a person."""
        return ""

    def judge(self, error: Exception) -> Trouble:
        """Say what an error means."""
        del error
        return Trouble.PASSING

    def spend(self) -> None:
        """Give up the next part of the reserve: ``level`` rises by one."""
        return

    def regain(self, wanted_bytes: int) -> bool:
        """Make the reserve whole where that leaves room for so many bytes; else change nothing."""
        del wanted_bytes
        return True

    def abandon(self) -> None:
        """Leave the store without another write to it: it is broken."""
        return
