"""Game of 24: puzzles with a known solution, and a model that errs at a known rate.

A puzzle is four numbers that make 24 with ``+ - * /``, each used once. A step takes two of the
numbers that are left and puts what they make in their place. The model knows which steps can still
lead to 24, takes one of them with probability ``1 - error_rate``, and else one that cannot; so no
word of a prompt matters but the numbers, and what is measured is the search.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations
from random import Random
from typing import Final

from cmdc_runtime.extensions.reasoning import Branch

TARGET: Final = 24
STEPS: Final = 3
NUMBERS_MAX: Final = 13
_LEFT: Final = re.compile(r"left: ([-\d/ ]+)")
_TASK: Final = re.compile(r"make 24 of ([\d ]+)")
Numbers = tuple[Fraction, ...]
Move = tuple[str, Numbers]


def puzzles(count: int, seed: int) -> list[str]:
    """Return questions that have a solution and, at each step, a wrong way to take it."""
    chance = Random(seed)  # noqa: S311 - no secret
    found: list[str] = []
    while len(found) < count:
        drawn = sorted(chance.randint(1, NUMBERS_MAX) for _ in range(STEPS + 1))
        numbers = tuple(map(Fraction, drawn))
        if is_solvable(numbers):
            found.append(f"Use each number once, and make 24 of {_written(numbers)}")
    return found


@cache
def is_solvable(numbers: Numbers) -> bool:
    """Say whether the numbers can make 24."""
    if len(numbers) == 1:
        return numbers[0] == TARGET
    return any(is_solvable(after) for _, after in moves(numbers))


@cache
def moves(numbers: Numbers) -> tuple[Move, ...]:
    """Return each step that can be taken, as text, with the numbers that are left, sorted."""
    found: dict[Numbers, str] = {}
    for first, second in combinations(range(len(numbers)), 2):
        rest = [one for place, one in enumerate(numbers) if place not in (first, second)]
        for text, made in _made(numbers[first], numbers[second]):
            found.setdefault(tuple(sorted([*rest, made])), text)
    return tuple((text, after) for after, text in found.items())


@cache
def _judged(numbers: Numbers) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """Return the steps behind which 24 can still be made, and the others."""
    right = tuple(move for move in moves(numbers) if is_solvable(move[1]))
    return right, tuple(move for move in moves(numbers) if not is_solvable(move[1]))


def _made(a: Fraction, b: Fraction) -> Iterator[tuple[str, Fraction]]:
    yield f"{a} + {b}", a + b
    yield f"{a} * {b}", a * b
    for one, other in ((a, b), (b, a)):
        yield f"{one} - {other}", one - other
        if other:
            yield f"{one} / {other}", one / other


class Proposer:
    """The model: takes the next step, or all that are left where the prompt asks for an answer.

    What it draws depends on its seed and the branch alone, so the order of branches is nothing to
    it.
    """

    def __init__(self, error_rate: float, seed: int, steps: int = 1, wrong: int = 0) -> None:
        """Take how often a step is wrong, and how many steps an answer has.

        One that has not made 24 claims one of ``wrong`` other numbers, where there are any.
        """
        self._error_rate = error_rate
        self._seed = seed
        self._steps = steps
        self._wrong = wrong

    def __call__(self, branch: Branch) -> str:
        """Return the steps, each on a line, and the numbers that are left."""
        chance = Random(f"{self._seed} {branch.id} {branch.prompt}")  # noqa: S311 - as above
        numbers = left_in(branch.prompt)
        lines = []
        for _ in range(min(self._steps, len(numbers) - 1)):
            text, numbers = self._step(numbers, chance)
            lines.append(f"{text}, left: {_written(numbers)}")
        answer = _written(numbers)
        if self._wrong and answer != str(TARGET):
            answer = str(TARGET + chance.randint(1, self._wrong))
        return "\n".join([*lines, f"Answer: {answer}"])

    def _step(self, numbers: Numbers, chance: Random) -> tuple[str, Numbers]:
        right, wrong = _judged(numbers)
        is_right = chance.random() >= self._error_rate
        return chance.choice(right if right and (is_right or not wrong) else wrong)


def left_in(text: str) -> Numbers:
    """Return the numbers that are left at the end of a text."""
    found = _LEFT.findall(text) or _TASK.findall(text)
    return tuple(sorted(map(Fraction, found[-1].split())))


def promise(path: str, question: str) -> float:
    """Score a path as a perfect judge would: 1 where it can still make 24, else 0."""
    return float(is_solvable(left_in(f"{question}\n{path}")))


def is_solved(answer: object) -> bool:
    """Say whether an answer has made 24."""
    return isinstance(answer, str) and answer.split()[-1:] == [str(TARGET)]


def _written(numbers: Numbers) -> str:
    return " ".join(map(str, numbers))
