"""What a process asks of the kernel about itself: orphans, its name, its turns, its memory.

See prctl(2). The C library is opened once per process, at import, so that nothing is opened between
a fork and an exec.

Who answers others goes before who computes: the kernel gives a thread that wakes up the processor
at once if its slice is shorter than that of the one that runs (EEVDF, Linux 6.12), and one of
SCHED_BATCH takes it from nobody as it wakes up (sched(7)). Older kernels take the slice and leave
it; what a sandbox refuses stays as it was.

A zygote's memory is in pages of 2 MiB: a fork has less to copy then, and an end less to take down.
A fork copies the tables of all pages that a process has, 4 KiB each: 13 ms where litellm is loaded,
1 ms where its heap is in huge pages. A child's write splits one again and copies 4 KiB, so its own
memory stays what it was. Linux 6.1 and newer collapse pages where they are asked to (madvise(2),
MADV_COLLAPSE), whatever the system's setting for huge pages is; older ones, and those without them,
refuse, and then nothing changes.
"""

import ctypes
import mmap
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

# --- of the process itself ------------------------------------------------------------------------

_SET_PDEATHSIG: Final = 1
_GET_DUMPABLE: Final = 3
_SET_DUMPABLE: Final = 4
_SET_NAME: Final = 15
_SET_CHILD_SUBREAPER: Final = 36

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_prctl: Final = _libc.prctl


def set_child_subreaper() -> None:
    """Make orphans below this process its children instead of init's; raises OSError.

    Children do not inherit it; an exec keeps it.
    """
    _call(_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def set_parent_death_signal() -> None:
    """Have the kernel kill this process when the thread that forked it ends; raises OSError.

    A fork forgets it. The parent may have ended before: look at the parent's pid afterwards.
    """
    _call(_SET_PDEATHSIG, signal.SIGKILL, "PR_SET_PDEATHSIG")


def set_dumpable(*, is_dumpable: bool) -> None:
    """Say whether other processes of this user may look into this one; raises OSError.

    Where they may not, its memory, environment, descriptors and maps in /proc are readable for
    nobody without CAP_SYS_PTRACE, it can't be traced, and it writes no core file. A fork inherits
    it; an exec makes the process dumpable again. Such a process can't write to its own
    /proc/self/oom_score_adj unless it is root's.
    """
    _call(_SET_DUMPABLE, int(is_dumpable), "PR_SET_DUMPABLE")


def is_dumpable() -> bool:
    """Say whether other processes of this user may look into this one."""
    return bool(_prctl(_GET_DUMPABLE, 0, 0, 0, 0))


def _call(option: int, value: int, name: str) -> None:
    if _prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({name})")


# --- its name -------------------------------------------------------------------------------------

NAME_BYTES_MAX: Final = 15
"""Of the short name, which ``ps`` and ``top`` show (PR_SET_NAME of prctl(2))."""
_ARG_START_AT: Final = 45
"""Of /proc/self/stat, counted behind the command's closing parenthesis; the end is the next one."""


def set_title(name: str, title: str) -> None:
    """Show ``name`` as this process's short name, and ``title`` in place of its command line.

    For the main thread. The title is written over the arguments that the process was started with,
    as setproctitle does, and is cut where it is longer than they are; Python has its own copy of
    them. What ``ps -f`` and ``htop`` show is read from there. Nothing changes where the kernel does
    not say where they are.
    """
    _prctl(_SET_NAME, ctypes.c_char_p(os.fsencode(name)[:NAME_BYTES_MAX]), 0, 0, 0)
    start, size = _argument_bytes()
    if size > 1:
        shown = os.fsencode(title)[: size - 1]  # the last byte shows the kernel where they end
        ctypes.memmove(start, shown.ljust(size, b"\0"), size)


@cache
def _argument_bytes() -> tuple[int, int]:
    """Return where in memory the arguments of this process are, and how many bytes.

    Forks have them at the same place. They are read first, so that they are there to be written.
    """
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = map(int, fields[_ARG_START_AT : _ARG_START_AT + 2])
        held = len(Path("/proc/self/cmdline").read_bytes())
    except (OSError, ValueError):
        return 0, 0
    return (start, end - start) if start and held == end - start else (0, 0)


# --- its turns at the processor -------------------------------------------------------------------

SLICE_S: Final = 0.0003
"""Of who answers others; the kernel's own is 1.4 ms on two cores and 2.8 from eight on."""
NICE_AT_FIRST: Final = os.getpriority(os.PRIO_PROCESS, 0)
"""The niceness of this process as it began, which is what it hands on."""
_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}.get(os.uname().machine)
"""The number of sched_setattr(2), which only the newest C libraries have a name for."""
_ATTR: Final = struct.Struct("=IIQiIQQQ")
"""Its argument: size, policy, flags, niceness, priority, slice in ns, and two of other policies."""


