"""The journal in one SQLite file: write-ahead log, one writer thread, group commit.

Here is how the file is opened, how a transaction ends, and what becomes of one that fails; every
method of the store but the constructor runs on the writer's thread.

Pages come from the write-ahead log into the file by ``_checkpoint`` alone: SQLite's own, after a
commit, passes over a failed fsync, and nobody would have the checksums of the pages.

What is acknowledged is in the files that we think it is in: before each transaction and each read,
and behind each commit, they are looked at. ``LogCopy`` has what is in the log, and what somebody
has overwritten in the file is written again from there; what only the file had is lost, and then
nothing is written any more: the next start finds out whose it was, and parks them.
"""

import errno
import io
import os
import shutil
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

import structlog

from supervisor.adapters.endpoint import make_private
from supervisor.adapters.journal.backup import PageCopy, is_backup
from supervisor.adapters.journal.base import (
    Durability,
    JournalFailed,
    JournalFull,
    JournalRefused,
)
from supervisor.adapters.journal.progress import Progress
from supervisor.adapters.journal.repair.repairing import Repaired, Repairer, keep_schema
from supervisor.adapters.journal.repair.restoring import (
    leave_damaged,
    put_pages_back,
    quarantine,
    restore,
    take_place,
)
from supervisor.adapters.journal.repair.sums import PAGE_BYTES, PageSums
from supervisor.adapters.journal.repair.volume import FILE_MODE, JournalLostError, Volume, wal_of
from supervisor.adapters.journal.repair.wal import FRAME_BYTES, LogCopy, Stamp, stamp_of, sums_in
from supervisor.adapters.journal.schema import Bounds, check_file, migrate
from supervisor.adapters.journal.sql_store import SqlStore
from supervisor.adapters.journal.writer import GroupWriter
from supervisor.core.limits import (
    JOURNAL_LOCK_WAIT_S,
    JOURNAL_RESERVE_BYTES,
    JOURNAL_ROOM_LOOK_S,
    JOURNAL_WAL_BYTES_MAX,
    JOURNAL_WAL_KEPT_BYTES,
    JOURNAL_WAL_PAGES,
)
from supervisor.core.storage import Level, Trouble

log = structlog.get_logger(__name__)

JOURNAL_FILE: Final = "journal.sqlite3"
SUMS_FILE: Final = "journal.sums"

_SYNCHRONOUS: Final[dict[Durability, str]] = {"process": "NORMAL", "power": "FULL"}
_COMMITS_MIN, _COMMITS_FIRST, _COMMITS_MAX = 16, 256, 4_096
"""Between two checkpoints; how many there are in so many pages is learnt at each of them."""


