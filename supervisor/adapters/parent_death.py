"""What a zygote imports first: from then on it never outlives its daemon.

The forkserver looks for the end of its daemon only between two forks, so one that was importing
ran on for all the seconds that this takes, beside the zygote of the next daemon, which it made
slower. Importing this module does the work, as a forkserver is told module names only. Children of
the zygote are not tied: the kernel forgets the signal at a fork.
"""

import ctypes
import os
import select
import signal
import stat
from contextlib import suppress
from typing import Final

EXIT_ORPHANED: Final = 3
"""The daemon had ended before the kernel was told."""
_PR_SET_PDEATHSIG: Final = 1
_STDERR: Final = 2


def tie() -> None:
    """Have the kernel kill this process when the thread that started it ends; or end, if it has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if has_lost_daemon():
        os._exit(EXIT_ORPHANED)


def has_lost_daemon() -> bool:
    """Say whether the other end of a pipe that was handed on is closed: the daemon holds it."""
    poll = select.poll()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not files
        fd = int(name)
        with suppress(OSError):  # the one that listdir itself had open
            if fd > _STDERR and stat.S_ISFIFO(os.fstat(fd).st_mode):
                poll.register(fd, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


tie()
