"""The files of a SQLite journal as the file system has them: room, a reserve, and whose they are.

The reserve is a file beside the journal whose blocks are given back when the disk is full. Whether
the journal is still at its path is asked before every transaction and behind its commit: a file
that was deleted or put aside takes writes without a word, and nobody finds them again.

A file of it that is written as a whole (``write_whole``, ``copy_whole``) is whole or not there,
whatever a kill or a cut of the power leaves half done: it is written under another name, made
durable, and then takes its place. What is left under the other name by a kill is written over by
the next try.
"""

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from supervisor.adapters.journal.base import JournalLocked
from supervisor.core.limits import JOURNAL_LAST_BYTES, JOURNAL_LOCK_WAIT_S, JOURNAL_RESERVE_BYTES
from supervisor.core.storage import Level, Trouble

# --- room, a reserve, and whose they are ----------------------------------------------------------

log = structlog.get_logger(__name__)

RESERVE_FILE: Final = "journal.reserve"
FILE_MODE: Final = 0o600
_SIZES: Final = {
    Level.PLENTY: JOURNAL_RESERVE_BYTES,
    Level.RESERVE: JOURNAL_LAST_BYTES,
    Level.LAST: 0,
    Level.NONE: 0,
}
"""Of the reserve that is left on each level."""
_ENOUGH_BYTES: Final = 2 * JOURNAL_RESERVE_BYTES
"""The reserve and as much again: else what was just given up would count as room."""

_LOCK_RETRY_S: Final = 0.02
_SQLITE_LOCKS: Final = (0x4000_0000, 512)
"""Where in a database SQLite has its locks, and how many bytes they take:
https://www.sqlite.org/lockingv3.html."""
_PRIMARY: Final = 0xFF
"""The low byte of an extended code: https://www.sqlite.org/rescode.html."""
_OUT_OF_MEMORY: Final = frozenset({sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR_NOMEM})
_ROOM_OR_DISK: Final = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE})
"""SQLite says "full" for ENOSPC only; a quota and a limit on the size of files come as these."""
_BROKEN: Final = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
    }
)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class JournalLostError(Exception):
    """The journal's files are not ours any more."""


@dataclass(frozen=True, slots=True)
class _Identity:
    """Which file it is."""

    device: int
    inode: int


def wal_of(path: Path) -> Path:
    """Return the write-ahead log of a SQLite file."""
    return path.with_name(f"{path.name}-wal")


def trouble_of(code: int | None, *, has_room: bool) -> Trouble:
    """Say what an error of SQLite means; ``has_room`` is what the file system says just now."""
    if code is None or code in _OUT_OF_MEMORY:
        return Trouble.PASSING
    if code & _PRIMARY == sqlite3.SQLITE_FULL:
        return Trouble.NO_ROOM
    if code in _ROOM_OR_DISK and not has_room:
        return Trouble.NO_ROOM
    return Trouble.BROKEN if code & _PRIMARY in _BROKEN else Trouble.PASSING


def lacks_room(error: Exception) -> bool:
    """Say whether an error of a file or of SQLite is about room on the disk."""
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    return (getattr(error, "sqlite_errorcode", None) or 0) & _PRIMARY == sqlite3.SQLITE_FULL


