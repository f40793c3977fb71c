"""A backup: a sealed copy of an open journal, brought to the file that somebody has named for it.

The copy is made by SQLite's backup API in steps between commits. ``sqlite3.Connection.backup`` is
one call that pauses between its steps, so it has a thread of its own, which runs only while the
writer's thread waits for it: the connection is used by one of them at a time, and the writer can
give the copy up whenever it has to close the connection. What is committed through the same
connection between two steps SQLite writes to the pages that were copied already
(https://www.sqlite.org/backup.html), so the copy is the state of the last step, as a whole. Each
part that was copied is compared with the checksums of the journal's file: a copy of a damaged
journal would be taken for a good one.

Behind the pages is a seal with the CRC-32 of each, so that whatever has changed in the file since
is found. SQLite goes by the size in its own header and passes over what is behind the last page, so
a backup can be opened to look into it; whoever writes to it breaks the seal.

The file that was named may be on any disk, one that hangs among them, so its delivery does not run
on the journal's thread. A backup is written under another name beside its place, made durable, and
then takes its place: a kill at any moment leaves the former one, or the new one, and what it leaves
under the other name goes with the next backup to the same place. Whoever writes such a file holds
its lock, so that two daemons don't take each other's away.
"""

import fcntl
import os
import sqlite3
import stat
import struct
import tempfile
import threading
import zlib
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

from cmdc_runtime import faults
from cmdc_runtime.errors import StorageFull, UsageError
from cmdc_runtime.requests import BackupFacts
from supervisor.adapters.journal.base import JournalFailed, JournalFull
from supervisor.adapters.journal.repair.sums import PAGE_BYTES
from supervisor.adapters.journal.repair.volume import FILE_MODE, lacks_room, sync_directory
from supervisor.core.limits import BACKUP_STEP_PAGES

# --- the seal -------------------------------------------------------------------------------------

_MAGIC: Final = b"cmdcbak1"
_SEAL: Final = struct.Struct("<QII8s")
"""When it was made, wall time in ms; how many pages; checksum of the seal up to here; magic."""
_SUM_BYTES: Final = 4
_CHUNK_BYTES: Final = 256 * PAGE_BYTES


@dataclass(slots=True)
class Seal:
    """What stands behind the pages."""

    made_ms: int
    sums: "array[int]" = field(default_factory=lambda: array("I"))

    @property
    def pages(self) -> int:
        """How many there are."""
        return len(self.sums)

    def encode(self) -> bytes:
        """Return it as it stands in the file."""
        sums = self.sums.tobytes()
        check = _check(sums, self.made_ms)
        return sums + _SEAL.pack(self.made_ms, self.pages, check, _MAGIC)


def read_seal(file: BinaryIO) -> Seal | None:
    """Return the seal of a backup, None where there is none or it is broken."""
    size = file.seek(0, os.SEEK_END)
    if size < _SEAL.size:
        return None
    file.seek(size - _SEAL.size)
    made_ms, pages, check, magic = _SEAL.unpack(file.read(_SEAL.size))
    if magic != _MAGIC or size != pages * (PAGE_BYTES + _SUM_BYTES) + _SEAL.size:
        return None
    file.seek(pages * PAGE_BYTES)
    seal = Seal(made_ms)
    seal.sums.frombytes(file.read(pages * _SUM_BYTES))
    return seal if _check(seal.sums.tobytes(), made_ms) == check else None


def is_backup(path: Path) -> bool:
    """Say whether a file has the seal of a backup; of its pages nothing is looked at.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        return read_seal(file) is not None


def write_sealed(source: BinaryIO, target: BinaryIO, made_ms: int) -> Seal:
    """Write the pages of a database and their seal, from the beginning of both files."""
    seal = Seal(made_ms)
    for page in _pages(source):
        seal.sums.append(zlib.crc32(page))
        target.write(page)
    target.write(seal.encode())
    return seal


def copy_pages(source: BinaryIO, seal: Seal, target: BinaryIO) -> list[int]:
    """Write the pages of a backup without its seal; return those that are damaged."""
    damaged = []
    for number, (page, sum_) in enumerate(zip(_pages(source), seal.sums, strict=False), 1):
        if zlib.crc32(page) != sum_:
            damaged.append(number)
        target.write(page)
    return damaged


def damage_of(path: Path) -> str | None:
    """Return what SQLite finds wrong with a database that nobody has open, None for nothing.

    Each page is read, and each entry of an index compared with its row.
    """
    try:
        with closing(open_to_read(path)) as db:
            (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if verdict == "ok" else str(verdict)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection to a database that has no log, and that nobody writes to meanwhile."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)


def _pages(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        for at in range(0, len(chunk), PAGE_BYTES):
            yield chunk[at : at + PAGE_BYTES]


def _check(sums: bytes, made_ms: int) -> int:
    return zlib.crc32(struct.pack("<Q", made_ms), zlib.crc32(sums))


# --- a copy of an open journal --------------------------------------------------------------------

COPIED: Final = "backup.step"
"""Fault point of each step."""
DAEMON: Final = "daemon"
_CLOSED: Final = "the journal was opened anew while it was copied: try again"
_MODES_AT: Final = 18
_WITH_ROLLBACK: Final = b"\1\1"
"""How the file is written and read: https://www.sqlite.org/fileformat2.html#the_database_header."""
_SIDE_FILES: Final = ("", "-journal", "-wal", "-shm")


