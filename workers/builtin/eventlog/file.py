"""A file of lines that several processes may append to, with older files of bounded size.

Each line is one write in append mode, so that lines of different processes do not mix and a process
that dies leaves whole lines behind. A full file is renamed by whoever has its lock; the others
notice before their next line that the path is another file now. It may so be a few lines larger
than its bound.
"""

import errno
import fcntl
import os
import stat
from itertools import pairwise
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
# A pipe without a reader must be an error, not a wait without end.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


class LineFile:
    """Appends lines to one path; whatever fails is an ``OSError``."""

    def __init__(self, path: Path, *, max_bytes: int, backups: int, follows_links: bool) -> None:
        """Touch nothing yet; ``follows_links`` says whether the path may be a symbolic link."""
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._flags = _FLAGS if follows_links else _FLAGS | os.O_NOFOLLOW
        self._fd: int | None = None

    def append(self, line: bytes) -> None:
        """Write ``line``, which ends in a newline, behind all others.

        Raises:
            OSError: it could not be written, or not as a whole.
        """
        fd = self._current()
        size = os.fstat(fd).st_size
        if size and size + len(line) > self._max_bytes:
            self._rotate(fd)
            fd = self._current()
        written = os.write(fd, line)
        if written != len(line):
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes were written")

    def close(self) -> None:
        """Give the file back; the next line opens it again."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def __del__(self) -> None:
        """Give the file back: a plugin may be detached while its session lives."""
        self.close()

    def _current(self) -> int:
        """Return the file that the path is now: it may have been renamed or removed meanwhile."""
        if self._fd is not None and self._is_at_path(self._fd):
            return self._fd
        self.close()
        _make_folder(self._path.parent)
        fd = os.open(self._path, self._flags, FILE_MODE)
        try:
            _prepare(fd)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        return fd

    def _is_at_path(self, fd: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(fd))
        except FileNotFoundError:
            return False

    def _rotate(self, fd: int) -> None:
        """Rename the file and the older ones, unless another process is doing so."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            if self._is_at_path(fd):
                self._rename()
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _rename(self) -> None:
        names = [self._path, *(self._older(number) for number in range(1, self._backups + 1))]
        if self._backups == 0:
            self._path.unlink()
        for newer, older in reversed(list(pairwise(names))):
            if newer.exists():
                newer.replace(older)

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _make_folder(folder: Path) -> None:
    """Make what is missing of the path, each part of it private."""
    missing = []
    for part in (folder, *folder.parents):
        if part.exists():
            break
        missing.append(part)
    for part in reversed(missing):
        part.mkdir(FOLDER_MODE, exist_ok=True)


def _prepare(fd: int) -> None:
    """Refuse what is no file, and end a line that was cut when a disk was full."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if status.st_size and os.pread(fd, 1, status.st_size - 1) != b"\n":
        os.write(fd, b"\n")
