"""Files and directories of cgroups: read, write, kill what is inside, remove.

Every function takes a directory and looks at it and below it, since what runs in a cell may make
cgroups of its own there. Rules: no file is ever created; nothing but cgroup.procs names a process;
what the kernel refuses is False or None, and OSError is left to ``write`` and to a process that is
out of descriptors. Reading takes some 20 us a file.
"""

import errno
import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from cmdc_runtime.process_table import ProcessLine, end_all, look_up
from supervisor.core.cells import HALTS, is_populated, parse_pids

DIRECTORIES_MAX: Final = 1_000
"""Looked at below one cell."""
REMOVE_TRIES_MAX: Final = 5
"""The kernel says EBUSY for a moment after the last process has ended."""
REMOVE_PAUSE_S: Final = 0.01
"""Between two tries."""
POPULATED_WAIT_S: Final = 0.1
"""Between two looks whether a cgroup is empty, when the kernel does not tell of itself."""

_ABSENT: Final = frozenset(
    {errno.ENOENT, errno.ENODEV, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP}
)

PROCS: Final = "cgroup.procs"
EVENTS: Final = "cgroup.events"
KILL: Final = "cgroup.kill"


def read(path: Path) -> str | None:
    """Return the text of a file; None where there is none, or none for us.

    Raises:
        OSError: this process has no descriptor left for it.

    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def write(path: Path, value: str) -> None:
    """Write to a file that is there.

    Raises:
        OSError: the kernel refuses, or there is no such file.

    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def admit(directory: Path, pid: int) -> bool:
    """Move a process into a cgroup; False if it has ended.

    The first move after a while takes about 10 ms, in which the kernel waits for all cores; those
    that follow at once take less than 0.1 ms.

    Raises:
        OSError: the kernel refuses for another reason.

    """
    try:
        write(directory / PROCS, str(pid))
    except ProcessLookupError:
        return False
    return True


def directories(directory: Path) -> list[Path]:
    """Return a cgroup and all below it, the deepest last; at most ``DIRECTORIES_MAX``."""
    found = [directory]
    for one in found:
        found += children(one)
        if len(found) >= DIRECTORIES_MAX:
            break
    return found[:DIRECTORIES_MAX]


def children(directory: Path) -> list[Path]:
    """Return the cgroups right below one."""
    try:
        with os.scandir(directory) as entries:
            return [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False)]
    except OSError:  # it is gone
        return []


def pids(directory: Path) -> frozenset[int]:
    """Return the processes in a cgroup and below it."""
    texts = (read(one / PROCS) for one in directories(directory))
    return frozenset().union(*(parse_pids(text) for text in texts if text))


def is_empty(directory: Path) -> bool:
    """Say whether no process lives in a cgroup or below it; zombies do not count."""
    events = read(directory / EVENTS)
    return not pids(directory) if events is None else not is_populated(events)


def kill(directory: Path, deadline: float) -> bool:
    """Kill everything in a cgroup and below it; says whether it is empty now.

    Returns soon after ``deadline``, of the monotonic clock. This process is never killed, nor is
    anything in a cgroup that it is in itself.
    """
    if os.getpid() in pids(directory):
        return False
    try:
        write(directory / KILL, "1")
    except OSError:  # v1, or a kernel before 5.14
        _kill_each(directory, deadline)
        return is_empty(directory)
    return _await_empty(directory, deadline)


def remove(directory: Path) -> bool:
    """Remove a cgroup and all below it; False if the kernel does not let go of one of them.

    Blocks for up to ``REMOVE_TRIES_MAX`` times ``REMOVE_PAUSE_S``.
    """
    for attempt in range(REMOVE_TRIES_MAX):
        if attempt:
            time.sleep(REMOVE_PAUSE_S)
        if all(_remove_one(one) for one in reversed(directories(directory))):
            return True
    return False


def _remove_one(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError as error:
        return error.errno in {errno.ENOENT, errno.ENODEV}
    return True


def _kill_each(directory: Path, deadline: float) -> None:
    for halt in HALTS:
        with suppress(OSError):
            write(directory / halt.file, halt.value)
    end_all(lambda: _members(directory), deadline)


def _members(directory: Path) -> list[ProcessLine]:
    """Return the processes in a cgroup; each was the same before and after it was seen there."""
    before = [line for pid in pids(directory) if (line := look_up(pid)) is not None]
    there = pids(directory)
    return [line for line in before if line.pid in there]


def _await_empty(directory: Path, deadline: float) -> bool:
    """Wait for the kernel's word that no process is left."""
    try:
        events = os.open(directory / EVENTS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return is_empty(directory)
    poll = select.poll()
    poll.register(events, select.POLLPRI)
    try:
        while is_populated(os.pread(events, 4096, 0).decode()):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            poll.poll(min(left_s, POPULATED_WAIT_S) * 1e3)
    except OSError:  # somebody removed it: nothing can be in there
        return True
    finally:
        os.close(events)
    return True
