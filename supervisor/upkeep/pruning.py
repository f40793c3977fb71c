"""What becomes of ended sessions: kept for some days, and then deleted.

It looks at the start of the daemon, every hour, and when the number of days has changed. A look
goes in small steps, so that what else is written waits for one of them at most.
"""

import asyncio
from typing import Final

import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import CmdcError
from supervisor.adapters.journal.operations import PruneSessions
from supervisor.adapters.journal.store import Journal
from supervisor.core.limits import PRUNE_INTERVAL_S, PRUNED_AT_ONCE

log = structlog.get_logger(__name__)

_DAY_MS: Final = 24 * 3_600 * 1_000


class Pruning:
    """Deletes what ended longer than ``retain_days`` ago; 0 keeps all for ever."""

    def __init__(self, journal: Journal, retain_days: int) -> None:
        """Prepare; ``keep`` does it."""
        self._journal = journal
        self._retain_days = retain_days
        self._wanted = asyncio.Event()

    def retain(self, days: int) -> None:
        """Keep them for so many days from now on, and look at once."""
        self._retain_days = days
        self._wanted.set()

    async def keep(self) -> None:
        """Look now and then. Cancel it to end."""
        while True:
            self._wanted.clear()
            try:
                await self._prune()
            except CmdcError as error:  # the next look finds what this one has left
                log.warning("journal.prune_failed", error=str(error))
            try:
                async with asyncio.timeout(PRUNE_INTERVAL_S):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def _prune(self) -> None:
        if self._retain_days == 0:
            return
        before_ms = now_ms() - self._retain_days * _DAY_MS
        total = 0
        while count := await self._journal.write(PruneSessions(before_ms, PRUNED_AT_ONCE)):
            total += count
        if total:
            log.info("journal.pruned", sessions=total, retain_days=self._retain_days)
