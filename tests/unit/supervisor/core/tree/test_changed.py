"""What a tree takes and refuses: whole trees, other specifications, and one child too many."""

from dataclasses import replace

import pytest

from cmdc_runtime.errors import InvalidOptions
from supervisor.core.tree.messages import StartChild, Stop
from supervisor.core.tree.specs import Flags, SupervisorSpec
from supervisor.core.tree.tree import Tree
from tests.conformance.script import Life, below, child, dynamic, one_for_one
from tests.conformance.sim_stage import SimStage

WRONG = SupervisorSpec(flags=Flags(max_restarts=-1))


def deep(*children):
    """Return a tree with a supervisor below a supervisor; there are others beside each."""
    inner = below("inner", one_for_one(*children))
    return one_for_one(below("outer", one_for_one(child("x"), inner, child("y"))), child("z"))


def test_a_wrong_tree_is_not_made():
    """It says what is wrong."""
    with pytest.raises(InvalidOptions, match="max_restarts"):
        Tree(WRONG)


@pytest.mark.parametrize(
    ("path", "spec", "problem"),
    [
        (("no", "where"), SupervisorSpec(), "there is no supervisor at no/where"),
        ((), WRONG, "max_restarts: expected an int of 0 or more, got -1"),
        ((), dynamic(), "strategy: one_for_one can't become dynamic"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(path, spec, problem):
    """All or nothing."""
    sim = SimStage().start(one_for_one(child("a")))
    with pytest.raises(InvalidOptions) as caught:
        sim.reconfigure(spec, path)

    assert list(caught.value.problems) == [problem]
    assert sim.tree._supervisors[()].flags == Flags()


def test_who_is_about_to_end_takes_no_change():
    """It would be for nothing."""
    sim = SimStage().start(one_for_one(child("a", Life(stop_s=1.0))))
    sim.perform(sim.tree.handle(Stop(), sim.now()))
    with pytest.raises(InvalidOptions, match="there is no supervisor at the root"):
        sim.reconfigure(one_for_one())


@pytest.mark.parametrize("ends", [("outer", "inner"), ("outer",)])
def test_a_change_holds_when_its_supervisor_is_started_again(ends):
    """Or one above it; those beside it are what they were."""
    sim = SimStage().start(deep(child("a")))
    sim.reconfigure(one_for_one(child("a"), child("b")), ("outer", "inner"))
    sim.kill_supervisor(ends)
    sim.settle()

    assert sim.states(("outer", "inner")) == {"a": "up", "b": "up"}
    assert sim.states(("outer",)) == {"x": "up", "inner": "up", "y": "up"}
    assert sim.states() == {"outer": "up", "z": "up"}


def test_a_dynamic_supervisor_has_so_many_children_at_most():
    """One more is refused; who is gone has left its place."""
    sim = SimStage().start(dynamic(max_children=2))
    found = [sim.ask_for("start_child", child(name)) for name in "abc"]
    sim.ask_for("terminate_child", "a")

    assert found == ["ok", "ok", "max_children"]
    assert sim.ask_for("start_child", child("c")) == "ok"


def test_a_wrong_child_is_refused():
    """The supervisor has what it had."""
    sim = SimStage().start(one_for_one())
    for spec in (
        replace(child("a"), restart="never"),
        child("a", restart="transient", significant=True),
    ):
        with pytest.raises(InvalidOptions):
            sim.tree.handle(StartChild((), spec, 1), sim.now())

    assert sim.states() == {}
