"""Sees that what the daemon has put into its directory is there, and puts it there again.

A cleaner of temporary files, or a person, removes a socket under the daemon: who is connected goes
on, and nobody else ever gets in. So every ``LOOK_S`` each path is compared with what was put there,
what is gone or another one is logged, and restored. The lock comes first: while another daemon has
the directory nothing in it is touched. What was opened to other users is logged and closed again:
the next daemon would refuse it. A log file that was moved away or removed is opened again by its
name, as programs do that rotate logs. To have another path kept, add a ``KeptPath`` where the
daemon makes this.
"""

import asyncio
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
import zmq

from cmdc_runtime.errors import CmdcError
from supervisor.adapters.accept_gate import AcceptGate
from supervisor.adapters.endpoint import Lock

LOOK_S: Final = 1.0
"""Between two looks; one takes 20 us, and one more look for each registered agent."""
RESTORED_MAX: Final = 100
"""Times that one path is restored; libzmq keeps the old descriptor of what it binds anew."""
_STDOUT: Final = 1
_STDERR: Final = 2

log = structlog.get_logger()

Mark = tuple[int, int]


@dataclass(slots=True, eq=False)
class KeptPath:
    """One path and how to make anew what belongs there; ``restore`` may raise OSError."""

    path: Path
    restore: Callable[[], None]
    mark: Mark | None = field(init=False)
    """What is there, as device and inode."""
    restored: int = 0

    def __post_init__(self) -> None:
        """Take what is there now for what belongs there."""
        self.mark = _mark(self.path)

    def is_there(self) -> bool:
        """Say whether it is."""
        return self.mark is not None and _mark(self.path) == self.mark

    def put_back(self) -> None:
        """Make it anew; raises OSError."""
        self.restored += 1
        self.restore()
        self.mark = _mark(self.path)


class Presence:
    """The paths of one daemon; ``may_restore`` the directory itself is False for an embedded one.

    Its owner has connections and looks for no other: a directory that it removed stays removed.
    """

    def __init__(
        self,
        lock: Lock,
        accept_gate: AcceptGate,
        kept: Sequence[KeptPath],
        keep_registry: Callable[[], None],
        *,
        may_restore: bool = True,
    ) -> None:
        """Keep these, which are there; ``keep_registry`` registers agents anew."""
        self._lock, self._accept_gate, self._kept = lock, accept_gate, kept
        self._keep_registry = keep_registry
        self._may_restore = may_restore
        self._problem = ""

    async def keep(self) -> None:
        """Look again and again, until cancelled; the same problem is logged once."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self.look()
            except (OSError, CmdcError, zmq.ZMQError) as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.error("directory.not_restored", problem=self._problem)

    def look(self) -> None:
        """Close what was opened to other users, and restore what is gone.

        Raises:
            CmdcError: another daemon has the directory, or it is not this user's alone any more.
            OSError, zmq.ZMQError: it can't be restored.
        """
        self._lock.keep_private()
        if not self._accept_gate.are_open:  # then they are elsewhere on purpose
            return
        if not self._lock.is_held():
            if not self._may_restore:
                return
            log.error("lock.lost", path=str(self._lock.path))
            self._lock.restore()
            log.warning("lock.restored", path=str(self._lock.path))
        for one in self._kept:
            if one.is_there() or one.restored >= RESTORED_MAX:
                continue
            log.error("file.lost", path=str(one.path))
            one.put_back()
            log.warning("file.restored", path=str(one.path), restored=one.restored)
            if one.restored == RESTORED_MAX:
                log.error("file.given_up", path=str(one.path), restored=one.restored)
        self._keep_registry()
        self._problem = ""


def log_file() -> tuple[KeptPath, ...]:
    """Return what keeps the file that standard error goes to; nothing where it is no file."""
    try:
        status, path = os.fstat(_STDERR), Path(os.readlink(f"/proc/self/fd/{_STDERR}"))  # noqa: PTH115 - as the kernel has it
        if not stat.S_ISREG(status.st_mode) or not os.path.samestat(status, path.lstat()):
            return ()
    except OSError:
        return ()
    # Else a log that is copied and cut goes on behind a hole of its old size.
    fcntl.fcntl(_STDERR, fcntl.F_SETFL, fcntl.fcntl(_STDERR, fcntl.F_GETFL) | os.O_APPEND)
    return (KeptPath(path, lambda: _reopen(path)),)


def _reopen(path: Path) -> None:
    """Have standard error, and output if it is the same file, go to a file of this name."""
    status = os.fstat(_STDERR)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, stat.S_IMODE(status.st_mode))
    try:
        if os.path.samestat(os.fstat(_STDOUT), status):
            os.dup2(fd, _STDOUT)
        os.dup2(fd, _STDERR)
    finally:
        os.close(fd)


def _mark(path: Path) -> Mark | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
