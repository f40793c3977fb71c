"""How many restarts are too many, and what happens meanwhile."""

import pytest

from cmdc_runtime.reasons import RestartIntensityExceeded
from supervisor.core.tree.supervisor import CALLS_WAITING_MAX
from tests.conformance.script import (
    ENDS,
    EXIT_CODE,
    KILLED,
    Life,
    below,
    case,
    child,
    dynamic,
    kept,
    one_for_all,
    one_for_one,
    rest_for_one,
)

STATIC = ["one_for_one", "one_for_all", "rest_for_one"]


def crash_again(stage, name, times, path=()):
    """End a child again and again, each time when it is back."""
    for _ in range(times):
        stage.crash(name, path=path)
        stage.wait(
            lambda: stage.has_ended() or stage.states(path).get(name) == "up", f"{name} again"
        )


@case("C34")
@pytest.mark.parametrize("strategy", STATIC)
def test_without_a_budget_the_first_crash_is_the_last(stage, strategy):
    """With max_restarts 0 a supervisor survives no crash, and ends as one that was to."""
    stage.start(kept(strategy, child("a"), child("b"), max_restarts=0))
    stage.crash("b")
    stage.wait(stage.has_ended, "the end")

    assert stage.noted("launch") == ["a1", "b1"]
    assert stage.tree.end.ending == "normal"
    assert isinstance(stage.tree.end.reason, RestartIntensityExceeded)


@case("C35", "X03")
def test_the_budget_is_what_is_survived(stage):
    """Three crashes are survived; the fourth ends the siblings in reverse, and says so."""
    stage.start(one_for_one(child("a"), child("b"), child("c"), max_restarts=3, max_seconds=60))
    crash_again(stage, "b", 3)
    survived = stage.states()
    mark = stage.mark()
    stage.crash("b", "exit")
    stage.wait(stage.has_ended, "the end")
    (report,) = stage.reported("shutdown")
    spent = RestartIntensityExceeded(restarts=3, seconds=60, last=ENDS["exit"][2])

    assert survived == {"a": "up", "b": "up", "c": "up"}
    assert stage.story("ask", "exit", mark=mark) == [
        *("exit b4", "ask c1", "exit c1", "ask a1", "exit a1"),
    ]
    assert (report.context, report.reason) == ("reached_max_restart_intensity", spent)
    assert (report.in_window, report.max_restarts) == (4, 3)
    assert stage.down("b4").reason == spent
    assert stage.tree.end.reason == spent
    assert f"exit status {EXIT_CODE}" in str(spent)


@case("C36")
def test_slow_crashes_go_on_for_ever(sim):
    """Crashes that are just further apart than the period allows never end a supervisor."""
    sim.start(one_for_one(child("a"), max_restarts=2, max_seconds=5.0))
    for _ in range(150):
        sim.crash("a")
        sim.pass_time(2.5 + 0.001)

    assert sim.states() == {"a": "up"}
    assert sim.view("a").generation == 151


@case("C37")
@pytest.mark.parametrize(("apart_s", "is_survived"), [(5.0, False), (5.001, True)])
def test_a_restart_one_period_ago_still_counts(sim, apart_s, is_survived):
    """The period is closed: exactly as old as it is young enough to count."""
    sim.start(one_for_one(child("a"), max_restarts=1, max_seconds=5.0))
    sim.crash("a")
    sim.pass_time(apart_s)
    sim.crash("a")

    assert sim.has_ended() is not is_survived


@case("C38")
def test_children_share_the_budget(stage):
    """One crash of each of three children is as bad as three of one."""
    stage.start(one_for_one(child("a"), child("b"), child("c"), max_restarts=2))
    for name in "abc":
        stage.crash(name)
    stage.wait(stage.has_ended, "the end")

    assert stage.down("c1").reason.last == KILLED


@case("C39")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_group_restart_is_charged_once(stage, strategy):
    """Five children restarted together cost what one costs."""
    stage.start(kept(strategy, *(child(name) for name in "abcde"), max_restarts=1))
    stage.crash("a")
    stage.until_up("a2", "b2", "c2", "d2", "e2")
    (report,) = stage.reported("child_terminated")

    assert (report.in_window, report.max_restarts) == (1, 1)
    assert stage.view("b").restarts == 0


