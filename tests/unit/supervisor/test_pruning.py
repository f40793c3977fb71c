"""Ended sessions are kept for the days that were asked for, and no longer."""

import asyncio
import contextlib

from cmdc_runtime.clock import now_ms
from supervisor.adapters.journal.base import JournalFailed, SessionRow
from supervisor.adapters.journal.opening import MemoryJournal
from supervisor.adapters.journal.operations import (
    CreateSession,
    EndSession,
    FindSession,
    PruneSessions,
)
from supervisor.core.limits import PRUNED_AT_ONCE
from supervisor.upkeep.pruning import Pruning

DAY_MS = 24 * 3_600 * 1_000
PATIENCE_S = 30.0


class Watched(MemoryJournal):
    """A journal that shows when a look is over, and can be asked to fail."""

    def __init__(self):
        super().__init__()
        self.looked = asyncio.Event()
        self.fails = False

    def write(self, operation):
        """Do it, and notice when nothing was left to prune."""
        if not isinstance(operation, PruneSessions):
            return super().write(operation)
        if self.fails:
            self.fails = False
            self.looked.set()
            raise JournalFailed("not now")
        pruning = super().write(operation)
        pruning.add_done_callback(lambda done: done.result() or self.looked.set())
        return pruning

    async def look_over(self):
        """Wait for the end of the next look."""
        await self.looked.wait()
        self.looked.clear()


def run(scenario, retain_days):
    """Run a coroutine function with a journal of ended sessions, and what prunes it."""

    async def whole():
        journal = Watched()
        await journal.open()
        for days in range(4):
            await ended(journal, f"s-{days}", days)
        pruning = Pruning(journal, retain_days)
        keeping = asyncio.create_task(pruning.keep())
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await scenario(journal, pruning)
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            await journal.close()

    return asyncio.run(whole())


async def ended(journal, name, days):
    """Write a session that ended so many days and a second ago."""
    await journal.write(CreateSession(SessionRow(session_id=name, created_ms=1, spec=b"")))
    await journal.write(EndSession(name, b"normal", now_ms() - days * DAY_MS - 1_000))


async def left(journal):
    """Return the sessions that are still there."""
    names = [f"s-{days}" for days in range(4)]
    return [name for name in names if await journal.read(FindSession(name)) is not None]


def test_old_sessions_go_at_the_start():
    """Those that ended longer ago than that, and no others."""

    async def work(journal, _pruning):
        await journal.look_over()
        return await left(journal)

    assert run(work, 2) == ["s-0", "s-1"]


def test_a_change_takes_effect_at_once():
    """Fewer days, and none until then: 0 is for ever."""

    async def work(journal, pruning):
        before = await left(journal)
        pruning.retain(1)
        await journal.look_over()
        return before, await left(journal)

    assert run(work, 0) == (["s-0", "s-1", "s-2", "s-3"], ["s-0"])


def test_many_go_in_steps():
    """All of them, however many there are."""

    async def work(journal, pruning):
        for number in range(3 * PRUNED_AT_ONCE):
            await ended(journal, f"old-{number}", 9)
        pruning.retain(5)
        await journal.look_over()
        return [
            await journal.read(FindSession(f"old-{number}")) for number in range(3 * PRUNED_AT_ONCE)
        ]

    assert set(run(work, 0)) == {None}


def test_a_look_that_fails_is_not_the_last():
    """A full disk passes."""

    async def work(journal, pruning):
        journal.fails = True
        pruning.retain(2)
        await journal.look_over()
        pruning.retain(2)
        await journal.look_over()
        return await left(journal)

    assert run(work, 0) == ["s-0", "s-1"]
