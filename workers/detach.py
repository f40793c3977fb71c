"""Cut what ties a forked worker to the nursery beyond being its child.

Every child is handed the write end of the nursery's alive pipe, and the nursery ends only when all
of these are closed: without ``leave_nursery`` it would outlive a dead daemon for as long as one
agent lives, and so would the resource tracker. The daemon's own life can still be watched:
``multiprocess.parent_process().sentinel`` becomes readable when the daemon is gone.
"""

import os
import stat
from contextlib import suppress
from typing import Any

from multiprocess import forkserver, resource_tracker


def leave_nursery() -> None:
    """Close this child's ends of the nursery's and the resource tracker's pipes; idempotent.

    To be called once, first thing in a forked process. multiprocess has no public way to do this,
    so what its attributes hold is closed only if it is a pipe.
    """
    _drop(forkserver._forkserver, "_forkserver_alive_fd")  # noqa: SLF001 - no public way
    _drop(resource_tracker._resource_tracker, "_fd")  # noqa: SLF001 - no public way


def _drop(owner: Any, attribute: str) -> None:  # Any: multiprocess has no types
    fd = getattr(owner, attribute, None)
    if not isinstance(fd, int):
        return
    setattr(owner, attribute, None)
    with suppress(OSError):  # closed by somebody else: what we want
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
