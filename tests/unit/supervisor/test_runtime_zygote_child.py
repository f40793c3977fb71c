"""The zygote's child handler: what it reports to the tree, whatever warming a zygote comes to."""

import pytest

from cmdc_runtime.reasons import NurseryLost as LostReason
from cmdc_runtime.reasons import Shutdown, StartFailed
from supervisor.adapters.zygote import ZygoteFailed, ZygoteLost
from supervisor.core.tree.messages import Ref
from supervisor.sessions.tree_runtime import ZygoteChild
from tests.unit.supervisor.services import AskedRuntime, PlayedZygote, play, settle

FIRST, SECOND = Ref((), "nursery", 1), Ref((), "nursery", 2)


def handler_of(zygote):
    warmed = []
    handler = ZygoteChild(zygote, lambda: warmed.append(True))
    handler.runtime = AskedRuntime()
    return handler, warmed


def test_warm_zygote_is_up():
    """The daemon says that it is ready."""

    async def scenario():
        handler, warmed = handler_of(PlayedZygote())
        handler.launch(FIRST)
        states = [handler.state]
        handler.zygote.may_warm.set()
        await settle()
        return [*states, handler.state], handler.runtime.made, warmed

    assert play(scenario) == (["warming", "ready"], ["up"], [True])


@pytest.mark.parametrize(
    ("problem", "reported"),
    [
        (ZygoteFailed("preload", "no litellm"), "zygote failed at preload: no litellm"),
        (ZygoteLost("it died"), "it died"),
        (RuntimeError("a bug"), "RuntimeError: a bug"),
    ],
)
def test_zygote_that_cannot_be_warmed_is_an_end(problem, reported):
    """Whatever was raised: a tree that hears nothing would wait for ever."""

    async def scenario():
        handler, _ = handler_of(PlayedZygote(problem))
        handler.zygote.may_warm.set()
        handler.launch(FIRST)
        await settle()
        return handler.runtime.made, handler.state

    made, state = play(scenario)

    assert made == [f"exited: {StartFailed(stage='zygote', message=reported)} (crash)"]
    assert state == f"lost: {reported}"


def test_loss_is_reported_once_and_of_the_present_one_only():
    """A zygote that died while it became warm does not become up after that."""

    async def scenario():
        handler, warmed = handler_of(PlayedZygote())
        handler.launch(FIRST)
        await settle()
        handler.lost(ZygoteLost("it died"))
        handler.lost(ZygoteLost("it died"))
        handler.zygote.may_warm.set()
        await settle()
        return handler.runtime.made, warmed

    assert play(scenario) == ([f"exited: {LostReason()} (crash)"], [])


def test_handler_that_is_asked_to_end_warms_no_more():
    """What comes of it later is nobody's."""

    async def scenario():
        handler, warmed = handler_of(PlayedZygote())
        handler.launch(FIRST)
        await settle()
        (warming,) = handler._tasks
        handler.ask(FIRST, "enough")
        handler.zygote.may_warm.set()
        handler.lost(ZygoteLost("it died"))
        await settle()
        return len(handler.runtime.made), warmed, warming.cancelled()

    assert play(scenario) == (1, [], True)


def test_next_one_is_warmed_for_the_next_launch():
    """An answer for an earlier launch changes nothing."""

    async def scenario():
        handler, _ = handler_of(PlayedZygote())
        handler.zygote.may_warm.set()
        handler.launch(FIRST)
        await settle()
        handler.lost(ZygoteLost("it died"))
        handler.launch(SECOND)
        await settle()
        return [one.split(":")[0] for one in handler.runtime.made]

    assert play(scenario) == ["up", "exited", "up"]


@pytest.mark.parametrize(
    ("fail_reason", "detail"), [(None, "killed"), (LostReason(), str(LostReason()))]
)
def test_handler_that_is_killed_is_over_at_once(fail_reason, detail):
    """Nothing is waited for: what is killed says so, or why."""

    async def scenario():
        handler, _ = handler_of(PlayedZygote())
        handler.launch(FIRST)
        handler.kill(FIRST, fail_reason)
        return handler.runtime.made, handler.is_over()

    assert play(scenario) == ([f"exited: {Shutdown(detail=detail)} (normal)"], False)