@case("C40")
@pytest.mark.parametrize("strategy", STATIC)
def test_each_failed_attempt_is_charged(stage, strategy):
    """A restart that fails twice costs three in all, and calls are answered in between."""
    failing = Life(start="exit", start_s=0.02)
    lives = Life(), failing, failing, Life()
    stage.start(kept(strategy, child("a"), child("b", *lives), max_restarts=3))
    stage.crash("b")
    answer = stage.answer(stage.call("start_child", child("x")))
    stage.wait(lambda: stage.states().get("b") == "up" and stage.noted("up")[-1:], "b again")
    stage.until_up("b4")

    assert [report.in_window for report in stage.reported("start_error")] == [2, 3]
    assert str(answer.outcome) == "ok"
    assert stage.note("reply", "start_child").at_s <= stage.note("up", "b4").at_s


@case("C42")
@pytest.mark.parametrize("strategy", [*STATIC, "dynamic"])
def test_calls_are_answered_in_a_restart_loop(stage, strategy):
    """While one child fails again and again, every call about it has its answer."""
    failing = Life(start="exit", start_s=0.005)
    stage.start(kept(strategy, max_restarts=10**6))
    stage.ask_for("start_child", child("a"))
    stage.ask_for("start_child", child("b", Life(), failing))
    stage.crash("b")
    stage.wait(lambda: "b4" in stage.noted("launch"), "the loop")
    states = stage.states()
    running = [
        stage.ask_for("delete_child", "b") in {"running", "restarting"},
        stage.ask_for("restart_child", "b") in {"running", "restarting"},
    ]
    ended = stage.ask_for("terminate_child", "b")
    launched = stage.noted("launch")
    stage.pass_time(0.02)

    assert set(states) == {"a", "b"}
    assert running == [True, True]
    assert ended == "ok"
    assert stage.noted("launch") == launched
    assert stage.states().get("b", "down") == "down"


@case("C42")
@pytest.mark.parametrize("strategy", [*STATIC, "dynamic"])
def test_a_restart_loop_can_be_stopped(stage, strategy):
    """A stop outranks all attempts: nothing is started after it."""
    failing = Life(start="exit", start_s=0.005)
    stage.start(kept(strategy, max_restarts=10**6))
    stage.ask_for("start_child", child("b", Life(), failing))
    stage.crash("b")
    stage.wait(lambda: "b4" in stage.noted("launch"), "the loop")
    took_s = stage.stop()

    assert took_s < 5.0


@case("C43")
def test_a_restarting_child_is_counted_but_not_active(stage):
    """A child that waits for its next start is a specification, and takes up room."""
    stage.start(one_for_one(below("d", dynamic(max_children=2, max_restarts=9)), child("w")))
    path = ("d",)
    stage.ask_for("start_child", child("a", restart_delay=(9.0, 9.0)), path=path)
    stage.ask_for("start_child", child("b"), path=path)
    stage.crash("a", path=path)
    stage.until_up("a2", path=path)
    stage.crash("a", path=path)

    assert stage.states(path) == {"a": "restarting", "b": "up"}
    assert stage.ask_for("start_child", child("c"), path=path) == "max_children"


def waits(sim, name):
    """Return for how long each restart of a child was put off, as its Downs say."""
    facts = [note.fact for note in sim.log if note.what == "down"]
    return [fact.delay_s for fact in facts if fact.ref.child == name and fact.restarting]


