"""The options of the output filter."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin
from cmdc_runtime.plugins.streamable import problem_of

PATTERNS_MAX: Final = 200
"""Each is searched for in every piece of text."""
PATTERN_CHARS_MAX: Final = 4096
KEYWORDS_MAX: Final = 1000
KEYWORD_CHARS_MAX: Final = 200
HELD_CHARS_MAX: Final = 1_000_000
"""More than any answer of today's models has."""
MATCH_TIMEOUT_S_MAX: Final = 5.0
"""The session does nothing else meanwhile."""


class OutputFilter(BuiltInPlugin, frozen=True, kw_only=True):
    """Keeps words and patterns out of what the model says and thinks, before anybody sees them.

    Text is shown as it streams; what could still become a match is kept back until that is known.
    Matches that overlap are one. What a tool is called with, and what it answers, is not looked at.
    """

    short_name: ClassVar[str] = "output_filter"
    patterns: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)], ...],
        Meta(max_length=PATTERNS_MAX),
    ] = ()
    """Regular expressions of the ``regex`` library. Each is searched for in the text as it is,
    and as it looks: without invisible characters, and with plain ones for full-width ones."""
    keywords: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=KEYWORD_CHARS_MAX)], ...],
        Meta(max_length=KEYWORDS_MAX),
    ] = ()
    """Words, found inside longer ones too. Case, accents, width, invisible characters, markdown's
    marks, letters that look alike and the kind of white space make no difference."""
    replacement: Annotated[str, Meta(min_length=1, max_length=KEYWORD_CHARS_MAX)] = "[filtered]"
    """Not empty, since what stands around a match would become one word."""
    action: Literal["replace", "abort"] = "replace"
    """"abort" shows nothing from the first match on, and ends the cycle when the answer is
    complete."""
    held_chars_max: Annotated[int, Meta(ge=1, le=HELD_CHARS_MAX)] = 100_000
    """Characters kept back at most; a pattern that wants more ends the cycle."""
    match_timeout: Annotated[float, Meta(gt=0, le=MATCH_TIMEOUT_S_MAX)] = 0.25
    """Seconds of processor time that one search for one pattern may take; more end the cycle."""

    def __post_init__(self) -> None:
        """Check each pattern.

        Raises:
            ValueError: one cannot be used; the message names all such, and why.
        """
        found = ((at, pattern, problem_of(pattern)) for at, pattern in enumerate(self.patterns))
        problems = [f"patterns[{at}] {text!r}: {why}" for at, text, why in found if why]
        if problems:
            raise ValueError("; ".join(problems))
