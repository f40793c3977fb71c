"""How children are started, what they may answer, and what is left when one fails."""

import gc
import weakref

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.reasons import ExitCode, Other, StartFailed
from supervisor.core.tree.messages import Stop
from supervisor.core.tree.specs import (
    ChildSpec,
    Flags,
    Strategy,
    SupervisorSpec,
    child_problems,
    flag_problems,
    spec_problems,
)
from tests.conformance.script import (
    EXIT_CODE,
    KILLED,
    RAISED,
    Life,
    Script,
    below,
    case,
    child,
    dynamic,
    kept,
    one_for_one,
)

STATIC = ["one_for_one", "one_for_all", "rest_for_one"]


@case("C01")
@pytest.mark.parametrize("strategy", STATIC)
def test_a_supervisor_of_each_strategy_starts(stage, strategy):
    """A supervisor with static children is up behind them, whatever its strategy."""
    stage.start(kept(strategy, child("a"), child("b")))

    assert stage.states() == {"a": "up", "b": "up"}
    assert stage.is_up()


@case("C01")
def test_a_dynamic_supervisor_starts_empty(stage):
    """A dynamic supervisor is up at once and without children."""
    stage.start(dynamic())

    assert stage.is_up()
    assert stage.tree.which_children() == []


@case("C01")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"strategy": "one_for_none"}, "strategy: expected one of one_for_one"),
        ({"max_restarts": -1}, "max_restarts: expected an int of 0 or more, got -1"),
        ({"max_seconds": 0}, "max_seconds: expected seconds above 0, got 0"),
        ({"auto_shutdown": "sometimes"}, "auto_shutdown: expected one of never"),
    ],
)
def test_wrong_flags_are_refused_by_name(given, problem):
    """Each wrong flag has a line that names it and says what would be right."""
    (line,) = flag_problems(Flags(**given))

    assert line.startswith(problem)


@case("C02", "X01")
@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        (ChildSpec, {"start": "it"}, "id"),
        (ChildSpec, {"id": "a"}, "start"),
        (ChildSpec, {"id": "a", "start": "it", "shutdwon": 1}, "shutdwon"),
        (Flags, {"max_restart": 3}, "max_restart"),
    ],
)
def test_missing_and_unknown_names_are_refused(kind, given, name):
    """A specification can't be made without what it needs, or with what nobody knows."""
    with pytest.raises(TypeError, match=f"argument:? '{name}'"):
        kind(**given)


@case("C01", "C02")
def test_a_wrong_tree_starts_nothing(sim):
    """What is wrong anywhere in a specification refuses the whole before anything is started."""
    wrong = one_for_one(child("a"), below("b", one_for_one(child("c", shutdown=-1))))
    with pytest.raises(InvalidOptions, match="child 'b': child 'c': shutdown"):
        sim.open(wrong)

    assert sim.log == []


@case("C02", "X02")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"restart": "often"}, "restart: expected one of permanent, transient, temporary"),
        ({"shutdown": "soon"}, "shutdown: expected seconds of 0 or more or None"),
        ({"id": ""}, "id: expected text, got ''"),
        ({"restart_delay": 5.0}, "restart_delay: expected two times in seconds, got 5.0"),
    ],
)
def test_a_wrong_child_is_refused_by_name(given, problem):
    """Each wrong field of a child has a line that names it."""
    wrong = ChildSpec(**({"id": "a", "start": "it"} | given))

    assert [line[: len(problem)] for line in child_problems(wrong)] == [problem]


@case("C02")
def test_an_id_is_unique_below_its_supervisor():
    """The same id twice is refused; below another supervisor it is another child."""
    twice = one_for_one(child("a"), child("a"))
    apart = one_for_one(child("a"), below("b", one_for_one(child("a"))))

    assert spec_problems(twice) == ["child 'a': the id is taken by an earlier child"]
    assert spec_problems(apart) == []


@case("X02")
def test_all_problems_are_named_at_once():
    """A person corrects a specification once, not line by line."""
    wrong = Flags(strategy="x", max_restarts="3", max_seconds=-1)

    assert [line.split(":")[0] for line in flag_problems(wrong)] == [
        "strategy",
        "max_restarts",
        "max_seconds",
    ]


