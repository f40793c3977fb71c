"""Starts wait for their turn, and a place is free again whatever becomes of who had it."""

import asyncio

import pytest

from supervisor.processes import starts as module
from supervisor.processes.starts import Starts
from tests.unit.supervisor.services import play, settle


async def entered(starts, count, **how):
    """Have so many ask for a place; return their tasks."""
    how = {"is_first": False} | how
    tasks = [asyncio.create_task(starts.enter(**how)) for _ in range(count)]
    await settle()
    return tasks


def facts(starts):
    found = starts.facts()
    return found.waiting, found.peak, found.alarms


def test_a_place_is_free_when_its_process_is_an_agent_or_has_ended():
    """Once, however often that is said; of a process that has none nothing follows."""

    async def scenario():
        starts = Starts(2)
        tasks = await entered(starts, 4)
        before = [task.done() for task in tasks], facts(starts)
        starts.give(7)
        for pid in (7, 7, 8):
            starts.over(pid)
        await settle()
        return before, [task.done() for task in tasks], [one.cancel() for one in tasks]

    before, after, _ = play(scenario)

    assert before == ([True, True, False, False], (2, 2, 0))
    assert after == [True, True, True, False]


def test_who_waits_no_more_takes_no_place():
    """Neither when it is given up while it waits, nor when it has just been called."""

    async def scenario():
        starts = Starts(1)
        await starts.enter(is_first=True)
        one, two, three = await entered(starts, 3)
        one.cancel()
        await settle()
        starts.leave()
        two.cancel()
        await asyncio.gather(one, two, return_exceptions=True)
        await three
        starts.leave()
        return facts(starts), starts.places.taken

    assert play(scenario) == ((0, 1, 0), 0)


def test_who_was_just_cancelled_is_not_called():
    """A place that is free in that moment is the next one's."""

    async def scenario():
        starts = Starts(1)
        await starts.enter(is_first=True)
        one, two = await entered(starts, 2)
        one.cancel()
        starts.leave()
        await asyncio.wait_for(two, 5.0)
        await asyncio.gather(one, return_exceptions=True)
        starts.leave()
        return facts(starts), starts.places.taken

    assert play(scenario) == ((0, 1, 0), 0)


def test_a_start_that_takes_long_holds_up_the_others_for_a_while_only(monkeypatch):
    """It waits for something, and computes nothing."""
    monkeypatch.setattr(module, "START_PLACE_S", 0.01)

    async def scenario():
        starts = Starts(1)
        await starts.enter(is_first=True)
        starts.give(7)
        await asyncio.wait_for(starts.enter(is_first=True), 5.0)
        starts.over(7)
        return starts.places.taken

    assert play(scenario) == 1


@pytest.mark.parametrize("crowds", [1, 2])
def test_a_crowd_is_reported_once(crowds):
    """Not for each of those who wait; again when it was over meanwhile."""

    async def scenario():
        starts = Starts(1)
        for _ in range(crowds):
            tasks = await entered(starts, 9)
            for task in tasks:
                await task
                starts.leave()
        return facts(starts)

    assert play(scenario) == (0, 1, crowds)
