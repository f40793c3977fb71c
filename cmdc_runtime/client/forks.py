"""What belongs to one process, and is refused in one that was forked from it.

A fork copies a client, but none of its threads: what would fill a queue or run in a loop there is
in the parent alone, and a lock may be held by a thread that the child does not have.
"""

import os

from cmdc_runtime.errors import UsageError


def is_own(pid: int) -> bool:
    """Say whether ``pid``, which made a thing, is this process."""
    return pid == os.getpid()


def check_own(pid: int) -> None:
    """Refuse what another process, ``pid``, made.

    Raises:
        UsageError: it was made before the fork.

    """
    if not is_own(pid):
        raise UsageError("this client was made before the fork: make one in each process")
