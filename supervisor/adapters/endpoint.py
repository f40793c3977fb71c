"""The daemon's side of its runtime directory: who may enter, who holds it, what is cleared away.

Order matters: the directory is made private first, then locked, and only then are sockets removed
or bound, since a second bind on a live ipc path would succeed and steal it. The lock file is opened
once and kept for the daemon's life; the kernel frees the lock however the daemon dies.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import msgspec
import structlog

from cmdc_runtime.errors import InvalidOptions, UsageError
from cmdc_runtime.runtime_dir import (
    CONTROL_SOCKET,
    EVENTS_SOCKET,
    HOST_SOCKETS,
    KEYS,
    LOCK_FILE,
    PRIVATE_MODE,
    REGISTRY,
    SOCKETS,
    TOKEN_CHARS,
    TOKEN_FILE,
    WORKERS_SOCKET,
    Holder,
    open_file,
    path_problem,
    privacy_problem,
    read_holder,
    read_token,
    socket_address,
)
from supervisor.core.limits import LOCK_RETRY_S, LOCK_TRIES_MAX

log = structlog.get_logger()

_TEMPORARY: Final = ("pymp-*", "cmdc-zygote-*", "cmdc-nursery-*")
"""Folders that a daemon was killed with: multiprocess's, and that of the zygote's first child."""


_PRIVATE: Final = (*SOCKETS, LOCK_FILE, TOKEN_FILE, REGISTRY, KEYS)
"""What is in the directory and is for no other user."""
_OTHERS: Final = 0o077
_FILE_MODE: Final = 0o600


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


def made_token(directory: Path) -> str:
    """Return the token of a private directory, a new one where there is none that is whole.

    That of a daemon that was killed goes on. Of two that make one at once, both return the same.

    Raises:
        InvalidOptions: there can't be one.
    """
    try:
        if not read_token(directory):
            _write_token(directory, secrets.token_hex(TOKEN_CHARS // 2))
        return _kept_token(directory)
    except OSError as error:
        raise InvalidOptions([f"cannot write {directory / TOKEN_FILE}: {error}"]) from error


def _write_token(directory: Path, token: str) -> None:
    fresh = directory / f"{TOKEN_FILE}.{secrets.token_hex(4)}"
    token_fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(token_fd, token.encode())
    finally:
        os.close(token_fd)
    try:
        os.link(fresh, directory / TOKEN_FILE)
    except FileExistsError:  # another daemon that starts has made one, or it is no token
        if not read_token(directory):
            _make_way(directory / TOKEN_FILE)
            fresh.replace(directory / TOKEN_FILE)
    finally:
        fresh.unlink(missing_ok=True)


def _kept_token(directory: Path) -> str:
    """Return the token that is there now; an empty one would let everybody in."""
    if not (token := read_token(directory)):
        raise OSError(errno.EIO, "it cannot be read back")
    return token


def _make_way(path: Path) -> None:
    """Remove what is in the place of a file, whatever it is; a folder with something in it is kept.

    Raises:
        OSError: it can't be.
    """
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        try:
            path.rmdir()
        except OSError:
            kept_at = path.with_name(f"{path.name}.{secrets.token_hex(4)}.aside")
            path.rename(kept_at)
            log.warning("directory.entry_quarantined", path=str(path), kept_at=str(kept_at))


class Lock:
    """The exclusive hold on a runtime directory; a dead holder's is free.

    Both the lock file and the directory itself are locked: who removes the one, as a cleaner of
    temporary files does, lets nobody in by that.
    """

    def __init__(self, directory: Path, holder: Holder) -> None:
        """Hold nothing yet; ``Lock.acquire`` does."""
        self._directory, self._holder = directory, holder
        self.path = directory / LOCK_FILE
        self._fd: int | None = None
        self._directory_fd: int | None = None

    @classmethod
    def acquire(cls, directory: Path, holder: Holder) -> Self:
        """Take the directory, and write into the lock file who holds it.

        Blocks for ``LOCK_TRIES_MAX * LOCK_RETRY_S`` at most, so call it before the loop runs.

        Raises:
            DaemonRunning: another daemon holds it.

        """
        lock = cls(directory, holder)
        other: Holder | None = None
        for _ in range(LOCK_TRIES_MAX):
            if lock._take_directory():
                if (other := lock._take_file()) is None:
                    return lock
                lock.let_go()
            elif lock.path.exists():
                other = _holder_of(lock.path)
            time.sleep(LOCK_RETRY_S)
        lock.let_go()
        raise DaemonRunning(_running_text(directory, other))

    def is_held(self) -> bool:
        """Say whether the lock file and the directory are still those that were locked."""
        try:
            return os.path.samestat(self.path.lstat(), _stat(self._fd)) and os.path.samestat(
                self._directory.lstat(), _stat(self._directory_fd)
            )
        except OSError:
            return False

    def keep_private(self) -> None:
        """Close what was opened to other users again: the directory, then what is in it.

        The directory is the one that is locked, wherever it is; nothing in another one is touched.

        Raises:
            OSError: it can't be closed.
        """
        found = _stat(self._directory_fd)
        if (mode := _private(found)) is not None:
            # First, and by what is open: from then on nobody else can put a link in a file's place.
            os.fchmod(_open_fd(self._directory_fd), mode)
            _report_mode(self._directory, found, mode)
        if not self.is_held():
            return
        for path in (self._directory / name for name in _PRIVATE):
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                if not stat.S_ISLNK(found.st_mode) and (mode := _private(found)) is not None:
                    path.chmod(mode)
                    _report_mode(path, found, mode)

    def restore(self) -> None:
        """Make what is gone of it anew, the directory too.

        Raises:
            DaemonRunning: another daemon has taken its place; what is there is that one's.
            InvalidOptions: what is there instead is not this user's alone.
            OSError: it can't be made.

        """
        make_private(self._directory)
        fresh = Lock(self._directory, self._holder)
        is_same = self._directory_fd is not None and os.path.samestat(
            self._directory.lstat(), os.fstat(self._directory_fd)
        )
        if is_same:
            fresh._directory_fd = self._directory_fd
        elif not fresh._take_directory():
            raise DaemonRunning(_running_text(self._directory, _holder_of(self.path)))
        if (other := fresh._take_file()) is not None:
            if not is_same:
                fresh.let_go()
            raise DaemonRunning(_running_text(self._directory, other))
        if is_same:
            self._directory_fd = None
        self.let_go()
        self._fd, self._directory_fd = fresh._fd, fresh._directory_fd

    def let_go(self) -> None:
        """Give back what is held, and remove nothing. Idempotent."""
        fds, self._fd, self._directory_fd = (self._fd, self._directory_fd), None, None
        for fd in fds:
            if fd is not None:
                os.close(fd)

    def _take_directory(self) -> bool:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._directory, flags)
        if not _take(fd, self._directory):
            os.close(fd)
            return False
        self._directory_fd = fd
        return True

    def _take_file(self) -> Holder | None:
        """Lock the lock file and write into it; else return who has it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if not _take(fd, self.path):
            other = read_holder(fd) or Holder(pid=0, version="", started_at_ms=0)
            os.close(fd)
            return other
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(self._holder), 0)
        self._fd = fd
        return None

    def release(self) -> None:
        """Remove the lock file, if it is this lock's own, and let go; twice is once."""
        try:
            # Removed while it is still held: whoever opened it meanwhile finds that it is gone.
            if self._fd is not None and self.is_held():
                self.path.unlink(missing_ok=True)
        finally:
            self.let_go()


