"""What feeds the watchdog, and what is logged when a part or the loop itself hangs."""

import asyncio
import contextlib
import threading

import pytest
from structlog.testing import capture_logs

from cmdc_runtime.errors import Overloaded
from supervisor.upkeep.self_check import SelfCheck

WATCHDOG_S = 0.8
"""Four rounds in this time."""
PATIENCE_S = 10.0
STALL_S = 0.1
"""For a loop to count as blocked in these tests."""


class Part:
    """A part of a daemon that answers, or does not."""

    def __init__(self):
        self.answers = asyncio.Event()
        self.answers.set()
        self.refusals = 0

    async def ask(self):
        if self.refusals:
            self.refusals -= 1
            raise Overloaded("too much to do")
        await self.answers.wait()


class Fed:
    """Counts how often the watchdog was fed."""

    def __init__(self):
        self.times = 0
        self._came = asyncio.Event()

    def feed(self):
        self.times += 1
        self._came.set()

    async def again(self):
        """Return when it has been fed once more."""
        self._came.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self._came.wait()


@contextlib.asynccontextmanager
async def kept(part):
    """Vital signs of one part and of a healthy one; yields what counts the feedings."""
    fed = Fed()
    questions = {"journal": part.ask, "router": Part().ask}
    signs = SelfCheck(questions, fed.feed, WATCHDOG_S)
    task = asyncio.create_task(signs.keep())
    try:
        yield fed
    finally:
        task.cancel()
        await asyncio.wait([task])


async def logged(records, event):
    """Wait until ``event`` is in the log; return its record."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for record in list(records):
                if record["event"] == event:
                    return record
            await asyncio.sleep(0)


def test_the_watchdog_is_fed_while_every_part_answers():
    """A daemon that has nothing to do is as alive as any, and a busy part is asked again."""

    async def work():
        part = Part()
        part.refusals = 1
        async with kept(part) as fed:
            for _ in range(3):
                await fed.again()
        return part.refusals

    with capture_logs() as records:
        assert asyncio.run(work()) == 0
    assert records == []


def test_a_part_that_hangs_stops_the_feeding():
    """The log names it, once, and says when it is back; then the watchdog is fed again."""

    async def work(records):
        part = Part()
        async with kept(part) as fed:
            await fed.again()
            part.answers.clear()
            stalled = await logged(records, "self_check.stalled")
            before = fed.times
            part.answers.set()
            recovered = await logged(records, "self_check.recovered")
            await fed.again()
        return stalled, recovered, before, fed.times

    with capture_logs() as records:
        stalled, recovered, before, after = asyncio.run(work(records))

    assert (stalled["part"], stalled["log_level"]) == ("journal", "error")
    assert stalled["for_s"] >= WATCHDOG_S / 4
    assert recovered["part"] == "journal"
    assert recovered["after_s"] > stalled["for_s"]
    assert after > before
    assert [one["event"] for one in records] == ["self_check.stalled", "self_check.recovered"]


def test_a_question_that_fails_counts_as_silence():
    """A bug in a question is logged as one, and feeds nobody."""

    async def fail():
        raise ZeroDivisionError

    async def work(records):
        fed = Fed()
        task = asyncio.create_task(SelfCheck({"hub": fail}, fed.feed, WATCHDOG_S).keep())
        await logged(records, "self_check.stalled")
        task.cancel()
        await asyncio.wait([task])
        return fed.times

    with capture_logs() as records:
        assert asyncio.run(work(records)) == 0
    assert records[0]["event"] == "self_check.failed"


@pytest.fixture
def quick_looks(monkeypatch):
    """Let a loop that stands still for a tenth of a second count as blocked."""
    monkeypatch.setattr("supervisor.upkeep.self_check.LOOP_LOOK_S", STALL_S / 4)
    monkeypatch.setattr("supervisor.core.self_check.LOOP_STALL_S", STALL_S)


@pytest.mark.usefixtures("quick_looks")
def test_a_blocked_loop_is_reported_with_its_stack():
    """The record names the function that holds the loop up, and another one that it turns again."""

    def hold_up(records):
        stalled = threading.Event()
        while not any(record["event"] == "self_check.stalled" for record in list(records)):
            assert not stalled.wait(STALL_S / 10)

    async def work(records):
        async with kept(Part()) as fed:
            await fed.again()
            hold_up(records)
            recovered = await logged(records, "self_check.recovered")
            await fed.again()
        return recovered

    with capture_logs() as records:
        recovered = asyncio.run(asyncio.wait_for(work(records), PATIENCE_S))
    stalled = next(one for one in records if one["event"] == "self_check.stalled")

    assert (stalled["part"], recovered["part"]) == ("loop", "loop")
    assert stalled["for_s"] >= STALL_S
    assert " hold_up" in stalled["stack"]
    assert recovered["after_s"] >= stalled["for_s"]


@pytest.mark.usefixtures("quick_looks")
def test_the_watching_thread_ends_with_the_task():
    """Nothing is left when nobody asks any more."""

    async def work():
        async with kept(Part()) as fed:
            await fed.again()
            return [one.name for one in threading.enumerate()]

    assert "loop-watch" in asyncio.run(work())
    assert "loop-watch" not in [one.name for one in threading.enumerate()]