class _GivenUpError(Exception):
    """The copy is not wanted any more."""


def remove_copy(path: Path) -> None:
    """Remove a copy, and what SQLite may have put beside it."""
    for end in _SIDE_FILES:
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


class PageCopy:
    """One copy under way; its methods are called on the writer's thread."""

    def __init__(
        self,
        source: sqlite3.Connection,
        path: Path,
        damaged: Callable[[range], Collection[int]],
        step_pages: int = BACKUP_STEP_PAGES,
    ) -> None:
        """Prepare to copy ``source`` to a new file; ``damaged`` says which of some pages are."""
        self._source, self._path, self._damaged = source, path, damaged
        self._step_pages = step_pages
        self._turn, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._copy, name="journal-copy", daemon=True)
        self._is_given_up = False
        self._is_over = False
        self._pages = 0
        """How many are copied, from the first one on."""
        self._error: Exception | None = None

    def step(self) -> bool:
        """Copy the next pages, no longer than a commit may wait; True when the copy is whole.

        Raises:
            JournalFull: there is no room for it.
            JournalFailed: it can't be made; what there is of it is removed.
        """
        if self._is_over:
            raise JournalFailed(_CLOSED)
        try:
            self._copy_some()
        except BaseException:
            self._discard()
            raise
        faults.pass_point(faults.DAEMON_ITSELF, COPIED, {DAEMON: lambda: (os.getpid(),)})
        return self._is_over

    def _copy_some(self) -> None:
        before = self._pages
        self._run_on()
        if self._error is not None:
            raise self._failure(self._error)
        if wrong := self._damaged(range(before + 1, self._pages + 1)):
            raise JournalFailed(
                f"{len(wrong)} pages of the journal are damaged (the first is {min(wrong)}): "
                "restart the daemon, which repairs it, and make the backup then"
            )
        if self._is_given_up:  # the journal was brought back while its pages were looked at
            raise JournalFailed(_CLOSED)

    def give_up(self) -> None:
        """End it, and remove what there is of it, unless it is whole; the connection is free."""
        if not self._is_over:
            self._discard()

    def _discard(self) -> None:
        self._is_given_up = True
        if self._thread.is_alive():
            self._run_on()
        self._is_over = True
        with suppress(OSError):  # it concerns nobody else: the next copy tries again
            remove_copy(self._path)

    def _failure(self, error: Exception) -> JournalFailed:
        if lacks_room(error):
            return JournalFull(f"there is no room for a copy on the disk of {self._path.parent}")
        return JournalFailed(f"the journal could not be copied to {self._path}: {error}")

    def _run_on(self) -> None:
        """Let the other thread run to its next pause, or its end."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._turn.release()
        self._paused.acquire()
        if self._is_over:
            self._thread.join()

    # --- on the thread of its own ---------------------------------------------------------------

    def _copy(self) -> None:
        try:
            remove_copy(self._path)
            self._path.touch(FILE_MODE)
            with closing(sqlite3.connect(self._path, isolation_level=None)) as target:
                # It is made durable as a whole, by whoever delivers it.
                target.execute("PRAGMA journal_mode = OFF")
                target.execute("PRAGMA synchronous = OFF")
                self._source.backup(target, pages=self._step_pages, progress=self._pause)
            with self._path.open("r+b") as file:  # no log beside it is needed to look into it
                file.seek(_MODES_AT)
                file.write(_WITH_ROLLBACK)
        except _GivenUpError:
            pass
        except Exception as error:  # noqa: BLE001 - handed on to the writer's thread
            self._error = error
        self._is_over = True
        self._paused.release()

    def _pause(self, status: int, left: int, total: int) -> None:
        """Let the writer's thread work until it wants the next step."""
        self._pages = total - left
        if status == sqlite3.SQLITE_DONE:
            return
        if status != sqlite3.SQLITE_OK:  # a lock: nobody else may have either file
            raise sqlite3.OperationalError(f"a file of it is in use (SQLite's code {status})")
        self._paused.release()
        self._turn.acquire()
        if self._is_given_up:
            raise _GivenUpError


# --- to the file that was named -------------------------------------------------------------------

WRITTEN: Final = "backup.written"
"""Fault point before the new file takes its place."""
PLACED: Final = "backup.placed"
_MARK: Final = ".cmdc-backup-"


