"""Keeps the memory of a process that runs for months at what it uses.

glibc gives each thread an arena of its own, and after the first large block that was freed it takes
blocks of that size from the arenas too (mallopt(3), the dynamic threshold). What then grows now and
then and moves, like the table of interned strings, leaves a hole of megabytes in one arena after
the other. A daemon that had nothing more to remember grew by 2 kB for each session, for as long as
there were arenas without a hole.
"""

import ctypes
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