class SqliteStore(SqlStore):
    """The file, its open connection, and what is remembered of the live sessions."""

    failures: ClassVar = (sqlite3.OperationalError,)

    def __init__(
        self, directory: Path, durability: Durability, bounds: Bounds | None = None
    ) -> None:
        """Prepare; ``open`` touches the disk."""
        super().__init__(bounds)
        self._path = directory / JOURNAL_FILE
        self._durability: Durability = durability
        self._connection: sqlite3.Connection | None = None
        self._file: BinaryIO | None = None
        """The same file, to read it as it is; closed after the connection, whose locks go then."""
        self._volume = Volume(self._path)
        self._progress = Progress()
        self._sums = PageSums(directory / SUMS_FILE, self._path, self._progress)
        self._wal = wal_of(self._path)
        self._log = LogCopy(self._wal)
        self._file_seen: Stamp | None = None
        """How the file stood when we had written to it last."""
        self._changes = 0
        self._commits, self._commits_max = 0, _COMMITS_FIRST
        self._is_unsure = False
        """Whether frames of a failed commit may stand behind the last good one in the log."""
        self._retry_s = 0.0
        self._copy: PageCopy | None = None
        """The last one; it may be over."""
        self.repaired = Repaired()

    # --- its life -------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the directory and the file private, put right what is damaged, and open it."""
        make_private(self._path.parent)
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE))
            self._path.chmod(FILE_MODE)
            self._volume.claim()
            self._volume.reserve()
            _refuse_backup(self._path)
            with self._progress.logged():
                outlives_power = self._durability == "power"
                parts = self._path, self._sums, self._progress
                self.repaired = Repairer(*parts, outlives_power).repair()
                check_file(self._path)
                self._connection = self._connect()
        except (OSError, sqlite3.Error) as error:
            self._volume.release()
            raise JournalFailed(f"cannot open the journal {self._path}: {error}") from error
        except (JournalRefused, JournalFailed):
            self._volume.release()
            raise

    def begin(self) -> None:
        """Begin a transaction; open the file again if a failure closed it."""
        if self._connection is None:
            self._connection = self._connect()
            log.info("journal.reopened")
        else:
            self.look()
        is_long = len(self._log) > JOURNAL_WAL_BYTES_MAX
        if is_long or (self._is_unsure and time.monotonic() >= self._retry_s):
            self._checkpoint()
            if is_long and not self._log.may_begin_anew:
                raise OSError(errno.ENOSPC, "the log can't be brought into the journal's file")
        self._changes = self.db.total_changes
        self.db.execute("BEGIN IMMEDIATE")

    def look(self) -> None:
        """Put right what somebody else has done to the files.

        Raises:
            JournalLostError: some of it is lost.
        """
        if self._connection is None or self._file is None:
            return
        if strays := self._volume.strays():
            make_private(self._path.parent)
            try:
                self._log.check()
                self._check_file(os.fstat(self._file.fileno()))
            except JournalLostError:
                quarantine(strays)
                leave_damaged(self._path, self._file, self._log.data, self._sums)
                raise
            self._bring_back(strays)
            return
        self._log.check(self._volume.found[self._wal])
        self._check_file(self._volume.found[self._path])

    def _check_file(self, found: os.stat_result) -> None:
        """Write the pages again that somebody has overwritten since our last checkpoint.

        Raises:
            JournalLostError: there is one that only the file had.
        """
        if self._file is None or stamp_of(found) == self._file_seen:
            return
        lost = put_pages_back(self._file, self._sums, self._log.pages())
        with suppress(FileNotFoundError):  # it was deleted, too, and is about to be back
            if lost:
                self._sums.note_all()  # somebody may have removed them as well
            self._sums.note_file()  # to the next start what is wrong is damage, and nobody's edit
        self._file_seen = stamp_of(os.fstat(self._file.fileno()))
        if lost:
            raise JournalLostError(
                f"{len(lost)} pages of {self._path} were overwritten by somebody else, and are "
                "lost; the next start says which sessions miss something"
            )

    def commit(self) -> None:
        """Make the transaction durable, and see that it is where it will be looked for."""
        db = self.db
        db.execute("COMMIT")
        has_written = db.total_changes != self._changes
        status = self._volume.log_status()
        self._log.follow(status, has_written=has_written, is_unsure=self._is_unsure)
        if status is None:
            self.look()
        self._commits += 1
        is_long = self._log.fresh_bytes > JOURNAL_WAL_PAGES * FRAME_BYTES
        if is_long or self._commits >= self._commits_max:
            self._checkpoint()

    def rollback(self) -> None:
        """Undo, and forget what the transaction had taught us.

        The connection stays: its view is that the frames of a failed commit are not there, and the
        next commit writes over them; a new one would find them in the file and take them for good.
        """
        self.heads.forget()
        self._is_unsure = True
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.warning("journal.rollback_failed", error=str(error))
            self._disconnect()

    def begin_copy(self, path: Path) -> PageCopy:
        """Prepare a copy of all that is committed, to a file beside the journal.

        Raises:
            JournalFull: there is no room for it.
        """
        self.look()
        self._log.check_whole()  # SQLite looks at no checksum of a log that it has open
        (pages,) = self.db.execute("PRAGMA page_count").fetchone()
        wanted = pages * PAGE_BYTES + 2 * JOURNAL_RESERVE_BYTES
        free = shutil.disk_usage(path.parent).free
        if self.level is not Level.PLENTY or free < wanted:
            raise JournalFull(
                f"a backup takes {-(-wanted // 2**20)} MiB on the disk of {path.parent} for a "
                f"while, and {free // 2**20} are free"
            )
        self._copy = PageCopy(self.db, path, self._damaged_pages)
        return self._copy

    def _damaged_pages(self, pages: range) -> set[int]:
        """Return those of neighbouring pages that are damaged where SQLite has read them."""
        if self._file is None or not self._sums.wrong_among(self._file, pages):
            return set()
        self.look()  # what somebody has overwritten is put right there
        wrong = self._sums.wrong_among(self._file, pages)
        # While not all of the log is in the file, its pages are read from the log.
        return wrong if self._log.may_begin_anew else wrong - self._log.pages().keys()

    def close(self) -> None:
        """Close the file; never raises."""
        self.heads.forget()
        if self._connection is None:
            return
        try:
            self.look()
            self._checkpoint()
        except (OSError, sqlite3.Error, JournalLostError) as error:
            log.warning("journal.close_failed", error=str(error))
            self.abandon()
        self._disconnect()
        self._volume.release()

    # --- room and errors ------------------------------------------------------------------------

    @property
    def level(self) -> Level:
        """What room there is."""
        return self._volume.level

    @property
    def cause(self) -> str:
        """Why there is none and what helps."""
        return self._volume.cause

    def judge(self, error: Exception) -> Trouble:
        """Say what an error means."""
        return self._volume.judge(error)

    def spend(self) -> None:
        """Give up the next part of the reserve."""
        self._volume.spend()

    def regain(self, wanted_bytes: int) -> bool:
        """Make the reserve whole where that leaves room for so many bytes."""
        return self._volume.regain(wanted_bytes)

    def abandon(self) -> None:
        """Leave the file as it is, for good.

        Closing would try once more what has failed: a second fsync says yes to what was lost.
        """
        self._give_copy_up()
        _ABANDONED.append((self._connection, self._file))
        self._connection = self._file = None

    # --- the file -------------------------------------------------------------------------------

    @property
    def db(self) -> sqlite3.Connection:
        """The open connection; opened again if a failure closed it."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        before = _stamp(self._path)
        self._file = file = self._path.open("r+b")
        connection = sqlite3.connect(
            self._path,
            timeout=JOURNAL_LOCK_WAIT_S,
            isolation_level=None,
            cached_statements=64,
            check_same_thread=False,  # a copy has a thread of its own, and they take turns
        )
        connection.text_factory = _text
        try:
            # Exclusive: a second daemon on the same file is refused, and no lock is taken per
            # transaction. The mode takes hold with the first write lock.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self._durability]}")
            connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_WAL_BYTES_MAX}")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
            migrate(connection, self._path)
        except BaseException:
            connection.close()
            file.close()
            raise
        self._connection = connection
        self._volume.know()
        self._log.open()
        # What was in the log when it was opened may end with frames of a commit that was cut off.
        self._is_unsure = True
        if _stamp(self._path) != before or not self._sums.is_known or self.repaired.is_rebuilt:
            self._sums.rebuild(file)
        self._checkpoint()
        keep_schema(self._path, file)
        return connection

    def _disconnect(self) -> None:
        """Close, and log what fails: nothing can be done about it."""
        self._give_copy_up()
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error as error:
                log.warning("journal.close_failed", error=str(error))
        if self._file is not None:
            self._file.close()
        self._log.close()
        self._connection = self._file = None

    def _give_copy_up(self) -> None:
        """End a copy that is under way: a connection that is copied from stays open else."""
        if self._copy is not None:
            self._copy.give_up()
            self._copy = None

    def _checkpoint(self) -> None:
        """Bring the pages of the log into the file, and record their checksums before.

        A lack of room passes: then the log grows, as far as there is room for that. A log that a
        burst has made long is cut: as much memory as it has on the disk is kept for it.
        """
        if self._file is None:  # a database in memory
            self._is_unsure = False
            return
        try:
            self._log.sync()
            self._log.check_whole()
            sums, frames = sums_in(io.BytesIO(self._log.data), len(self._log))
            self._sums.note(sums)
            is_cut = self._is_unsure or len(self._log) > JOURNAL_WAL_KEPT_BYTES
            mode = "TRUNCATE" if is_cut else "PASSIVE"
            busy, found, brought = self.db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            self._sums.note_file()
            if not busy and found == brought:
                self._log.checkpointed(is_empty=is_cut)
        except (OSError, sqlite3.Error) as error:
            if self.judge(error) is not Trouble.NO_ROOM:
                raise
            log.warning("journal.not_checkpointed", error=str(error))
            self._retry_s = time.monotonic() + JOURNAL_ROOM_LOOK_S
        else:
            self._is_unsure = False
            if frames:
                learnt = self._commits * JOURNAL_WAL_PAGES // frames
                self._commits_max = min(max(_COMMITS_MIN, learnt), _COMMITS_MAX)
        self._file_seen = stamp_of(os.fstat(self._file.fileno()))
        self._commits = 0

    def _bring_back(self, strays: list[Path]) -> None:
        """Put the journal back that was deleted or replaced; what is at its place is quarantined.

        Our connection still has all of it, which nobody could find any more.
        """
        log.error("journal.displaced", paths=[str(path) for path in strays])
        whole = restore(self._path, self.db)
        quarantine(strays)
        self._disconnect()  # it deletes the log at its path, whosever that is
        take_place(whole, self._path, self._sums)
        self._connection = self._connect()
        log.warning("journal.brought_back", path=str(self._path))


_ABANDONED: Final[list[tuple[sqlite3.Connection | None, BinaryIO | None]]] = []
"""What are not to be closed as long as the process lives."""


def _refuse_backup(path: Path) -> None:
    """Refuse a backup that somebody has copied to the journal's place.

    It would be judged by the checksums and the log of the journal before it.

    Raises:
        JournalRefused: it is one.
    """
    with suppress(OSError):  # a sector that the disk does not give is repaired, or reported
        if is_backup(path):
            raise JournalRefused(
                f"{path} is a backup that was copied there: `cmdc restore {path}` checks it, and "
                "makes it the journal"
            )


def _text(data: bytes) -> str:
    """Return text as it stands in a row: one that is no UTF-8 must not hide all the others."""
    return data.decode(errors="surrogateescape")


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


class SqliteJournal(GroupWriter):
    """The journal in ``directory``, which is this user's alone; made if it is not there."""

    def __init__(
        self, directory: Path, *, durability: Durability = "process", bounds: Bounds | None = None
    ) -> None:
        """Prepare; ``open`` touches the disk."""
        super().__init__(SqliteStore(directory, durability, bounds))