@case("C03")
def test_defaults_are_those_of_the_documents():
    """What is not given reads back as the documented default."""
    worker = ChildSpec(id="a", start="it")
    inner = ChildSpec(id="b", start=SupervisorSpec())

    assert Flags() == Flags(
        strategy=Strategy.ONE_FOR_ONE, max_restarts=3, max_seconds=5.0, auto_shutdown="never"
    )
    assert worker == ChildSpec(
        id="a", start="it", restart="permanent", shutdown=5.0, significant=False
    )
    assert (worker.type, inner.type) == ("worker", "supervisor")


@case("C04")
@pytest.mark.parametrize("strategy", STATIC)
def test_children_start_one_after_the_other(stage, strategy):
    """Each child begins when the one before is ready, and the supervisor is up behind the last."""
    slow = Life(start_s=0.03)
    stage.start(kept(strategy, *(child(name, slow) for name in "abc")))

    assert stage.story("launch", "up", "sup_up") == [
        *("launch a1", "up a1", "launch b1", "up b1", "launch c1", "up c1"),
        "sup_up ",
    ]
    assert stage.note("sup_up", "").at_s >= stage.note("up", "c1").at_s
    assert stage.when("up", "c1") == pytest.approx(0.09)


@case("C04")
@pytest.mark.process
def test_children_say_themselves_when_they_were_ready(proc):
    """By their own clocks, too, each was ready before the next one was started."""
    proc.start(one_for_one(child("a"), child("b"), child("c")))
    ready = [proc.note("ready", who).fact for who in ("a1", "b1", "c1")]
    launched = [proc.note("launch", who).machine_s for who in ("b1", "c1")]

    assert ready == sorted(ready)
    assert all(before < after for before, after in zip(ready, launched, strict=False))


@case("C05")
@pytest.mark.parametrize("strategy", STATIC)
def test_a_failed_start_undoes_those_before_it(stage, strategy):
    """The third of five fails: the last two never start, the second and the first are ended."""
    failing = child("c", Life(start="exit"))
    stage.start(kept(strategy, child("a"), child("b"), failing, child("d"), child("e")))
    end = stage.tree.end
    (error,) = stage.reported("start_error")
    (given_up,) = stage.reported("shutdown")

    assert stage.noted("launch") == ["a1", "b1", "c1"]
    assert stage.story("ask", "exit") == ["exit c1", "ask b1", "exit b1", "ask a1", "exit a1"]
    assert stage.noted("sup_up") == []
    assert end.reason.code == EXIT_CODE
    assert (error.child.id, error.reason) == ("c", end.reason)
    assert (given_up.context, given_up.child.id) == ("failed_to_start_child", "c")


@case("C06")
def test_an_ignored_start_leaves_a_specification(stage):
    """A child that ignores has no process, holds up nobody, and may be started later."""
    stage.start(one_for_one(child("a", Life(start="ignore"), Life()), child("b")))

    assert stage.states() == {"a": "down", "b": "up"}
    assert stage.view("a").handle is None
    assert stage.ask_for("restart_child", "a") == "ok"
    assert stage.states() == {"a": "up", "b": "up"}
    assert stage.noted("down") == []


@case("C07")
def test_an_ignored_start_of_a_temporary_child_leaves_nothing(stage):
    """Who would not be started again is forgotten when it does not want to be."""
    ignoring = Life(start="ignore")
    stage.start(one_for_one(child("a", ignoring, restart="temporary"), below("d", dynamic())))
    answer = stage.answer(stage.call("start_child", child("x", ignoring), path=("d",)))

    assert stage.states() == {"d": "up"}
    assert (str(answer.outcome), answer.handle) == ("ok", None)
    assert stage.states(("d",)) == {}


@case("C08")
def test_a_start_may_say_more_than_its_handle(stage):
    """What a child adds to its being up goes to who asked for it."""
    stage.start(one_for_one())
    answer = stage.answer(stage.call("start_child", child("a", Life(extra="port 17"))))

    assert (str(answer.outcome), answer.extra) == ("ok", "port 17")
    assert answer.handle == stage.view("a").handle


