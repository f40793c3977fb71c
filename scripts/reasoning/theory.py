"""What probability says of the strategies, for models of a known error rate: exact, no sampling."""

from collections.abc import Iterator
from itertools import combinations_with_replacement
from math import comb, factorial, prod, sqrt


def binomial(n: int, k: int, p: float) -> float:
    """Return the probability of ``k`` hits in ``n`` draws."""
    return comb(n, k) * p**k * (1 - p) ** (n - k)


def chain(p: float, depth: int) -> float:
    """Return how often a chain is right whose steps are right with probability ``p``."""
    return float(p**depth)


def majority(n: int, p: float, wrong: int = 1) -> float:
    """Return how often a vote of ``n`` is right, each voter with probability ``p``.

    Who is wrong gives one of ``wrong`` answers, each as likely. Of answers with equally many votes
    the one that was given first wins, which is each of them as often.
    """
    return sum(
        binomial(n, right, p) * share * probability
        for right in range(1, n + 1)
        for share, probability in _wins(n - right, wrong, right)
    )


def _wins(voters: int, kinds: int, right: int) -> Iterator[tuple[float, float]]:
    """Yield the right answer's part in the win, with its probability, for each way to be wrong."""
    for counts in _partitions(voters, kinds):
        if max(counts) <= right:
            ties = counts.count(right)
            yield 1 / (1 + ties), _multinomial(counts)


def _partitions(voters: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """Yield how many of the voters chose each kind, in every way."""
    for bars in combinations_with_replacement(range(voters + 1), kinds - 1):
        edges = (0, *bars, voters)
        yield tuple(edges[place + 1] - edges[place] for place in range(kinds))


def _multinomial(counts: tuple[int, ...]) -> float:
    ways = factorial(sum(counts)) / prod(map(factorial, counts))
    return float(ways / len(counts) ** sum(counts))


def tree(p: float, depth: int, breadth: int, candidates: int) -> float:
    """Return how often a breadth-first search with a perfect judge finds a way to the end.

    A step is right with probability ``p`` where the path before it is right, and never elsewhere.
    So the right ones among those that are kept are a Markov chain: of ``c`` kept, ``c *
    candidates`` are drawn, and up to ``breadth`` of those that are right are kept.
    """
    kept = {1: 1.0}
    for _ in range(depth):
        following: dict[int, float] = {}
        for count, probability in kept.items():
            drawn = count * candidates
            for right in range(drawn + 1):
                left = min(right, breadth)
                chance = probability * binomial(drawn, right, p)
                following[left] = following.get(left, 0.0) + chance
        kept = following
    return 1 - kept.get(0, 0.0)


def interval(p: float, n: int, z: float = 3.29) -> float:
    """Return how far a share of ``n`` may be from ``p``; once in 1,000 it is further."""
    return z * sqrt(p * (1 - p) / n)
