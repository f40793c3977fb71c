"""Lets the zygote outlive a fork that the kernel refuses.

multiprocess's forkserver ends over such a fork, and with it all that was imported and warmed; who
asked gets a dead server and not the reason. With ``outlive_failed_forks`` it gets the
reason, and the zygote forks again as soon as it is allowed to. It goes by the names of the local
variables of multiprocess's loop: where these are others, a zygote ends as before.

Where a daemon dies before it has sent what to fork, or before its child has received what to do,
both end silently: nobody is left who asked.
"""

import errno
import os
import socket
import sys
from contextlib import suppress
from pickle import UnpicklingError
from typing import Any, Final

from multiprocess import forkserver, reduction, spawn

from cmdc_runtime.process import EXIT_ORPHANED

_PIPES: Final = ("child_r", "child_w")
"""In the forkserver's loop: what the child would read, and where its pid is sent."""

_refused: Final[list[int]] = []
"""The pipes of the last fork that failed, open until the next one: who asked is still reading."""


def outlive_failed_forks() -> None:
    """Have multiprocess's forkserver of this process go on when it cannot fork."""
    forkserver.os, forkserver.reduction, forkserver.spawn = _Os(), _Reduction(), _Spawn()


class _Os:
    """The module ``os`` as the forkserver's loop sees it."""

    def __getattr__(self, name: str) -> Any:  # Any: whatever the module has
        return getattr(os, name)

    def fork(self) -> int:
        """Fork; where that fails, send minus the error's number in place of the child's pid.

        Raises:
            ConnectionAbortedError: it failed; the forkserver takes the next request then.
        """
        while _refused:
            os.close(_refused.pop())
        try:
            return os.fork()
        except OSError as error:
            request = sys._getframe(1).f_locals  # noqa: SLF001 - there is no other way to them
            if error.errno is None or not {*_PIPES, "fds"} <= request.keys():
                raise
            _refused.extend(request[name] for name in _PIPES)
            # Among these is the one with whose end the zygote ends.
            for fd in request["fds"]:
                os.close(fd)
            with suppress(BrokenPipeError):
                forkserver.write_signed(request["child_w"], -error.errno)
            raise ConnectionAbortedError(errno.ECONNABORTED, "fork failed") from error


class _Reduction:
    """The module ``reduction`` as the forkserver's loop sees it."""

    def __getattr__(self, name: str) -> Any:  # Any: whatever the module has
        return getattr(reduction, name)

    def recvfds(self, request: socket.socket, size: int) -> list[int]:
        """Return the descriptors that come with a request.

        Raises:
            ConnectionAbortedError: it ended before there were any; the forkserver takes the next
                request then, or finds that its daemon is gone.
        """
        try:
            fds: list[int] = reduction.recvfds(request, size)
        except EOFError:
            raise ConnectionAbortedError(errno.ECONNABORTED, "nothing was asked") from None
        return fds


class _Spawn:
    """The module ``spawn`` as the forkserver sees it."""

    def __getattr__(self, name: str) -> Any:  # Any: whatever the module has
        return getattr(spawn, name)

    def _main(self, fd: int, parent_sentinel: int) -> int:
        """Do what the daemon says, and return the exit code."""
        try:
            code: int = spawn._main(fd, parent_sentinel)  # noqa: SLF001 - what a child begins with
        except (EOFError, UnpicklingError):
            return EXIT_ORPHANED
        return code