@case("C09")
def test_an_id_is_started_once(stage):
    """The id of a live child is refused with its handle, that of one that is down as present."""
    stage.start(one_for_one(child("a")))
    (handle,) = stage.pids("a")
    live = stage.answer(stage.call("start_child", child("a")))
    stage.ask_for("terminate_child", "a")
    down = stage.answer(stage.call("start_child", child("a")))

    assert (str(live.outcome), live.handle) == ("already_started", handle)
    assert (str(down.outcome), down.handle) == ("already_present", None)
    assert stage.noted("launch") == ["a1"]


@case("C10")
@pytest.mark.parametrize("strategy", [*STATIC, "dynamic"])
def test_a_failed_start_child_leaves_nothing(stage, strategy):
    """Its caller has the reason, the budget is whole, and the id may be used at once."""
    stage.start(kept(strategy, max_restarts=0))
    answer = stage.answer(stage.call("start_child", child("a", Life(start="raise"))))

    assert (str(answer.outcome), answer.reason) == ("error", RAISED)
    assert stage.states() == {}
    assert stage.ask_for("start_child", child("a")) == "ok"
    assert stage.states() == {"a": "up"}


@case("C11")
def test_a_crash_before_being_up_has_its_real_cause(stage):
    """A child that dies on its way up is a failed start that names what killed it."""
    stage.start(one_for_one())
    slow = child("a", Life(start="never"), start_timeout=5.0)
    call = stage.call("start_child", slow)
    stage.end("a")
    answer = stage.answer(call)
    (error,) = stage.reported("start_error")

    assert (answer.reason, error.reason) == (KILLED, KILLED)
    assert stage.when("exit", "a1") < 4.0


@case("C12")
def test_a_child_that_is_never_up_is_killed(stage):
    """At its deadline it is killed; at a restart that is charged and it is tried again."""
    lives = Life(), Life(start="never"), Life()
    stage.start(one_for_one(child("a", *lives, start_timeout=0.15)))
    stage.crash("a")
    stage.until_up("a3")
    (error,) = stage.reported("start_error")

    assert isinstance(error.reason, StartFailed)
    assert error.reason.stage == "handshake"
    assert error.in_window == 2
    assert stage.noted("kill") == ["a2"]
    since = stage.when("kill", "a2") - stage.when("launch", "a2")
    assert since == pytest.approx(0.15)


@case("C13")
def test_starts_fail_in_three_ways(stage):
    """Each reports to its caller what it was: the exception, the status, or that it is no agent."""
    stage.start(dynamic())
    stage.ask_for("start_child", child("before"))
    answers = [
        stage.answer(stage.call("start_child", child(how, Life(start=how))))
        for how in ("raise", "exit", "garbage")
    ]
    raised, left, garbage = (answer.reason for answer in answers)
    (killed,) = stage.noted("kill") or ["garbage1"]  # on the engine nobody reads what it says

    assert (raised, left) == (RAISED, ExitCode(code=EXIT_CODE))
    assert isinstance(garbage, Other)
    assert "it broke the contract of the wire" in garbage.detail
    assert killed == "garbage1"
    assert [str(answer.outcome) for answer in answers] == ["error"] * 3
    assert stage.ask_for("start_child", child("well")) == "ok"
    assert stage.states() == {"before": "up", "well": "up"}


class Heavy(Script):
    """A script that can be watched as it is forgotten."""

    __slots__ = ("__weakref__",)


@case("C32")
def test_the_start_of_a_temporary_child_is_not_kept(sim):
    """Once it is up, nothing of the tree holds what it was started with, unlike those of others."""
    sim.start(dynamic())
    refs = {}
    for restart in ("temporary", "transient"):
        heavy = Heavy((Life(),))
        refs[restart] = weakref.ref(heavy)
        spec = ChildSpec(id=restart, start=heavy, restart=restart)
        assert sim.ask_for("start_child", spec) == "ok"
    del heavy, spec
    sim.log.clear()
    sim.call("start_child", child("another"))
    gc.collect()

    assert refs["temporary"]() is None
    assert refs["transient"]() is not None


@case("C32", "X07")
def test_a_temporary_child_whose_start_is_gone_can_not_rest(sim):
    """What could not be woken is not put to rest, and its caller gets an error."""
    sim.start(dynamic())
    sim.ask_for("start_child", child("a", restart="temporary"))
    answer = sim.answer(sim.call("hibernate_child", "a", stop=Stop()))

    assert str(answer.outcome) == "error"
