"""Where a text in Markdown stands: in code, behind markup, or in plain words.

A model's answer is read while it streams, so this is a machine that is fed the text piece by piece
and comes out the same however it is cut. It knows fences of backticks and tildes, also in lists and
quotes, code in a line, which ends with its paragraph at the latest, and lines that are indented by
four columns, whatever stands above them. What it takes for code and is none is shown as it is: that
is the lesser mistake.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

_PARTS: Final = re.compile(r"`+|~+|\n|[^`~\n]+")
_PREFIX: Final = re.compile(r"(?:[ \t>]|(?:[-*+]|\d{1,9}[.)])(?=[ \t]|\Z))*(?:\d{1,9})?")
_INDENTED: Final = re.compile(r"^ {4}|[^ ] {5}")
"""Four columns, behind the mark of a list or a quote one more, which is the mark's."""
PREFIX_CHARS_MAX: Final = 64
"""In front of a fence, as in nested lists."""
_FENCE_MIN: Final = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text: what is open there, and what the line has so far."""

    run: str = ""
    """Backticks or tildes that may still become more."""
    fence: str = ""
    """What an open fence began with."""
    span: str = ""
    """What code in a line began with."""
    prefix: str | None = ""
    """The line so far where a fence may still begin behind it, else None."""
    is_opening: bool = False
    """The line is the one that the fence began in."""
    is_closing: bool = False
    """The line ends the fence if nothing more comes in it."""
    is_indented: bool = False
    """The line begins as code does that has no fence."""
    last: str = ""
    """The last character that is no white space."""

    def after(self, text: str) -> "Place":
        """Return the place behind a text."""
        place = self
        for found in _PARTS.finditer(text):
            place = place._behind(found[0])
        return place

    def settled(self) -> "Place":
        """Return the place where a run of backticks or tildes is over."""
        return self._run_over() if self.run else self

    @property
    def is_code(self) -> bool:
        """Whether code stands here; ask a place that is settled."""
        return bool(self.fence or self.span or self.is_indented)

    def _behind(self, part: str) -> "Place":
        if part[0] in "`~":
            if not self.run or self.run[0] == part[0]:
                return replace(self, run=self.run + part)
            return replace(self._run_over(), run=part)
        place = self.settled()
        if part == "\n":
            return _line_over(place)
        words = part.rstrip()
        return replace(
            place,
            prefix=_prefix(place.prefix, part),
            is_closing=place.is_closing and not words,
            is_indented=place.is_indented or _is_indented(place.prefix, part),
            last=words[-1] if words else place.last,
        )

    def _run_over(self) -> "Place":
        run, alone = self.run, self.prefix is not None
        place = replace(self, run="", prefix=None, last=run[-1])
        if self.fence:
            if self.is_opening and run[0] == "`" == self.fence[0]:
                # Backticks behind the opening ones: it was code in a line.
                span = "" if run == self.fence else self.fence
                return replace(place, fence="", span=span, is_opening=False)
            is_end = alone and run[0] == self.fence[0] and len(run) >= len(self.fence)
            return replace(place, is_closing=is_end)
        if self.span:
            return replace(place, span="") if run == self.span else place
        if alone and len(run) >= _FENCE_MIN:
            return replace(place, fence=run, is_opening=True)
        return replace(place, span=run) if run[0] == "`" else place


def _line_over(place: Place) -> Place:
    is_blank = place.prefix is not None and not place.prefix.strip(" \t>")
    begun = replace(place, prefix="", is_opening=False, is_closing=False, is_indented=False)
    if place.fence:
        return replace(begun, fence="") if place.is_closing else begun
    return replace(begun, span="") if is_blank else begun


def _prefix(before: str | None, part: str) -> str | None:
    """Return the line with one part more, None where no fence may begin behind it any more."""
    if before is None or len(before) + len(part) > PREFIX_CHARS_MAX:
        return None
    return before + part if _PREFIX.fullmatch(before + part) else None


def _is_indented(before: str | None, part: str) -> bool:
    """Say whether a line that begins so is code, be it the line's first part or one more of it."""
    if before is None:
        return False
    prefix = _PREFIX.match((before + part)[:PREFIX_CHARS_MAX])
    return prefix is not None and _INDENTED.search(prefix[0].expandtabs(4)) is not None
