"""Runs strategies on scripted models of a known error rate, and counts how often they are right.

What is measured is the search, never a model: the numbers check the algorithms against theory.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from cmdc_runtime import reasoning
from cmdc_runtime.extensions.reasoning import Branch
from cmdc_runtime.packing import BuiltInStrategy, pack_strategy
from cmdc_runtime.reasoning import ReasoningResult
from scripts.reasoning import game24, theory
from scripts.reasoning.play import Play
from workers.loader import load_strategy

SAMPLES: Final = 9
WRONG: Final = 3
BREADTH: Final = 2
CANDIDATES: Final = 3
RIGHT: Final = "42"
CHAIN: Final = reasoning.ChainOfThought()
VOTE: Final = reasoning.SelfConsistency(samples=SAMPLES)
TREE: Final = reasoning.TreeOfThoughts(
    depth=game24.STEPS, breadth=BREADTH, candidates=CANDIDATES, score=game24.promise
)


@dataclass(frozen=True, slots=True)
class Measured:
    """How often a strategy was right, and how often theory says that it is."""

    strategy: str
    error_rate: float
    runs: int
    right: int
    predicted: float

    @property
    def share(self) -> float:
        """How often it was right."""
        return self.right / self.runs

    @property
    def is_as_predicted(self) -> bool:
        """Whether it is within the interval that 999 of 1,000 such measurements are in."""
        return abs(self.share - self.predicted) <= theory.interval(self.predicted, self.runs)


def solve(
    strategy: BuiltInStrategy, question: str, model: Callable[[Branch], str], seed: int
) -> ReasoningResult:
    """Return a run whose branches arrive by chance."""
    loaded = load_strategy(pack_strategy(strategy, "strategy"))
    order = Random(seed)  # noqa: S311 - no secret
    return Play(model, order=order, run_id=f"r-{seed}").play(loaded, question)


def game_of_24(error_rate: float, runs: int, seed: int) -> list[Measured]:
    """Return what a chain, a vote and a tree make of the same puzzles."""
    p, questions = 1 - error_rate, game24.puzzles(runs, seed)
    whole, depth = theory.chain(p, game24.STEPS), game24.STEPS
    cases = (
        (CHAIN, depth, 0, whole),
        (VOTE, depth, WRONG, theory.majority(SAMPLES, whole, WRONG)),
        (TREE, 1, 0, theory.tree(p, depth, BREADTH, CANDIDATES)),
    )
    found = []
    for strategy, steps, wrong, predicted in cases:
        right = 0
        for place, question in enumerate(questions):
            model = game24.Proposer(error_rate, seed + place, steps, wrong)
            right += game24.is_solved(solve(strategy, question, model, seed + place).answer)
        found.append(Measured(strategy.short_name, error_rate, runs, right, predicted))
    return found


def arithmetic(error_rate: float, runs: int, seed: int, samples: int = SAMPLES) -> Measured:
    """Return what a vote makes of a question that is answered rightly or in one wrong way."""
    strategy = reasoning.SelfConsistency(samples=samples)
    right = 0
    for place in range(seed, seed + runs):

        def model(branch: Branch, place: int = place) -> str:
            chance = Random(f"{place} {branch.id}")  # noqa: S311 - no secret
            return f"Answer: {'41' if chance.random() < error_rate else RIGHT}"

        right += solve(strategy, "What is 6 * 7?", model, place).answer == RIGHT
    predicted = theory.majority(samples, 1 - error_rate)
    return Measured("self_consistency", error_rate, runs, right, predicted)


def table(found: Iterable[Measured]) -> str:
    """Return measurements as lines of comma-separated values, for a plot."""
    lines = ["strategy,error_rate,runs,share,predicted,interval"]
    lines += [
        f"{one.strategy},{one.error_rate},{one.runs},{one.share:.4f},{one.predicted:.4f},"
        f"{theory.interval(one.predicted, one.runs):.4f}"
        for one in found
    ]
    return "\n".join(lines) + "\n"
