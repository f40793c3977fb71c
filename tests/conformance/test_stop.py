"""How children are made to end: in which order, within which time, and what is reported of it."""

import itertools
import time

import pytest

from cmdc_runtime.process_table import process_table
from cmdc_runtime.reasons import ExitCode, Shutdown
from supervisor.core.tree.messages import Stop, TimerKind
from tests.conformance.script import (
    EXIT_CODE,
    KILLED,
    RAISED,
    Life,
    below,
    case,
    child,
    dynamic,
    kept,
    one_for_all,
    one_for_one,
)

STATIC = ["one_for_one", "one_for_all", "rest_for_one"]
DEAF = Life(stop="ignore")
"""It makes nothing of requests and SIGTERM."""


def lasts(took_s, wanted_s):
    """Say whether something lasted as long as it should: both clocks are exact."""
    return took_s == pytest.approx(wanted_s)


@case("C14")
@pytest.mark.parametrize("strategy", STATIC)
def test_children_end_in_reverse_order(stage, strategy):
    """Each child is asked when the one behind it is gone."""
    slow = Life(stop_s=0.02)
    stage.start(kept(strategy, *(child(name, slow) for name in "abc")))
    took_s = stage.stop("enough")

    assert stage.story("ask", "exit", "sup_end") == [
        *("ask c1", "exit c1", "ask b1", "exit b1", "ask a1", "exit a1"),
        "sup_end ",
    ]
    assert lasts(took_s, 0.06)
    assert stage.down("a1").reason == Shutdown(detail="enough")
    assert stage.reported("shutdown_error") == []


@case("C15")
def test_a_brutal_kill_asks_nobody(stage):
    """With a grace of 0 no cleanup runs, the reason is the kill, and that is no error."""
    stage.start(one_for_one(child("a", shutdown=0)))
    stage.stop()

    assert stage.story("ask", "term", "kill", "cleaned") == ["kill a1"]
    assert stage.down("a1").reason == KILLED
    assert stage.reported("shutdown_error") == []


@case("C16")
def test_nobody_waits_longer_than_a_child_needs(stage):
    """A child that is done within its grace ends cleanly, and its supervisor at once behind it."""
    stage.start(one_for_one(child("a", Life(stop_s=0.05), shutdown=9.0)))
    took_s = stage.stop()

    assert lasts(took_s, 0.05)
    assert stage.story("ask", "kill", "cleaned", "exit") == ["ask a1", "cleaned a1", "exit a1"]


@case("C17", "X10")
def test_a_child_that_ignores_is_killed_at_its_grace(stage):
    """It is asked, sent SIGTERM at half its grace and SIGKILL at its end, and that is reported."""
    stage.start(one_for_one(child("a", DEAF, shutdown=0.2)))
    took_s = stage.stop()
    rungs = [stage.note(what, "a1").at_s for what in ("ask", "term", "kill")]
    (error,) = stage.reported("shutdown_error")

    assert lasts(took_s, 0.2)
    assert lasts(rungs[1] - rungs[0], 0.1)
    assert lasts(rungs[2] - rungs[0], 0.2)
    assert (error.child.id, error.reason) == ("a", KILLED)
    assert stage.noted("cleaned") == []


@case("X10")
def test_sigterm_ends_who_is_deaf_to_words(stage):
    """A child that takes no requests ends by SIGTERM, long before it would be killed."""
    stage.start(one_for_one(child("a", Life(stop="deaf"), shutdown=1.0)))
    took_s = stage.stop()

    assert lasts(took_s, 0.5)
    assert stage.noted("kill") == []
    assert stage.down("a1").reason.name == "SIGTERM"


@case("C18")
def test_a_child_without_a_bound_is_waited_for(stage):
    """It may take as long as it needs."""
    stage.start(one_for_one(child("a", Life(stop_s=0.15), shutdown=None)))
    took_s = stage.stop()

    assert lasts(took_s, 0.15)
    assert stage.story("term", "kill", "cleaned") == ["cleaned a1"]


