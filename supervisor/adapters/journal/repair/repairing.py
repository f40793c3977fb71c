"""Looks at a journal's files before SQLite does, and puts right what is wrong with them.

In this order: a torn end of the log is cut by SQLite itself and logged here; a file that somebody
has edited is taken as it is; a single wrong bit is turned back; what is damaged beyond that is left
behind, the rows that are whole come into a new file, and the sessions that miss one are ended.

What is about to be changed or cut is kept beside the journal, as it was found. Of damage the files
are kept whole, and without room for that nothing is changed. What was not finished, a torn end of
the log, is nobody's: of it only the end is kept, if there is room.

A kill may come at any moment of it. Until the new file is whole and durable under the name
``READY`` the old one stays with its log; from then on the new one is the journal, and the next
start puts it in its place.
"""

import os
import shutil
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from cmdc_runtime.clock import now_ms
from supervisor.adapters.journal.base import JournalFull, JournalRefused
from supervisor.adapters.journal.progress import Progress
from supervisor.adapters.journal.repair.restoring import (
    SCHEMA_FILE,
    finish_replacing,
    finish_restoring,
    take_place,
)
from supervisor.adapters.journal.repair.salvage import Salvaged, UnreadableError, salvage
from supervisor.adapters.journal.repair.sums import PAGE_BYTES, PageSums
from supervisor.adapters.journal.repair.volume import (
    FILE_MODE,
    copy_whole,
    lacks_room,
    put_in_place,
    wal_of,
    write_whole,
)
from supervisor.adapters.journal.repair.wal import FRAME_BYTES, HEADER, Frame, Log, read_log
from supervisor.adapters.journal.schema import check_file
from supervisor.core.limits import JOURNAL_COPIES_KEPT

# --- the quarantine -------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

_DAMAGED: Final = ".damaged-"
_TORN: Final = ".torn-"


@dataclass(slots=True)
class KeptFiles:
    """What is kept of the journal at ``path`` this time."""

    path: Path
    files: Path | None = None
    """The copy of the journal; that of its log stands beside it."""
    tail: Path | None = None

    @property
    def where(self) -> Path | None:
        """Where something is kept, None for nowhere."""
        return self.files or self.tail

    def keep_files(self) -> None:
        """Copy the files as they are, once; the oldest copies go. Raises where there is no room."""
        if self.files is not None:
            return
        quarantined = self._name(_DAMAGED)
        copies = [(self.path, quarantined), (wal_of(self.path), wal_of(quarantined))]
        try:
            for path, copy in reversed(copies):  # the log first: there is no copy without its log
                if path.exists():
                    copy_whole(path, copy)
        except BaseException:
            wal_of(quarantined).unlink(missing_ok=True)
            raise
        self.files = quarantined
        self._bound(_DAMAGED)

    def drop_files(self) -> None:
        """Remove the copy again, where nothing came of it."""
        if self.files is not None:
            for copy in (self.files, wal_of(self.files)):
                copy.unlink(missing_ok=True)
            self.files = None

    def keep_tail(self, data: bytes) -> None:
        """Keep the end of the log, unless all of it is kept, or there is no room."""
        if self.files is not None:
            return
        quarantined = self._name(_TORN)
        try:
            write_whole(quarantined, data)
        except OSError as error:
            if not lacks_room(error):
                raise
            log.warning("journal.tail_not_kept", torn_bytes=len(data), error=str(error))
            return
        self.tail = quarantined
        self._bound(_TORN)

    def _name(self, kind: str) -> Path:
        return self.path.with_name(f"{self.path.name}{kind}{now_ms()}")

    def _bound(self, kind: str) -> None:
        found = self.path.parent.glob(f"{self.path.name}{kind}*")
        kept = sorted(one for one in found if one.name.rpartition("-")[2].isdigit())
        for old in kept[:-JOURNAL_COPIES_KEPT]:
            for path in (old, wal_of(old)):
                path.unlink(missing_ok=True)


# --- repairing ------------------------------------------------------------------------------------

READY: Final = "journal.salvaged"
COPY_FILE: Final = "journal.copying"
"""A backup under way, until it is delivered."""
_PAGE: Final = struct.Struct("<I")
_WORK: Final = "journal.salvage"
_INTERIOR: Final = 5
"""Kind of a b-tree page that has children: https://www.sqlite.org/fileformat2.html#b_tree_pages."""


