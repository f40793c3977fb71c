"""Where what arrives waits for the application: one kind for coroutines, one for threads.

Both are filled in the client's loop and emptied by the application. What still waits when a queue
is finished can be fetched; after that every ``get`` raises the error it was finished with. A queue
holds what its filler puts in: the bound is the filler's, or ``items_max``, where the oldest make
room.

Every wait of the client for what is published passes ``get``, which is refused in a process that
was forked from the one that fills the queue. A fork copies a client, but none of its threads: what
would fill a queue or run in a loop there is in the parent alone, and a lock may be held by a thread
that the child does not have.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from cmdc_runtime.errors import UsageError

# --- forks ----------------------------------------------------------------------------------------


def is_own(pid: int) -> bool:
    """Say whether ``pid``, which made a thing, is this process."""
    return pid == os.getpid()


def check_own(pid: int) -> None:
    """Refuse what another process, ``pid``, made.

    Raises:
        UsageError: it was made before the fork.

    """
    if not is_own(pid):
        raise UsageError("this client was made before the fork: make one in each process")


# --- queues ---------------------------------------------------------------------------------------

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Queue(Protocol[T_contra]):
    """A queue as its filler sees it."""

    def __len__(self) -> int:
        """Return how many items wait."""

    def put(self, items: Sequence[T_contra]) -> None:
        """Add items."""

    def finish(self, error: Exception, *, drop: bool = False) -> None:
        """Let nothing more in; ``drop`` discards what waits. Only the first call counts."""


class AsyncQueue(Generic[T]):
    """A queue for coroutines of one loop."""

    def __init__(self, items_max: int | None = None) -> None:
        """Start empty."""
        self._items: deque[T] = deque(maxlen=items_max)
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._pid = os.getpid()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    def has_ended_with(self, error: Exception) -> bool:
        """Say whether it was finished with this very error."""
        return error is self._error

    def put(self, items: Sequence[T]) -> None:
        """Add items; nothing after the end."""
        if self._error is None:
            self._items.extend(items)
            self._changed.set()

    def finish(self, error: Exception, *, drop: bool = False) -> None:
        """Let nothing more in; ``drop`` discards what waits. Only the first call counts."""
        if self._error is None:
            self._error = error
            if drop:
                self._items.clear()
        self._changed.set()

    async def get(self, timeout_s: float | None) -> T:
        """Return the next item.

        Raises:
            TimeoutError: none came within ``timeout_s`` seconds.
            UsageError: another process fills it, which this one was forked from.

        """
        check_own(self._pid)
        if not self._items and self._error is None:
            async with asyncio.timeout(timeout_s):
                while not self._items and self._error is None:
                    self._changed.clear()
                    await self._changed.wait()
        if self._items:
            return self._items.popleft()
        assert self._error is not None  # noqa: S101 - the loop above ends for one of two reasons
        raise self._error.with_traceback(None)  # each raise would lengthen it


class ThreadQueue(Generic[T]):
    """A queue for threads; any number of them may wait."""

    def __init__(self, items_max: int | None = None) -> None:
        """Start empty."""
        self._items: deque[T] = deque(maxlen=items_max)
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._pid = os.getpid()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    def has_ended_with(self, error: Exception) -> bool:
        """Say whether it was finished with this very error."""
        return error is self._error

    def put(self, items: Sequence[T]) -> None:
        """Add items; nothing after the end."""
        with self._changed:
            if self._error is None:
                self._items.extend(items)
                self._changed.notify_all()

    def finish(self, error: Exception, *, drop: bool = False) -> None:
        """Let nothing more in; ``drop`` discards what waits. Only the first call counts."""
        if not is_own(self._pid):  # a thread that this process does not have may hold the lock
            return
        with self._changed:
            if self._error is None:
                self._error = error
                if drop:
                    self._items.clear()
            self._changed.notify_all()

    def get(self, timeout_s: float | None) -> T:
        """Return the next item.

        Raises:
            TimeoutError: none came within ``timeout_s`` seconds.
            UsageError: another process fills it, which this one was forked from.

        """
        check_own(self._pid)
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._items and self._error is None:
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise TimeoutError(f"nothing came within {timeout_s:g} s")
                self._changed.wait(left_s)
            if self._items:
                return self._items.popleft()
        assert self._error is not None  # noqa: S101 - the loop above ends for one of two reasons
        raise self._error.with_traceback(None)  # each raise would lengthen it