@case("C18", "X09")
def test_a_deadline_bounds_who_has_no_bound(stage):
    """The deadline of the whole ends the patience with a child that has no bound of its own."""
    stage.start(one_for_one(child("a", DEAF, shutdown=None)))
    took_s = stage.stop(within_s=0.15)

    assert lasts(took_s, 0.15)
    assert stage.down("a1").reason == KILLED


@case("C19")
def test_a_dynamic_group_ends_in_the_time_of_one(stage):
    """All are asked at once, and the time is not their sum."""
    stage.start(dynamic())
    for number in range(10):
        stage.ask_for("start_child", child(f"c{number}", Life(stop_s=0.3)))
    took_s = stage.stop()
    kinds = [word.split()[0] for word in stage.story("ask", "exit")]

    assert lasts(took_s, 0.3)
    assert kinds == ["ask"] * 10 + ["exit"] * 10


@case("C20")
def test_each_child_of_a_dynamic_group_has_its_own_grace(stage):
    """Who has less is killed sooner, and who has more is not."""
    stage.start(dynamic())
    for name, life, grace_s in [
        ("short", DEAF, 0.1),
        ("long", DEAF, 0.6),
        ("good", Life(stop_s=0.3), 0.6),
        ("none", DEAF, 0),
    ]:
        stage.ask_for("start_child", child(name, life, shutdown=grace_s))
    took_s = stage.stop()

    assert lasts(took_s, 0.6)
    assert stage.noted("kill") == ["none1", "short1", "long1"]
    assert stage.noted("exit") == ["none1", "short1", "good1", "long1"]


@case("C21")
def test_a_child_that_unlinked_holds_up_no_stop(stage):
    """Who closed its channel hears no request, and is ended all the same."""
    stage.start(one_for_one(child("a", Life(unlinks=True, stop="ignore"), shutdown=0.1)))
    took_s = stage.stop()

    assert lasts(took_s, 0.1)
    assert stage.noted("exit") == ["a1"]


@case("C22")
def test_an_end_before_the_request_has_its_own_reason(stage):
    """A child that died as the stop began is no victim of it: its reason is what it died of."""
    stage.start(one_for_one(child("a", Life(stop="ignore"), shutdown=5.0)))
    stage.end("a", "exit")
    stage.stop("enough")
    errors = stage.reported("shutdown_error") + stage.reported("child_terminated")

    assert stage.down("a1").reason == ExitCode(code=EXIT_CODE)
    assert [report.reason for report in errors] == [ExitCode(code=EXIT_CODE)]


@case("C22")
@pytest.mark.parametrize("strategy", STATIC)
def test_an_end_that_nobody_has_judged_yet_is_reported(sim, strategy):
    """A child that dies while its siblings start is reported, though the supervisor is stopped."""
    sim.open(kept(strategy, child("a"), child("b", Life(start_s=9.0))))
    sim.until_up("a1")
    sim.crash("a", "exit")
    sim.stop()
    (error,) = sim.reported("shutdown_error")

    assert error.reason == ExitCode(code=EXIT_CODE)
    assert (sim.down("a1").reason, sim.down("a1").asked) == (ExitCode(code=EXIT_CODE), False)


@case("C23")
def test_an_unexpected_end_during_a_stop_is_reported(stage):
    """A child that fails as it cleans up leaves a report with its reason."""
    stage.start(one_for_one(child("a", Life(stop="exception")), child("b")))
    stage.stop()
    (error,) = stage.reported("shutdown_error")

    assert (error.child.id, error.reason) == ("a", RAISED)
    assert (error.context, error.handle is not None) == ("shutdown_error", True)


@case("X13")
def test_a_normal_end_on_request_is_no_error(stage):
    """Whoever ends as normal when asked has done what was wanted, a permanent child too."""
    stage.start(one_for_one(child("a", Life(stop="normal"))))
    stage.stop()

    assert stage.reported("shutdown_error") == []


