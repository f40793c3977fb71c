"""Keeps beside a journal what mending is about to change or to cut, as it was found.

Of damage the files are kept whole, and without room for that nothing is mended. What was not
finished, a torn end of the log, is nobody's: of it only the end is kept, if there is room.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.clock import now_ms
from supervisor.adapters.journal.repair.volume import copy_whole, lacks_room, wal_of, write_whole
from supervisor.core.limits import JOURNAL_COPIES_KEPT

log = structlog.get_logger(__name__)

_DAMAGED: Final = ".damaged-"
_TORN: Final = ".torn-"


@dataclass(slots=True)
class Aside:
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
        aside = self._name(_DAMAGED)
        copies = [(self.path, aside), (wal_of(self.path), wal_of(aside))]
        try:
            for path, copy in reversed(copies):  # the log first: there is no copy without its log
                if path.exists():
                    copy_whole(path, copy)
        except BaseException:
            wal_of(aside).unlink(missing_ok=True)
            raise
        self.files = aside
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
        aside = self._name(_TORN)
        try:
            write_whole(aside, data)
        except OSError as error:
            if not lacks_room(error):
                raise
            log.warning("journal.tail_not_kept", torn_bytes=len(data), error=str(error))
            return
        self.tail = aside
        self._bound(_TORN)

    def _name(self, kind: str) -> Path:
        return self.path.with_name(f"{self.path.name}{kind}{now_ms()}")

    def _bound(self, kind: str) -> None:
        found = self.path.parent.glob(f"{self.path.name}{kind}*")
        kept = sorted(one for one in found if one.name.rpartition("-")[2].isdigit())
        for old in kept[:-JOURNAL_COPIES_KEPT]:
            for path in (old, wal_of(old)):
                path.unlink(missing_ok=True)
