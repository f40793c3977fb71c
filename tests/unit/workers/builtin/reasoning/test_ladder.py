"""Chains, samples, refinements and the ladder of them: what is asked, and when they stop."""

import pytest

from cmdc_runtime import reasoning
from cmdc_runtime.packing import pack_strategy
from cmdc_runtime.reasoning import RunLimits
from cmdc_runtime.reasoning.strategies import PHASES
from scripts.reasoning.play import Answer, Play
from workers.loader import load_strategy


def played(given, model, **more):
    """Return a whole run."""
    play = Play(model, **more)
    play.play(load_strategy(pack_strategy(given, "")), "Why?")
    return play


def prompts(play):
    """Return what was asked."""
    return [one.branch.prompt for one in play.started.values()]


def saying(*answers):
    """Return a model that answers one after the other."""
    left = iter(answers)
    return lambda _: next(left)


@pytest.mark.parametrize("name", ["chain_of_thought", "plan_and_solve"])
def test_a_chain_of_one_phase(name):
    """The question with the text that the Reasoning plugin says, too."""
    play = played(name, saying("Because."))

    assert prompts(play) == [f"Why?\n\n{PHASES[name][0]}"]
    assert play.result.answer == "Because."


def test_a_step_back_builds_on_its_answer():
    """The second branch reads what the first one wrote, and goes on from it."""
    play = played(reasoning.StepBack(templates=["Back!", "Forth!"]), saying("In general.", "So."))

    assert prompts(play) == ["Why?\n\nBack!", "Why?\n\nIn general.\n\nForth!"]
    assert play.started["b2"].branch.parent_id == "b1"
    assert play.result.answer == "So."


def test_samples_end_when_they_have_decided():
    """Three of five that agree are enough; what was not begun never is."""
    vote = reasoning.SelfConsistency(samples=5)
    answers = [f"Answer: {one}" for one in (1, 2, 1, 1, 3)]
    play = played(vote, saying(*answers), limits=RunLimits(max_parallel=1))

    assert play.result.answer == "1"
    assert len(play.started) == 4
    assert (play.result.pruned, play.result.branches) == (1, 5)


def test_samples_may_weigh():
    """All are waited for, and one good one outweighs two poor ones."""
    vote = reasoning.SelfConsistency(samples=3, score=lambda text, _: float(text.split()[0]))
    play = played(vote, saying("0.2 Answer: a", "0.2 Answer: a", "0.9 Answer: b"))

    assert play.result.answer == "b"
    assert [one.score for one in play.result.thoughts] == [0.2, 0.2, 0.9]


def test_refining_stops_when_there_is_nothing_left():
    """Each better draft is a revision, and reads all that was said before."""
    play = played("self_refine", saying("one", "too short", "two", "nothing to improve."))
    asked = prompts(play)

    assert play.result.answer == "two"
    assert (play.result.revisions, len(asked)) == (1, 4)
    assert "Answer:\none" in asked[1]
    assert "NOTHING TO IMPROVE" in asked[1]
    assert "Answer 1:\none\n\nFeedback on it:\ntoo short" in asked[2]
    assert asked[2].startswith(asked[0])


def test_refining_has_an_end():
    """After the last revision there is no feedback; a failure leaves the latest draft."""
    endless = played(reasoning.SelfRefine(revisions=2), lambda branch: f"text {branch.id}")
    broken = played("self_refine", saying("one", Answer(error="crashed")))
    bounded = played(
        "self_refine", lambda branch: f"text {branch.id}", limits=RunLimits(max_revisions=1)
    )

    assert [one.id for one in endless.result.thoughts] == ["b1", "b2", "b1.r1", "b3", "b1.r2"]
    assert endless.result.answer == "text b1.r2"
    assert broken.result.answer == "one"
    assert (bounded.result.status, bounded.result.answer) == ("max_steps_exceeded", "text b1.r1")


LADDER = reasoning.Adaptive(
    sampling=reasoning.SelfConsistency(samples=5),
    tree=reasoning.TreeOfThoughts(depth=1, candidates=2, score=lambda path, _: float(len(path))),
)


def test_a_ladder_is_climbed_as_far_as_it_must_be():
    """Two that agree are enough; else five samples; else the tree."""
    agreed = played(LADDER, saying("Answer: 1", "Answer: 1"))
    sampled = played(LADDER, saying(*(f"Answer: {one}" for one in (1, 2, 1, 1, 3))))
    climbed = played(LADDER, saying(*(f"Answer: {one}" for one in (1, 2, 3, 4, 5)), "ab", "abc"))

    assert [one.result.answer for one in (agreed, sampled, climbed)] == ["1", "1", "abc"]
    assert [len(one.started) for one in (agreed, sampled, climbed)] == [2, 5, 7]
    assert climbed.result.best_score == 3
    assert [one.content for one in climbed.result.thoughts if one.id[0] == "t"] == [
        "chain: 2 answers agree to 50%", "self_consistency: 5 answers agree to 20%",
    ]  # fmt: skip


def test_a_ladder_ends_where_the_budget_does():
    """A stage that costs more than is left, at what branches took so far, is not begun."""

    def model(branch):
        return Answer(f"Answer: {branch.id}", tokens=10)

    found = [
        played(LADDER, model, limits=RunLimits(budget_tokens=tokens, max_parallel=1))
        for tokens in (45, 55, 1000)
    ]

    assert [len(one.started) for one in found] == [4, 5, 7]
    assert {one.result.status for one in found} == {"done"}
