"""Shuts the daemon's accept gate while it is short of descriptors, and opens it again.

libzmq takes every connection that comes, and ends the process when there is no descriptor to take
one with: its listener for ipc does not know EMFILE. So nobody is let in any more before that: the
sockets are put aside under another name, where nobody looks for them. Who is connected stays so
and can ask for everything, a stop above all; who comes meanwhile waits, as for a daemon that is
about to start, and is let in when descriptors are free again. (To unbind the sockets would cut off
those who are connected.)

Rules: it holds for workers too, though none is forked when descriptors are short; a look costs a
microsecond; what fails is logged and tried again.
"""

import asyncio
import errno
import os
import resource
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.runtime_dir import CONTROL_SOCKET, EVENTS_SOCKET, WORKERS_SOCKET
from supervisor.adapters.endpoint import shut_path

# --- descriptors ----------------------------------------------------------------------------------

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


# --- the gate -------------------------------------------------------------------------------------

SHUT_BELOW: Final = 32
"""Free descriptors. A client takes two, so between two looks there may come a dozen of them."""
OPEN_FROM: Final = 48
"""Free descriptors: so many more that the gate does not swing."""
LOOK_S: Final = 0.1
"""Between two looks; more connections than are free within this time still end the daemon."""
RETRY_S: Final = 5.0
"""Before a socket that could not be moved is tried again."""

log = structlog.get_logger()


class AcceptGate:
    """The sockets of one runtime directory that libzmq listens at."""

    def __init__(self, directory: Path) -> None:
        """Begin with the gate open."""
        self._sockets = [
            directory / name for name in (CONTROL_SOCKET, EVENTS_SOCKET, WORKERS_SOCKET)
        ]
        self.are_open = True

    async def keep(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                self.look()
            except OSError as error:
                log.error("accept_gate.stuck", are_open=self.are_open, problem=str(error))
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Shut or open them, if it is time to.

        Raises:
            OSError: the directory does not let them be moved.
        """
        used, limit = descriptors()
        free = OPEN_FROM if limit is None else limit - used
        if self.are_open and free < SHUT_BELOW:
            for path in self._sockets:
                _move(path, shut_path(path))
            self.are_open = False
            log.error("accept_gate.shut", descriptors=used, limit=limit)
        elif not self.are_open and free >= OPEN_FROM:
            for path in self._sockets:
                _move(shut_path(path), path)
            self.are_open = True
            log.warning("accept_gate.opened", descriptors=used, limit=limit)


def _move(path: Path, to: Path) -> None:
    """Rename a socket; one that was moved already is fine."""
    if path.exists():
        path.rename(to)
