"""The nursery's post: what it tells the tree, whatever warming a nursery comes to."""

import asyncio
from types import SimpleNamespace

import pytest

from cmdc_runtime.reasons import NurseryLost as LostReason
from cmdc_runtime.reasons import StartFailed
from supervisor.adapters.nursery import NurseryFailed, NurseryLost
from supervisor.core.tree.messages import Ref
from supervisor.cradle import Cradle
from tests.unit.supervisor.desk import Calls, play, settle

FIRST, SECOND = Ref((), "nursery", 1), Ref((), "nursery", 2)


class Nursery:
    """A nursery that is warm when the test says so, or fails."""

    def __init__(self, problem=None):
        self.problem = problem
        self.may_warm = asyncio.Event()
        self.is_warm = False

    async def warm(self):
        await self.may_warm.wait()
        if self.problem is not None:
            raise self.problem
        self.is_warm = True
        return SimpleNamespace(pid=7)


def cradle_of(nursery):
    warmed = []
    cradle = Cradle(nursery, lambda: warmed.append(True))
    cradle.keeper = Calls()
    return cradle, warmed


def test_warm_nursery_is_up():
    """The daemon says that it is ready."""

    async def scenario():
        cradle, warmed = cradle_of(Nursery())
        cradle.launch(FIRST)
        states = [cradle.state]
        cradle.nursery.may_warm.set()
        await settle()
        return [*states, cradle.state], cradle.keeper.made, warmed

    assert play(scenario) == (["warming", "ready"], ["up"], [True])


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (NurseryFailed("preload", "no litellm"), "nursery failed at preload: no litellm"),
        (NurseryLost("it died"), "it died"),
        (RuntimeError("a bug"), "RuntimeError: a bug"),
    ],
)
def test_nursery_that_cannot_be_warmed_is_an_end(problem, told):
    """Whatever was raised: a tree that hears nothing would wait for ever."""

    async def scenario():
        cradle, _ = cradle_of(Nursery(problem))
        cradle.nursery.may_warm.set()
        cradle.launch(FIRST)
        await settle()
        return cradle.keeper.made, cradle.state

    made, state = play(scenario)

    assert made == [f"exited: {StartFailed(stage='nursery', message=told)} (crash)"]
    assert state == f"lost: {told}"


def test_loss_is_told_once_and_of_the_present_one_only():
    """A nursery that died while it became warm does not become up after that."""

    async def scenario():
        cradle, warmed = cradle_of(Nursery())
        cradle.launch(FIRST)
        await settle()
        cradle.lost(NurseryLost("it died"))
        cradle.lost(NurseryLost("it died"))
        cradle.nursery.may_warm.set()
        await settle()
        return cradle.keeper.made, warmed

    assert play(scenario) == ([f"exited: {LostReason()} (crash)"], [])


def test_cradle_that_is_asked_to_end_warms_no_more():
    """What comes of it later is nobody's."""

    async def scenario():
        cradle, warmed = cradle_of(Nursery())
        cradle.launch(FIRST)
        await settle()
        cradle.ask(FIRST, "enough")
        cradle.nursery.may_warm.set()
        cradle.lost(NurseryLost("it died"))
        await settle()
        return len(cradle.keeper.made), warmed, cradle._warming.cancelled()

    assert play(scenario) == (1, [], True)


def test_next_one_is_warmed_for_the_next_launch():
    """An answer for an earlier launch changes nothing."""

    async def scenario():
        cradle, _ = cradle_of(Nursery())
        cradle.nursery.may_warm.set()
        cradle.launch(FIRST)
        await settle()
        cradle.lost(NurseryLost("it died"))
        cradle.launch(SECOND)
        await settle()
        return [one.split(":")[0] for one in cradle.keeper.made]

    assert play(scenario) == ["up", "exited", "up"]
