"""Processes that SIGKILL does not end: they hang in the kernel, and the rest must go on."""

import pytest

from supervisor.core.tree.messages import UNKILLABLE_AFTER_S
from tests.conformance.script import (
    Life,
    below,
    case,
    child,
    kept,
    one_for_all,
    one_for_one,
    rest_for_one,
)

STATIC = ["one_for_one", "one_for_all", "rest_for_one"]
STUCK = Life(stop="ignore", killable=False)


@case("X08")
@pytest.mark.parametrize("strategy", [*STATIC, "dynamic"])
def test_a_process_that_can_not_be_killed_is_given_up(sim, strategy):
    """Its place is taken by nobody, its caller has an error, and the rest goes on."""
    sim.start(kept(strategy))
    for spec in (child("a", STUCK, shutdown=1.0), child("b")):
        sim.ask_for("start_child", spec)
    answer = sim.answer(sim.call("terminate_child", "a"))
    states = sim.states()
    refused = [
        sim.ask_for("restart_child", "a"),
        sim.ask_for("delete_child", "a"),
        sim.ask_for("start_child", child("a")),
        sim.ask_for("terminate_child", "a"),
    ]
    sim.release()

    assert (str(answer.outcome), f"{UNKILLABLE_AFTER_S:g} s" in str(answer.reason)) == (
        *("error", True),
    )
    assert states == {"a": "unkillable", "b": "up"}
    assert refused == ["running", "running", "already_started", "error"]
    assert sim.states() == ({"b": "up"} if strategy == "dynamic" else {"a": "down", "b": "up"})
    assert [report.child.id for report in sim.reported("unkillable")] == ["a"]


@case("X08")
@pytest.mark.parametrize("make", [one_for_all, rest_for_one])
def test_a_group_restart_goes_on_without_who_can_not_be_killed(sim, make):
    """The others are restarted, in their order, when its time is over."""
    sim.start(make(child("a"), child("b", STUCK, shutdown=1.0), child("c")))
    sim.crash("a")
    sim.until_up("a2", "c2")

    assert sim.states() == {"a": "up", "b": "unkillable", "c": "up"}
    assert sim.when("launch", "a2") == pytest.approx(1.0 + UNKILLABLE_AFTER_S)
    assert sim.down("b1").restarting is False


@case("X08")
def test_its_place_is_kept_across_a_restart_of_the_supervisor(sim):
    """A new supervisor puts nothing beside what the old one could not end, until it is gone."""
    deep = below("deep", one_for_one(child("z", STUCK, shutdown=0)))
    inner = one_for_one(child("x", STUCK, shutdown=0), deep, child("y"))
    sim.start(one_for_one(below("inner", inner, restart_delay=(30.0, 30.0)), max_restarts=9))
    sim.kill_supervisor(("inner",))
    sim.until_up("inner/y2")
    states = sim.states(("inner",)) | sim.states(("inner", "deep"))
    sim.release()
    freed = sim.states(("inner",)) | sim.states(("inner", "deep"))
    outcome = sim.ask_for("restart_child", "x", path=("inner",))

    assert states == {"x": "unkillable", "deep": "up", "y": "up", "z": "unkillable"}
    assert (freed["x"], freed["z"], outcome) == ("down", "down", "ok")
    assert sim.view("x", ("inner",)).generation == 2


@case("X08")
def test_its_place_is_free_when_it_ends_while_its_supervisor_is_gone(sim):
    """The end of what could not be killed is noticed though nobody is there to hear it."""
    deep = below("deep", one_for_one(child("z", STUCK, shutdown=0)))
    inner = one_for_one(child("x", STUCK, shutdown=0), deep, max_restarts=0)
    sim.start(one_for_one(below("inner", inner, restart_delay=(30.0, 30.0)), max_restarts=9))
    sim.kill_supervisor(("inner",))
    sim.pass_time(UNKILLABLE_AFTER_S)
    states = sim.states(("inner",))
    sim.kill_supervisor(("inner",))
    waiting = sim.states()["inner"]
    sim.release()
    sim.wait(lambda: sim.states()["inner"] == "up", "the restart")

    assert (states, waiting) == ({"x": "unkillable", "deep": "up"}, "restarting")
    assert sim.states(("inner",)) == {"x": "up", "deep": "up"}
    assert sim.view("x", ("inner",)).generation == 2
    assert sim.view("z", ("inner", "deep")).generation == 2


@case("X08", "X09")
def test_hastening_a_kill_does_not_prolong_it(sim):
    """However often somebody asks for an earlier end, the place is given up in time."""
    sim.start(one_for_one(child("a", STUCK, shutdown=1.0)))
    sim.begin_stop(within_s=1.0)
    for _ in range(20):
        sim.pass_time(0.5)
        sim.begin_stop(within_s=-1.0)
    sim.wait(sim.has_ended, "the end")

    assert sim.when("sup_end", "") <= 1.0 + UNKILLABLE_AFTER_S


@case("X08", "C12")
def test_a_start_that_can_not_be_killed_is_given_up(sim):
    """A child that is never up and can't be killed has no successor; a stop need not wait again."""
    lives = Life(), Life(start="never", stop="ignore", killable=False)
    sim.start(one_for_one(child("a", *lives, start_timeout=2.0, shutdown=None)))
    sim.crash("a")
    sim.pass_time(2.0 + UNKILLABLE_AFTER_S / 2)
    took_s = sim.stop()

    assert sim.noted("kill") == ["a2"]
    assert took_s == pytest.approx(UNKILLABLE_AFTER_S / 2)


@case("X08", "C10")
def test_a_new_child_that_can_not_be_killed_leaves_nothing_when_it_is_gone(sim):
    """The start failed, so nothing is kept of it but its place, as long as its process is there."""
    sim.start(one_for_one(child("a")))
    stuck = child("b", Life(start="never", stop="ignore", killable=False), start_timeout=1.0)
    answer = sim.answer(sim.call("start_child", stuck))
    states = sim.states()
    sim.release()

    assert (str(answer.outcome), type(answer.reason).__name__) == ("error", "Unkillable")
    assert states == {"a": "up", "b": "unkillable"}
    assert sim.states() == {"a": "up"}


@case("X08", "C05")
def test_a_first_start_that_can_not_be_killed_fails_the_start(sim):
    """The supervisor does not wait for it: those before it are ended, and the start has failed."""
    stuck = child("b", Life(start="never", stop="ignore", killable=False), start_timeout=1.0)
    sim.start(one_for_one(child("a"), stuck, child("c")))

    assert sim.tree.end.ending == "crash"
    assert sim.noted("launch") == ["a1", "b1"]
    assert sim.noted("exit") == ["a1"]


@case("X08", "X06")
def test_its_place_is_kept_where_children_resume(sim):
    """Whoever resumes starts what can be started, beside what is still there."""
    inner = one_for_one(child("x", STUCK, shutdown=0), child("y"), resumes=True)
    sim.start(one_for_one(below("inner", inner)))
    sim.kill_supervisor(("inner",))
    sim.until_up("inner/y2")

    assert sim.states(("inner",)) == {"x": "unkillable", "y": "up"}
