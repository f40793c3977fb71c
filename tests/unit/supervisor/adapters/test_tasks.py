"""Background tasks; limits in a loop whose clock is ours, and what a pause does not end."""

import asyncio

import pytest
from structlog.testing import capture_logs

from supervisor.adapters.tasks import LATE_MAX, TICK_S, AwakeTimer, BackgroundTasks, awake_timeout

LIMIT_S = 4 * TICK_S
TURNS = 10
"""Of the loop, for what is due to be done."""


class Clock:
    """The loop's time, which goes on when the test says so."""

    def __init__(self):
        self.now_s = 100.0
        asyncio.get_running_loop().time = lambda: self.now_s

    async def goes(self, seconds):
        self.now_s += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)


def play(scenario):
    """Return what a coroutine function returns that is given a clock."""

    async def main():
        return await scenario(Clock())

    return asyncio.run(main())


def test_a_limit_is_over_after_its_time():
    """Not before, and once."""

    async def scenario(clock):
        calls = []
        AwakeTimer(LIMIT_S, lambda: calls.append(clock.now_s))
        for _ in range(6):
            await clock.goes(TICK_S)
        return calls

    assert play(scenario) == [100.0 + LIMIT_S]


def test_one_that_is_cancelled_is_never_over():
    """Also in the middle."""

    async def scenario(clock):
        calls = []
        timer = AwakeTimer(LIMIT_S, lambda: calls.append(clock.now_s))
        await clock.goes(TICK_S)
        timer.cancel()
        timer.cancel()
        await clock.goes(2 * LIMIT_S)
        return calls

    assert play(scenario) == []


@pytest.mark.parametrize("ticks", [0, 1, 3])
def test_a_pause_counts_as_a_tick_and_is_never_the_last(ticks):
    """However long it is, and how near the end it comes."""

    async def scenario(clock):
        calls = []
        AwakeTimer(LIMIT_S, lambda: calls.append(clock.now_s))
        for _ in range(ticks):
            await clock.goes(TICK_S)
        await clock.goes(3_600.0)
        during = list(calls)
        for _ in range(4):
            await clock.goes(TICK_S)
        return during, len(calls)

    assert play(scenario) == ([], 1)


def test_a_loop_that_is_always_late_does_not_wait_for_ever():
    """Every tick of it is a pause."""

    async def scenario(clock):
        calls = []
        AwakeTimer(LIMIT_S, lambda: calls.append(clock.now_s))
        for _ in range(LATE_MAX):
            await clock.goes(3 * TICK_S)
        before = len(calls)
        await clock.goes(3 * TICK_S)
        return before, len(calls)

    assert play(scenario) == (0, 1)


def test_what_came_during_a_pause_counts():
    """It is heard before the limit is over."""

    async def scenario(clock):
        answer = asyncio.get_running_loop().create_future()

        async def wait():
            async with awake_timeout(LIMIT_S):
                return await answer

        waiting = asyncio.ensure_future(wait())
        await clock.goes(0.0)
        clock.now_s += 3_600.0
        asyncio.get_running_loop().call_soon(answer.set_result, "here")
        await clock.goes(0.0)
        return await waiting

    assert play(scenario) == "here"


def test_what_does_not_come_is_given_up():
    """As by asyncio's own."""

    async def scenario(clock):
        async def wait():
            async with awake_timeout(LIMIT_S):
                await asyncio.get_running_loop().create_future()

        waiting = asyncio.ensure_future(wait())
        for _ in range(6):
            await clock.goes(TICK_S)
        with pytest.raises(TimeoutError):
            await waiting

    play(scenario)


def test_a_task_that_raises_is_reported_by_its_name():
    """Once it has ended it is held no longer, and the others go on."""

    async def main():
        reported = []
        tasks = BackgroundTasks(lambda name, error: reported.append((name, type(error))))

        async def fail():
            raise LookupError("a bug")

        async def end():
            return "done"

        tasks.spawn(fail(), "failing")
        tasks.spawn(end(), "ending")
        tasks.spawn(asyncio.Event().wait(), "waiting")
        held = len(tasks)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        left = [task.get_name() for task in tasks]
        tasks.cancel()
        await tasks.wait()
        return held, reported, left, len(tasks)

    assert asyncio.run(main()) == (3, [("failing", LookupError)], ["waiting"], 0)


def test_a_task_that_has_ended_does_not_count_from_then_on():
    """Who starts one where there is none must not wait for the loop to say that it has ended."""

    async def main():
        tasks = BackgroundTasks()
        tasks.spawn(asyncio.sleep(0), "ending")
        before = bool(tasks)
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it has ended, and what the loop calls then was not called yet
        return before, bool(tasks), list(tasks), len(tasks._tasks)

    assert asyncio.run(main()) == (True, False, [], 1)


def test_a_task_that_fails_is_logged_where_nobody_is_given():
    """By its name, which says whose it was."""

    async def fail():
        raise LookupError("a bug")

    async def main():
        tasks = BackgroundTasks()
        tasks.spawn(fail(), "zygote")
        await tasks.wait()
        await asyncio.sleep(0)

    with capture_logs() as logged:
        asyncio.run(main())
    (entry,) = logged

    assert (entry["event"], entry["task"]) == ("background.failed", "zygote")
