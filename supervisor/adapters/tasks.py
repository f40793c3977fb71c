"""Background tasks that nobody forgets, and time limits that count only while this process runs.

A daemon that was stopped, or had no processor, comes back to timers that are all due, and would act
on them before it has heard what came meanwhile. A limit is counted in ticks here. One that comes
late counts as one tick, and is never the last: what has come is heard before the next one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

# --- tasks ----------------------------------------------------------------------------------------

log = structlog.get_logger()


def _log_failed(task: str, error: BaseException) -> None:
    log.error("background.failed", task=task, exc_info=error)


class BackgroundTasks:
    """Tasks that nobody awaits, held until they end: the loop itself does not hold them.

    One that raises is a bug of ours: ``report`` gets its name and the error, and logs it.
    """

    def __init__(self, report: Callable[[str, BaseException], None] = _log_failed) -> None:
        """Hold none."""
        self._report = report
        self._tasks: set[asyncio.Task[object]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[object]]:
        """Yield those that have not ended."""
        return iter([task for task in self._tasks if not task.done()])

    def __len__(self) -> int:
        """Return how many have not ended."""
        return sum(not task.done() for task in self._tasks)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:  # Any: asyncio's own
        """Run ``work`` as a task of this name."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel those that have not ended."""
        for task in self:
            task.cancel()

    async def wait(self) -> None:
        """Return when those that are here now have ended; it may be by an error."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(task.get_name(), error)


# --- time limits ----------------------------------------------------------------------------------

TICK_S: Final = 0.25
"""By so much a pause may be counted, and so late a tick may be without being one."""
LATE_MAX: Final = 40
"""After so many late ticks in a row a limit holds all the same: a loop that never keeps up must not
wait for ever."""


class AwakeTimer:
    """Calls ``call`` when this process has run for ``delay_s`` seconds; in the running loop."""

    def __init__(self, delay_s: float, call: Callable[[], None]) -> None:
        """Set it."""
        self._left_s, self._call = delay_s, call
        self._late = 0
        self._arm()

    def cancel(self) -> None:
        """Never call. Idempotent."""
        self._handle.cancel()

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._step_s = min(TICK_S, max(self._left_s, 0.0))
        self._handle = loop.call_later(self._step_s, self._tick)

    def _tick(self) -> None:
        is_late = asyncio.get_running_loop().time() > self._handle.when() + TICK_S
        self._late = self._late + 1 if is_late else 0
        self._left_s -= self._step_s
        if self._left_s > 0 or 0 < self._late <= LATE_MAX:
            self._left_s = max(self._left_s, TICK_S if is_late else 0.0)
            self._arm()
        else:
            self._call()


@asynccontextmanager
async def awake_timeout(limit_s: float) -> AsyncIterator[None]:
    """Bound what is awaited by ``limit_s`` seconds in which this process runs.

    Raises:
        TimeoutError: it took longer.
    """
    async with asyncio.timeout(None) as scope:
        timer = AwakeTimer(limit_s, lambda: scope.reschedule(0.0))
        try:
            yield
        finally:
            timer.cancel()
