"""Signals that are heard in an asyncio loop, whatever else comes at the time.

asyncio goes by a byte for each signal in a pipe of its own, which holds some hundreds: a storm of
ends of processes (SIGCHLD) fills it while the loop is busy, and what comes then is lost, a SIGTERM,
too. Here the byte only wakes the loop. What tells it is Python's own handler, which runs once for
all signals of a number that have come, see https://docs.python.org/3/library/signal.html.
"""

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import Any


def on_signal(number: signal.Signals, call: Callable[[], object]) -> None:
    """Have the running loop call this for signals of this number: once for some that come at once.

    It ends with the loop. To be called in the main thread.
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, _woken)
    signal.signal(number, partial(_tell, loop, call))
    signal.siginterrupt(number, False)  # noqa: FBT003 - it has no name for it
    signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)


def _woken() -> None:
    """Do nothing: the handler has told the loop."""


# Any: the number and the frame that was interrupted.
def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], object], *_: Any) -> None:
    loop.call_soon_threadsafe(call)
