"""A call that goes on while its daemon dies: another one is started each time."""

import contextlib
import threading

POLL_S = 0.02


def reviving(own_daemon, call):
    """Return what a call returns, None where it raises, and how often the daemon died meanwhile."""
    result = []
    thread = threading.Thread(target=lambda: result.append(call()))
    thread.start()
    deaths = 0
    while thread.is_alive():
        if own_daemon.process.poll() is not None:
            deaths += 1
            with contextlib.suppress(AssertionError):  # it may die again before it is ready
                own_daemon.start()
        thread.join(POLL_S)
    return result[0] if result else None, deaths
