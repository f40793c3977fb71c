"""How many descriptors this process has, and how many it may have."""

import errno
import os
import resource
from typing import Final

DESCRIPTORS_FREE_MIN: Final = 64
"""With fewer left nothing is forked: one process costs its daemon about 8, and those that are left
are for clients and the journal. libzmq ends the process in which it finds none to accept with."""


def descriptors() -> tuple[int, int | None]:
    """Return those in use and the limit, None where there is none; takes a microsecond."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The size of the directory is their number since Linux 6.2, and 0 before.
    used = os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))  # noqa: PTH116, PTH208 - a third of the time of Path
    return used, None if limit == resource.RLIM_INFINITY else limit


def check_descriptors() -> None:
    """Raise OSError where a new process, or what it needs, would take one of the last."""
    used, limit = descriptors()
    if limit is not None and limit - used < DESCRIPTORS_FREE_MIN:
        raise OSError(
            errno.EMFILE,
            f"{used} of the daemon's {limit} descriptors are in use and the last "
            f"{DESCRIPTORS_FREE_MIN} are kept free: raise LimitNOFILE= in its unit, or ulimit -n",
        )