@dataclass(slots=True)
class Delivery:
    """One backup on its way; ``given`` is how whoever wants it called its place."""

    given: str
    place: Path
    _own: Sequence[Path]
    _force: bool
    _file: BinaryIO

    def finish(self, copy: Path, made_ms: int) -> BackupFacts:
        """Write a copy of the journal, which nobody has open, to the place.

        ``made_ms`` is the wall time when the copy was whole.

        Raises:
            JournalFailed: the copy is damaged, so that the journal is.
            StorageFull: there is no room for it at its place.
            UsageError: it cannot be written there; what was there stays.
        """
        if (damage := damage_of(copy)) is not None:
            raise JournalFailed(
                f"the journal is damaged ({damage}): nothing was written to {self.given}; restart "
                "the daemon, which repairs it, and make the backup then"
            )
        sessions = _sessions_in(copy)
        with errors_named(self.given):
            with copy.open("rb") as source:
                write_sealed(source, self._file, made_ms)
            self._file.flush()
            os.fsync(self._file.fileno())
            found = os.fstat(self._file.fileno())
            _check_place(self.given, self.place, self._own, force=self._force)
            _pass(WRITTEN)
            Path(self._file.name).replace(self.place)
            sync_directory(self.place.parent)
            _pass(PLACED)
        return BackupFacts(
            file=str(self.place),
            size_bytes=found.st_size,
            sessions=sessions,
            made_ms=made_ms,
            device=found.st_dev,
            inode=found.st_ino,
        )

    def close(self) -> None:
        """Let go of it; what has not taken its place is removed."""
        if not self._file.closed:
            with suppress(OSError):
                written, found = os.fstat(self._file.fileno()), os.stat(self._file.name)  # noqa: PTH116 - with its pair
                if (written.st_dev, written.st_ino) == (found.st_dev, found.st_ino):
                    Path(self._file.name).unlink()
            with suppress(OSError):  # what could not be written, is not written now either
                self._file.close()


def prepare(file: str, own: Sequence[Path], *, force: bool) -> Delivery:
    """Begin the file of a backup, so that what keeps it from being written is raised at once.

    ``own`` are the daemon's own folders, in which no backup may be. ``force`` lets it replace a
    file that is none.

    Raises:
        UsageError: it can't be written there, or may not.
        StorageFull: there is no room.
    """
    place = _place_of(file)
    for folder in own:
        if place.is_relative_to(os.path.realpath(folder)):
            raise UsageError(
                f"{file} is in {folder}, which is the daemon's own folder: put backups elsewhere, "
                "best on another disk"
            )
    with errors_named(file):
        _check_place(file, place, own, force=force)
        _clear(place)
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=_prefix(place))
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Delivery(file, place, own, force, open(name, "wb", opener=lambda *_: descriptor))


@contextmanager
def errors_named(file: str) -> Iterator[None]:
    """Turn errors of the file's system into ours, which name the file.

    Raises:
        StorageFull: there is no room.
        UsageError: it is any other one.
    """
    try:
        yield
    except OSError as error:
        problem = f"{file} cannot be written: {error.strerror or error}"
        raise (StorageFull if lacks_room(error) else UsageError)(problem) from error


def _place_of(file: str) -> Path:
    """Return where the file is, behind links."""
    if not os.path.isabs(file) or "\0" in file:  # noqa: PTH117 - it may be no path at all
        raise UsageError(f"file: expected an absolute path, got {file!r}")
    if file.endswith("/"):
        raise UsageError(f"{file} is a folder: a backup takes the name of a file")
    return Path(os.path.realpath(file))


def _check_place(file: str, place: Path, own: Sequence[Path], *, force: bool) -> None:
    try:
        found = place.stat()
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{file} is a folder: a backup takes the name of a file")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{file} is no regular file, so no backup can take its place")
    if found.st_nlink > 1 and any(_has(folder, found) for folder in own):
        # Before it is opened: to close it would drop the locks that SQLite has on it.
        raise UsageError(f"{file} is a file of the daemon's own folder by another name")
    if found.st_size and not force and not is_backup(place):
        raise UsageError(
            f"{file} is there and is no backup of a journal: take another name, or force it "
            "(cmdc backup --force) to replace that file"
        )


def _has(folder: Path, wanted: os.stat_result) -> bool:
    """Say whether a file is in a folder, whatever it is called there."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        found = (one.stat(follow_symlinks=False) for one in entries)
        return any(os.path.samestat(one, wanted) for one in found)
    return False


def _prefix(place: Path) -> str:
    return f"{_MARK}{zlib.crc32(os.fsencode(place.name)):08x}-"


def _clear(place: Path) -> None:
    """Remove what killed daemons have left of backups to the same place."""
    for left in place.parent.glob(f"{_prefix(place)}*"):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            left.unlink()


def _sessions_in(copy: Path) -> int:
    with closing(open_to_read(copy)) as db:
        (count,) = db.execute("SELECT count(*) FROM sessions").fetchone()
    return int(count)


def _pass(point: str) -> None:
    faults.pass_point(faults.DAEMON_ITSELF, point, {DAEMON: lambda: (os.getpid(),)})