def answer_others(*, steps: int = 0) -> None:
    """Have the threads of this process go first when they wake up; those of later are as these.

    ``steps`` of niceness are taken off as well, where this process may do that: root may, and who
    has RLIMIT_NICE for it (getrlimit(2)).
    """
    if steps:
        with suppress(OSError):  # not allowed: then the slice has to do
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - steps)
    _take_turns(os.SCHED_OTHER, round(SLICE_S * 1e9))


def yield_to_others() -> None:
    """Have the threads of this process take the processor from nobody when they wake up."""
    _take_turns(os.SCHED_BATCH, 0)


def _take_turns(policy: int, slice_ns: int) -> None:
    """Set policy and slice of each thread of this process, unless somebody has chosen others."""
    if _SETATTR is None or os.sched_getscheduler(0) not in (os.SCHED_OTHER, os.SCHED_BATCH):
        return
    for thread in map(int, os.listdir("/proc/self/task")):  # noqa: PTH208 - only names
        with suppress(OSError):  # it has ended
            nice = os.getpriority(os.PRIO_PROCESS, thread)
            attr = _ATTR.pack(_ATTR.size, policy, 0, nice, 0, slice_ns, 0, 0)
            _libc.syscall(_SETATTR, thread, attr, 0)


# --- huge pages -----------------------------------------------------------------------------------

HUGE_BYTES: Final = 2 * 2**20
_COLLAPSE: Final = 25
"""MADV_COLLAPSE."""
_SET_THP_DISABLE: Final = 41
"""PR_SET_THP_DISABLE of prctl(2)."""
_MAPS: Final = Path("/proc/self/maps")
_SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def collapse() -> tuple[int, str]:
    """Collapse this process's anonymous memory; return how many bytes, and why not the rest.

    Takes some 30 ms for 100 MiB. Single pages that the kernel can't collapse now are no problem:
    "" is said where it does it at all.
    """
    done, problem = 0, ""
    for start, end in _writable():
        for at in range(start, end, HUGE_BYTES):
            problem = _refused(at)
            done += 0 if problem else HUGE_BYTES
    return done, "" if done else problem


def refusal() -> str:
    """Return why this kernel makes no huge pages when it is asked to; "" where it does."""
    with mmap.mmap(-1, 2 * HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:: mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)
        view = ctypes.c_char.from_buffer(memory)
        at = -(-ctypes.addressof(view) // HUGE_BYTES) * HUGE_BYTES
        problem = _refused(at)
        del view
    return problem


def is_eager() -> bool:
    """Say whether the system makes huge pages wherever it can, unasked."""
    try:
        return "[always]" in _SETTING.read_text(encoding="ascii")
    except OSError:  # a kernel without them
        return False


def keep_small(*, is_small: bool = True) -> None:
    """Have the kernel make no huge pages of this process's memory by itself, or make them again.

    Else khugepaged would fill those up again that its writes have split, with 2 MiB for each. A
    fork and an exec inherit it.
    """
    _libc.prctl(_SET_THP_DISABLE, int(is_small), 0, 0, 0)


def _refused(at: int) -> str:
    """Collapse the huge page that begins at this address, or return why not."""
    refused = _libc.madvise(at, HUGE_BYTES, _COLLAPSE)
    return os.strerror(ctypes.get_errno()) if refused else ""


def _writable() -> Iterator[tuple[int, int]]:
    """Yield the ranges of private anonymous memory that whole huge pages fit into."""
    for line in _MAPS.read_text(encoding="ascii", errors="replace").splitlines():
        span, mode, _, _, inode, *name = line.split(maxsplit=5)
        if mode != "rw-p" or inode != "0" or (name and name[0] != "[heap]"):
            continue
        low, high = (int(one, 16) for one in span.split("-"))
        start, end = -(-low // HUGE_BYTES) * HUGE_BYTES, high // HUGE_BYTES * HUGE_BYTES
        if start < end:
            yield start, end
