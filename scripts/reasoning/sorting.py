"""Sorting with a graph of thoughts, as in Besta et al. 2023: the counts of operations, and errors.

A list of digits is split, each part sorted five times, the best of each kept, parts merged ten
times, and the best one refined. Counts are those of the paper's own program for 32 and for 64
numbers. The model swaps a pair of neighbours at a known rate.
"""

import re
from collections import Counter
from itertools import chain, pairwise
from random import Random
from typing import Final

import msgspec

from cmdc_runtime import reasoning
from cmdc_runtime.extensions.reasoning import Branch
from cmdc_runtime.reasoning.strategies import AnyOperation, Proposals

SORTS: Final = 5
MERGES: Final = 10
CALLS: Final = {32: 1 + 2 * 5 + 10 + 10, 64: 1 + 4 * 5 + 2 * (10 + 5) + 10 + 10}
"""Calls of a model in the paper's graphs: split, sort, merge and improve, improve at the end."""
_LIST: Final = re.compile(r"\[[\d, ]*\]")


def graph(parts: int) -> reasoning.GraphOfThoughts:
    """Return the graph for 2 parts (32 numbers) or 4 (64)."""
    operations: list[AnyOperation] = [reasoning.Split(parts=parts)]
    best = []
    for part in range(parts):
        operations.append(reasoning.Select(part=part, inputs=(0,)))
        operations += [reasoning.Generate(k=SORTS), reasoning.Score(), reasoning.KeepBest()]
        best.append(len(operations) - 1)
    while len(best) > 1:
        pairs = [tuple(best[place : place + 2]) for place in range(0, len(best), 2)]
        refined = MERGES if len(pairs) == 1 else SORTS
        best = []
        for pair in pairs:
            operations.append(reasoning.Aggregate(k=MERGES, inputs=pair))
            operations += [reasoning.Score(), reasoning.KeepBest()]
            operations += [reasoning.Refine(k=refined), reasoning.Score(), reasoning.KeepBest()]
            best.append(len(operations) - 1)
    return reasoning.GraphOfThoughts(operations=tuple(operations), score=quality)


def question(size: int, seed: int) -> str:
    """Return a list to sort."""
    chance = Random(seed)  # noqa: S311 - no secret
    return f"Sort this list: {[chance.randint(0, 9) for _ in range(size)]}"


def errors(content: str, task: str) -> int:
    """Count what is wrong, as the paper does: neighbours out of order, and digits too many or few.

    ``task`` has the lists that are to be sorted together.
    """
    found = _lists(content)
    given = Counter(chain.from_iterable(_lists(task)))
    made = found[-1] if found else []
    disorder = sum(a > b for a, b in pairwise(made))
    counts = Counter(made)
    return disorder + sum(abs(given[digit] - counts[digit]) for digit in range(10))


def quality(content: str, task: str) -> float:
    """Score a result: the fewer errors the better."""
    return -float(errors(content, task))


class Sorter:
    """The model: splits without error; else swaps each pair of unequal neighbours at its rate."""

    def __init__(self, error_rate: float, seed: int) -> None:
        """Take how often a pair is swapped."""
        self._error_rate = error_rate
        self._seed = seed
        self.calls = 0

    def __call__(self, branch: Branch) -> str:
        """Return a list, or the parts of one."""
        self.calls += 1
        lists = _lists(branch.prompt)
        if branch.result is Proposals:
            parts = int(re.findall(r"into (\d+) parts", branch.prompt)[-1])
            size = len(lists[0]) // parts
            cut = [lists[0][place * size : (place + 1) * size] for place in range(parts)]
            return msgspec.json.encode(
                Proposals([f"Sort this part: {one}" for one in cut])
            ).decode()
        is_merge = "Result 2" in branch.prompt
        given = sorted(lists[-1] + lists[-2] if is_merge else lists[-1])
        chance = Random(f"{self._seed} {branch.id} {branch.prompt}")  # noqa: S311 - as above
        for place in range(len(given) - 1):
            if given[place] != given[place + 1] and chance.random() < self._error_rate:
                given[place], given[place + 1] = given[place + 1], given[place]
        return str(given)


def _lists(text: str) -> list[list[int]]:
    return [msgspec.json.decode(found, type=list[int]) for found in _LIST.findall(text)]
