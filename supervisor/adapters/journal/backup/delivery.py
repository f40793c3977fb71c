"""Brings a copy of the journal to the file that somebody has named for it.

That file may be on any disk, one that hangs among them, so nothing here runs on the journal's
thread. A backup is written under another name beside its place, made durable, and then takes its
place: a kill at any moment leaves the former one, or the new one, and what it leaves under the
other name goes with the next backup to the same place. Whoever writes such a file holds its lock,
so that two daemons don't take each other's away.
"""

import fcntl
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from cmdc_runtime import faults
from cmdc_runtime.errors import StorageFull, UsageError
from cmdc_runtime.requests import BackupFacts
from supervisor.adapters.journal.backup.copying import DAEMON
from supervisor.adapters.journal.backup.seal import damage_of, is_backup, open_to_read, write_sealed
from supervisor.adapters.journal.base import JournalFailed
from supervisor.adapters.journal.repair.volume import lacks_room, sync_directory

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
                "the daemon, which mends it, and make the backup then"
            )
        sessions = _sessions_in(copy)
        with errors_told(self.given):
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
    """Begin the file of a backup, so that what keeps it from being written is told at once.

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
    with errors_told(file):
        _check_place(file, place, own, force=force)
        _clear(place)
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=_prefix(place))
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Delivery(file, place, own, force, open(name, "wb", opener=lambda *_: descriptor))


@contextmanager
def errors_told(file: str) -> Iterator[None]:
    """Tell errors of the file's system by the file's name.

    Raises:
        StorageFull: there is no room.
        UsageError: it is any other one.
    """
    try:
        yield
    except OSError as error:
        told = f"{file} cannot be written: {error.strerror or error}"
        raise (StorageFull if lacks_room(error) else UsageError)(told) from error


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
