"""Children whose own end ends their supervisor."""

import pytest

from cmdc_runtime.errors import InvalidOptions
from supervisor.core.tree.specs import spec_problems
from tests.conformance.script import (
    Life,
    below,
    case,
    child,
    dynamic,
    kept,
    one_for_all,
    one_for_one,
)


def vital(name, *lives, restart="transient", **more):
    """Return a significant child."""
    return child(name, *lives, restart=restart, significant=True, **more)


@case("C52")
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_any_significant_ends_with_the_first(stage, strategy):
    """The first significant child that ends by itself ends the siblings in reverse."""
    spec = kept(
        strategy, child("a"), vital("b"), vital("c"), child("d"), auto_shutdown="any_significant"
    )
    stage.start(spec)
    stage.crash("b", "normal")
    stage.wait(stage.has_ended, "the end")

    assert stage.noted("exit") == ["b1", "d1", "c1", "a1"]
    assert stage.tree.end.ending == "normal"
    assert "significant child b ended" in str(stage.tree.end.reason)


@case("C53")
def test_all_significant_ends_with_the_last(stage):
    """While one significant child lives, or is restarted, the supervisor goes on."""
    children = vital("a"), vital("b", restart="temporary"), child("c"), vital("d")
    stage.start(one_for_one(*children, auto_shutdown="all_significant"))
    stage.crash("a", "normal")
    stage.crash("d", "kill")
    stage.crash("b", "kill")
    stage.until_up("d2")
    lived = not stage.has_ended()
    stage.crash("d", "shutdown")
    stage.wait(stage.has_ended, "the end")

    assert lived
    assert stage.noted("exit")[-2:] == ["d2", "c1"]


@case("C54")
def test_a_significant_child_that_is_made_to_end_ends_nothing(stage):
    """Being terminated, and being ended with a group, is no end of one's own."""
    children = child("a"), vital("b"), vital("c")
    stage.start(one_for_all(*children, auto_shutdown="any_significant"))
    stage.crash("a", "kill")
    stage.until_up("a2", "b2", "c2")
    outcome = stage.ask_for("terminate_child", "b")

    assert outcome == "ok"
    assert stage.states() == {"a": "up", "b": "down", "c": "up"}


@case("C55")
def test_a_crash_of_a_transient_child_ends_nothing(stage):
    """A significant transient child that crashes is restarted; its clean end counts."""
    stage.start(one_for_one(vital("a"), auto_shutdown="any_significant"))
    stage.crash("a", "kill")
    stage.until_up("a2")
    lived = not stage.has_ended()
    stage.crash("a", "normal")
    stage.wait(stage.has_ended, "the end")

    assert lived


@case("C55")
@pytest.mark.parametrize("how", ["normal", "shutdown", "exception", "kill"])
def test_any_end_of_a_temporary_child_counts(stage, how):
    """A significant temporary child ends its supervisor however it ended."""
    spec = one_for_one(vital("a", restart="temporary"), auto_shutdown="any_significant")
    stage.start(spec)
    stage.crash("a", how)
    stage.wait(stage.has_ended, "the end")

    assert stage.noted("launch") == ["a1"]


@case("C56")
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            one_for_one(vital("a", restart="permanent"), auto_shutdown="any_significant"),
            "child 'a': significant: a permanent child ends nothing, make it transient",
        ),
        (one_for_one(vital("a")), "child 'a': significant: its supervisor has auto_shutdown never"),
        (
            dynamic(auto_shutdown="any_significant"),
            "auto_shutdown: a dynamic supervisor has none, got any_significant",
        ),
    ],
)
def test_significance_that_can_not_work_is_refused(spec, problem):
    """What could never have the effect that somebody wants of it is an error."""
    assert spec_problems(spec) == [problem]


@case("C56")
def test_significance_is_checked_at_run_time_too(sim):
    """A child that is added below a supervisor that never ends by itself can't be significant."""
    sim.start(dynamic())
    with pytest.raises(InvalidOptions, match="its supervisor has auto_shutdown never"):
        sim.call("start_child", vital("a"))

    assert sim.states() == {}


@case("C57")
def test_the_end_passes_on_where_it_is_significant(stage):
    """An inner supervisor that ended so ends the outer one, if it is significant there."""
    inner = one_for_one(vital("x"), child("y"), auto_shutdown="all_significant")
    passing = below("inner", inner, restart="transient", significant=True)
    stage.start(one_for_one(child("a"), passing, auto_shutdown="any_significant"))
    stage.crash("x", "normal", path=("inner",))
    stage.wait(stage.has_ended, "the end")

    assert stage.story("exit", "sup_end") == [
        *("exit inner/x1", "exit inner/y1", "sup_end inner", "exit a1", "sup_end "),
    ]


@case("C57")
def test_the_end_stays_where_it_is_not_significant(stage):
    """An outer supervisor that nothing is significant to goes on without the inner one."""
    inner = one_for_one(vital("x"), auto_shutdown="any_significant")
    stage.start(one_for_one(child("a"), below("inner", inner, restart="transient")))
    stage.crash("x", "normal", path=("inner",))
    stage.wait(lambda: stage.states()["inner"] == "down", "the inner end")

    assert stage.states() == {"a": "up", "inner": "down"}


@case("C52")
@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
def test_an_end_during_the_start_of_siblings_counts_later(sim, mode):
    """A significant child that ends while the next one starts is judged when all are up."""
    inner = below("inner", one_for_one(child("b", Life(start_s=5.0))))
    sim.open(one_for_one(vital("a"), inner, auto_shutdown=mode))
    sim.until_up("a1")
    sim.crash("a", "normal")
    went_on = not sim.has_ended()
    sim.wait(sim.has_ended, "the end")

    assert went_on
    assert sim.noted("up") == ["a1", "inner/b1"]
    assert sim.when("exit", "inner/b1") == pytest.approx(5.0)
