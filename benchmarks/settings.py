"""How much one run measures: set by flags or variables, the same for every subject.

A short run finds mistakes in the benchmark, a long one says something about the program.
"""

from dataclasses import dataclass
from typing import Final

REPEATS: Final = 30
"""Samples of a quick operation; a slow one takes ``fewer`` or ``rounds``."""
CROWDS: Final = (10, 100)
CROWD_BIG: Final = 1000
"""Live sessions of the growth curves; the big crowd takes minutes and some GiB, so it is asked
for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What every benchmark is given."""

    repeats: int = REPEATS
    crowds: tuple[int, ...] = CROWDS

    @property
    def fewer(self) -> int:
        """How often something is repeated that takes a second."""
        return max(2, self.repeats // 3)

    @property
    def rounds(self) -> int:
        """How often something is repeated that takes some seconds."""
        return max(2, self.repeats // 6)
