"""Every built-in strategy ends within its bounds, whoever answers what, in any order.

The cases are the modules of ``workers.builtin.reasoning``: a new one is tested here by itself, with
its default options and with those of ``MORE``.
"""

import importlib
import pkgutil
from random import Random

import pytest

from cmdc_runtime import reasoning
from cmdc_runtime.packing import BuiltInStrategy, pack_strategy
from cmdc_runtime.reasoning import RunLimits
from cmdc_runtime.reasoning.strategies import Choice, Judgement, Proposals
from scripts.reasoning.play import Answer, Play
from workers.builtin import reasoning as package
from workers.loader import load_strategy

NAMES = sorted(
    module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"
)
LIMITS = RunLimits(max_steps=30)
QUESTION = "What is six times seven?"


def length(text, question):
    """Score a text."""
    return 1 / len(text)


def last_word(text):
    """Return what a text answers."""
    return text.split()[-1]


MORE = {
    "tree, proposed and valued": reasoning.TreeOfThoughts(
        depth=3, breadth=2, candidates=3, generate="propose", scoring="value", votes=2
    ),
    "tree, a beam by a function": reasoning.TreeOfThoughts(
        depth=3, breadth=2, candidates=2, search="beam", score=length
    ),
    "tree, depth-first": reasoning.TreeOfThoughts(
        depth=3, candidates=2, search="dfs", scoring="value", votes=1, threshold=0.4
    ),
    "graph, split and merged": reasoning.GraphOfThoughts(
        operations=[
            reasoning.Split(parts=2),
            reasoning.Select(part=0),
            reasoning.Generate(k=2),
            reasoning.Select(part=1, inputs=[0]),
            reasoning.Generate(k=2),
            reasoning.Aggregate(k=2, inputs=[2, 4]),
            reasoning.Refine(),
            reasoning.Score(votes=2),
            reasoning.KeepBest(),
        ]
    ),
    "samples with weights": reasoning.SelfConsistency(samples=3, score=length, answer=last_word),
    "ladder to the top": reasoning.Adaptive(
        agreement=1.0, sampling=reasoning.SelfConsistency(samples=3)
    ),
}
NEEDS = {"chain": {"templates": ["Think.", "Say it."]}}
"""Options without which there is no such strategy."""
CASES = {**{name: (name, NEEDS[name]) if name in NEEDS else name for name in NAMES}, **MORE}
cases = pytest.mark.parametrize("given", CASES.values(), ids=CASES)

TYPED = {
    Judgement: lambda chance: f'{{"score": {chance.randint(1, 10)}}}',
    Choice: lambda chance: f'{{"best": {chance.randint(1, 3)}}}',
    Proposals: lambda chance: f'{{"items": ["a{chance.random()}", "b", "c"]}}',
    type(None): lambda chance: f"Well.\nAnswer: {chance.choice([41, 42, 42, 43])}",
}


def sound(branch):
    """Answer as one should."""
    chance = Random(f"{branch.id} {branch.prompt}")
    kind = type(None) if branch.result is None else branch.result
    return Answer(TYPED[kind](chance), tokens=10, cost_usd=0.001)


def failing(branch):
    """Crash."""
    return Answer(error="crashed", tokens=5)


def silly(branch):
    """Answer what nobody asked for."""
    return Answer("", tokens=5)


def flaky(branch):
    """Crash now and then."""
    return (
        sound(branch) if Random(branch.prompt + str(branch.id)).random() < 0.6 else failing(branch)
    )


def loaded(given):
    """Return a strategy as a session would have it."""
    return load_strategy(pack_strategy(given, "reasoning_strategy"))


def played(given, model, **more):
    """Return a whole run."""
    play = Play(model, more.pop("limits", LIMITS), **more)
    play.play(loaded(given), QUESTION)
    return play


@pytest.mark.parametrize("name", NAMES)
def test_a_reference_is_the_config(name):
    """It has the strategy's name, and is public."""
    create = importlib.import_module(f"{package.__name__}.{name}").create

    assert issubclass(create.Config, BuiltInStrategy)
    assert create.name == create.Config.short_name == name
    assert getattr(reasoning, create.Config.__name__) is create.Config
    assert create.Config.__name__ in reasoning.__all__


@cases
def test_it_answers(given):
    """With default options within the default bound, and the answer is of its thoughts."""
    limits = RunLimits() if isinstance(given, str) else LIMITS
    result = played(given, sound, limits=limits).result

    assert result.status == "done", result.reason
    texts = {one.content for one in result.thoughts} | {"41", "42", "43"}
    assert result.answer in texts


@cases
@pytest.mark.parametrize("model", [failing, silly, flaky])
def test_it_ends_whatever_models_do(given, model):
    """Done or failed, with a reason, within its steps."""
    result = played(given, model).result

    assert result.status in ("done", "failed")
    assert result.status == "done" or result.reason
    if model is failing:
        assert "crashed" in result.reason or "agree" in result.reason or "sample" in result.reason


@cases
def test_it_keeps_to_budget_and_steps(given):
    """It is cut off with the best it has."""
    for limits in (
        RunLimits(budget_tokens=25),
        RunLimits(budget_usd=0.0025),
        RunLimits(max_steps=1),
    ):
        play = played(given, sound, limits=limits)

        assert play.result.status in ("done", "budget_exceeded", "max_steps_exceeded")
        assert len(play.result.thoughts) == len(play.result.nodes)


@cases
def test_it_is_deterministic(given):
    """Played again from any point it decides the same."""
    whole = played(given, flaky)
    for inputs in range(0, len(whole.inputs) + 1, 3):
        play = played(given, flaky)
        published = [*play.published_before, len(play.published)][inputs]
        run = play.again(loaded(given), QUESTION, inputs, published)
        if play.result is None:
            play.go_on(run)
        assert play.published == whole.published


@cases
def test_who_is_quicker_does_not_matter(given):
    """The answer is the same in any order, where nothing is ended early."""
    answers = {str(played(given, flaky, order=Random(seed)).result.answer) for seed in range(6)}

    assert len(answers) == 1
