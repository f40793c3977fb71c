"""When an idle session may give up its process."""

import asyncio

import pytest

from workers.performers.deadlines import IdleTimer

AFTER_S = 10.0


class Bed:
    """An idle timer, when it was said to be idle, and whether the session is quiet."""

    def __init__(self, after_s=AFTER_S):
        self.times, self.is_quiet = [], True
        self.timer = IdleTimer(after_s, lambda: self.is_quiet, self.idled)

    def idled(self):
        self.times.append(asyncio.get_running_loop().time())


async def until(time_s):
    """Return when the clock shows this time, and what is due then is done."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(time_s - loop.time())  # tidy: by the clock that jumps


def test_an_idle_session_says_so_again_and_again(run):
    """The daemon may not have heard of it, or may have had something on its way."""

    async def scenario():
        bed = Bed()
        bed.timer.look(is_idle=True)
        await until(25.0)
        bed.timer.stop()
        return bed.times

    assert run(scenario()) == [10.0, 20.0]


@pytest.mark.parametrize(("after_s", "is_idle"), [(None, True), (AFTER_S, False)])
def test_who_is_busy_or_may_not_sleep_stays_awake(run, after_s, is_idle):
    """No timer runs."""

    async def scenario():
        bed = Bed(after_s)
        bed.timer.look(is_idle=is_idle)
        await until(25.0)
        return bed.times

    assert run(scenario()) == []


def test_what_happens_begins_the_count_anew(run):
    """And work ends it."""

    async def scenario():
        bed = Bed()
        bed.timer.look(is_idle=True)
        await until(9.0)
        bed.timer.look(is_idle=True)
        await until(18.0)
        bed.timer.look(is_idle=False)
        await until(40.0)
        return bed.times

    assert run(scenario()) == []


def test_work_that_nobody_waits_for_keeps_it_awake(run):
    """A thread that was left alone, a plugin that is still notified: it is asked about later."""

    async def scenario():
        bed = Bed()
        bed.is_quiet = False
        bed.timer.look(is_idle=True)
        await until(15.0)
        bed.is_quiet = True
        await until(25.0)
        bed.timer.stop()
        return bed.times

    assert run(scenario()) == [20.0]


def test_a_question_leaves_the_count_as_it_is(run):
    """However often it is asked; and it begins one where none runs."""

    async def scenario():
        bed = Bed()
        bed.timer.look(is_idle=True, is_activity=False)
        for time_s in (3.0, 6.0, 9.0):
            await until(time_s)
            bed.timer.look(is_idle=True, is_activity=False)
        await until(11.0)
        bed.timer.stop()
        return bed.times

    assert run(scenario()) == [10.0]
