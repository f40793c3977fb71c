"""What has lost its parent in a tool host: it comes to the host, which is a subreaper.

A call is a subreaper itself, so that whatever it starts stays below it while it lives; a stray is
always of a call that has ended. What a call leaves behind that has ended well stays until the
session ends: somebody has taken pains to set it free. What another one leaves is killed. Nothing
tells whose a stray is but the time at which it came, so what came when one had ended well stays,
also where another one ended beside it.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType
from typing import Final

from cmdc_runtime.process_table import are_gone, children_of, end_trees

KILL_S: Final = 1.0
"""For what a call has left behind to be gone; it takes milliseconds, and the host waits."""
WAKES_BYTES: Final = 4096
"""Read at once of the wake-ups; each ended child is one byte."""


class Strays:
    """The children of this process that it did not fork itself."""

    def __init__(self) -> None:
        """Be told of every child that ends, by ``wake`` being readable."""
        self.wake, self._told = socket.socketpair()
        for end in (self.wake, self._told):
            end.settimeout(0)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        self._kept: set[int] = set()

    def keep(self, own: Collection[int]) -> None:
        """Let go on what is there beside ``own``."""
        self._kept |= self._all(own)

    def end(self, own: Collection[int], has_ended_well: Callable[[], bool]) -> bool:
        """Kill what is there beside ``own`` and was not kept, with all that descends from it.

        What comes when a call ``has_ended_well``, and waits to be kept, may be of that one: it is
        left. False, if something of what is to go is left.
        """
        doomed: set[int] = set()

        def roots() -> set[int]:
            there = self._all(own) - self._kept  # before it is asked: what comes later is not in it
            if not has_ended_well():
                doomed.update(there)
            return doomed & there

        is_done = False
        with suppress(OSError):  # no descriptor is left
            end_trees(roots, time.monotonic() + KILL_S)
            is_done = are_gone(roots())
        self.reap(own)
        return is_done

    def reap(self, own: Collection[int]) -> None:
        """Reap those that have ended: nobody else waits for them."""
        with suppress(BlockingIOError):
            self.wake.recv(WAKES_BYTES)
        for pid in self._all(own):
            with suppress(ChildProcessError):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None:
                    self._kept.discard(pid)

    def close(self) -> None:
        """Give back the descriptors, in a fork."""
        self.wake.close()
        self._told.close()

    def _all(self, own: Collection[int]) -> set[int]:
        return set(children_of(os.getpid())) - set(own)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Have the kernel's word taken down; without a handler there is none."""
