"""What a run answers at its end, whatever its strategy says then."""

import pytest

from cmdc_runtime.events import ReasoningDone
from cmdc_runtime.extensions.reasoning import Branch, Continue_, Done
from cmdc_runtime.reasoning import RunLimits, limits
from scripts.reasoning.play import Play
from tests.unit.workers.reasoning.test_run import Scripted, echo, played

CUT = "the answer was cut: it is the first "
MAX = limits.PLAIN_BYTES_MAX
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
def test_a_best_that_fails_is_reported_and_the_best_thought_is_the_answer(best, why):
    """By the rule of a strategy without one; a run that was paid for had no answer at all."""
    play = Play(echo, SHORT)
    result = play.play(Best([Branch("a"), Branch("b")], Continue_("c"), best=best), "Why?")
    (done,) = [one for one in play.published if isinstance(one, ReasoningDone)]

    assert (result.status, result.answer) == ("max_steps_exceeded", "on b")
    note = f"the strategy's best() failed, so the best thought is the answer: {why}"
    assert result.notes == done.notes == (note,)


def test_a_best_that_fails_where_there_is_no_thought_leaves_none():
    """It is reported all the same."""
    result = Play(echo, SHORT).play(Best(best=raising), "Why?")

    assert (result.status, result.answer) == ("failed", None)
    assert result.notes == ("the strategy's best() failed: ValueError: no idea",)


@pytest.mark.parametrize(
    ("answer", "kept", "notes"),
    [
        ("x" * MAX, "x" * MAX, ()),
        (
            "x" * 300_000,
            "x" * MAX,
            (f"{CUT}262,144 of 300,000 bytes",),
        ),
        (
            "x" + "é" * 150_000,
            "x" + "é" * (MAX // 2 - 1),
            (f"{CUT}262,143 of 300,001 bytes",),
        ),
        (
            ["x" * 300_000],
            '["' + "x" * (MAX - 2),
            (f"{CUT}262,144 of 300,004 bytes of its JSON",),
        ),
    ],
    ids=["as long as may be", "longer", "of signs of two bytes", "no text"],
)
def test_an_answer_that_is_too_long_is_cut_and_that_is_noted(answer, kept, notes):
    """It was paid for; the run failed, and said nothing of it. A sign is never cut in two."""
    result = played(Branch("a"), Done(answer)).result

    assert (result.status, result.answer, result.notes) == ("done", kept, notes)


def test_so_is_the_best_answer_of_a_run_that_is_cut_off():
    """Of the strategy, and by the rule of all strategies."""
    long = "x" * (MAX + 1)
    by_strategy = Play(echo, SHORT).play(
        Best(Branch("a"), Branch("b"), best=lambda _: long), "Why?"
    )
    by_rule = Play(lambda _: long, SHORT).play(Best(Branch("a"), Branch("b"), best=raising), "Why?")

    assert by_strategy.answer == by_rule.answer == "x" * MAX
    assert [len(by_strategy.notes), len(by_rule.notes)] == [1, 2]
    assert by_rule.notes[1] == by_strategy.notes[0]
