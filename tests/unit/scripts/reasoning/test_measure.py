"""The strategies do what theory says of models of a known error rate; no real model is asked."""

from collections import Counter
from itertools import product

import pytest

from cmdc_runtime.reasoning.strategies import Aggregate, Generate, Refine, Split
from scripts.reasoning import game24, measure, sorting, theory

RUNS = 150


def counted(n, p, wrong):
    """Return how often a vote is right, by going through all that can happen."""
    total = 0.0
    for votes in product(range(wrong + 1), repeat=n):
        chance = 1.0
        for vote in votes:
            chance *= p if vote == 0 else (1 - p) / wrong
        counts = Counter(votes)
        most = max(counts.values())
        winner = next(vote for vote in votes if counts[vote] == most)
        total += chance * (winner == 0)
    return total


@pytest.mark.parametrize(("n", "p", "wrong"), [(1, 0.3, 1), (4, 0.5, 1), (5, 0.4, 2), (6, 0.3, 3)])
def test_the_theory_of_votes(n, p, wrong):
    """It is what counting all outcomes gives."""
    assert theory.majority(n, p, wrong) == pytest.approx(counted(n, p, wrong))


def test_the_theory_of_trees():
    """A tree of one branch is a chain; of one level, it errs when all candidates do."""
    assert theory.tree(0.6, 3, 1, 1) == pytest.approx(theory.chain(0.6, 3))
    assert theory.tree(0.6, 1, 2, 3) == pytest.approx(1 - 0.4**3)
    assert theory.tree(0.6, 2, 1, 2) == pytest.approx((1 - 0.4**2) ** 2)


def test_puzzles_have_a_solution_and_a_wrong_way():
    """So an error is one, whatever the numbers."""
    for question in game24.puzzles(40, 3):
        numbers = game24.left_in(question)
        after = [game24.is_solvable(left) for _, left in game24.moves(numbers)]
        assert game24.is_solvable(numbers)
        assert True in after
        assert False in after


def test_a_solution_makes_24():
    """What is called solved is arithmetic that holds, each number used once."""
    [question] = game24.puzzles(1, 5)
    result = measure.solve(measure.CHAIN, question, game24.Proposer(0.0, 1, 3), 1)
    numbers = [float(one) for one in game24.left_in(question)]
    for line in result.answer.splitlines()[:3]:
        step, _, left = line.partition(", left: ")
        a, sign, b = step.split()
        for used in (eval(a), eval(b)):
            numbers.remove(next(one for one in numbers if one == pytest.approx(used)))
        numbers.append(eval(f"({a}) {sign} ({b})"))
        assert sorted(numbers) == pytest.approx(sorted(eval(one) for one in left.split()))

    assert numbers == [pytest.approx(24)]


@pytest.mark.slow
@pytest.mark.parametrize("error_rate", [0.3, 0.5])
def test_game_of_24(error_rate):
    """The tree beats chain and vote by what theory predicts, each within its interval."""
    chain, vote, tree = found = measure.game_of_24(error_rate, RUNS, 7)

    assert [one.strategy for one in found] == [
        "chain_of_thought", "self_consistency", "tree_of_thoughts",
    ]  # fmt: skip
    assert all(one.is_as_predicted for one in found), found
    for other in (chain, vote):
        margin = tree.predicted - other.predicted
        around = theory.interval(tree.predicted, RUNS) + theory.interval(other.predicted, RUNS)
        assert margin > around > abs(tree.share - other.share - margin)


@pytest.mark.slow
@pytest.mark.parametrize(("error_rate", "samples"), [(0.3, 5), (0.45, 9), (0.5, 4), (0.6, 9)])
def test_a_vote_is_binomial(error_rate, samples):
    """As often right as the binomial distribution has it, below and above one half."""
    found = measure.arithmetic(error_rate, 300, 11, samples)

    assert found.is_as_predicted, found


@pytest.mark.parametrize(("size", "parts"), [(32, 2), (64, 4)])
def test_sorting_takes_as_many_calls_as_the_paper(size, parts):
    """Besta et al.'s graphs for 32 and 64 numbers: splits, sorts, merges, improvements."""
    graph, model = sorting.graph(parts), sorting.Sorter(0.05, 1)
    result = measure.solve(graph, sorting.question(size, 2), model, 3)
    kinds = Counter(type(one) for one in graph.operations)

    assert result.status == "done", result.reason
    assert model.calls == result.branches == sorting.CALLS[size]
    assert kinds[Split] == 1
    assert kinds[Generate] == parts
    assert kinds[Aggregate] == kinds[Refine] == parts - 1


def test_sorting_keeps_the_best():
    """A graph makes fewer errors than one call of the same model, and no error makes none."""
    question = sorting.question(32, 2)
    results = [
        measure.solve(sorting.graph(2), question, sorting.Sorter(rate, 1), 1) for rate in (0.0, 0.3)
    ]
    once = measure.solve(measure.CHAIN, question, sorting.Sorter(0.3, 1), 1)
    found = [sorting.errors(one.answer, question) for one in (*results, once)]

    assert found[0] == 0
    assert found[1] < found[2]
