"""The thread that ends a process whose main thread can't, or does not in time.

It waits for two things: the daemon's end, after which a worker goes on only until its grace is over
or another daemon has taken it over, and ``leave``, after which the interpreter is only tidied up.
Foreign code may hang there: a task that takes no cancelling, a thread that never returns.
"""

import os
import select
import threading
from typing import Final

from cmdc_runtime.process import EXIT_ORPHANED

ORPHAN_S: Final = 5.0
"""For a worker to end by itself when it has no daemon: its work and its plugins first."""
TIDY_S: Final = 0.3
"""For tasks that were left behind to be cancelled; what an agent has to do it has done by then."""


class Watchdog:
    """Watches over the end of this process, from ``start`` on."""

    def __init__(self, daemon_fd: int) -> None:
        """Watch the pidfd of the daemon, which is the guard's from now on."""
        self._daemon_fd = daemon_fd
        self._next_fd = daemon_fd
        self._event_fd = os.eventfd(0)
        self._is_leaving = False
        self._grace_s = 0.0
        self._code = EXIT_ORPHANED

    @property
    def daemon_fd(self) -> int:
        """The pidfd of the daemon that is watched."""
        return self._next_fd

    def start(self) -> None:
        """Start the thread; it keeps nothing from ending."""
        threading.Thread(target=self._watch, name="guard", daemon=True).start()

    def allow(self, grace_s: float) -> None:
        """Let the process go on for so long without a daemon."""
        self._grace_s = grace_s

    def watch(self, daemon_fd: int) -> None:
        """Watch another daemon, by its pidfd, which is the guard's from now on."""
        self._next_fd = daemon_fd
        os.eventfd_write(self._event_fd, 1)

    def leave(self, code: int) -> None:
        """End the process with this exit code within ``TIDY_S``, unless it has ended by then."""
        self._code, self._is_leaving = code, True
        os.eventfd_write(self._event_fd, 1)

    def _watch(self) -> None:
        while not self._is_leaving:
            is_gone = not self._is_woken(None, self._daemon_fd)
            if is_gone and not self._is_woken(self._grace_s + ORPHAN_S):
                os._exit(self._code)
            os.eventfd_read(self._event_fd)
            if self._next_fd != self._daemon_fd:
                os.close(self._daemon_fd)
                self._daemon_fd = self._next_fd
        threading.Event().wait(TIDY_S)
        os._exit(self._code)

    def _is_woken(self, timeout_s: float | None, *others: int) -> bool:
        """Wait; say whether its own event came, and not only one of ``others`` is readable."""
        poller = select.poll()
        for fd in (self._event_fd, *others):
            poller.register(fd, select.POLLIN)
        found = poller.poll(None if timeout_s is None else timeout_s * 1e3)
        return self._event_fd in dict(found)
