"""The threads for blocking work of the loop, all of them there from the beginning.

Python starts a thread when it is needed first. That may be when the system gives none, and just
then much ends at once: what would have told of it is not done.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

THREADS: Final = 8
"""For files and cgroups, of which one piece of work takes milliseconds. One that hangs keeps its
thread for ``cell.KILL_S``, so some are spare."""
START_S: Final = 10.0
"""For all of them to run; a busy machine needs milliseconds."""


def started_threads(count: int = THREADS) -> ThreadPoolExecutor:
    """Return an executor whose threads run already.

    Raises:
        RuntimeError: the system gives no more threads.
        threading.BrokenBarrierError: they were not running in time.
    """
    executor = ThreadPoolExecutor(count, thread_name_prefix="work")
    # Who waits at the barrier is not idle, so each piece of work gets a thread of its own.
    barrier = threading.Barrier(count + 1, timeout=START_S)
    try:
        for _ in range(count):
            executor.submit(barrier.wait)
        barrier.wait()
    except BaseException:
        barrier.abort()
        executor.shutdown(wait=False)
        raise
    return executor
