"""The contract of strategies: their forms, their options, and what they report."""

import sys

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.admission import as_strategy
from cmdc_runtime.extensions.reasoning import (
    Branch,
    Continue_,
    Done,
    Failed,
    Notes,
    ReasoningContext,
    ReasoningStrategy,
    Revise,
    Thought,
    drained,
    parted,
)
from cmdc_runtime.packing import Packed, pack_strategy
from cmdc_runtime.plugins import CostGuard

CONTEXT = ReasoningContext(question="Why?")
LOST = {"error": "lost"}


class Asker(ReasoningStrategy):
    """Asks once."""

    class Config(msgspec.Struct, frozen=True):
        """Options."""

        times: int = 1

    def step(self, state, context):
        """Ask."""
        return [Branch(context.question)] * self.opts.times


class Free(ReasoningStrategy):
    """Takes any options."""

    name = "free-1"

    def step(self, state, context):
        """Be done."""
        return Done(self.opts)


class Late(Asker):
    """Would wait, which no strategy may."""

    async def aggregate(self, thoughts, state):
        """Wait."""


class Nameless(Asker):
    """Cannot be named."""

    name = "not a name"


@pytest.fixture
def importable(monkeypatch):
    """Return the name under which this module can be imported."""
    monkeypatch.setitem(sys.modules, "my_strategies", sys.modules[__name__])
    return "my_strategies"


@pytest.mark.parametrize("name", ["Branch", "Continue_", "Done", "Failed", "Revise", "Thought"])
def test_the_contract_is_public(name):
    """An application needs no other import."""
    assert getattr(cmdc, name) is globals()[name]
    assert cmdc.ReasoningStrategy is ReasoningStrategy


def test_every_form_of_a_strategy(importable):
    """A class, an instance, a name, each with options where it may have some."""
    found = [
        as_strategy(Asker),
        as_strategy(Asker(times=2)),
        as_strategy((Asker, {"times": 3})),
        as_strategy(f"{importable}:Asker"),
        as_strategy((f"{importable}:Asker", {"times": 4})),
    ]

    assert [one.name for one in found] == ["asker"] * 5
    assert [one.opts.times for one in found] == [1, 2, 3, 1, 4]


def test_a_strategy_may_take_its_options_as_they_come():
    """Without a Config they are a dict."""
    assert as_strategy((Free, {"x": [1]})).opts == {"x": [1]}


@pytest.mark.parametrize(
    ("thing", "problem"),
    [
        (3, "3 is no strategy: give a cmdc.ReasoningStrategy"),
        (CostGuard(max_tokens=1), "is no strategy"),
        ((Asker, {"tims": 1}), "strategy 'asker': there is no option 'tims', only times"),
        ((Asker, {"times": "x"}), "option 'times'"),
        ((Asker(), {"times": 1}), "is an instance and takes no options"),
        (ReasoningStrategy, "has no method step"),
        (Late, "aggregate must not be async"),
        (Nameless, "name must be"),
        ("nowhere.at_all:It", "nowhere"),
        ("asker", "is no strategy"),
    ],
)
def test_what_is_no_strategy_is_reported(thing, problem):
    """With what is wrong and the way out."""
    with pytest.raises(InvalidOptions, match=problem):
        as_strategy(thing)


def test_strategies_travel():
    """A name stays a name, local code goes by value, and options stand beside a name."""
    named = pack_strategy(("my.lib:Mine", {"depth": 2}), "reasoning_strategy")

    assert named.ref == "my.lib:Mine"
    assert msgspec.msgpack.decode(named.data) == {"depth": 2}
    assert pack_strategy("adaptive", "") == Packed(kind="ref", label="adaptive", ref="adaptive")
    assert pack_strategy(Asker(times=2), "").kind == "value"
    with pytest.raises(InvalidOptions, match="reasoning_strategy: 3 is no strategy"):
        pack_strategy(3, "reasoning_strategy")


@pytest.mark.parametrize(
    "decision",
    [Continue_("x"), Branch("x"), [Branch("x"), Branch("y")], Revise("x"), Done(4), Failed("x")],
    ids=lambda decision: type(decision).__name__,
)
def test_a_decision_may_bring_a_new_state(decision):
    """Without one the state stays."""
    assert parted(decision, "old") == (decision, "old")
    assert parted((decision, "new"), "old") == (decision, "new")


@pytest.mark.parametrize("given", [None, "x", ("x", "y"), (Done(1), 2, 3), (Branch("x"),), 3])
def test_anything_else_is_no_decision(given):
    """It says what there is."""
    with pytest.raises(TypeError, match="is no decision: return Continue_"):
        parted(given, None)


def test_what_is_reported_is_reported_once():
    """Scores and prunings come in their order, and are gone then."""
    strategy = Asker()
    one = Thought("b1", "x", score=1.0)
    strategy.scored([one])
    strategy.prune([one, "b2"], "too long")
    strategy.prune([])

    assert drained(strategy) == Notes([one], [(("b1", "b2"), "too long")])
    assert drained(strategy) == Notes()


@pytest.mark.parametrize(
    ("thoughts", "best"),
    [
        ([], None),
        ([Thought("b1", "a"), Thought("b2", "b"), Thought("b3", "", metadata=LOST)], "b"),
        ([Thought("b1", "a", score=0.5), Thought("b2", "b", score=0.5), Thought("b3", "c")], "a"),
        ([Thought("b1", "a"), Thought("b2", "7", metadata={"role": "judge"})], "a"),
    ],
)
def test_the_answer_of_a_run_that_is_cut_off(thoughts, best):
    """The best score, the first of equals; else the latest that is an answer at all."""
    assert Asker().best(tuple(thoughts), None) == best


def test_a_bare_strategy_says_what_it_lacks():
    """What it was never written to decide fails the run."""
    bare = ReasoningStrategy()

    assert isinstance(bare.step(None, CONTEXT), Failed)
    assert isinstance(bare.aggregate([], None), Failed)
    assert bare.early([], None) is None
