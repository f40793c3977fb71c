"""Keeps the memory of a process that runs for months at what it uses.

glibc gives each thread an arena of its own, and after the first large block that was freed it takes
blocks of that size from the arenas too (mallopt(3), the dynamic threshold). What then grows now and
then and moves, like the table of interned strings, leaves a hole of megabytes in one arena after
the other. A daemon that had nothing more to remember grew by 2 kB for each session, for as long as
there were arenas without a hole.
"""

import ctypes
import resource
from functools import cache
from pathlib import Path
from typing import Final

# The names of malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

ARENAS_MAX: Final = 2
"""Under the interpreter's lock one thread allocates at a time; the other is SQLite or ZeroMQ."""
LARGE_BLOCK_BYTES: Final = 2**20
"""What is as large as this is given back to the kernel when it is freed."""


def bound_arenas() -> None:
    """Have malloc keep few arenas, and no large blocks in them; another libc is left as it is.

    Meant for the start of a process: an arena that there is stays.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return
    libc.mallopt(_M_ARENA_MAX, ARENAS_MAX)
    libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, LARGE_BLOCK_BYTES)


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def used_bytes() -> int:
    """Return what is in use of malloc's memory; of another libc, what the process has in RAM.

    It takes a microsecond, and may be asked for in any thread.
    """
    libc = _libc()
    if not hasattr(libc, "mallinfo2"):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    found = libc.mallinfo2()
    return int(found.uordblks) + int(found.hblkhd)


def give_back() -> None:
    """Give what was freed back to the kernel, also from between what is in use."""
    libc = _libc()
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallinfo2"):
        libc.mallinfo2.restype = _MallInfo
    return libc