class Volume:
    """What is known of the files of one journal; on the writer's thread only."""

    def __init__(self, path: Path) -> None:
        """Prepare; ``reserve`` touches the disk."""
        self._path = path
        self._wal = wal_of(path)
        self._reserve = path.with_name(RESERVE_FILE)
        self._lock: int | None = None
        self._known: dict[Path, _Identity] = {}
        self.found: dict[Path, os.stat_result] = {}
        """The files that are there, as they were when ``strays`` looked."""
        self.level = Level.PLENTY

    @property
    def cause(self) -> str:
        """Why there is no room and what helps."""
        return (
            f"there is no room on the disk of {self._path.parent}; what runs goes on when there is "
            f"room for {_ENOUGH_BYTES // 2**20} MiB again: free some, no restart is needed"
        )

    def claim(self) -> None:
        """Keep other daemons away, before anything is looked at; the lock ends with the process.

        Raises:
            JournalLocked: another daemon has the journal.
        """
        if self._lock is not None:
            return
        fd = self._open()
        deadline_s = time.monotonic() + JOURNAL_LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._check_unused()
            except BlockingIOError:
                if time.monotonic() < deadline_s:
                    time.sleep(_LOCK_RETRY_S)
                    continue
                os.close(fd)
                raise JournalLocked(
                    f"cannot open the journal {self._path}: another daemon has it locked"
                ) from None
            self._lock = fd
            return

    def _check_unused(self) -> None:
        """Check that no process has the journal open whose own lock somebody has deleted.

        Raises:
            BlockingIOError: one has.
        """
        try:
            file = self._path.open("r+b")
        except OSError:  # there is none, or whoever opens it next says why it can't be
            return
        with file:
            try:
                first, count = _SQLITE_LOCKS
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, count, first)
            except OSError as error:  # any other error is of a file system without locks
                if error.errno in {errno.EACCES, errno.EAGAIN}:
                    raise BlockingIOError(error.errno, error.strerror) from error

    def release(self) -> None:
        """Let the next daemon have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- room -----------------------------------------------------------------------------------

    def reserve(self) -> None:
        """Make the reserve whole, or find out how much of it there is."""
        if not self.regain(0):
            try:
                size = self._reserve.stat().st_blocks * 512
            except OSError:
                size = 0
            self.level = Level.RESERVE if size >= JOURNAL_LAST_BYTES else Level.LAST
            log.warning("journal.full", level=self.level.name)

    def spend(self) -> None:
        """Give up the next part of the reserve."""
        self.level = Level(min(self.level + 1, Level.NONE))
        try:
            os.truncate(self._reserve, _SIZES[self.level])
        except OSError as error:  # there may be none: then there is no more room than before
            log.warning("journal.no_reserve", error=str(error))

    def regain(self, wanted_bytes: int) -> bool:
        """Make the reserve whole where that leaves room for so many bytes; else change nothing.

        Twice the bytes: they go to the write-ahead log, and from there to the file.
        """
        try:
            fd = self._open()
        except OSError:
            return False
        try:
            os.posix_fallocate(fd, 0, _ENOUGH_BYTES + 2 * wanted_bytes)
            self.level = Level.PLENTY
        except OSError:
            return False
        finally:
            os.ftruncate(fd, _SIZES[self.level])
            os.close(fd)
        return True

    def _open(self) -> int:
        return os.open(self._reserve, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)

    def judge(self, error: Exception) -> Trouble:
        """Say what an error means."""
        if isinstance(error, OSError):
            return Trouble.NO_ROOM if error.errno in _NO_ROOM else Trouble.BROKEN
        if isinstance(error, JournalLostError):
            return Trouble.BROKEN
        if not isinstance(error, sqlite3.Error):
            return Trouble.PASSING
        code: int | None = getattr(error, "sqlite_errorcode", None)
        return trouble_of(code, has_room=code not in _ROOM_OR_DISK or self._has_room())

    def _has_room(self) -> bool:
        """Say whether the write-ahead log could grow by as much as the reserve has."""
        probe = self._path.with_name("journal.probe")
        try:
            size = wal_of(self._path).stat().st_size
            fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
            try:
                os.posix_fallocate(fd, size, JOURNAL_RESERVE_BYTES)
            finally:
                os.close(fd)
                probe.unlink(missing_ok=True)
        except OSError as error:
            log.warning("journal.no_room", error=str(error))
            return error.errno not in _NO_ROOM
        return True

    # --- whose files they are -------------------------------------------------------------------

    def know(self) -> None:
        """Remember which files are open now."""
        self._known = {path: _identity(path.lstat()) for path in self._files()}

    def strays(self) -> list[Path]:
        """Return the paths at which the open files are not any more.

        Raises:
            JournalLostError: one of them is there and cannot be made private again.
        """
        return [path for path, known in self._known.items() if not self._is_there(path, known)]

    def log_status(self) -> os.stat_result | None:
        """Return how the log stands at its path, None where it is not there any more.

        One look behind each commit: that the journal's file is at its path says the one before it.

        Raises:
            JournalLostError: it is there and cannot be made private again.
        """
        is_there = self._is_there(self._wal, self._known[self._wal])
        return self.found[self._wal] if is_there else None

    def _is_there(self, path: Path, known: _Identity) -> bool:
        try:
            found = os.lstat(path)
        except OSError:
            return False
        if (found.st_dev, found.st_ino) != (known.device, known.inode):
            return False
        self.found[path] = found
        if stat.S_IMODE(found.st_mode) != FILE_MODE:
            log.warning("journal.mode_changed", path=str(path), mode=oct(found.st_mode))
            try:
                path.chmod(FILE_MODE)
            except OSError as error:
                raise JournalLostError(f"{path} is not ours any more: {error}") from error
        return True

    def _files(self) -> Iterator[Path]:
        yield self._path
        yield self._wal


def _identity(found: os.stat_result) -> _Identity:
    return _Identity(found.st_dev, found.st_ino)


# --- files that are whole or not there ------------------------------------------------------------


def sync_file(path: Path) -> None:
    """Make what is in a file durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make what was renamed in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave the one that was there."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_bytes(data)
        put_in_place(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file, or leave nothing."""
    fresh = target.with_name(f"{source.name}.copy")
    try:
        shutil.copyfile(source, fresh)
        put_in_place(fresh, target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def put_in_place(fresh: Path, path: Path) -> None:
    """Make a file that is written private and durable, and put it in its place."""
    fresh.chmod(FILE_MODE)
    sync_file(fresh)
    fresh.replace(path)
    sync_directory(path.parent)