@case("X04")
@pytest.mark.parametrize("strategy", STATIC)
def test_a_back_off_doubles_to_its_bound(sim, strategy):
    """The first restart of a series is at once, the second after the first bound, and so on."""
    spec = child("a", Life(ends_s=0.0), restart_delay=(0.1, 0.5))
    sim.start(kept(strategy, spec, max_restarts=6, max_seconds=5.0))
    sim.wait(sim.has_ended, "the end")

    assert waits(sim, "a") == [0.0, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert sim.when("launch", "a7") == pytest.approx(1.7)
    assert [report.next_attempt_s for report in sim.reported("child_terminated")] == [
        *waits(sim, "a"),
        None,
    ]


@case("X04")
def test_a_back_off_hides_no_crash_from_the_window(sim):
    """A child that always fails at once is given up, however long its back-off is."""
    spec = child("a", Life(ends_s=0.0), restart_delay=(60.0, 60.0))
    sim.start(one_for_one(spec, max_restarts=3, max_seconds=5.0))
    sim.wait(sim.has_ended, "the end")

    assert sim.noted("launch") == ["a1", "a2", "a3", "a4"]


@case("X04")
def test_a_back_off_is_forgotten_with_the_crashes(sim):
    """When earlier crashes no longer count, a restart is at once again."""
    sim.start(one_for_one(child("a", restart_delay=(0.5, 5.0)), max_restarts=3, max_seconds=5.0))
    for _ in range(2):
        sim.crash("a")
        sim.pass_time(6.0)
        sim.crash("a")
        sim.pass_time(1.0)
        sim.pass_time(6.0)

    assert waits(sim, "a") == [0.0, 0.0, 0.0, 0.0]


@case("X04")
@pytest.mark.parametrize("strategy", STATIC)
def test_a_back_off_can_be_called_off(stage, strategy):
    """Terminating what waits for its restart ends the waiting, and one more Down says so."""
    spec = child("a", restart_delay=(30.0, 30.0))
    stage.start(kept(strategy, spec, child("b"), max_restarts=3, max_seconds=5.0))
    stage.crash("a")
    stage.until_up("a2")
    stage.crash("a")
    waiting = stage.view("a").state
    outcome = stage.ask_for("terminate_child", "a")

    assert (str(waiting), outcome, str(stage.view("a").state)) == ("restarting", "ok", "down")
    assert (stage.down("a2").restarting, stage.down("a2").asked) == (False, True)


@case("X04")
def test_one_child_waits_for_its_own_crashes(sim):
    """Who crashes for the first time is restarted at once, whatever its siblings did."""
    children = (child(name, restart_delay=(1.0, 8.0)) for name in "ab")
    sim.start(one_for_one(*children, max_restarts=9))
    crash_again(sim, "a", 3)
    crash_again(sim, "b", 1)

    assert (waits(sim, "a"), waits(sim, "b")) == ([0.0, 1.0, 2.0], [0.0])


@case("X11")
@pytest.mark.parametrize("make", [one_for_all, rest_for_one])
@pytest.mark.parametrize("call", ["start_child", "restart_child", "wake_child"])
def test_a_start_by_hand_leaves_a_back_off_alone(stage, make, call):
    """Who is started while a group waits is started, and the group is restarted all the same."""
    slow = child("b", restart_delay=(0.25, 0.25))
    stage.start(make(child("a"), slow, child("c"), max_restarts=9))
    stage.crash("b")
    stage.until_up("b2", "c2")
    stage.crash("b")
    stage.wait(lambda: stage.states()["c"] == "down", "the back-off")
    given = child("x") if call == "start_child" else "c"
    outcome = stage.ask_for(call, given)
    stage.until_up("b3")
    stage.wait(lambda: set(stage.states().values()) == {"up"}, "all of them")

    assert outcome == "ok"
    assert stage.view("c").generation == (3 if call == "start_child" else 4)


@case("X11")
def test_a_slow_start_by_hand_is_not_cut_short(sim):
    """A back-off that is over while somebody is started waits for the end of that start."""
    slow = Life(start_s=5.0)
    sim.start(rest_for_one(child("a", restart_delay=(1.0, 1.0)), max_restarts=9))
    crash_again(sim, "a", 1)
    sim.crash("a")
    answer = sim.answer(sim.call("start_child", child("x", slow)))
    sim.until_up("a3", "x2")

    assert str(answer.outcome) == "ok"
    assert sim.when("launch", "a3") == pytest.approx(sim.when("up", "x1"))


@case("X12")
def test_calls_wait_for_a_group_restart_within_a_bound(sim):
    """One call more than may wait is refused with an error; the others have their answers."""
    sim.start(one_for_all(child("a", Life(), Life(start_s=60.0))))
    sim.crash("a")
    calls = [sim.call("delete_child", "z") for _ in range(CALLS_WAITING_MAX + 1)]
    refused = calls.pop().answer
    sim.until_up("a2")
    sim.settle()

    assert (str(refused.outcome), str(CALLS_WAITING_MAX) in str(refused.reason)) == ("error", True)
    assert {str(call.answer.outcome) for call in calls} == {"not_found"}
