"""The thread that ends a process whose main thread can't, or does not in time.

It waits for two things: the daemon's end, after which nothing of a worker may go on for long, and
``leave``, after which the interpreter is only tidied up. Code of strangers may hang there: a task
that takes no cancelling, a thread that never returns.
"""

import os
import select
import threading
from typing import Final

from cmdc_runtime.process import EXIT_ORPHANED

ORPHAN_S: Final = 5.0
"""For a worker to end by itself when the daemon is gone: its work and its plugins first."""
TIDY_S: Final = 0.3
"""For tasks that were left behind to be cancelled; what an agent has to do it has done by then."""


class Guard:
    """Watches over the end of this process, from ``start`` on."""

    def __init__(self, daemon_fd: int) -> None:
        """Watch the pidfd of the daemon."""
        self._daemon_fd = daemon_fd
        self._leaving_fd = os.eventfd(0)
        self._code = EXIT_ORPHANED

    def start(self) -> None:
        """Start the thread; it keeps nothing from ending."""
        threading.Thread(target=self._watch, name="guard", daemon=True).start()

    def leave(self, code: int) -> None:
        """End the process with this exit code within ``TIDY_S``, unless it has ended by then."""
        self._code = code
        os.eventfd_write(self._leaving_fd, 1)

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._daemon_fd, select.POLLIN)
        poller.register(self._leaving_fd, select.POLLIN)
        if self._leaving_fd not in dict(poller.poll()):
            poller.unregister(self._daemon_fd)
            if not poller.poll(ORPHAN_S * 1e3):
                os._exit(self._code)
        threading.Event().wait(TIDY_S)
        os._exit(self._code)