@case("C24")
def test_terminating_twice_is_the_same_as_once(stage):
    """What is down is terminated with success, what nobody knows is not found."""
    stage.start(one_for_one(child("a"), child("b")))

    assert stage.ask_for("terminate_child", "a") == "ok"
    assert stage.ask_for("terminate_child", "a") == "ok"
    assert stage.ask_for("terminate_child", "z") == "not_found"
    assert stage.states() == {"a": "down", "b": "up"}


@case("C24")
def test_a_dynamic_child_is_forgotten_when_terminated(stage):
    """There is nothing to keep of it, so the next one does not find it."""
    stage.start(dynamic())
    stage.ask_for("start_child", child("a"))

    assert stage.ask_for("terminate_child", "a") == "ok"
    assert stage.ask_for("terminate_child", "a") == "not_found"
    assert stage.ask_for("restart_child", "a") == "not_found"


@case("C25")
def test_the_child_of_another_supervisor_is_not_found(stage):
    """A supervisor ends its own children only; the other's goes on with its process."""
    stage.start(one_for_one(below("left", dynamic()), below("right", dynamic())))
    stage.ask_for("start_child", child("a"), path=("right",))
    before = stage.pids("a", path=("right",))

    assert stage.ask_for("terminate_child", "a", path=("left",)) == "not_found"
    assert stage.pids("a", path=("right",)) == before
    assert stage.states(("right",)) == {"a": "up"}


@case("C26")
@pytest.mark.parametrize("strategy", STATIC)
def test_only_what_is_down_can_be_deleted(stage, strategy):
    """What runs or waits for its restart is refused; terminated first, it is forgotten."""
    stage.start(kept(strategy, child("a"), child("b", restart_delay=(9.0, 9.0)), max_restarts=9))
    running = stage.ask_for("delete_child", "b")
    stage.crash("b")
    stage.until_up("b2")
    stage.crash("b")

    assert (running, stage.ask_for("delete_child", "b")) == ("running", "restarting")
    assert stage.ask_for("terminate_child", "b") == "ok"
    assert stage.ask_for("delete_child", "b") == "ok"
    assert stage.ask_for("delete_child", "b") == "not_found"
    assert "b" not in stage.states()


@case("C27")
@pytest.mark.parametrize("strategy", STATIC)
def test_restarting_by_hand_is_free(stage, strategy):
    """It is refused unless the child is down, and the budget is what it was."""
    stage.start(kept(strategy, child("a", restart_delay=(9.0, 9.0)), max_restarts=2))
    for _ in range(5):
        stage.ask_for("terminate_child", "a")
        assert stage.ask_for("restart_child", "a") == "ok"
    running = stage.ask_for("restart_child", "a")
    stage.crash("a")
    stage.until_up("a7")
    stage.crash("a")

    assert running == "running"
    assert stage.ask_for("restart_child", "a") == "restarting"
    assert stage.ask_for("restart_child", "z") == "not_found"
    assert [report.in_window for report in stage.reported("child_terminated")] == [1, 2]


@case("C28")
def test_a_call_to_who_is_gone_is_answered_at_once(stage):
    """Nobody waits for a supervisor that has ended, or is about to."""
    stage.start(one_for_one(below("inner", one_for_one(child("a", Life(stop_s=0.05))))))
    stage.begin_stop()
    stopping = stage.call("terminate_child", "a", path=("inner",))
    stage.wait(stage.has_ended, "the stop")
    calls = [
        stage.call("start_child", child("x")),
        stage.call("restart_child", "a"),
        stage.call("delete_child", "a", path=("inner",)),
        stage.call("terminate_child", "a", path=("never", "seen")),
    ]

    assert [str(call.answer.outcome) for call in [stopping, *calls]] == ["noproc"] * 5
    assert stage.tree.which_children(("inner",)) is None
    assert stage.tree.which_children(("never",)) is None


@case("X09")
def test_a_deadline_is_one_moment_for_the_whole_tree(sim):
    """However deep a tree is, and however deaf its children, it is gone at its deadline."""
    spec = one_for_one(child("d", DEAF, shutdown=None), child("e", DEAF, shutdown=None))
    for name in "cba":
        spec = one_for_one(child("w", DEAF, shutdown=None), below(name, spec))
    sim.start(spec)
    took_s = sim.stop(within_s=8.0)

    assert took_s == pytest.approx(8.0)
    assert sim.noted("exit") == ["a/b/c/e1", "a/b/c/d1", "a/b/w1", "a/w1", "w1"]


