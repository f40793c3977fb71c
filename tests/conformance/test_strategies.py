"""Who is restarted with a child that ended, and in which order."""

import pytest

from tests.conformance.script import (
    Life,
    case,
    child,
    dynamic,
    one_for_all,
    one_for_one,
    rest_for_one,
)


def five(**more):
    """Return five children, which differ by their names alone."""
    return [child(name, **more) for name in "abcde"]


@case("C44")
def test_one_for_one_leaves_siblings_alone(stage):
    """The others keep their processes and their generations."""
    stage.start(one_for_one(*five()))
    before = stage.pids(*"abde")
    stage.crash("c")
    stage.until_up("c2")

    assert stage.pids(*"abde") == before
    assert [view.generation for view in stage.tree.which_children()] == [1, 1, 2, 1, 1]
    assert stage.noted("ask") == []


@case("C45")
def test_one_for_all_ends_all_and_starts_all(stage):
    """The others are ended in reverse, then all start in order, each with a new process."""
    stage.start(one_for_all(*five()))
    before = stage.pids(*"abcde")
    mark = stage.mark()
    stage.crash("c")
    stage.until_up("a2", "b2", "c2", "d2", "e2")

    assert stage.noted("exit", mark) == ["c1", "e1", "d1", "b1", "a1"]
    assert stage.noted("launch", mark) == ["a2", "b2", "c2", "d2", "e2"]
    assert stage.story("exit", "launch", mark=mark)[4:6] == ["exit a1", "launch a2"]
    assert set(stage.pids(*"abcde")).isdisjoint(before)
    assert [stage.down(f"{name}1").restarting for name in "abcde"] == [True] * 5


@case("C46")
def test_one_for_all_is_tried_again_as_a_whole(stage):
    """A member that fails on the way has those started before it ended and all started again."""
    failing = child("d", Life(), Life(start="exit"), Life())
    stage.start(one_for_all(child("a"), child("b"), failing, child("e")))
    mark = stage.mark()
    stage.crash("b")
    stage.until_up("a3", "b3", "d3", "e2")

    assert stage.story("launch", "exit", mark=mark) == [
        *("exit b1", "exit e1", "exit d1", "exit a1"),
        *("launch a2", "launch b2", "launch d2", "exit d2", "exit b2", "exit a2"),
        *("launch a3", "launch b3", "launch d3", "launch e2"),
    ]
    assert [report.in_window for report in stage.reported("start_error")] == [2]


@case("C47")
def test_rest_for_one_replaces_those_behind(stage):
    """Those before keep their processes; the one that failed and those behind it get new ones."""
    stage.start(rest_for_one(*five()))
    before = stage.pids(*"abcde")
    mark = stage.mark()
    stage.crash("c")
    stage.until_up("c2", "d2", "e2")
    after = stage.pids(*"abcde")

    assert stage.story("exit", "launch", mark=mark) == [
        *("exit c1", "exit e1", "exit d1", "launch c2", "launch d2", "launch e2"),
    ]
    assert after[:2] == before[:2]
    assert set(after[2:]).isdisjoint(before)


@case("C48")
def test_rest_for_one_is_tried_again_from_the_later_failure(stage):
    """Who was restarted before the child that fails stays up; those behind wait without one."""
    failing = child("d", Life(), Life(start="exit", start_s=0.02), Life(start_s=0.2))
    stage.start(rest_for_one(child("a"), child("b"), failing, child("e")))
    mark = stage.mark()
    stage.crash("b")
    stage.wait(lambda: "d2" in stage.noted("exit"), "the failure")
    meanwhile = stage.states()
    stage.until_up("d3", "e2")

    assert stage.story("launch", "exit", mark=mark) == [
        *("exit b1", "exit e1", "exit d1", "launch b2", "launch d2", "exit d2"),
        *("launch d3", "launch e2"),
    ]
    assert (meanwhile["a"], meanwhile["b"], meanwhile["e"]) == ("up", "up", "down")
    assert meanwhile["d"] in {"restarting", "starting"}
    assert stage.view("b").generation == 2


@case("C49")
@pytest.mark.parametrize("make", [one_for_all, rest_for_one])
def test_a_temporary_bystander_is_gone(stage, make):
    """A temporary sibling is ended with its group, has its Down, and is never started again."""
    stage.start(make(child("a"), child("b", restart="temporary"), child("c")))
    mark = stage.mark()
    stage.crash("a")
    stage.until_up("a2", "c2")

    assert stage.states() == {"a": "up", "c": "up"}
    assert (stage.down("b1").restarting, stage.down("c1").restarting) == (False, True)
    assert stage.story("ask", "exit", "launch", mark=mark) == [
        *("exit a1", "ask c1", "exit c1", "ask b1", "exit b1", "launch a2", "launch c2"),
    ]
    assert [stage.noted(what, mark).count("b1") for what in ("exit", "down")] == [1, 1]
    assert stage.ask_for("restart_child", "b") == "not_found"
    assert stage.ask_for("start_child", child("b")) == "ok"
    assert list(stage.states()) == ["a", "c", "b"]


