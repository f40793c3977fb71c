"""A process that the host forked: its descriptors, its end and the reason of that.

A process leads a group of its own from the start. It is killed with all of the group and all that
descends from it, and before it is reaped, so that nobody else's number is hit.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cmdc_runtime.process import EXIT_OK
from cmdc_runtime.process_table import are_gone, end_trees
from cmdc_runtime.reasons import ExitCode, PlainReason, Signal
from workers.output import UnendedLines
from workers.toolhost.wire import REPORT_BYTES_MAX, Frames

WELL: Final = ExitCode(code=EXIT_OK)
"""How a call ends that has said its result, be that an error."""
KILL_S: Final = 1.0
"""For all that a call has started to be gone; it takes milliseconds, and the host waits."""


@dataclass(slots=True, eq=False)
class Forked:
    """One forked process; a spare has the number 0 and takes its order from ``orders``."""

    number: int
    pid: int
    pidfd: int
    pipe: int
    unended: UnendedLines
    orders: int | None = None
    called: tuple[str, str] = ("", "")
    """The call's id and its tool, from its order on."""
    frames: Frames = field(default_factory=lambda: Frames(REPORT_BYTES_MAX))
    failure: PlainReason | None = None

    def kill(self) -> None:
        """Kill the process and its group."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end_of_all(self) -> PlainReason:
        """Kill what is left of the group of a process that has ended; return how that ended."""
        ended = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None  # noqa: S101 - only WNOHANG returns without a result
        self.kill()
        return self.failure or reason_of(ended)

    @property
    def has_ended_well(self) -> bool:
        """It has ended by itself, and was not reaped yet."""
        found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return found is not None and reason_of(found) == WELL

    def reap(self) -> None:
        """Reap a process that has ended; its number may be given to another from now on."""
        os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
        self.close()

    def close(self) -> None:
        """Give back the descriptors."""
        close_all(self.pidfd, self.pipe, self.orders)
        self.unended.close()


def kill_all(processes: Iterable[Forked]) -> bool:
    """Kill processes with their groups and all that descends from them, within ``KILL_S``.

    False, if something of that is left, which may go on forking.
    """
    given = list(processes)
    pids = [one.pid for one in given]
    is_done = False
    with suppress(OSError):  # no descriptor is left: what is known by its group ends all the same
        end_trees(lambda: pids, time.monotonic() + KILL_S)
        is_done = are_gone(pids)
    for one in given:
        one.kill()
    return is_done


def reason_of(ended: os.waitid_result) -> PlainReason:
    """Return why a process ended."""
    number = ended.si_status
    if ended.si_code == os.CLD_EXITED:
        return ExitCode(code=number)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"SIG{number}"
    return Signal(number=number, name=name, core_dumped=ended.si_code == os.CLD_DUMPED)


def watch(pid: int) -> int:
    """Return the pidfd of a process that was just forked, and make sure that it leads a group.

    Raises:
        OSError: no descriptor is left; the process is gone, since nobody could watch it.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)  # the child does it too: whoever comes first
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def close_all(*fds: int | None) -> None:
    """Close descriptors; None is none."""
    for fd in fds:
        if fd is not None:
            os.close(fd)
