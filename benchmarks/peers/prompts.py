"""Prompts that say how long the answer of a benchmark's model is, and how quickly it comes."""

import re
from typing import Final

MODEL: Final = "gpt-4o"
KEY: Final = "no-key-at-all"
TURNS: Final = 3
"""Prompts that an agent has had answered before its process is killed."""
CHUNKS: Final = 300
"""Of one answer: a page of text."""
_ORDER: Final = re.compile(r"Say (\d+) words, (\d+) ms apart\.")


def prompt_for(words: int, pause_ms: int = 0) -> str:
    """Return a prompt whose answer has so many pieces with so many ms before each."""
    return f"Say {words} words, {pause_ms} ms apart."


def order_in(prompt: str) -> tuple[int, float]:
    """Return the number of pieces and the seconds before each.

    Raises:
        ValueError: the prompt does not say it.
    """
    found = _ORDER.search(prompt)
    if found is None:
        raise ValueError(f"no order in the prompt {prompt!r}")
    return int(found[1]), int(found[2]) / 1e3


SHORT: Final = prompt_for(5)
PAGE: Final = prompt_for(CHUNKS, 2)
"""At 500 pieces a second each comes alone, as a quick model's do."""
SLOW: Final = prompt_for(60, 20)
"""An answer that is interrupted long before its end, which some peers sit out all the same."""
