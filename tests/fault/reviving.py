"""A call that goes on while its daemon dies: another one is started each time."""

import contextlib
from concurrent.futures import ThreadPoolExecutor, wait

POLL_S = 0.02


def reviving(own_daemon, call):
    """Return what a call returns, and how often the daemon died meanwhile; raise what it raises."""
    deaths = 0
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(call)
        while not called.done():
            if own_daemon.process.poll() is not None:
                deaths += 1
                with contextlib.suppress(AssertionError):  # it may die again before it is ready
                    own_daemon.start()
            wait([called], POLL_S)
        return called.result(), deaths
