"""The write-ahead log of a SQLite file as it was written, byte for byte, in memory.

What is committed since the last checkpoint stands in the log alone, and SQLite, which knows from
memory what is where in it, never looks at what it has written. So a log that somebody cuts or
overwrites in place takes commits without a word, and the next opening ends before the damage. Here
every commit is read back before anybody hears of it, and the log is looked at before the next one:
where its file has changed since, it is compared, and written again.

``JOURNAL_WAL_BYTES_MAX`` and one group of writes bound it: nothing is written behind more than that
before it is in the journal's file.
A change within a commit of ours that keeps the size of the log and its newest page is found by
``check_whole`` at the checkpoint; before Linux 6.13, or where the file system has no fine times of
change, also one within the tick of the kernel's clock (4 ms) behind it.
"""

import os
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from supervisor.adapters.journal.repair.sums import PAGE_BYTES
from supervisor.adapters.journal.repair.volume import JournalLostError
from supervisor.adapters.journal.repair.wal import FRAME, HEADER, chained, read_log

log = structlog.get_logger(__name__)

FRAME_BYTES: Final = FRAME.size + PAGE_BYTES
_READ_BYTES: Final = 6 * FRAME_BYTES
"""What a lone accept has as a rule, and the frame before it; then as much again as was read."""
_NO_COMMIT: Final = bytes(4)
_SALTS: Final = slice(16, 24)

Stamp: TypeAlias = tuple[int, int]


def stamp_of(found: os.stat_result) -> Stamp:
    """Return what of a file changes whenever anybody writes to it: its size and time of change."""
    return found.st_size, found.st_ctime_ns


class LogCopy:
    """The log of one open journal; on the writer's thread only."""

    def __init__(self, path: Path) -> None:
        """Prepare; ``open`` reads what is in the log at ``path``."""
        self._path = path
        self._fd = -1
        self._data = bytearray()
        self._seen: Stamp | None = None
        self.may_begin_anew = True
        """Whether the next commit may: all that is here is in the journal's file."""

    def __len__(self) -> int:
        """Return how many bytes are kept."""
        return len(self._data)

    @property
    def data(self) -> bytes:
        """The log, as far as it is committed."""
        return bytes(self._data)

    def pages(self) -> dict[int, bytes]:
        """Return the newest content of each page that is in the log."""
        found = {}
        for at in range(HEADER.size, len(self._data), FRAME_BYTES):
            page = int.from_bytes(self._data[at : at + 4], "big")
            found[page] = bytes(self._data[at + FRAME.size : at + FRAME_BYTES])
        return found

    def open(self) -> None:
        """Take what is in the log up to its last whole commit."""
        self.close()
        self._fd = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._seen = stamp_of(os.fstat(self._fd))
        data = _read(self._fd, 0, os.fstat(self._fd).st_size)
        found = read_log(data)
        self._data = bytearray(
            data[: HEADER.size + found.good * FRAME_BYTES] if found.good else b""
        )
        self.may_begin_anew = not self._data

    def close(self) -> None:
        """Forget it."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._data, self._seen = -1, bytearray(), None

    def sync(self) -> None:
        """Have the disk store what is in the log."""
        os.fsync(self._fd)

    def checkpointed(self, *, is_empty: bool) -> None:
        """Take note that all of it is in the journal's file; ``is_empty``: and the log is cut."""
        self.may_begin_anew = True
        if is_empty:
            self._data.clear()
            self._seen = stamp_of(os.fstat(self._fd))

    def follow(self, status: os.stat_result | None, *, has_written: bool, is_unsure: bool) -> None:
        """Take what a commit has written, before anybody is told of it.

        ``status`` is how the log stood at its path behind the commit, None: it is not there.
        ``has_written`` is what SQLite says; a row that stays as it was is no write, though.
        ``is_unsure``: frames of a commit that failed may stand behind those of this one.

        Raises:
            JournalLostError: it is not there. What was there before stands in the log again.
        """
        seen = stamp_of(os.fstat(self._fd) if status is None else status)
        has_written = has_written and seen != self._seen
        if self.may_begin_anew:
            head = os.pread(self._fd, HEADER.size, 0)
            if head != self._data[: HEADER.size] and read_log(head).page_size:
                self._data = bytearray(head)
        begin = max(len(self._data) - FRAME_BYTES, 0)
        tail, fresh = self._read_on(begin)
        if is_unsure:
            fresh = fresh[: chained(bytes(self._data), fresh)]
        is_whole = tail == self._data[begin:]
        if has_written and not fresh:
            self._write_again()
            raise JournalLostError(f"{self._path} does not have what was just written to it")
        if fresh:
            self._data += fresh
            self.may_begin_anew = False
        self._seen = seen
        if not is_whole:
            self._write_again()

    def check(self, found: os.stat_result | None = None) -> None:
        """Put the log right where its file has changed since the last commit.

        Raises:
            JournalLostError: it can't be.
        """
        found = os.fstat(self._fd) if found is None else found
        if stamp_of(found) != self._seen:
            self.check_whole()

    def check_whole(self) -> None:
        """Compare every byte, and put the log right.

        Raises:
            JournalLostError: it can't be.
        """
        seen = stamp_of(os.fstat(self._fd))
        if self._is_whole():
            self._seen = seen
        else:
            self._write_again()

    def _is_whole(self) -> bool:
        known, end = self._data, len(self._data)
        for at in range(0, end, _READ_BYTES):
            size = min(_READ_BYTES, end - at)
            found = _read(self._fd, at, size)
            # Views are compared byte by byte, which takes ten times as long.
            if len(found) < size or not known.startswith(found, at):
                return False
        return True

    def _read_on(self, begin: int) -> tuple[bytes, bytes]:
        """Return what stands in the log from ``begin`` up to what is known, and what is behind.

        Behind it are whole commits of the same log.
        """
        known, salts = len(self._data) - begin, self._data[_SALTS]
        good, at = known, known
        found = os.pread(self._fd, _READ_BYTES, begin)
        is_all = len(found) < _READ_BYTES or len(salts) < _SALTS.stop - _SALTS.start
        while True:
            while at + FRAME_BYTES <= len(found):
                if found[at + 8 : at + 16] != salts:
                    return found[:known], found[known:good]
                if found[at + 4 : at + 8] != _NO_COMMIT:
                    good = at + FRAME_BYTES
                at += FRAME_BYTES
            if is_all:
                return found[:known], found[known:good]
            chunk = _read(self._fd, begin + len(found), len(found))
            is_all = len(chunk) < len(found)
            found += chunk

    def _write_again(self) -> None:
        data = bytes(self._data)
        log.error("journal.log_overwritten", path=str(self._path), bytes=len(data))
        at = 0
        while at < len(data):
            at += os.pwrite(self._fd, data[at:], at)
        os.fsync(self._fd)
        self._seen = stamp_of(os.fstat(self._fd))
        if not self._is_whole():
            raise JournalLostError(f"{self._path} does not keep what is written to it")
        log.warning("journal.log_written_again", path=str(self._path), bytes=len(data))


def _read(fd: int, at: int, size: int) -> bytes:
    """Return bytes of a file, fewer where it ends before."""
    found = bytearray()
    while len(found) < size and (chunk := os.pread(fd, size - len(found), at + len(found))):
        found += chunk
    return bytes(found)
