"""Puts a journal back that was deleted or replaced while it was open, and any new one in its place.

Of one that was overwritten in place the pages are put back that are known: from the log, or where
a single bit is wrong.

A kill may come at any moment of it. Until the copy is whole and durable under the name ``RESTORED``
nothing is changed; from then on it is the journal, and the next start puts it in its place.
"""

import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from cmdc_runtime.clock import now_ms
from supervisor.adapters.endpoint import make_private
from supervisor.adapters.journal.repair.sums import PAGE_BYTES, PageSums
from supervisor.adapters.journal.repair.volume import (
    FILE_MODE,
    put_in_place,
    sync_directory,
    wal_of,
    write_whole,
)

log = structlog.get_logger(__name__)

SCHEMA_FILE: Final = "journal.schema"
"""A copy of the pages with the tables' names; it belongs to one journal."""
REPLACEMENT: Final = "journal.replacement"
"""What a person puts in the journal's place, whole and durable."""
REPLACING: Final = "journal.replacing"
"""The same, unfinished."""
RESTORED: Final = "journal.restored"
_WORK: Final = "journal.restoring"


def restore(path: Path, connection: sqlite3.Connection) -> Path:
    """Write all that an open journal has to its directory, made anew if need be; returns where.

    The connection still has what nobody could find any more.
    """
    make_private(path.parent)
    fresh, whole = path.with_name(_WORK), path.with_name(RESTORED)
    fresh.unlink(missing_ok=True)
    try:
        fresh.touch(FILE_MODE)
        with closing(sqlite3.connect(fresh)) as copy:
            connection.backup(copy)
        put_in_place(fresh, whole)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return whole


def put_pages_back(file: BinaryIO, sums: PageSums, known: Mapping[int, bytes]) -> list[int]:
    """Write the pages again that somebody has overwritten in place; return those that are lost.

    ``file`` comes open for writing; ``known`` is the newest content of pages, as the log has it.
    """
    lost, back = [], 0
    for page, data in sums.differing(file):
        right = known.get(page) or sums.repaired(page, data)
        if right is None:
            lost.append(page)
            continue
        sums.note({page: zlib.crc32(right)})
        os.pwrite(file.fileno(), right, (page - 1) * PAGE_BYTES)
        back += 1
    os.fsync(file.fileno())
    if back or lost:
        log.error("journal.overwritten", pages_written_again=back, pages_lost=len(lost))
    return lost


def leave_damaged(path: Path, file: BinaryIO, log_data: bytes, sums: PageSums) -> None:
    """Put a journal that is damaged as well at its place again, for the next start to judge.

    ``file`` is what was there, open; ``sums`` are written down. The file comes last: without its
    log it would be taken for all there is.
    """
    write_whole(wal_of(path), log_data)
    file.seek(0)
    write_whole(path, file.read())
    sums.note_file()
    sync_directory(path.parent)
    log.error("journal.damaged_one_left", path=str(path))


def quarantine(paths: Iterable[Path]) -> None:
    """Keep what stands at the journal's paths and is not known to be ours, under another name."""
    for path in paths:
        if os.path.lexists(path):
            quarantined = path.with_name(f"{path.name}.stranger-{now_ms()}")
            path.rename(quarantined)
            log.error("journal.stranger_quarantined", path=str(quarantined))


def take_place(fresh: Path, path: Path, sums: PageSums) -> None:
    """Put a new file in the place of the journal, whose log and checksums must be gone then.

    What was in the log is in the new file, or in quarantine.
    """
    wal_of(path).unlink(missing_ok=True)
    sums.drop()
    sync_directory(path.parent)
    fresh.replace(path)
    sync_directory(path.parent)
    with path.open("rb") as file:
        sums.rebuild(file)


def finish_restoring(path: Path, sums: PageSums) -> None:
    """Finish what a kill has left, and remove what it had not finished; the journal is not open."""
    path.with_name(_WORK).unlink(missing_ok=True)
    whole = path.with_name(RESTORED)
    if not whole.exists():
        return
    found = (path, wal_of(path))  # the log may be ours, which can't be found out any more
    quarantine(one for one in found if one.exists() and one.stat().st_size)
    take_place(whole, path, sums)
    log.warning("journal.brought_back", path=str(path))


def finish_replacing(path: Path, sums: PageSums) -> Path | None:
    """Put a replacement that is whole in the journal's place; the journal is not open.

    What was there is kept beside, with its log, under a name that the replacement's age gives: who
    goes on after a kill comes to the same one. Returns it, None where nothing was there. A
    replacement that was not finished is removed.
    """
    path.with_name(REPLACING).unlink(missing_ok=True)
    whole = path.with_name(REPLACEMENT)
    if not whole.exists():
        return None
    kept = path.with_name(f"{path.name}.replaced-{whole.stat().st_mtime_ns // 1_000_000}")
    for old, name in ((wal_of(path), wal_of(kept)), (path, kept)):
        if old.exists() and old.stat().st_size and not name.exists():
            old.rename(name)
    path.with_name(SCHEMA_FILE).unlink(missing_ok=True)
    take_place(whole, path, sums)
    found = kept if kept.exists() else None
    log.warning("journal.replaced", path=str(path), kept_at=str(found or "nowhere"))
    return found
