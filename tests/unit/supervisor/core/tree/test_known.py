"""What is known of children: what became of each, and how it counts on."""

import pytest

from cmdc_runtime.reasons import Normal, Other, RestartIntensityExceeded
from supervisor.core.tree.messages import UNKILLABLE_AFTER_S, Label
from tests.conformance.script import KILLED, Life, below, child, one_for_one
from tests.conformance.sim_stage import SimStage

STUCK = Life(stop="ignore", killable=False)
SPENT = RestartIntensityExceeded(restarts=0, seconds=5.0, last=KILLED)


@pytest.mark.parametrize(
    ("depth", "last"), [(0, KILLED), (1, Other(detail=str(SPENT)))], ids=["its own", "of one below"]
)
def test_a_supervisor_that_gives_up_says_for_what(depth, last):
    """What one below it gave up for is reported in its words, not nested without end."""
    spec = one_for_one(child("a"), max_restarts=0)
    path = ("s",) * depth
    sim = SimStage().start(one_for_one(below("s", spec), max_restarts=0) if depth else spec)
    sim.crash("a", path=path)
    sim.settle()
    ended = sim.tree.end.reason

    assert ended == RestartIntensityExceeded(restarts=0, seconds=5.0, last=last)


def test_an_end_that_nobody_asked_for_is_reported_as_such():
    """Who leaves when its work is done was not asked, and nothing follows."""
    sim = SimStage().start(one_for_one(child("a", restart="transient")))
    sim.crash("a", "normal")
    ended = sim.down("a1")

    assert (ended.reason, ended.asked, ended.restarting, ended.delay_s) == (
        Normal(),
        False,
        False,
        0.0,
    )


def test_a_report_says_whose_process_it_is_about():
    """By the handle that its shell gave."""
    sim = SimStage().start(one_for_one(child("a")))
    (pid,) = sim.pids("a")
    mark = sim.mark()
    sim.crash("a")

    assert [one.handle for one in sim.reported(Label.CHILD_TERMINATED, mark)] == [pid]


def test_a_child_that_a_change_has_added_counts_on_when_it_was_deleted():
    """No generation of it comes twice; it is one of those that a specification names."""
    sim = SimStage().start(one_for_one(child("a")))
    added = child("b")
    sim.reconfigure(one_for_one(child("a"), added))
    for name in ("restart_child", "terminate_child", "delete_child"):
        assert sim.ask_for(name, "b") == "ok"
    assert sim.ask_for("start_child", added) == "ok"

    assert sim.view("b").generation == 2


def test_a_temporary_child_that_was_never_started_is_forgotten_when_it_is_ended():
    """As one that was."""
    sim = SimStage().start(one_for_one())
    sim.reconfigure(one_for_one(child("a", restart="temporary")))

    assert sim.ask_for("terminate_child", "a") == "ok"
    assert sim.states() == {}


def test_who_was_added_and_hangs_is_forgotten_when_it_is_gone():
    """Its supervisor was restarted meanwhile, and would not have started it."""
    inner = below("s", one_for_one(child("a")))
    sim = SimStage().start(one_for_one(inner, max_restarts=9))
    assert sim.ask_for("start_child", child("x", STUCK, shutdown=0), path=("s",)) == "ok"
    sim.kill_supervisor(("s",))
    sim.pass_time(UNKILLABLE_AFTER_S)
    hanging = sim.states(("s",))
    sim.release()

    assert hanging == {"a": "up", "x": "unkillable"}
    assert sim.states(("s",)) == {"a": "up"}
