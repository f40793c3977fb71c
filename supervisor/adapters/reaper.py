"""When a forked process ended and with which status: exactly one ``Exited`` for each child.

The pidfd is the truth about the end; the status comes from the nursery, which waited for it, a
moment later. Rules: everything runs in the loop and nothing waits; a status that does not come in
``STATUS_WAIT_S`` is None; all descriptors of a child are closed before its callback runs.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from supervisor.adapters.forkserver import Child, wait_status

STATUS_WAIT_S: Final = 2.0
"""The nursery needs about a millisecond, but it tells nothing while it forks: as many children
that die at once as must be replaced at once keep it busy for that long."""
STATUS_WAIT_ALONE_S: Final = 0.1
"""The same when the nursery is gone: the kernel gives us its children at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A process has ended."""

    pid: int
    status: int | None
    """Exit code, or minus the number of the signal; None if nobody could tell."""
    exited_at: float
    """Monotonic seconds, when this process noticed."""


OnExit = Callable[[Exited], None]


@dataclass(slots=True)
class _Watch:
    """One child; ``timer`` runs while its end is known and its status is not."""

    child: Child
    on_exit: OnExit
    exited_at: float = 0.0
    timer: asyncio.TimerHandle | None = None


class Reaper:
    """Watches the children of one event loop."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._watches: dict[int, _Watch] = {}  # by pidfd: pids can come again, open fds cannot

    @property
    def pids(self) -> frozenset[int]:
        """The processes whose end was not reported yet."""
        return frozenset(watch.child.pid for watch in self._watches.values())

    def watch(self, child: Child, on_exit: OnExit) -> None:
        """Call ``on_exit`` once, in the loop, when the child has ended; takes over its fds."""
        self._watches[child.pidfd] = _Watch(child, on_exit)
        asyncio.get_running_loop().add_reader(child.pidfd, self._note_end, child.pidfd)

    def close(self) -> None:
        """Stop watching and close all descriptors; the processes go on, nothing is reported."""
        for pidfd in list(self._watches):
            self._forget(pidfd)

    def _note_end(self, pidfd: int) -> None:
        """Report the end of a process with its status, or wait a moment for that."""
        watch = self._watches[pidfd]
        loop = asyncio.get_running_loop()
        loop.remove_reader(pidfd)
        watch.exited_at = time.monotonic()
        watch.timer = loop.call_later(STATUS_WAIT_S, self._report, pidfd)
        loop.add_reader(watch.child.sentinel, self._note_status, pidfd)
        if watch.child.status() is not None:
            self._report(pidfd)

    def _note_status(self, pidfd: int) -> None:
        """Report what the nursery told; if it died instead, the process may come to us yet."""
        if self._watches[pidfd].child.status() is not None:
            self._report(pidfd)
            return
        watch, loop = self._watches[pidfd], asyncio.get_running_loop()
        loop.remove_reader(watch.child.sentinel)
        status = wait_status(pidfd)
        if status is not None:
            self._report(pidfd, status)
            return
        if watch.timer:
            watch.timer.cancel()
        watch.timer = loop.call_later(STATUS_WAIT_ALONE_S, self._report, pidfd)

    def _report(self, pidfd: int, status: int | None = None) -> None:
        watch = self._watches[pidfd]
        if status is None:
            status = watch.child.status()
        if status is None:
            status = wait_status(pidfd)
        self._forget(pidfd)
        watch.on_exit(Exited(pid=watch.child.pid, status=status, exited_at=watch.exited_at))

    def _forget(self, pidfd: int) -> None:
        watch = self._watches.pop(pidfd)
        loop = asyncio.get_running_loop()
        loop.remove_reader(pidfd)
        loop.remove_reader(watch.child.sentinel)
        if watch.timer:
            watch.timer.cancel()
        watch.child.close()
