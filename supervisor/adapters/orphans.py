"""What a dead agent leaves behind: processes of its POSIX session, and orphans that come to us.

An agent calls ``setsid`` at boot, so everything that it started is in the session that bears its
pid, unless it called ``setsid`` too. Rules: a process is signalled through a pidfd and only after
it was seen again behind that pidfd; every loop has a bound. All functions are synchronous:
``sweep`` reads the process table, so call it in a thread.
"""

import ctypes
import os
import select
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SWEEP_ROUNDS_MAX: Final = 20
"""A round ends what the process table shows; more come only if something forks meanwhile."""
SWEEP_WAIT_S: Final = 2.0
"""For all rounds together, to see the killed processes end."""

_PR_SET_CHILD_SUBREAPER: Final = 36
_ENDED_STATES: Final = frozenset("ZXx")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    """The fields of a line of /proc/<pid>/stat that tell a process from its successors."""

    pid: int
    state: str
    ppid: int
    sid: int
    start_ticks: int
    """Since the machine's boot; with the pid it names a process for good."""

    @property
    def has_ended(self) -> bool:
        """A zombie, or on its way to be one."""
        return self.state in _ENDED_STATES


def parse_stat(line: str) -> ProcessLine:
    """Read a line of /proc/<pid>/stat; the command may hold blanks and parentheses."""
    pid, _, rest = line.partition(" ")
    fields = rest.rpartition(")")[2].split()
    return ProcessLine(
        pid=int(pid),
        state=fields[0],
        ppid=int(fields[1]),
        sid=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def set_child_subreaper() -> None:
    """Make orphans below this process its children instead of init's; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def sweep(sids: Collection[int]) -> int:
    """Kill all that is left of dead agents' sessions; returns how many were killed.

    Blocks for up to ``SWEEP_WAIT_S``. A session whose leader, the process of pid ``sid``, is alive
    is left alone: either the agent did not die, or its pid was given to another process, whose
    session this is now. Many sessions cost no more than one: the process table is read once.
    """
    deadline = time.monotonic() + SWEEP_WAIT_S
    killed: set[tuple[int, int]] = set()
    for _ in range(SWEEP_ROUNDS_MAX):
        members = [line for line in _processes() if line.sid in sids and not line.has_ended]
        led = {line.sid for line in members if line.pid == line.sid}
        left = [line for line in members if line.sid not in led]
        if not left:
            break
        killed |= _kill_all(left, deadline)
        if time.monotonic() >= deadline:
            break
    return len(killed)


def reap_adopted(known: Collection[int]) -> list[int]:
    """Reap ended children of this process that nobody else waits for; returns their pids.

    ``known`` are the pids whose status somebody wants: the nursery's own and the reaper's.
    """
    me = os.getpid()
    orphans = [
        line.pid
        for line in _processes()
        if line.ppid == me and line.state == "Z" and line.pid not in known
    ]
    return [pid for pid in orphans if _reap(pid)]


def _reap(pid: int) -> bool:
    try:
        # A zombie's pid cannot be reused before this very call.
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return False


def _kill_all(lines: Collection[ProcessLine], deadline: float) -> set[tuple[int, int]]:
    """Kill these processes and wait for their ends until the deadline; returns who it was."""
    pidfds = {(line.pid, line.start_ticks): _kill(line) for line in lines}
    for pidfd in filter(None, pidfds.values()):
        _wait(pidfd, deadline)
        os.close(pidfd)
    return {name for name, pidfd in pidfds.items() if pidfd}


def _kill(line: ProcessLine) -> int | None:
    """Kill one process and return its pidfd; None if it has ended or the pid is another's now."""
    try:
        pidfd = os.pidfd_open(line.pid)
    except ProcessLookupError:
        return None
    again = _read(line.pid)
    if again is not None and (again.start_ticks, again.sid) == (line.start_ticks, line.sid):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            return pidfd
    os.close(pidfd)
    return None


def _wait(pidfd: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(max(0.0, deadline - time.monotonic()) * 1e3)


def _processes() -> Iterator[ProcessLine]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - half the time of Path.iterdir
        line = _read(int(name)) if name.isdecimal() else None
        if line is not None:
            yield line


def _read(pid: int) -> ProcessLine | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    return None
