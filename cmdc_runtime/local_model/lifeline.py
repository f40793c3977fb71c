"""Tells a helper process when nobody needs it any more, however its owner ended."""

import os
import select


def wait_unneeded(stdin_fd: int, owner_pid: int | None) -> None:
    """Return once ``stdin_fd`` is at its end or the process ``owner_pid`` is gone.

    Both are watched: a pipe may be held open by a copy in some other process, and an owner that
    closes the pipe wants the end before its own.
    """
    watched = select.poll()
    watched.register(stdin_fd, select.POLLIN)
    pidfd = -1
    if owner_pid is not None:
        try:
            pidfd = os.pidfd_open(owner_pid)
        except ProcessLookupError:
            return
        watched.register(pidfd, select.POLLIN)
    try:
        while pidfd not in (ready := {fd for fd, _ in watched.poll()}):
            if stdin_fd in ready and not os.read(stdin_fd, select.PIPE_BUF):
                return
    finally:
        if pidfd >= 0:
            os.close(pidfd)
