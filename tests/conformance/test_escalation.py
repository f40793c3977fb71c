"""What the end of a supervisor means for the one above it."""

import os
import signal
import sys

import pytest

from cmdc_runtime.reasons import RestartIntensityExceeded
from tests.conformance.script import (
    EXIT_CODE,
    KILLED,
    Life,
    below,
    case,
    child,
    dynamic,
    one_for_all,
    one_for_one,
    rest_for_one,
)

INNER = ("inner",)
TURN_S = 60.0
NO_BUDGET = """
from supervisor.core import session_tree
session_tree.ROOT_RESTARTS_MAX = 0
from supervisor.entry import main
main()
"""
"""A daemon whose root survives no restart."""


def give_up(stage, name="x", path=INNER):
    """Spend the whole budget of an inner supervisor, which is 0."""
    mark = stage.mark()
    stage.end(name, path=path)
    stage.wait(lambda: "/".join(path) in stage.noted("sup_end", mark), "the inner end")


@case("C58")
def test_a_permanent_supervisor_comes_back_with_its_static_children(stage):
    """What was added at run time is gone with the supervisor that it was added to."""
    inner = one_for_one(child("x"), child("y"), max_restarts=0)
    stage.start(one_for_one(child("a"), below("inner", inner)))
    stage.ask_for("start_child", child("added"), path=INNER)
    give_up(stage)
    stage.until_up("x2", "y2", path=INNER)
    (report,) = [one for one in stage.reported("child_terminated") if one.child.id == "inner"]

    assert list(stage.states(INNER)) == ["x", "y"]
    assert isinstance(report.reason, RestartIntensityExceeded)
    assert report.reason.last == KILLED
    assert stage.view("inner").generation == 2
    assert stage.view("a").generation == 1


@case("C58")
def test_budgets_multiply_along_the_tree(sim):
    """A leaf that always fails is tried as often as the levels above it allow together."""
    leaf = child("x", Life(ends_s=0.0))
    middle = one_for_one(leaf, max_restarts=2, max_seconds=60.0)
    sim.start(one_for_one(below("inner", middle), max_restarts=3, max_seconds=60.0))
    sim.wait(sim.has_ended, "the end")

    assert len(sim.noted("launch")) == (2 + 1) * (3 + 1)
    assert sim.noted("sup_end") == ["inner"] * 4 + [""]


@case("C59")
def test_a_transient_supervisor_that_gave_up_stays_down(stage):
    """Giving up is a clean end: who wants such a supervisor back makes it permanent."""
    inner = below("inner", one_for_one(child("x"), max_restarts=0), restart="transient")
    stage.start(one_for_one(child("a"), inner))
    give_up(stage)

    assert stage.states() == {"a": "up", "inner": "down"}
    assert stage.ask_for("start_child", child("z"), path=INNER) == "noproc"
    assert stage.ask_for("restart_child", "inner") == "ok"
    assert stage.states(INNER) == {"x": "up"}


@case("C60")
def test_a_killed_supervisor_takes_all_below_with_it(stage):
    """Nobody is asked, nothing survives, and its own supervisor restarts the whole subtree."""
    deep = below("deep", one_for_one(child("z", Life(stop="ignore", company=True))))
    stage.start(one_for_one(child("a"), below("inner", one_for_one(child("x"), deep))))
    stage.pass_time(1.0)
    pids = stage.pids("x", path=INNER) + stage.pids("z", path=("inner", "deep"))
    mark = stage.mark()
    stage.kill_supervisor(INNER)
    stage.until_up("x2", "deep/z2", path=INNER)
    kinds = [line.split()[0] for line in stage.story("ask", "kill", "exit", "launch", mark=mark)]
    (report,) = [one for one in stage.reported("child_terminated") if one.child.id == "inner"]

    assert kinds == ["kill", "kill", "exit", "exit", "launch", "launch"]
    assert report.reason == KILLED
    assert stage.view("a").generation == 1
    if stage.is_real:
        stage.is_alone(*pids)


@case("C60")
def test_a_transient_supervisor_that_was_killed_comes_back(stage):
    """A kill is no clean end, unlike giving up."""
    inner = below("inner", one_for_one(child("x")), restart="transient")
    stage.start(one_for_one(inner))
    stage.kill_supervisor(INNER)
    stage.until_up("x2", path=INNER)

    assert stage.states() == {"inner": "up"}


@case("C61")
def test_a_nested_failed_start_names_the_innermost_cause(stage):
    """The start of the whole fails with what failed at the bottom, and undoes all levels."""
    bottom = below("c", one_for_one(child("x"), child("y", Life(start="exit"))))
    middle = below("b", one_for_one(child("v"), bottom))
    stage.start(one_for_one(child("a"), middle, child("never")))
    errors = [(report.child.id, report.reason.code) for report in stage.reported("start_error")]

    assert stage.tree.end.reason.code == EXIT_CODE
    assert stage.tree.end.ending == "crash"
    assert errors == [("y", EXIT_CODE), ("c", EXIT_CODE), ("b", EXIT_CODE)]
    assert stage.noted("exit") == ["b/c/y1", "b/c/x1", "b/v1", "a1"]
    assert "never1" not in stage.noted("launch")


