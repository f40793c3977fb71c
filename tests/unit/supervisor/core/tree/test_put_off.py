"""A group that waits for its next attempt, and what comes meanwhile."""

from cmdc_runtime.reasons import Shutdown
from supervisor.core.tree.children import DROPPED
from tests.conformance.script import Life, child, one_for_one, rest_for_one
from tests.conformance.sim_stage import SimStage

WAIT_S = 5.0
DELAY = (WAIT_S, WAIT_S)
SLOW = Life(stop_s=2 * WAIT_S)


def test_a_wait_is_over_when_another_failure_restarts_the_group():
    """Its end starts nobody while others of the group are still being ended."""
    first = child("a", restart_delay=DELAY)
    last = child("c", Life(), Life(), SLOW, shutdown=None)
    sim = SimStage().start(rest_for_one(first, child("b"), last, max_restarts=9))
    for _ in range(2):  # the second time the group is put off
        sim.crash("a")
        sim.settle()
    for name in "bc":
        assert sim.ask_for("restart_child", name) == "ok"
    mark = sim.mark()
    sim.crash("b")
    sim.pass_time(2 * SLOW.stop_s)

    assert sim.story("launch", "exit", mark=mark) == [
        *("exit b3", "exit c3"),
        *("launch a3", "launch b4", "launch c4"),
    ]


def test_a_group_under_way_goes_on_when_its_members_become_independent():
    """One that is put off then delays nobody."""
    failing = Life(start="exit", start_s=1.0)
    middle = child("b", Life(), failing, failing, Life(), restart_delay=DELAY)
    sim = SimStage().start(rest_for_one(child("a"), middle, child("c"), max_restarts=9))
    sim.crash("a")
    sim.settle()
    sim.reconfigure(one_for_one(*(one.spec for one in sim.tree._supervisors[()].children.values())))
    sim.pass_time(3.0)

    assert sim.states() == {"a": "up", "b": "restarting", "c": "up"}


def test_who_is_deleted_while_its_group_waits_does_not_come_back():
    """Those who watch have heard that another process follows, so they hear that none does."""
    sim = SimStage().start(
        rest_for_one(child("a", restart_delay=DELAY), child("b"), max_restarts=9)
    )
    for _ in range(2):
        sim.crash("a")
        sim.settle()
    assert sim.down("b2").restarting
    assert sim.ask_for("delete_child", "b") == "ok"
    sim.pass_time(WAIT_S)

    assert sim.down("b2").reason == Shutdown(detail=DROPPED)
    assert sim.states() == {"a": "up"}
