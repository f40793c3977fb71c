"""What the writer's thread drives, and whom it asks when that goes wrong."""

from typing import Final, Protocol

from supervisor.core.storage import Level, Trouble


class Store(Protocol):
    """What the thread drives; operations are calls that the writer is given."""

    def open(self) -> None:
        """Open it; what is raised here comes out of ``GroupWriter.open``."""
        ...

    def look(self) -> None:
        """Put right what somebody else did to it, before it is read; raises when it can't be."""
        ...

    def begin(self) -> None:
        """Begin a transaction; open the store again if a failure closed it."""
        ...

    def commit(self) -> None:
        """Make the transaction durable; raises when it is not."""
        ...

    def rollback(self) -> None:
        """Undo the transaction, if there is still one, and whatever was remembered of it."""
        ...

    def close(self) -> None:
        """Close it; never raises."""
        ...


class Guard(Protocol):
    """Knows what an error of the store means, and keeps room for the end; on the thread only."""

    @property
    def level(self) -> Level:
        """What room there is."""

    @property
    def cause(self) -> str:
        """Why there is none and what helps, for a person."""

    def judge(self, error: Exception) -> Trouble:
        """Say what an error means."""
        ...

    def spend(self) -> None:
        """Give up the next part of the reserve: ``level`` rises by one."""
        ...

    def regain(self, wanted_bytes: int) -> bool:
        """Make the reserve whole where that leaves room for so many bytes; else change nothing."""
        ...

    def abandon(self) -> None:
        """Leave the store without another write to it: it is broken."""
        ...


class _NoGuard:
    """Of a store that has no disk of its own: every error passes."""

    level: Final = Level.PLENTY
    cause: Final = ""

    def judge(self, _error: Exception) -> Trouble:
        """Say that it passes."""
        return Trouble.PASSING

    def spend(self) -> None:
        """Have nothing to give up."""

    def regain(self, _wanted_bytes: int) -> bool:
        """Have nothing to make whole."""
        return True

    def abandon(self) -> None:
        """Have nothing to leave."""


NO_GUARD: Final[Guard] = _NoGuard()