class Endpoint:
    """A runtime directory that this daemon holds, with the addresses in it."""

    def __init__(self, directory: Path, lock: Lock, *, embedded: bool) -> None:
        """Keep a claimed directory; ``Endpoint.claim`` claims one."""
        self.directory = directory
        self.control = socket_address(directory, CONTROL_SOCKET)
        self.events = socket_address(directory, EVENTS_SOCKET)
        self.workers = socket_address(directory, WORKERS_SOCKET)
        self.token = ""
        """What a person's programs have to show."""
        self.lock = lock
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
        token = made_token(directory)  # before anybody can see that a daemon is here
        endpoint = cls(directory, Lock.acquire(directory, holder), embedded=embedded)
        endpoint.token = token
        endpoint._remove_sockets()
        return endpoint

    def keep_token(self) -> str | None:
        """Put the token where clients look for it, if it has gone; return why it can't be."""
        try:
            if read_token(self.directory) != self.token:
                _make_way(self.directory / TOKEN_FILE)
                _write_token(self.directory, self.token)
        except OSError as error:
            log.error("token.not_kept", problem=str(error))
            return str(error)
        return None

    def close(self) -> None:
        """Remove the sockets and the lock, or the whole directory when embedded.

        What cannot be removed is logged, and is for the next daemon.
        """
        try:
            if not self.lock.is_held():  # what is there may be another daemon's
                log.warning("directory.not_cleared", problem="its lock is gone")
                return
            self._remove_sockets()
            _make_way(self.directory / TOKEN_FILE)
            with contextlib.suppress(OSError):  # agents are on it that the next daemon goes on with
                (self.directory / REGISTRY).rmdir()
            with contextlib.suppress(OSError):  # and these are theirs
                (self.directory / KEYS).rmdir()
            if self._embedded:
                shutil.rmtree(self.directory, ignore_errors=True)
            self.lock.release()
        except OSError as error:
            log.warning("directory.not_cleared", problem=str(error))
        finally:
            self.lock.let_go()

    def _remove_sockets(self) -> None:
        for name in SOCKETS:
            (self.directory / name).unlink(missing_ok=True)
            shut_path(self.directory / name).unlink(missing_ok=True)
        for path in self.directory.glob(
            HOST_SOCKETS
        ):  # of an agent that was killed with its daemon
            with contextlib.suppress(OSError):  # in nobody's way: the next one has another name
                path.unlink(missing_ok=True)
        for pattern in _TEMPORARY:
            for folder in self.directory.glob(pattern):
                shutil.rmtree(folder, ignore_errors=True)


def _stat(fd: int | None) -> os.stat_result:
    """Return what is open; raises OSError where nothing is."""
    return os.fstat(_open_fd(fd))


def _open_fd(fd: int | None) -> int:
    return -1 if fd is None else fd


def _private(found: os.stat_result) -> int | None:
    """Return the mode that closes a path to other users; None where it is closed."""
    if not found.st_mode & _OTHERS:
        return None
    return _FILE_MODE if stat.S_ISREG(found.st_mode) else PRIVATE_MODE


def _report_mode(path: Path, found: os.stat_result, mode: int) -> None:
    before = stat.S_IMODE(found.st_mode)
    log.warning("directory.mode_changed", path=str(path), mode=oct(before), restored=oct(mode))


def _holder_of(path: Path) -> Holder | None:
    """Return what a lock file says, if there is one."""
    try:
        fd = open_file(path)
    except OSError:
        return None
    try:
        return read_holder(fd)
    finally:
        os.close(fd)


def _running_text(directory: Path, other: Holder | None) -> str:
    who = f"process {other.pid}" if other and other.pid else "a process that is just starting"
    return (
        f"a daemon is running in {directory} already: {who}; "
        "stop it, or choose another runtime directory"
    )


def _take(lock_fd: int, path: Path) -> bool:
    """Lock the open file, and say whether it is still the one that the path names."""
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock_fd), path.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False