@case("C61", "C10")
def test_a_supervisor_that_can_not_start_leaves_nothing(stage):
    """Whoever starts a subtree has its innermost cause, and its id is free again."""
    stage.start(one_for_one(child("a"), max_restarts=0))
    failing = below("inner", one_for_one(child("x"), child("y", Life(start="exit"))))
    answer = stage.answer(stage.call("start_child", failing))

    assert (str(answer.outcome), answer.reason.code) == ("error", EXIT_CODE)
    assert stage.states() == {"a": "up"}
    assert stage.ask_for("start_child", below("inner", one_for_one(child("x")))) == "ok"


@case("C58", "C46")
@pytest.mark.parametrize("make", [one_for_all, rest_for_one])
def test_a_supervisor_is_restarted_with_its_group(stage, make):
    """A subtree that is a member of a group is ended and started like any other."""
    inner = below("inner", one_for_one(child("x"), child("y")))
    stage.start(make(child("a"), inner, child("b")))
    mark = stage.mark()
    stage.crash("a")
    stage.until_up("a2", "inner/x2", "inner/y2", "b2")

    assert stage.noted("exit", mark) == ["a1", "b1", "inner/y1", "inner/x1"]
    assert stage.noted("launch", mark) == ["a2", "inner/x2", "inner/y2", "b2"]


@case("X06")
def test_children_that_resume_hold_up_nobody(stage):
    """The supervisor is up at once; a first start that fails is charged and tried again."""
    spec = one_for_one(
        child("slow", Life(start_s=0.5)), child("bad", Life(start="exit"), Life()), resumes=True
    )
    stage.open(spec)
    was_up = stage.is_up()
    stage.until_up("bad2", "slow1")

    assert was_up
    assert stage.noted("up") == ["bad2", "slow1"]
    assert [report.in_window for report in stage.reported("start_error")] == [1]


@case("X06")
def test_a_group_that_resumes_starts_in_order(stage):
    """Where children depend on each other they resume one after the other."""
    stage.open(rest_for_one(child("a", Life(start="exit"), Life()), child("b"), resumes=True))
    stage.until_up("a2", "b1")

    assert stage.noted("launch") == ["a1", "a2", "b1"]


@case("C70")
def test_generations_go_on_across_a_restart_of_the_supervisor(stage):
    """No generation comes twice, though the supervisor that counted is another one."""
    deep = below("deep", one_for_one(child("z")))
    inner = one_for_one(
        child("x"), child("t", restart="temporary"), deep, max_restarts=1, max_seconds=60
    )
    stage.start(one_for_one(below("inner", inner), max_restarts=9))
    stage.crash("x", path=INNER)
    stage.until_up("x2", path=INNER)
    stage.crash("t", path=INNER)
    give_up(stage)
    stage.until_up("x3", "t2", "deep/z2", path=INNER)
    stage.kill_supervisor(INNER)
    stage.until_up("x4", "t3", "deep/z3", path=INNER)

    assert [view.generation for view in stage.tree.which_children(INNER)] == [4, 3, 3]


@case("C70")
def test_a_generation_is_counted_for_each_attempt(stage):
    """A start that fails has a generation of its own, and an earlier life is counted on."""
    failing = Life(start="exit")
    lives = *[Life()] * 7, failing, failing, Life()
    stage.start(one_for_one(child("a", *lives, generation=6)))
    stage.crash("a")
    stage.until_up("a10")

    assert stage.noted("launch") == ["a7", "a8", "a9", "a10"]


@case("C70", "X08")
def test_dynamic_children_begin_where_their_specification_says(stage):
    """A dynamic supervisor forgets: who adds a child again says what was before."""
    stage.start(dynamic())
    stage.ask_for("start_child", child("a", generation=3))
    stage.ask_for("terminate_child", "a")
    stage.ask_for("start_child", child("a", generation=4))

    assert stage.noted("launch") == ["a4", "a5"]


# --- the daemon, which is the supervisor that is a process --------------------------------------


def find(client, name):
    """Return a child of the root as the daemon shows it."""
    (found,) = [node for node in client.tree().children if node.id == name]
    return found


@case("C62")
@pytest.mark.fault
@pytest.mark.process
def test_a_root_that_gives_up_ends_its_process(own_daemon):
    """Its status is not 0 and its log says why, so that who started it can do better."""
    own_daemon.command = lambda *flags: [sys.executable, "-P", "-c", NO_BUDGET, *flags]
    own_daemon.start()
    with own_daemon.client() as client:
        os.kill(own_daemon.poll(lambda: find(client, "nursery").pid, TURN_S), signal.SIGKILL)
    status = own_daemon.process.wait(TURN_S)

    assert status == 1
    assert "gave up" in own_daemon.log.read_text()
    assert own_daemon.left() == []
