"""How a process ended, in the kernel's own words, whoever is its parent and whoever reaped it.

The daemon is not the parent of its workers, so it cannot wait for them. The kernel shows the status
all the same, in two places, and between them there is no moment at which neither knows:

- while the process is a zombie, the last field of ``/proc/<pid>/stat``;
- once its parent has reaped it, ``PIDFD_GET_INFO`` on its pidfd, since Linux 6.15.

Both hold the status as ``waitpid`` gives it, with the bit that says that a core was written (the
mask of ``PIDFD_INFO_COREDUMP`` stays 0 for a core that goes to a file, so it is not asked for).
Where the kernel does not show it, the zygote reports it, which waits for its children.

Rules: nothing here waits or reaps, but for ``is_over`` and ``reap``; what the kernel does not know,
or does not want to show us, is None, and then others have to be asked. A pid is trusted only while
the process behind the pidfd keeps it from being given to another one.

``Reaper`` makes exactly one ``ExitRecord`` for each child. Everything in it runs in the loop and
nothing waits; a status that nobody reports in ``STATUS_WAIT_S`` is None; all descriptors of a child
are closed before its callback runs. A process may still be a zombie then, until the zygote comes to
it: all that it held is free.
"""

import asyncio
import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from supervisor.core.exits import ExitRecord

# --- how it ended ---------------------------------------------------------------------------------

_INFO_BYTES: Final = 64
"""Of ``struct pidfd_info`` as it was first published; later fields come behind it."""
_MASK: Final = struct.Struct("=Q")
"""At the start: what we ask for, and then what we got."""
_EXIT_CODE: Final = struct.Struct("=i")
_EXIT_CODE_AT: Final = 60
"""Behind the mask, the cgroup's id (8 bytes each) and eleven ids of 4 bytes."""
_ASK_EXIT: Final = 1 << 3
"""PIDFD_INFO_EXIT."""
_READ_WRITE: Final = 3
_MAGIC: Final = 0xFF
_GET_INFO: Final = _READ_WRITE << 30 | _INFO_BYTES << 16 | _MAGIC << 8 | 11
"""PIDFD_GET_INFO, an ``_IOWR`` with the size of what we read and write."""

_STATE_AT: Final = 0
_WCHAN_AT: Final = 32
_STATUS_AT: Final = 49
"""Where the fields of /proc/<pid>/stat are, counted behind the command's closing parenthesis."""
_ENDED: Final = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: its exit code, or minus the number of the signal."""

    code: int
    core_dumped: bool = False


@dataclass(frozen=True, slots=True)
class Stuck:
    """Where in the kernel a process is that does not end."""

    state: str
    """As ps shows it: D is a wait that no signal ends."""
    wchan: str
    """The kernel's function that waits; "" where the kernel does not say."""


def is_over(pidfd: int, timeout_s: float = 0.0) -> bool:
    """Say whether the process has ended, after ``timeout_s`` seconds at most."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1e3))


def exit_status(pid: int, pidfd: int) -> ExitStatus | None:
    """Return how the process of ``pidfd`` ended; None if it lives, or if the kernel won't say.

    A stopped process lives. Any descriptor will do: one that is no pidfd gets None.
    """
    # The last look is for a process that was reaped between the first two.
    return _of_reaped(pidfd) or _of_zombie(pid, pidfd) or _of_reaped(pidfd)


def reap(pidfd: int) -> ExitStatus | None:
    """Reap a child of ours and return how it ended.

    None if it lives, is no child of this process, or was reaped by somebody else.
    """
    try:
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except OSError:  # not ours, or not a pidfd
        return None
    if ended is None:
        return None
    if ended.si_code == os.CLD_EXITED:
        return ExitStatus(ended.si_status)
    return ExitStatus(-ended.si_status, core_dumped=ended.si_code == os.CLD_DUMPED)


def stuck_at(pid: int, pidfd: int) -> Stuck | None:
    """Say where a process is that should be gone by now; None if it has ended."""
    fields = _stat(pid)
    if not fields or fields[_STATE_AT] in _ENDED or not _holds_pid(pidfd):
        return None
    return Stuck(state=fields[_STATE_AT], wchan=_wchan(pid))


def _of_reaped(pidfd: int) -> ExitStatus | None:
    """None also on kernels before 6.15 (ENOTTY, EINVAL, or no exit code in the answer)."""
    asked = _MASK.pack(_ASK_EXIT).ljust(_INFO_BYTES, b"\0")
    try:
        info = fcntl.ioctl(pidfd, _GET_INFO, asked)
    except OSError:
        return None
    (got,) = _MASK.unpack_from(info)
    if not got & _ASK_EXIT:
        return None
    (status,) = _EXIT_CODE.unpack_from(info, _EXIT_CODE_AT)
    return _decoded(status)


def _of_zombie(pid: int, pidfd: int) -> ExitStatus | None:
    fields = _stat(pid)
    if not fields or fields[_STATE_AT] not in _ENDED:
        return None
    status = int(fields[_STATUS_AT])
    # Of a process that is none of our business (another user's, or one that must not be dumped)
    # the kernel shows 0 as the status, and 0 as whether it waits, which a zombie does.
    if status == 0 and fields[_WCHAN_AT] == "0":
        return None
    return _decoded(status) if _holds_pid(pidfd) else None


def _decoded(status: int) -> ExitStatus:
    return ExitStatus(os.waitstatus_to_exitcode(status), core_dumped=os.WCOREDUMP(status))


def _stat(pid: int) -> list[str]:
    """Return the fields behind the command, which may hold blanks and parentheses."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - half the time of Path
            return file.read().rpartition(")")[2].split()
    except OSError:  # reaped, or another user's under hidepid
        return []


def _wchan(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - as above
            return file.read().strip("0\n")
    except OSError:
        return ""


def _holds_pid(pidfd: int) -> bool:
    """Say whether the process still has its pid: it lives, or is a zombie that nobody reaped."""
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except OSError:
        return False
    return True


# --- who waits for it -----------------------------------------------------------------------------

STATUS_WAIT_S: Final = 2.0
"""The zygote needs about a millisecond, but it reports nothing while it forks: as many children
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
        """Return what the zygote reported; None if it did not (yet)."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this when the zygote reports the status, or is gone; at once, if it is so."""

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
        """Report what the zygote said; if it died instead, the process may come to us yet."""
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
        reported = child.status()
        by_zygote = ExitStatus(reported) if reported is not None else None
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
