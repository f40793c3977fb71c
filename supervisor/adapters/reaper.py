"""When a forked process ended and with which status: exactly one ``ExitRecord`` for each child.

The pidfd is the truth about the end, and the kernel tells the status in the same moment, however
busy the zygote is and whether or not it lives. Where the kernel does not tell (``pidfd`` says
when), the zygote does, which waits for its children, or the kernel again once it has reaped them.

Rules: everything runs in the loop and nothing waits; a status that nobody tells in
``STATUS_WAIT_S`` is None; all descriptors of a child are closed before its callback runs. A process
may still be a zombie then, until the zygote comes to it: all that it held is free.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from supervisor.adapters.pidfd import ExitStatus, exit_status, reap
from supervisor.core.exits import ExitRecord

STATUS_WAIT_S: Final = 2.0
"""The zygote needs about a millisecond, but it tells nothing while it forks: as many children
that die at once as must be replaced at once keep it busy for that long."""
STATUS_WAIT_ALONE_S: Final = 0.1
"""The same when the zygote is gone: the kernel gives us its children at once."""


OnExit = Callable[[ExitRecord], None]


class Watched(Protocol):
    """A process as whoever has it hands it over: a child of the zygote, or what was left."""

    @property
    def pid(self) -> int:
        """Its pid."""

    @property
    def pidfd(self) -> int:
        """Readable when it has ended."""

    def status(self) -> int | None:
        """Return what the zygote told; None if it did not (yet)."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this when the zygote tells the status, or is gone; at once, if it is so."""

    def close(self) -> None:
        """Give back the descriptors. Idempotent."""


@dataclass(slots=True)
class _Watch:
    """One child; ``timer`` runs while its end is known and its status is not."""

    child: Watched
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
        """The processes whose end was not reported yet; may be asked for in any thread."""
        return frozenset(watch.child.pid for watch in list(self._watches.values()))

    def watch(self, child: Watched, on_exit: OnExit) -> None:
        """Call ``on_exit`` once, in the loop, when the child has ended; adopts its fds."""
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
        if self._report_known(pidfd):
            return
        watch.timer = loop.call_later(STATUS_WAIT_S, self._report_late, pidfd)
        watch.child.listen(partial(self._note_status, pidfd))

    def _note_status(self, pidfd: int) -> None:
        """Report what the zygote told; if it died instead, the process may come to us yet."""
        if pidfd not in self._watches or self._report_known(pidfd):
            return
        watch, loop = self._watches[pidfd], asyncio.get_running_loop()
        if watch.timer:
            watch.timer.cancel()
        watch.timer = loop.call_later(STATUS_WAIT_ALONE_S, self._report_late, pidfd)

    def _report_late(self, pidfd: int) -> None:
        """Report the end although it took too long to hear how it came."""
        if not self._report_known(pidfd):
            self._report(pidfd, None)

    def _report_known(self, pidfd: int) -> bool:
        """Report the end if somebody knows the status by now."""
        child = self._watches[pidfd].child
        status = exit_status(child.pid, pidfd)
        # A child is ours if the zygote died before it, and then nobody else reaps it.
        reaped = reap(pidfd)
        told = child.status()
        by_zygote = ExitStatus(told) if told is not None else None
        status = status or reaped or by_zygote
        if status is not None:
            self._report(pidfd, status)
        return status is not None

    def _report(self, pidfd: int, status: ExitStatus | None) -> None:
        watch = self._watches[pidfd]
        self._forget(pidfd)
        record = ExitRecord(
            pid=watch.child.pid,
            status=status.code if status else None,
            exited_at=watch.exited_at,
            core_dumped=status is not None and status.core_dumped,
        )
        watch.on_exit(record)

    def _forget(self, pidfd: int) -> None:
        watch = self._watches.pop(pidfd)
        asyncio.get_running_loop().remove_reader(pidfd)
        if watch.timer:
            watch.timer.cancel()
        watch.child.close()
