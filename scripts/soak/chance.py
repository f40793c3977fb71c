"""Where all chance of a soak comes from: the same words make the same draws, in any process."""

from random import Random
from typing import Final

_BETWEEN: Final = "/"


def dice(*words: object) -> Random:
    """Return a source of draws that depends on ``words`` alone."""
    return Random(_BETWEEN.join(map(str, words)))  # noqa: S311 - to repeat a run, not to hide one