@case("C49")
def test_a_temporary_bystander_that_died_meanwhile_is_reported(sim):
    """Its end waits to be judged when the group is restarted: one Down, and nothing follows."""
    behind = child("c", Life(start_s=5.0, start="exit"), Life())
    sim.start(one_for_all(child("a"), child("b", restart="temporary"), behind, resumes=True))
    sim.until_up("b1")
    sim.crash("b", "exit")
    sim.until_up("c2")

    assert sim.states() == {"a": "up", "c": "up"}
    assert sim.down("b1").reason.code == 3
    assert sim.down("b1").restarting is False


@case("C50")
def test_a_dynamic_child_that_ignores_its_restart_is_gone(stage):
    """It wanted no other process, so nothing is kept of it."""
    stage.start(dynamic())
    stage.ask_for("start_child", child("a", Life(), Life(start="ignore")))
    stage.crash("a")
    stage.wait(lambda: "a2" in stage.noted("ignored"), "the ignored start")

    assert stage.states() == {}


@case("C51")
def test_two_deaths_at_once_are_one_group_restart(sim):
    """An end that comes before its request belongs to the restart that is under way."""
    sim.start(one_for_all(*five()))
    mark = sim.mark()
    sim.end("b")
    sim.end("d")
    sim.until_up("e2")

    assert sim.noted("exit", mark) == ["b1", "d1", "e1", "c1", "a1"]
    assert sim.noted("launch", mark) == ["a2", "b2", "c2", "d2", "e2"]
    assert [report.in_window for report in sim.reported("child_terminated")] == [1]


@case("C51")
@pytest.mark.process
def test_two_real_deaths_at_once_never_mix_their_restarts(proc):
    """Whoever is noticed first: one or two charges, and no start before the last end of a group."""
    proc.start(one_for_all(*five()))
    mark = proc.mark()
    proc.end("b")
    proc.end("d")
    proc.wait(
        lambda: set(proc.states().values()) == {"up"} and proc.noted("up", mark), "all of them"
    )
    charges = [report.in_window for report in proc.reported("child_terminated")]
    words = [line.split()[0] for line in proc.story("exit", "launch", mark=mark)]

    assert charges in ([1], [1, 2])
    assert words == (["exit"] * 5 + ["launch"] * 5) * len(charges)


@case("C51")
def test_a_death_during_the_restart_is_the_next_one(sim):
    """A member that dies while the others start is judged when all are up: one more restart."""
    slow = Life(), Life(start_s=1.0), Life()
    sim.start(one_for_all(child("a"), child("b"), child("c", *slow)))
    mark = sim.mark()
    sim.crash("b")
    sim.wait(lambda: "c2" in sim.noted("launch"), "the last start")
    sim.crash("a")
    sim.until_up("c3")

    assert sim.noted("launch", mark) == ["a2", "b2", "c2", "a3", "b3", "c3"]
    assert [report.in_window for report in sim.reported("child_terminated")] == [1, 2]


@case("C51", "C46")
def test_a_death_during_a_restart_that_fails_is_judged_before_the_next_try(sim):
    """It came before the failure, so it is charged, and the next try is for both."""
    lives = Life(), Life(start_s=1.0, start="exit"), Life()
    sim.start(one_for_all(child("a"), child("b"), child("c", *lives)))
    sim.crash("b")
    sim.wait(lambda: "c2" in sim.noted("launch"), "the last start")
    sim.crash("a", "exit")
    sim.until_up("c3")
    charges = [(report.child.id, report.in_window) for report in sim.reported("child_terminated")]

    assert (sim.down("a2").reason.code, sim.down("a2").restarting) == (3, True)
    assert charges == [("b", 1), ("a", 3)]
    assert sim.view("a").generation == 3


@case("C51")
def test_two_deaths_during_a_restart_are_one_more(sim):
    """The first is charged; the second belongs to the restart that this begins, and is reported."""
    lives = Life(), Life(start_s=1.0), Life()
    sim.start(one_for_all(child("a"), child("b"), child("c", *lives)))
    sim.crash("b")
    sim.wait(lambda: "c2" in sim.noted("launch"), "the last start")
    sim.crash("a", "exit")
    sim.crash("b", "exit")
    sim.until_up("c3")

    assert [report.in_window for report in sim.reported("child_terminated")] == [1, 2]
    assert [report.child.id for report in sim.reported("shutdown_error")] == ["b"]
    assert (sim.down("b2").reason.code, sim.down("b2").restarting) == (3, True)


@case("C51")
def test_a_death_before_a_back_off_widens_the_group(sim):
    """Who waits for its restart is part of the group of one that dies before it in the order."""
    late = child("c", restart_delay=(5.0, 5.0))
    sim.start(rest_for_one(child("a"), child("b"), late, child("d"), max_restarts=9))
    sim.crash("c")
    sim.until_up("d2")
    sim.crash("c")
    sim.wait(lambda: sim.states()["d"] == "down", "the back-off")
    mark = sim.mark()
    sim.crash("b")
    sim.until_up("d3")
    sim.pass_time(20.0)

    assert sim.noted("launch", mark) == ["b2", "c3", "d3"]
