"""The light references: their bounds, and that they travel."""

import math

import pytest

from cmdc_runtime import reasoning, tools
from cmdc_runtime.errors import CmdcError, InvalidOptions
from cmdc_runtime.packing import pack, pack_strategy
from workers.loader import LoadError, load_strategy, load_tools


def judge(text, question):
    """Score."""
    return 1.0


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: reasoning.TreeOfThoughts(depth=0), "strategy 'tree_of_thoughts': option 'depth'"),
        (lambda: reasoning.TreeOfThoughts(search="best"), "option 'search'"),
        (lambda: reasoning.SelfConsistency(sample=3), "there is no option 'sample'"),
        (lambda: reasoning.SelfRefine(stop=""), "option 'stop'"),
        (lambda: reasoning.SelfConsistency(score=5), "score: expected a function of a text and"),
        (lambda: reasoning.TreeOfThoughts(score=[len]), "or its 'module:name', got .*judge="),
        (lambda: reasoning.GraphOfThoughts(score="no name"), "score: expected a function of a"),
        (lambda: reasoning.SelfConsistency(answer=5), "answer: expected a function of a text, or"),
        (lambda: reasoning.Adaptive(agreement=2), "option 'agreement'"),
        (lambda: reasoning.StepBack(templates=["a"]), "1 given, but 'step_back' has 2"),
        (lambda: reasoning.GraphOfThoughts(operations=[]), "option 'operations'"),
        (
            lambda: reasoning.GraphOfThoughts(operations=[reasoning.KeepBest(inputs=[0])]),
            "operations\\[0\\] builds on operations\\[0\\], which is not before it",
        ),
    ],
)
def test_bad_options_are_refused_where_they_are_written(make, problem):
    """With the option, and what it may be."""
    with pytest.raises(InvalidOptions, match=problem):
        make()


@pytest.mark.parametrize(
    "given",
    [
        reasoning.TreeOfThoughts(depth=3, score=judge),
        reasoning.GraphOfThoughts(operations=[reasoning.Generate(k=4), reasoning.KeepBest(n=2)]),
        reasoning.Adaptive(sampling=reasoning.SelfConsistency(samples=5, answer=judge)),
        reasoning.PlanAndSolve(templates=["Plan!"]),
    ],
    ids=lambda given: given.short_name,
)
def test_options_arrive(given):
    """Structs and functions within them, too."""
    loaded = load_strategy(pack_strategy(given, "reasoning_strategy"))

    assert loaded.name == given.short_name
    assert repr(loaded.opts).split(" at 0x")[0] == repr(given).split(" at 0x")[0]


@pytest.mark.parametrize(
    ("given", "function_of"),
    [
        (reasoning.TreeOfThoughts(score="math:hypot"), lambda opts: opts.score),
        (("graph_of_thoughts", {"score": "math:hypot"}), lambda opts: opts.score),
        ((reasoning.SelfConsistency, {"score": "math:hypot"}), lambda opts: opts.score),
        (reasoning.SelfConsistency(answer="math:hypot"), lambda opts: opts.answer),
        (
            reasoning.Adaptive(sampling=reasoning.SelfConsistency(answer="math:hypot")),
            lambda opts: opts.sampling.answer,
        ),
    ],
    ids=["tree", "graph", "sampling", "answer", "within"],
)
def test_a_function_by_its_name_is_looked_up_when_the_strategy_is_made(given, function_of):
    """So it can be called, and one that is not there costs nothing."""
    loaded = load_strategy(pack_strategy(given, "reasoning_strategy"))

    assert function_of(loaded.opts) is math.hypot


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nomod:f", "No module named 'nomod'"),
        ("math:nothing", "no attribute 'nothing'"),
        ("math:pi", "score must be a function, got float"),
    ],
)
def test_a_name_without_a_function_is_refused_when_the_strategy_is_made(name, problem):
    """Before anything is asked."""
    packed = pack_strategy(reasoning.TreeOfThoughts(score=name), "reasoning_strategy")

    with pytest.raises(LoadError, match=problem):
        load_strategy(packed)


@pytest.mark.parametrize(
    ("given", "revisions"),
    [
        ("cmdc_runtime.reasoning:SelfRefine", 3),
        ("cmdc_runtime.reasoning.strategies:SelfRefine", 3),
        (("cmdc_runtime.reasoning:SelfRefine", {"revisions": 1}), 1),
    ],
)
def test_a_reference_may_be_given_by_its_module_and_class(given, revisions):
    """As any strategy may."""
    loaded = load_strategy(pack_strategy(given, "reasoning_strategy"))

    assert (loaded.name, loaded.opts.revisions) == ("self_refine", revisions)


SAMPLING = (reasoning.SelfConsistency(samples=3), reasoning.SelfConsistency(samples=9))


def test_variants_of_one_strategy_travel_by_their_names():
    """Each with its own options."""
    variants = dict(zip(("quick", "deep"), SAMPLING, strict=True))
    packed = pack(tools.Reason(strategies=variants), "tools[0]")
    (tool,) = load_tools([packed])

    assert tool.parameters["properties"]["strategy"]["enum"] == ["quick", "deep"]
    assert tool.parameters["properties"]["strategy"]["default"] == "quick"


def test_all_wrong_options_of_the_tool_are_named():
    """Of the run and of each strategy, in one error."""
    wrong = {"max_steps": 0, "budget_usd": -1, "name": "?"}
    strategies = ["nosuch", ("self_refine", {"stop": "", "revisions": -1})]
    with pytest.raises(CmdcError) as caught:
        pack(tools.Reason(strategies=strategies, **wrong), "tools[0]")

    for name in (*wrong, "nosuch", "stop", "revisions"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("strategies", "problem"),
    [
        (list(SAMPLING), "2 are named 'self_consistency': give them as a dict"),
        (["step_back", reasoning.StepBack()], "2 are named 'step_back'"),
        ({"Quick!": "step_back"}, "strategies"),
        ({}, "strategies"),
        ({"quick": "nosuch"}, r"strategies\['quick'\]: there is no built-in strategy 'nosuch'"),
    ],
)
def test_names_that_nobody_can_choose_by_are_refused(strategies, problem):
    """Before a session starts."""
    with pytest.raises(CmdcError, match=problem):
        pack(tools.Reason(strategies=strategies), "tools[0]")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cmdc_runtime.reasoning:SelfRefin", "SelfRefine"),
        ("SelfRefine", "self_refine"),
        ("self-refine", "self_refine"),
        ("chain_of_tough", "chain_of_thought"),
        ("refine", "self_refine"),
    ],
)
def test_the_nearest_name_is_offered(name, meant):
    """However it was meant to be given."""
    with pytest.raises(InvalidOptions, match=f"did you mean {meant}\\?"):
        pack_strategy(name, "reasoning_strategy")


def test_what_is_nothing_by_itself_is_not_offered():
    """A chain of one's own has texts of one's own, and no other name is like it."""
    with pytest.raises(InvalidOptions) as caught:
        pack_strategy("chains", "reasoning_strategy")

    assert " chain," not in str(caught.value)
    assert "did you mean chain?" not in str(caught.value)


def test_an_unknown_name_is_reported():
    """With those that there are."""
    with pytest.raises(Exception, match="no built-in strategy 'tree', only adaptive, "):
        load_strategy(pack_strategy("tree", "reasoning_strategy"))
