"""Search over thoughts: what is kept, who wins a vote, and where a search goes on."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.extensions.reasoning import Thought
from cmdc_runtime.reasoning.search import (
    agreement,
    backtrack,
    decided,
    final_answer,
    normalise,
    score,
    score_and_prune,
    select_beam,
    vote,
)

SCORES = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0]), st.floats(-10, 10))
THOUGHTS = st.lists(st.tuples(SCORES, st.booleans()), max_size=12).map(
    lambda rows: [
        Thought(f"b{place}", "x", score=value, metadata={"error": "lost"} if is_lost else {})
        for place, (value, is_lost) in enumerate(rows)
    ]
)
ANSWERS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)


def thoughts(*scores):
    """Return thoughts with these scores."""
    return [Thought(f"b{place}", "x", score=value) for place, value in enumerate(scores, 1)]


def answering(answers):
    """Return thoughts that give these answers."""
    return [Thought(f"b{place}", f"Answer: {text}") for place, text in enumerate(answers, 1)]


def ids(found):
    """Return the ids of thoughts."""
    return [one.id for one in found]


def test_the_best_are_kept_and_the_rest_is_named():
    """The best one first; a tie goes to the earlier branch, and no score ranks last."""
    kept, pruned = select_beam(thoughts(0.1, 0.9, None, 0.9, 0.5), 3)

    assert ids(kept) == ["b2", "b4", "b5"]
    assert ids(pruned) == ["b1", "b3"]
    assert ids(select_beam(thoughts(None, -1.0), 1)[0]) == ["b2"]


@given(THOUGHTS, st.integers(-1, 14))
def test_kept_and_pruned_are_all(given_, width):
    """Each thought is in one of the two, nobody who failed is kept, and nobody better is pruned."""
    kept, pruned = select_beam(given_, width)
    sound = [one for one in given_ if one.error is None]

    assert sorted(ids([*kept, *pruned])) == sorted(ids(given_))
    assert len(kept) == min(max(0, width), len(sound))
    assert all(one.error is None for one in kept)
    worst = min((rank(one) for one in kept), default=math.inf)
    assert all(rank(one) <= worst for one in pruned if one.error is None)


def rank(thought):
    """Return how good a thought is."""
    return -math.inf if thought.score is None else thought.score


def test_scores_come_from_a_function_or_by_id():
    """With details where there are any; what failed is not scored."""
    failed = Thought("b3", "", metadata={"error": "lost"})
    given_ = [Thought("b1", "four"), Thought("b2", "ten"), failed]
    by_id = {"b1": (0.5, {"why": "short"}), "b3": 1.0}

    assert [one.score for one in score(given_, lambda one: len(one.content))] == [4, 3, None]
    assert [one.score for one in score(given_, by_id)] == [0.5, None, None]
    assert score(given_, by_id)[0].score_detail == {"why": "short"}


def test_not_a_number_is_no_score_to_rank_by():
    """Wherever it stands, the others are in their order."""
    given_ = [Thought(f"b{at}", "x", score=one) for at, one in enumerate([2, math.nan, 5, 1])]

    assert [one.score for one in select_beam(given_, 2)[0]] == [5, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, "1", [1], None, 10**400])
def test_a_score_is_a_finite_number(bad):
    """Anything else would make an order of nonsense; None leaves the thought as it is."""
    if bad is None:
        assert score(thoughts(0.5), lambda _: None) == thoughts(0.5)
        return
    with pytest.raises(ValueError, match="b1"):
        score(thoughts(None), lambda _: bad)


@pytest.mark.parametrize("bad", [(0.5, "why"), (0.5, None), (0.5, {}, 1), ("x", {})])
def test_what_is_beside_a_score_is_a_dict(bad):
    """The thought is named."""
    with pytest.raises(ValueError, match="b1"):
        score(thoughts(None), lambda _: bad)


@pytest.mark.parametrize("good", [True, Decimal(1), Fraction(1)])
def test_a_score_is_whatever_is_a_number(good):
    """As a float."""
    assert score(thoughts(None), lambda _: good)[0].score == 1.0


THOUGHT = Thought("b1", "x", score=1.0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: select_beam([THOUGHT], math.nan), "width: expected a whole number, got nan"),
        (lambda: select_beam([THOUGHT], "2"), "width: expected a whole number, got '2'"),
        (lambda: select_beam([THOUGHT], None), "width: expected a whole number, got None"),
        (lambda: select_beam(THOUGHT, 1), "thoughts: expected thoughts, got "),
        (lambda: select_beam(["x"], 1), "thoughts[0]: expected a Thought, got 'x'"),
        (lambda: score([THOUGHT], 3), "scorer: expected a function or a dict, got 3"),
        (lambda: score(None, len), "thoughts: expected thoughts, got None"),
        (lambda: score_and_prune([], {}, 1.5), "width: expected a whole number, got 1.5"),
        (lambda: normalise(None), "answer: expected a text, got None"),
        (lambda: final_answer(3), "text: expected a text, got 3"),
        (lambda: vote([None]), "thoughts[0]: expected a Thought, got None"),
        (lambda: vote([THOUGHT], answer_of=len), "answer: expected a text, got 1"),
        (lambda: decided((), "2"), "remaining: expected a whole number, got '2'"),
        (lambda: decided((), 2, math.nan), "weight_max: nan is not a finite number"),
        (lambda: backtrack(None), "levels: expected a list of lists of thoughts, got None"),
        (lambda: agreement(5), "votes: expected what vote returns, got 5"),
        (lambda: agreement([3]), "votes[0]: expected a Tally, got 3"),
        (lambda: decided(None, 1), "votes: expected what vote returns, got None"),
        (lambda: vote([THOUGHT], key=lambda _: None), "key: expected a text, got None"),
        (lambda: vote(thoughts(math.inf), weighted=True), "the score of 'b1': inf is not a finite"),
        (
            lambda: vote(thoughts(1e308, 1e308), weighted=True),
            "the scores of 'b1', 'b2': their sum",
        ),
        (lambda: backtrack([[3]]), "thoughts[0]: expected a Thought, got 3"),
    ],
)
def test_a_wrong_argument_is_named(wrong, why):
    """With its value."""
    with pytest.raises(ValueError, match=re.escape(why)):
        wrong()


def test_scoring_and_pruning_in_one_step():
    """It is the one behind the other."""
    kept, pruned = score_and_prune(thoughts(None, None), {"b1": 1, "b2": 2}, 1)

    assert ids(kept) == ["b2"]
    assert kept[0].score == 2
    assert [(one.id, one.score) for one in pruned] == [("b1", 1)]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("First this.\nThe answer is 18.", "18."),
        ("Answer: 24", "24"),
        ("**Answer:** 24", "24"),
        ("My answer: 3\nNo.\nanswer = 4", "4"),
        ("I answer as asked.\n\n 7 \n", "7"),
        ("Answer:\n42", "42"),
        ("Answer: \n42\n\nI hope that helps.", "42"),
        ("**Answer:**\n\n42", "42"),
        ("**Answer:** **42**", "42"),
        ("Answer: **", "Answer:"),
        ("", ""),
    ],
)
def test_the_answer_of_a_text(text, answer):
    """It stands behind the last "answer", else in the last line."""
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    "alike",
    [
        ["1000", "1,000", "$1,000.", "1000.0", "1e3", "+1000", "**1000**", "１０００"],  # noqa: RUF001
        ["-5", "-5.0", "-$5", " -5 "],
        ["0", "-0", "0.00"],
        ["0.5", ".5", "$.50", "(.5)", "**.5**", ".5."],
        ["-0.5", "-.5", "\u2212.5", "\u2212$.5"],
        ["-5", "\u22125", "\u20135", "\uff0d5", "\u20115.0"],
        ["10^2", "10²"],
        ["10^-2", "10⁻²"],
        ["1 1/2", "1½", "1 ½"],
        ["1/2", "½"],
        ["h2o", "H₂O"],
        ["yes", "Yes.", ' "YES" ', "*yes*!"],
        ["new york", "New  York"],
    ],
)
def test_answers_that_are_the_same(alike):
    """However they are written."""
    assert {normalise(text) for text in alike} == {alike[0]}


@pytest.mark.parametrize(
    "several",
    [[".5", "5"], ["10²", "102", "10₂", "10"], ["1½", "11/2", "112", "1/2"], ["x", "x²", "x2"]],
)
def test_answers_that_are_others(several):
    """However much alike they look."""
    assert len({normalise(text) for text in several}) == len(several)


@given(st.text("0123456789.,-+½²₂\u2044 $*e\u2212\u2013", max_size=12))
def test_what_is_normal_stays(text):
    """Said once more it is the same."""
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize("text", ["5 6", "1,00", "1e999", "x" * 9000, "-", "1/2", "e5", "..."])
def test_what_is_no_number_is_text(text):
    """It is compared as it is, whatever it looks like."""
    assert normalise(text) == normalise(normalise(text)) != ""


def test_the_majority_wins():
    """A tie goes to the answer that came first; a thought that failed has no vote."""
    lost = Thought("b9", "Answer: c", metadata={"error": "lost"})
    votes = vote([*answering("abbac"), lost, lost])

    assert [(one.answer, one.weight) for one in votes] == [("a", 2), ("b", 2), ("c", 1)]
    assert votes[0].thought_ids == ("b1", "b4")
    assert agreement(votes) == 0.4
    assert agreement(()) == 0


def test_a_vote_may_weigh_its_score():
    """One without a score, or below 0, weighs nothing."""
    given_ = [
        Thought("b1", "a", score=0.4),
        Thought("b2", "a", score=-3),
        Thought("b3", "a"),
        Thought("b4", "b", score=0.5),
    ]

    assert [(one.answer, one.weight) for one in vote(given_, weighted=True)] == [
        ("b", 0.5), ("a", 0.4),
    ]  # fmt: skip


@given(ANSWERS, st.data())
def test_what_is_decided_stays(answers, data):
    """However the rest votes, the winner is the same; a lead that can be made up for is none."""
    seen = data.draw(st.integers(0, len(answers)))
    order = data.draw(st.permutations(range(len(answers))))
    all_ = answering(answers)
    early = vote([all_[place] for place in sorted(order[:seen])])
    if decided(early, len(answers) - seen):
        assert early[0].answer == vote(all_)[0].answer


def test_a_tie_that_is_possible_is_not_decided():
    """Two of three that agree are; two of four are not, since the others may be as many."""
    two = vote(answering("aa"))

    assert decided(two, 1)
    assert not decided(two, 2)
    assert decided(vote(answering("ab")), 0)
    assert not decided((), 3)


def test_the_way_back():
    """The best of the deepest level that has anything left; what failed is not tried."""
    first, second = thoughts(0.1, 0.9), thoughts(None, 0.2, 0.3)
    lost = Thought("b9", "", metadata={"error": "lost"})
    best, left = backtrack([first, second, [lost]])

    assert best.id == "b3"
    assert [ids(level) for level in left] == [["b1", "b2"], ["b1", "b2"]]
    assert backtrack([[], [lost]]) == (None, ())


@given(st.lists(THOUGHTS, max_size=4))
def test_going_back_ends(levels):
    """Each thought is tried once, and then nothing is open."""
    tried, left = [], levels
    while (step := backtrack(left))[0] is not None:
        tried.append(step[0])
        left = step[1]

    assert len(tried) == sum(one.error is None for level in levels for one in level)
