"""The daemon's side of its runtime directory: who may enter, who holds it, what is cleared away.

Order matters: the directory is made private first, then locked, and only then are sockets removed
or bound, since a second bind on a live ipc path would succeed and steal it. The lock file is opened
once and kept for the daemon's life; the kernel frees the lock however the daemon dies.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import msgspec
import structlog

from cmdc_runtime.errors import InvalidOptions, UsageError
from cmdc_runtime.roll import ROLL
from cmdc_runtime.runtime_dir import (
    CONTROL_SOCKET,
    EVENTS_SOCKET,
    LOCK_FILE,
    PRIVATE_MODE,
    SOCKETS,
    WORKERS_SOCKET,
    Holder,
    path_problem,
    privacy_problem,
    read_holder,
    socket_address,
)
from supervisor.core.limits import LOCK_RETRY_S, LOCK_TRIES_MAX

log = structlog.get_logger()

_TEMPORARY: Final = ("pymp-*", "cmdc-nursery-*")
"""Folders that a daemon was killed with: multiprocess's, and that of the nursery's first child."""


class DaemonRunning(UsageError):
    """Another daemon holds the runtime directory."""


def make_private(directory: Path) -> None:
    """Create the directory for this user alone, or check that it is.

    Raises:
        InvalidOptions: it is a link, another user's, open to others, or cannot be made.

    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=PRIVATE_MODE)
        problem = privacy_problem(directory, uid=os.geteuid())
    except OSError as error:
        problem = f"cannot use the directory {directory}: {error.strerror}"
    if problem:
        raise InvalidOptions([problem])


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    """Let nothing that is created meanwhile, a bound socket above all, be open to other users.

    The mask belongs to the whole process: keep what runs under it short.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def shut_path(path: Path) -> Path:
    """Return where a socket is put aside while nobody new is let in."""
    return path.with_suffix(".shut")


class Lock:
    """The exclusive hold on a runtime directory; a dead holder's is free."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        """Keep a lock that was taken; ``Lock.acquire`` takes one."""
        self._path = path
        self._fd: int | None = lock_fd

    @classmethod
    def acquire(cls, directory: Path, holder: Holder) -> Self:
        """Take the directory, and write into the lock file who holds it.

        Blocks for ``LOCK_TRIES_MAX * LOCK_RETRY_S`` at most, so call it before the loop runs.

        Raises:
            DaemonRunning: another daemon holds it.

        """
        path = directory / LOCK_FILE
        other: Holder | None = None
        for _ in range(LOCK_TRIES_MAX):
            lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if _take(lock_fd, path):
                os.ftruncate(lock_fd, 0)
                os.pwrite(lock_fd, msgspec.json.encode(holder), 0)
                return cls(path, lock_fd)
            other = read_holder(lock_fd)
            os.close(lock_fd)
            time.sleep(LOCK_RETRY_S)
        pid = f"process {other.pid}" if other else "a process that is just starting"
        raise DaemonRunning(
            f"a daemon is running in {directory} already: {pid}; "
            "stop it, or choose another runtime directory"
        )

    def release(self) -> None:
        """Remove the lock file and let go; a second call does nothing."""
        if self._fd is None:
            return
        lock_fd, self._fd = self._fd, None
        try:
            # Removed while it is still held: whoever opened it meanwhile finds that it is gone.
            self._path.unlink(missing_ok=True)
        finally:
            os.close(lock_fd)


class Endpoint:
    """A runtime directory that this daemon holds, with the addresses in it."""

    def __init__(self, directory: Path, lock: Lock, *, embedded: bool) -> None:
        """Keep a claimed directory; ``Endpoint.claim`` claims one."""
        self.directory = directory
        self.control = socket_address(directory, CONTROL_SOCKET)
        self.events = socket_address(directory, EVENTS_SOCKET)
        self.workers = socket_address(directory, WORKERS_SOCKET)
        self._lock = lock
        self._embedded = embedded

    @classmethod
    def claim(cls, directory: Path, holder: Holder, *, embedded: bool = False) -> Self:
        """Make the directory this daemon's own, and clear away what a dead one left.

        An ``embedded`` daemon's directory was made for it alone and goes with it.

        Raises:
            InvalidOptions: the directory has too long a name or is not this user's alone.
            DaemonRunning: another daemon holds it.

        """
        if problem := path_problem(directory):
            raise InvalidOptions([problem])
        make_private(directory)
        endpoint = cls(directory, Lock.acquire(directory, holder), embedded=embedded)
        endpoint._remove_sockets()
        return endpoint

    def close(self) -> None:
        """Remove the sockets and the lock, or the whole directory when embedded.

        What cannot be removed is told, and is for the next daemon.
        """
        try:
            self._remove_sockets()
            with contextlib.suppress(OSError):  # agents are on it that the next daemon goes on with
                (self.directory / ROLL).rmdir()
            if self._embedded:
                shutil.rmtree(self.directory, ignore_errors=True)
            self._lock.release()
        except OSError as error:
            log.warning("directory.not_cleared", problem=str(error))

    def _remove_sockets(self) -> None:
        for name in SOCKETS:
            (self.directory / name).unlink(missing_ok=True)
            shut_path(self.directory / name).unlink(missing_ok=True)
        for path in self.directory.glob("h-*"):  # of an agent that was killed with its daemon
            with contextlib.suppress(OSError):  # in nobody's way: the next one has another name
                path.unlink(missing_ok=True)
        for pattern in _TEMPORARY:
            for folder in self.directory.glob(pattern):
                shutil.rmtree(folder, ignore_errors=True)


def _take(lock_fd: int, path: Path) -> bool:
    """Lock the open file, and say whether it is still the one that the path names."""
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock_fd), path.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False
