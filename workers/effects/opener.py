"""Opens what commands bring while the session lives: each parcel is a step, as in rebuilding.

Foreign code runs then. The process may die of it, and the command, which the journal has, comes
again to the next one. So the step stands on the heartbeat board for as long as that code may run,
whatever else the agent does meanwhile. Commands have their turns one after another: two parcels
that are open at a time could not be told apart by a death.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar

from cmdc_runtime.board import parcel_step
from cmdc_runtime.parcels import Packed, digest_of
from workers.threads import Threads

_T = TypeVar("_T")

_NO_STEP: Final = 0


class Opener:
    """What opens the parcels of one session's commands."""

    def __init__(self, opening_at: Callable[[int], None] = lambda _step: None) -> None:
        """Tell ``opening_at`` each step before it is taken, and 0 when it is over."""
        self._opening_at = opening_at
        self._turn = asyncio.Lock()
        self._threads = Threads("opener")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the commands before this one; each of them opens for a bounded time."""
        async with self._turn:
            yield

    @contextmanager
    def step(self, packed: Packed) -> Iterator[None]:
        """Be at the step of this parcel; in a turn."""
        self._opening_at(parcel_step(digest_of(packed)))
        try:
            yield
        finally:
            self._opening_at(_NO_STEP)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Return what ``work``, which raises nothing, returns in a thread of its own.

        Who is cancelled meanwhile leaves the thread alone.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        return await self._threads.call(work)
