"""Moments of the monotonic clock as text, by which a reader knows how long each was under way.

All processes share the clock. A text may come in pieces that begin and end anywhere, and many
moments in one.
"""

import time
from typing import Final

DIGITS: Final = 20
STAMP_CHARS: Final = DIGITS + 1
"""A blank ends it, so that it reads as a word."""


def stamp(moment_ns: int) -> str:
    """Return a moment as text."""
    return f"{moment_ns:0{DIGITS}d} "


class Delays:
    """How long each stamp was under way, in ms."""

    def __init__(self) -> None:
        """Begin with none."""
        self.found_ms: list[float] = []
        self._rest = ""

    def take(self, text: str, now_ns: int | None = None) -> None:
        """Read the next piece of text, which came at ``now_ns`` (None: just now)."""
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        text = self._rest + text
        whole = len(text) - len(text) % STAMP_CHARS
        self._rest = text[whole:]
        self.found_ms += [
            (now_ns - int(text[at : at + DIGITS])) / 1e6 for at in range(0, whole, STAMP_CHARS)
        ]
