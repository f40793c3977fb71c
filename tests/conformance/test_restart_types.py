"""Which child is started again after which end, and what is reported of it."""

import pytest

from supervisor.core.tree.messages import Stop
from tests.conformance.script import (
    CHOSEN,
    ENDS,
    HOPELESS,
    Life,
    below,
    case,
    child,
    dynamic,
    kept,
    one_for_one,
)

CLEAN = ["normal", "shutdown", "shutdown_term"]
CRASHES = ["exception", "exit", "kill", "silent_zero"]


@case("C29")
@pytest.mark.parametrize("how", [*CLEAN, *CRASHES])
def test_a_permanent_child_always_comes_back(stage, how):
    """However it ended, it is reported and started again."""
    stage.start(one_for_one(child("a")))
    stage.crash("a", how)
    stage.until_up("a2")
    (report,) = stage.reported("child_terminated")

    assert report.reason == stage.down("a1").reason == ENDS[how][2]
    assert (stage.down("a1").restarting, stage.down("a1").restarts) == (True, 1)
    assert stage.view("a").generation == 2


@case("C30", "C33")
@pytest.mark.parametrize("how", CLEAN)
def test_a_transient_child_may_end(stage, how):
    """A clean end is no error and is not undone, but the specification stays."""
    stage.start(one_for_one(child("a", restart="transient"), child("b")))
    stage.crash("a", how)

    assert stage.states() == {"a": "down", "b": "up"}
    assert (stage.down("a1").reason, stage.down("a1").restarting) == (ENDS[how][2], False)
    assert stage.reported("child_terminated") == []
    assert stage.ask_for("restart_child", "a") == "ok"


@case("C30")
@pytest.mark.parametrize("how", CRASHES)
def test_a_transient_child_comes_back_from_a_crash(stage, how):
    """What was no clean end is reported and undone."""
    stage.start(one_for_one(child("a", restart="transient")))
    stage.crash("a", how)
    stage.until_up("a2")

    assert [report.reason for report in stage.reported("child_terminated")] == [ENDS[how][2]]


@case("C31")
@pytest.mark.parametrize("how", [*CLEAN, *CRASHES])
def test_a_temporary_child_never_comes_back(stage, how):
    """It is forgotten with its process; a crash leaves one report, a clean end none."""
    stage.start(one_for_one(child("a", restart="temporary"), child("b"), max_restarts=0))
    stage.crash("a", how)
    reports = stage.reported("child_terminated")

    assert stage.states() == {"b": "up"}
    assert [report.reason for report in reports] == [ENDS[how][2]] * (how in CRASHES)
    assert stage.down("a1").restarting is False
    assert stage.ask_for("restart_child", "a") == "not_found"


@case("X05")
@pytest.mark.parametrize("restart", ["permanent", "transient"])
def test_an_end_that_no_restart_helps_ends_the_supervisor(stage, restart):
    """It is not restarted, its siblings are ended, and the supervisor says why as a clean end."""
    inner = one_for_one(child("b", restart=restart), child("c"))
    stage.start(one_for_one(child("a"), below("inner", inner, restart="transient")))
    mark = stage.mark()
    stage.end("b", "chosen", path=("inner",))
    stage.wait(lambda: "inner" in stage.noted("sup_end", mark), "the inner end")
    ended = stage.note("sup_end", "inner").fact

    assert stage.noted("exit", mark) == ["inner/b1", "inner/c1"]
    assert stage.noted("launch", mark) == []
    assert stage.states() == {"a": "up", "inner": "down"}
    assert ended.cause == CHOSEN
    assert ended.reason.detail == str(ended.cause)
    assert [report.reason for report in stage.reported("child_terminated")] == [ended.cause]


@case("X05")
def test_a_temporary_child_ends_nothing_but_itself(stage):
    """Nobody depends on it, whatever end it has chosen."""
    stage.start(one_for_one(child("a", restart="temporary"), child("b")))
    stage.crash("a", "chosen")

    assert stage.states() == {"b": "up"}


@case("X05")
def test_a_hopeless_restart_ends_the_supervisor(stage):
    """A child that comes back and says that no start of it can work is not tried again."""
    stage.start(one_for_one(child("a", Life(), Life(start="hopeless"))))
    stage.crash("a")
    stage.wait(stage.has_ended, "the end")

    assert stage.noted("launch") == ["a1", "a2"]
    assert stage.tree.end.cause == HOPELESS


@case("X07")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_a_child_at_rest_is_kept(stage, strategy, restart):
    """Its process ends, its specification stays whatever its type, and it is woken later."""
    stage.start(kept(strategy, child("a", restart=restart), child("b")))
    stop = Stop("hibernate", stage.now() + 1.0)
    hibernated = stage.ask_for("hibernate_child", "a", stop=stop)
    states = stage.states()
    woken = stage.ask_for("wake_child", "a")
    stage.until_up("a2")

    assert (hibernated, woken) == ("ok", "ok")
    assert states == {"a": "down", "b": "up"}
    assert stage.down("a1").asked
    assert stage.view("a").restarts == 0


@case("X07")
def test_only_what_is_up_can_rest(stage):
    """What is down already, or unknown, is not put to rest."""
    stage.start(one_for_one(child("a")))
    stage.ask_for("terminate_child", "a")

    assert stage.ask_for("hibernate_child", "a", stop=Stop()) == "restarting"
    assert stage.ask_for("hibernate_child", "z", stop=Stop()) == "not_found"


@case("X07")
def test_a_woken_child_that_fails_is_a_crash(stage):
    """Waking is for good: a start that fails is charged and tried again."""
    stage.start(one_for_one(child("a", Life(), Life(start="exit"), Life())))
    stage.ask_for("hibernate_child", "a", stop=Stop())
    stage.ask_for("wake_child", "a")
    stage.until_up("a3")
    (error,) = stage.reported("start_error")

    assert error.in_window == 1


@case("X07")
def test_a_child_at_rest_that_is_terminated_is_forgotten_by_its_type(stage):
    """Rest ends with the call that ends the child: what is temporary has no place any more."""
    spec = one_for_one(child("a", restart="temporary"), child("b", restart="transient"))
    stage.start(spec)
    for name in "ab":
        stage.ask_for("hibernate_child", name, stop=Stop())
        assert stage.ask_for("terminate_child", name) == "ok"

    assert stage.states() == {"b": "down"}


@case("X07")
def test_a_dynamic_child_can_rest(stage):
    """A dynamic supervisor keeps what rests, and max_children counts it."""
    stage.start(dynamic(max_children=1))
    stage.ask_for("start_child", child("a"))
    stage.ask_for("hibernate_child", "a", stop=Stop())
    refused = stage.ask_for("start_child", child("b"))
    stage.ask_for("wake_child", "a")
    stage.until_up("a2")

    assert refused == "max_children"
    assert stage.states() == {"a": "up"}
