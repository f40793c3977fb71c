"""What a run answers at its end, whatever its strategy says then."""

import pytest

from cmdc_runtime.events import ReasoningDone
from cmdc_runtime.extensions.reasoning import Branch, Continue_
from cmdc_runtime.reasoning import RunLimits
from scripts.reasoning.play import Play
from tests.unit.workers.reasoning.test_run import Scripted, echo

SHORT = RunLimits(max_steps=1)


class Best(Scripted):
    """Says what its best answer is by a function."""

    def best(self, thoughts, state):
        """Answer, or raise."""
        return self.best_(thoughts)


def raising(_thoughts):
    """Raise in two lines."""
    raise ValueError("no\nidea")


@pytest.mark.parametrize(
    ("best", "why"),
    [
        (raising, "ValueError: no idea"),
        (lambda _: {1}, "the best answer: a set is no plain value"),
    ],
    ids=["it raises", "it is no answer"],
)
def test_a_best_that_fails_is_told_and_the_best_thought_is_the_answer(best, why):
    """By the rule of a strategy without one; a run that was paid for had no answer at all."""
    play = Play(echo, SHORT)
    result = play.play(Best([Branch("a"), Branch("b")], Continue_("c"), best=best), "Why?")
    (done,) = [one for one in play.told if isinstance(one, ReasoningDone)]

    assert (result.status, result.answer) == ("max_steps_exceeded", "on b")
    note = f"the strategy's best() failed, so the best thought is the answer: {why}"
    assert result.notes == done.notes == (note,)


def test_a_best_that_fails_where_there_is_no_thought_leaves_none():
    """It is told all the same."""
    result = Play(echo, SHORT).play(Best(best=raising), "Why?")

    assert (result.status, result.answer) == ("failed", None)
    assert result.notes == ("the strategy's best() failed: ValueError: no idea",)