@dataclass(slots=True)
class Repaired:
    """What was done; ``kept_at`` is where the files are kept as they were found."""

    torn_bytes: int = 0
    """After the last good commit of the log."""
    bits: int = 0
    lost_commits: int = 0
    """Of the log, behind a damaged part of it that could not be got over."""
    edited_pages: int = 0
    """Changed by somebody else, and consistent."""
    salvaged: Salvaged | None = None
    kept_at: Path | None = None

    @property
    def is_rebuilt(self) -> bool:
        """Whether the checksums have to be made anew."""
        return self.edited_pages > 0 or self.salvaged is not None


@dataclass(slots=True)
class Repairer:
    """The files of one journal, which nobody has open."""

    path: Path
    sums: PageSums
    progress: Progress = field(default_factory=Progress)
    outlives_power: bool = True
    """Whether what was acknowledged had been synced; else a cut of the power may have any of it."""
    repaired: Repaired = field(default_factory=Repaired)
    _data: bytearray = field(default_factory=bytearray)
    """The log."""
    _kept: KeptFiles = field(init=False)
    _copies: int = 1
    """Of the files for which there must be room."""
    _is_changed: bool = False

    def __post_init__(self) -> None:
        """Keep in quarantine, beside ``path``, what is changed."""
        self._kept = KeptFiles(self.path)

    def repair(self) -> Repaired:
        """Put right what is wrong.

        Raises:
            JournalRefused: it cannot be, or it is none of our files; it was left as it is.
            JournalFull: there is no room for what that takes.
        """
        try:
            finish_interrupted(self.path, self.sums)
            self._repair()
        except (OSError, sqlite3.Error) as error:
            if not lacks_room(error):
                raise
            if not self._is_changed:
                self._kept.drop_files()
            size = sum(one.stat().st_size for one in self._files() if one.exists())
            raise JournalFull(
                f"{self.path} has to be repaired, and there is no room for that: free up to "
                f"{-(-self._copies * size // 2**20)} MiB on the disk of {self.path.parent}, and "
                "start again"
            ) from error
        self.repaired.kept_at = self._kept.where
        self._report()
        return self.repaired

    def _files(self) -> tuple[Path, Path]:
        return self.path, wal_of(self.path)

    def _repair(self) -> None:
        has_sums = self.sums.load()
        if not has_sums:
            check_file(self.path)
        elif len(self.sums) and not self.path.stat().st_size:
            raise JournalRefused(
                f"{self.path} is empty, and it had {len(self.sums)} pages: put a backup in its "
                f"place (cmdc restore --force), or remove journal.* in {self.path.parent} to begin "
                "without what was there"
            )
        wal = wal_of(self.path)
        with suppress(FileNotFoundError):
            self._data = bytearray(wal.read_bytes())
        self.progress.begin("reading the log")
        found = read_log(bytes(self._data))
        if found.page_size not in {0, PAGE_BYTES}:
            raise JournalRefused(f"{wal} has pages of {found.page_size} bytes, not {PAGE_BYTES}")
        if found.repairs:
            self._keep_files()
            for at, bit in found.repairs:
                self._data[at] ^= 1 << bit
            write_whole(wal, bytes(self._data))
            self._is_changed = True
            self.repaired.bits += len(found.repairs)
        if found.has_rest and not self.outlives_power:
            del found.frames[found.good :]  # written in any order, and cut off like the rest
        damaged = self._damaged_pages(found) if has_sums else self._damage_without_sums()
        overlay = self._look_at_log(found)
        if damaged is not None or overlay is not None or self.repaired.lost_commits:
            self._salvage(found, damaged, overlay)

    # --- what is wrong --------------------------------------------------------------------------

    def _look_at_log(self, found: Log) -> set[int] | None:
        """Remember a torn end; return the pages that are damaged in the midst of the log.

        None means that SQLite may take it as it is, or that it is not known which pages are.
        """
        if self._has_ruined_header(found):
            self._keep_files()
            self.repaired.lost_commits = 1  # at least; none of them can be read
            return None
        size = HEADER.size + found.good * FRAME_BYTES
        is_ours = found.has_rest or len(found.frames) > found.good
        partial = (len(self._data) - HEADER.size) % FRAME_BYTES
        if found.lost_commits == 0:
            if self._data and (is_ours or partial or not found.page_size):
                begin = size if found.page_size else 0
                self.repaired.torn_bytes = len(self._data) - begin
                self._kept.keep_tail(bytes(self._data[begin:]))
            return None
        self._keep_files()
        bad = [one for one in found.frames[: found.committed] if not one.is_whole]
        if not all(one.is_ours for one in bad):  # which pages were there is not known
            self.repaired.lost_commits = found.lost_commits
            return None
        newest = found.pages(found.committed)
        return {one.page for one in bad if newest[one.page] is one}

    def _has_ruined_header(self, found: Log) -> bool:
        """Say whether frames stand behind something that was a header; zeros were never written."""
        has_frames = len(self._data) >= HEADER.size + FRAME_BYTES
        return has_frames and not found.page_size and any(self._data[: HEADER.size])

    def _damaged_pages(self, found: Log) -> set[int] | None:
        """Return the pages of the file that are damaged for good, None where none is."""
        in_log = found.pages(found.committed if found.lost_commits else found.good)
        one_bit: dict[int, bytes] = {}
        left: set[int] = set()
        for page, data in self.sums.wrong(in_log.keys() - {1}):
            if page in in_log:
                self._look_at_first(data, in_log[page])
            elif (right := self.sums.repaired(page, data)) is not None:
                one_bit[page] = right
            else:
                left.add(page)
        # Asked before a bit is turned back: one of the edited pages may differ in a single one.
        if left and self._was_edited():
            self.repaired.edited_pages = len(left) + len(one_bit)
            return None
        if one_bit:
            self._write(one_bit)
            if left and self._was_edited():  # there was damage, too, which is no more
                self.repaired.edited_pages = len(left)
                return None
        return left or None

    def _look_at_first(self, data: bytes, frame: Frame) -> None:
        """Put the first page right where the log has it: its header is looked at before that."""
        newer = bytes(self._data[frame.offset :][:PAGE_BYTES])
        if _names(data) != _names(newer):
            self._write({1: newer})

    def _was_edited(self) -> bool:
        """Say whether a program that knows the format wrote the file, and it is still ours."""
        if self.sums.is_untouched or self.path.stat().st_size % PAGE_BYTES:
            return False
        return self._is_consistent(needs="SELECT count(*) FROM sessions")

    def _write(self, pages: Mapping[int, bytes]) -> None:
        """Write pages that are right again, each of which had a wrong bit."""
        self._keep_files()
        self._is_changed = True
        with self.path.open("r+b") as file:
            for page, data in pages.items():
                file.seek((page - 1) * PAGE_BYTES)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self.repaired.bits += len(pages)

    def _keep_files(self) -> None:
        if self._kept.files is None:
            self.progress.begin("copying the file as it was found")
            self._kept.keep_files()

    def _damage_without_sums(self) -> set[int] | None:
        """Judge a file of which no checksums are there: return None where it is consistent."""
        if self.path.stat().st_size == 0 or self._is_consistent():
            return None
        return set()

    def _is_consistent(self, needs: str = "SELECT 1") -> bool:
        """Ask SQLite, of a copy: a damaged log must not come into the file."""
        copy = self.path.with_name(_WORK)
        try:
            self.progress.begin("copying the file for SQLite to check it")
            shutil.copyfile(self.path, copy)
            if self._data:
                wal_of(copy).write_bytes(self._data)
            self.progress.begin("having SQLite check all of the copy")
            with closing(sqlite3.connect(copy)) as db:
                db.execute(needs).fetchone()
                (verdict,) = db.execute("PRAGMA integrity_check").fetchone()
                return str(verdict) == "ok"
        except sqlite3.DatabaseError as error:
            if lacks_room(error):
                raise
            return False
        finally:
            _remove(copy)

    # --- getting out what is whole ------------------------------------------------------------

    def _salvage(self, found: Log, bad: set[int] | None, overlay: set[int] | None) -> None:
        """Make the file anew of what is whole; ``bad`` are its own pages, None where none is."""
        self._copies = 3  # one that is kept, one to work on, and what comes of it
        self._keep_files()
        damaged = bad or set()
        work, fresh = self.path.with_name(_WORK), self.path.with_name(f"{_WORK}.new")
        for path in (work, fresh):
            _remove(path)
        try:
            self.progress.begin("copying the file to take out what is whole")
            shutil.copyfile(self.path, work)
            count = found.committed if overlay is not None else found.good
            self._lay_over(work, found, count, damaged)
            damaged |= overlay or set()
            damaged -= _restore_schema(work, self.path.with_name(SCHEMA_FILE), damaged)
            _unlog(work)
            fresh.touch(FILE_MODE)
            self.progress.begin("taking out all rows that are whole")
            self.repaired.salvaged = salvage(
                *(work, fresh, damaged, now_ms()),
                misses_commits=self.repaired.lost_commits > 0,
                may_be_empty=bad is None,
            )
            ready = self.path.with_name(READY)
            put_in_place(fresh, ready)
            self._is_changed = True
            take_place(ready, self.path, self.sums)
        except UnreadableError as error:
            raise JournalRefused(
                f"{self.path} is damaged, and {error}; it was left as it is, and a copy is at "
                f"{self._kept.files}: put a backup in its place (cmdc restore --force), or choose "
                "another state directory"
            ) from error
        finally:
            for path in (work, fresh):
                _remove(path)

    def _lay_over(self, work: Path, found: Log, count: int, damaged: set[int]) -> None:
        """Write the pages of the log into the file, as a checkpoint does."""
        with work.open("r+b") as file:
            for page, frame in found.pages(count).items():
                file.seek((page - 1) * PAGE_BYTES)
                file.write(self._data[frame.offset : frame.offset + PAGE_BYTES])
                damaged.discard(page)
            size = max(file.seek(0, os.SEEK_END) // PAGE_BYTES, max(damaged, default=0))
            file.truncate(size * PAGE_BYTES)

    def _report(self) -> None:
        done, kept_at = self.repaired, str(self.repaired.kept_at or "nowhere")
        if done.torn_bytes:
            log.warning("journal.tail_cut", torn_bytes=done.torn_bytes, kept_at=kept_at)
        if done.bits:
            log.error("journal.bits_repaired", bits=done.bits, kept_at=kept_at)
        if done.lost_commits:
            log.error("journal.commits_lost", at_least=done.lost_commits, kept_at=kept_at)
        if done.edited_pages:
            log.warning("journal.edited", pages=done.edited_pages)
        if (found := done.salvaged) is not None:
            log.error(
                "journal.salvaged",
                rows=found.kept,
                lost=dict(found.lost),
                ended=sorted(found.ended),
                unknown=found.unknown,
                unsure=sorted(found.unsure),
                kept_at=kept_at,
            )


def finish_interrupted(path: Path, sums: PageSums) -> None:
    """Finish what a kill has left of a repair, a restoring or a backup, or remove it.

    The journal is not open; without a mark of such work nothing is changed.
    """
    for name in (_WORK, f"{_WORK}.new", COPY_FILE):
        _remove(path.with_name(name))
    for one in (path, wal_of(path)):
        for end in ("new", "copy"):
            one.with_name(f"{one.name}.{end}").unlink(missing_ok=True)
    if (ready := path.with_name(READY)).exists():
        log.warning("journal.salvage_finished")
        take_place(ready, path, sums)
    finish_restoring(path, sums)
    finish_replacing(path, sums)


def keep_schema(path: Path, file: BinaryIO) -> None:
    """Keep a copy of the pages with the tables' names; without them no row can be found.

    After each opening of the journal, when nothing of it is in the log. ``file`` is the journal,
    open: closing it would drop the locks that SQLite has on it.
    """
    file.seek(0)
    pages = {1: file.read(PAGE_BYTES)}
    for child in _children(pages[1]):
        file.seek((child - 1) * PAGE_BYTES)
        pages[child] = file.read(PAGE_BYTES)
    copy = path.with_name(SCHEMA_FILE)
    data = b"".join(_PAGE.pack(page) + content for page, content in pages.items())
    with suppress(FileNotFoundError):
        if copy.read_bytes() == data:
            return
    try:
        write_whole(copy, data)
    except OSError as error:
        if not lacks_room(error):
            raise
        log.warning("journal.schema_not_kept", error=str(error))


def _names(first: bytes) -> bytes:
    """Return what of the file's header says what file it is, and not what is in it."""
    return first[:24] + first[60:72]


def _children(first: bytes) -> list[int]:
    """Return the pages below the first one, which is the root of the tables' names."""
    kind, _, count = struct.unpack_from(">BHH", first, 100)
    if kind != _INTERIOR:
        return []
    (rightmost,) = struct.unpack_from(">I", first, 108)
    cells = struct.unpack_from(f">{count}H", first, 112)
    return [struct.unpack_from(">I", first, cell)[0] for cell in cells] + [rightmost]


def _restore_schema(work: Path, copy: Path, damaged: set[int]) -> set[int]:
    """Put back the pages with the tables' names that are damaged; return which."""
    try:
        data = copy.read_bytes()
    except FileNotFoundError:
        return set()
    size = _PAGE.size + PAGE_BYTES
    restored: set[int] = set()
    with work.open("r+b") as file:
        for at in range(0, len(data) - size + 1, size):
            (page,) = _PAGE.unpack_from(data, at)
            if page in damaged:
                file.seek((page - 1) * PAGE_BYTES)
                file.write(data[at + _PAGE.size : at + size])
                restored.add(page)
    return restored


def _unlog(work: Path) -> None:
    """Let SQLite read the file without a log, and take its size for what it is."""
    with work.open("r+b") as file:
        pages = file.seek(0, os.SEEK_END) // PAGE_BYTES
        file.seek(18)
        file.write(b"\1\1")
        file.seek(24)
        counter = file.read(4)
        file.write(struct.pack(">I", pages))
        file.seek(92)
        file.write(counter)


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
