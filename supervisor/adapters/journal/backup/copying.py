"""A copy of an open journal, made by SQLite's backup API in steps between commits.

``sqlite3.Connection.backup`` is one call that pauses between its steps. So it has a thread of its
own, which runs only while the writer's thread waits for it: the connection is used by one of them
at a time, and the writer can give the copy up whenever it has to close the connection.

What is committed through the same connection between two steps SQLite writes to the pages that
were copied already (https://www.sqlite.org/backup.html), so the copy is the state of the last step,
as a whole. Each part that was copied is compared with the checksums of the journal's file: a copy
of a damaged journal would be taken for a good one.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from cmdc_runtime import faults
from supervisor.adapters.journal.base import JournalFailed, JournalFull
from supervisor.adapters.journal.repair.volume import FILE_MODE, lacks_room
from supervisor.core.limits import BACKUP_STEP_PAGES

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
        self._turn, self._told = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._copy, name="journal-copy", daemon=True)
        self._is_given_up = False
        self._is_over = False
        self._pages = 0
        """How many are copied, from the first one on."""
        self._error: Exception | None = None

    def step(self) -> bool:
        """Copy the next pages; True when the copy is whole.

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
                "restart the daemon, which mends it, and make the backup then"
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
        self._told.acquire()
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
        self._told.release()

    def _pause(self, status: int, left: int, total: int) -> None:
        """Let the writer's thread work until it wants the next step."""
        self._pages = total - left
        if status == sqlite3.SQLITE_DONE:
            return
        if status != sqlite3.SQLITE_OK:  # a lock: nobody else may have either file
            raise sqlite3.OperationalError(f"a file of it is in use (SQLite's code {status})")
        self._told.release()
        self._turn.acquire()
        if self._is_given_up:
            raise _GivenUpError
