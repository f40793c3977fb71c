"""Says in the log what a start does with the journal, and how far it is, while that lasts.

Each start reads the whole file, and after an edit or damage it copies the file and has SQLite check
it: a large one takes minutes, in which nothing else is in the log. A thread of its own says so,
since a copy or SQLite's check cannot.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

from supervisor.core.limits import JOURNAL_PROGRESS_FIRST_S, JOURNAL_PROGRESS_S

log = structlog.get_logger(__name__)

_MIB: Final = 2**20


@dataclass(slots=True)
class Progress:
    """What is being done; written by the journal's thread, read by the one that logs it."""

    doing: str = "opening"
    total_bytes: int = 0
    """Of what is being done; 0 where nobody knows how far it is."""
    done_bytes: int = 0
    first_s: float = JOURNAL_PROGRESS_FIRST_S
    every_s: float = JOURNAL_PROGRESS_S
    _begun_s: float = field(default_factory=time.monotonic)

    def begin(self, doing: str, total_bytes: int = 0) -> None:
        """Record that something else is being done from now on."""
        self.total_bytes, self.done_bytes = 0, 0
        self.doing, self.total_bytes = doing, total_bytes

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Log it after ``first_s`` seconds and every ``every_s`` from then on, until the end."""
        self._begun_s = time.monotonic()
        is_over = threading.Event()

        def keep_logging() -> None:
            wait_s = self.first_s
            while not is_over.wait(wait_s):
                self.report()
                wait_s = self.every_s

        thread = threading.Thread(target=keep_logging, name="journal-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def report(self) -> None:
        """Log what is being done now."""
        known = {}
        if self.total_bytes:
            known = {"done_mib": self.done_bytes // _MIB, "total_mib": self.total_bytes // _MIB}
        elapsed_s = round(time.monotonic() - self._begun_s, 1)
        log.info("journal.opening", doing=self.doing, elapsed_s=elapsed_s, **known)
