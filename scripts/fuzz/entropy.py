"""Where a fuzzed input's choices come from: a seed, or bytes that a coverage-guided engine breeds.

Whoever makes inputs asks only for what stands in ``Entropy``, so both engines drive the same
targets.
"""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Entropy(Protocol):
    """A source of choices; the same source makes the same choices again."""

    def below(self, bound: int) -> int:
        """Return a number from 0 to ``bound - 1``."""

    def blob(self, size: int) -> bytes:
        """Return at most ``size`` bytes."""


class Seeded:
    """Choices by a seed, which names an input for good."""

    def __init__(self, seed: str) -> None:
        """Begin where ``seed`` begins."""
        self._random = random.Random(seed)  # noqa: S311 - an input that can be made again

    def below(self, bound: int) -> int:
        """Return a number from 0 to ``bound - 1``."""
        return int(self._random.random() * bound)

    def blob(self, size: int) -> bytes:
        """Return ``size`` bytes."""
        return self._random.randbytes(size)


class Bred:
    """Choices by bytes: where they are used up, everything is the first of its kind."""

    def __init__(self, data: bytes) -> None:
        """Begin with the first byte."""
        self._data, self._at = data, 0

    def below(self, bound: int) -> int:
        """Return a number from 0 to ``bound - 1``."""
        size = max(1, (bound - 1).bit_length() + 7 >> 3)
        return int.from_bytes(self.blob(size)) % bound

    def blob(self, size: int) -> bytes:
        """Return at most ``size`` bytes."""
        found = self._data[self._at : self._at + size]
        self._at += size
        return found


def pick(entropy: Entropy, choices: Sequence[T]) -> T:
    """Return one of ``choices``."""
    return choices[entropy.below(len(choices))]


def one_in(entropy: Entropy, count: int) -> bool:
    """Say yes once in ``count`` times."""
    return entropy.below(count) == count - 1
