"""Threads for foreign code that may block, or never return.

A thread cannot be ended. Who is cancelled while waiting for one leaves it alone: what it returns is
discarded, and it is counted until it does return.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from cmdc_runtime import foreign
from cmdc_runtime.foreign import ForeignError

_T = TypeVar("_T")


class Threads:
    """The threads of one owner, those that nobody waits for any more among them."""

    def __init__(self, name: str) -> None:
        """Have none; ``name`` is what they are called."""
        self._name = name
        self._running: Final[set[threading.Thread]] = set()
        self._left: Final[set[threading.Thread]] = set()

    def __len__(self) -> int:
        """Return how many run."""
        return len(self._running)

    @property
    def left(self) -> int:
        """How many run that nobody waits for any more."""
        self._left.intersection_update([one for one in self._left if one.is_alive()])
        return len(self._left)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Return what ``work``, which is not ours, returns in a thread of its own.

        Raises:
            ForeignError: it raised anything at all.
            RuntimeError: the system gives no more threads.
        """

        def contained() -> tuple[_T, None] | tuple[None, ForeignError]:
            try:
                return foreign.call(work), None
            except ForeignError as failed:
                return None, failed

        value, failed = await self.call(contained)
        if failed is not None:
            raise failed
        return value  # type: ignore[return-value]  # a pair's first is there without a second

    async def call(self, work: Callable[[], _T]) -> _T:
        """Return what ``work``, which raises nothing, returns in a thread of its own.

        A pool would fill up with threads that never return; here they cost only themselves.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_T] = loop.create_future()
        surroundings = contextvars.copy_context()

        def set_result(value: _T) -> None:
            self._running.discard(thread)
            if not done.done():  # else cancelled meanwhile: the result is discarded
                done.set_result(value)

        def run() -> None:
            value = surroundings.run(work)
            with suppress(RuntimeError):  # the loop is closed: nobody waits for it
                loop.call_soon_threadsafe(set_result, value)

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        thread.start()
        self._running.add(thread)
        try:
            return await done
        except asyncio.CancelledError:
            self._left.add(thread)
            raise