@case("X09")
def test_a_second_stop_may_only_hasten(stage):
    """A later deadline than the first one changes nothing, an earlier one counts."""
    stage.start(one_for_one(child("a", DEAF, shutdown=5.0)))
    since = stage.now()
    stage.begin_stop(within_s=1.0)
    stage.begin_stop(within_s=9.0)
    stage.begin_stop(within_s=0.1)
    stage.begin_stop(within_s=0.5)
    stage.wait(stage.has_ended, "the stop")

    assert lasts(stage.now() - since, 0.1)
    assert stage.noted("ask") == ["a1"]


@case("X09")
def test_a_second_call_may_hasten_the_first(stage):
    """Both callers have their answer when the child is gone, at the earlier deadline."""
    stage.start(one_for_one(child("a", DEAF, shutdown=None)))
    patient = stage.call("terminate_child", "a")
    hasty = stage.call("terminate_child", "a", stop=Stop("now", stage.now() + 0.1))
    stage.answer(patient)

    assert [str(call.answer.outcome) for call in (patient, hasty)] == ["ok", "ok"]
    assert lasts(patient.answered_s - patient.asked_s, 0.1)


@case("X14")
def test_late_rungs_are_taken_in_their_order(sim):
    """Timers that a busy daemon serves late still end the child, and nothing comes twice."""
    sim.late_s = {TimerKind.TERM: 3.0, TimerKind.KILL: 0.5}
    sim.start(one_for_one(child("a", DEAF, shutdown=1.0)))
    sim.stop()

    assert sim.story("ask", "term", "kill", "exit") == ["ask a1", "kill a1", "exit a1"]


@case("X15")
@pytest.mark.process
@pytest.mark.parametrize("shutdown", [0, 0.1])
def test_a_killed_child_takes_its_group_with_it(proc, shutdown):
    """What a child started in its process group is gone with it."""
    lives = Life(company=True, stop="ignore")
    proc.start(one_for_one(child("a", lives, shutdown=shutdown)))
    proc.pass_time(1.0)
    pids = proc.pids("a")
    mine = [line.pid for line in process_table().values() if line.sid == pids[0]]
    proc.stop()

    assert len(mine) == 2
    proc.is_alone(*pids)


@case("X16")
def test_children_get_the_reason(stage):
    """The reason of the caller is passed on, unless a supervisor has its own for its children."""
    inner = one_for_all(child("x"), stop_reason="parent ended")
    stage.start(one_for_one(child("a"), below("inner", inner)))
    stage.stop("enough")

    assert stage.note("ask", "a1").fact == "enough"
    assert stage.note("ask", "inner/x1").fact == "parent ended"
    assert stage.down("inner/x1").reason == Shutdown(detail="parent ended")


@case("C41")
def test_a_wall_clock_that_jumps_changes_nothing(stage, monkeypatch):
    """Windows, back-offs, graces and deadlines are measured by the monotonic clock alone."""
    spec = child("a", DEAF, shutdown=None, restart_delay=(0.5, 0.5))
    jumps = itertools.cycle([0.0, 86_400.0, -86_400.0])
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int((now_s + next(jumps)) * 1e9))
    stage.start(one_for_one(spec, child("b", DEAF, shutdown=None), max_restarts=3, max_seconds=60))
    for generation in (1, 2, 3):
        stage.crash("a")
        stage.until_up(f"a{generation + 1}")
        stage.pass_time(1.0)
    took_s = stage.stop(within_s=0.2)

    assert [report.in_window for report in stage.reported("child_terminated")] == [1, 2, 3]
    assert lasts(stage.when("launch", "a3") - stage.when("exit", "a2"), 0.5)
    assert lasts(took_s, 0.2)
    assert stage.noted("kill") == ["b1", "a4"]
