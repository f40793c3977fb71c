"""What is closed when a block ends: ``with`` and ``async with`` for whatever has a ``close``.

A class that begins something at the block's beginning has its own ``__enter__``.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Is closed when its block ends, however that ends."""

    @abstractmethod
    def close(self) -> None:
        """End it; a second time does nothing."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


class AsyncClosing(ABC):
    """The same for coroutines."""

    @abstractmethod
    async def close(self) -> None:
        """End it; a second time does nothing."""

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()
