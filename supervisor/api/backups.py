"""Backups of the journal while sessions work: one at a time, for whoever asks.

What touches the file that was named runs on a thread of its own: its disk may hang, and then nobody
else waits for it, the daemon's end least of all.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import Overloaded
from cmdc_runtime.requests import BackUp, BackupFacts
from supervisor.adapters.journal.backup import Delivery, prepare, remove_copy
from supervisor.adapters.journal.repair.repairing import COPY_FILE
from supervisor.adapters.journal.store import Journal

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(slots=True)
class Backups:
    """Makes them; ``own`` are the daemon's own folders, the journal's first."""

    journal: Journal
    own: tuple[Path, ...]
    _under_way: str | None = None
    """Where to."""

    async def make(self, request: BackUp) -> BackupFacts:
        """Return when a backup is durable at its place.

        Raises:
            Overloaded: another one is under way.
            UsageError: it can't or may not be written there, or the journal is in no file.
            TransientError: there is no room, or the journal can't be copied now.
        """
        if self._under_way is not None:
            raise Overloaded(f"a backup to {self._under_way} is under way; try again later")
        self._under_way = request.file
        try:
            return await self._make(request)
        finally:
            self._under_way = None

    async def _make(self, request: BackUp) -> BackupFacts:
        copy = self.own[0] / COPY_FILE
        delivery = await _apart(lambda: prepare(request.file, self.own, force=request.force))
        try:
            await self.journal.copy(copy)
            made_ms = now_ms()
            made = await _apart(lambda: delivery.finish(copy, made_ms))
        except asyncio.CancelledError:
            _apart(lambda: _clean(delivery, copy))  # the daemon ends, and waits for no disk
            raise
        except BaseException:
            await _apart(lambda: _clean(delivery, copy))
            raise
        await _apart(lambda: _clean(delivery, copy))
        log.info("backup.made", file=made.file, bytes=made.size_bytes, sessions=made.sessions)
        return made


def _clean(delivery: Delivery, copy: Path) -> None:
    delivery.close()
    with suppress(OSError):
        remove_copy(copy)


def _apart(work: Callable[[], T]) -> asyncio.Future[T]:
    """Return the outcome to come of ``work`` on a thread that nobody has to wait for."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def complete(how: Callable[[], None]) -> None:
        if not outcome.done():
            how()

    def run() -> None:
        try:
            result = work()
            how = partial(outcome.set_result, result)
        except BaseException as error:  # noqa: BLE001 - handed on to who waits
            how = partial(outcome.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: the daemon has ended meanwhile
            loop.call_soon_threadsafe(complete, how)

    threading.Thread(target=run, name="backup", daemon=True).start()
    return outcome
