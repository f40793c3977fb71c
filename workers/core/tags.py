"""What a model says of its work: ``<status>…</status>`` and ``<title>…</title>`` in its text.

They are taken out of streamed text and reported beside it. What is found depends on the whole text
alone, never on where the stream was cut: text that may still become a tag is held back, never more
than one tag with ``CONTENT_MAX_CHARS`` in it. A tag that does not close within these, or not at
all, is plain text. Only assistant text is read, and only the tags that the system prompt invites.
In code, be it a fence or within a line, and right behind markup, as ``<title>`` stands in HTML, a
tag is text like any other: ``TextPlace`` knows where a text in Markdown stands.

To add a tag, add it to ``Tag``, with its bound in ``_SHOWN_MAX_CHARS`` where it has one.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import field
from msgspec.structs import replace

# --- in code, behind markup, or in plain text -----------------------------------------------------

_PARTS: Final = re.compile(r"`+|~+|\n|[^`~\n]+")
_PREFIX: Final = re.compile(r"(?:[ \t>]|(?:[-*+]|\d{1,9}[.)])(?=[ \t]|\Z))*(?:\d{1,9})?")
_INDENTED: Final = re.compile(r"^ {4}|[^ ] {5}")
"""Four columns, behind the mark of a list or a quote one more, which is the mark's."""
PREFIX_CHARS_MAX: Final = 64
"""In front of a fence, as in nested lists."""
_FENCE_MIN: Final = 3


class TextPlace(msgspec.Struct, frozen=True):
    """A place in a text: what is open there, and what the line has so far.

    It knows fences of backticks and tildes, also in lists and quotes, code in a line, which ends
    with its paragraph at the latest, and lines that are indented by four columns, whatever stands
    above them. What it takes for code and is none is shown as it is: that is the lesser mistake. It
    comes out the same however the text is cut.
    """

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

    def after(self, text: str) -> "TextPlace":
        """Return the place behind a text."""
        place = self
        for found in _PARTS.finditer(text):
            place = place._behind(found[0])
        return place

    def after_run(self) -> "TextPlace":
        """Return the place where a run of backticks or tildes is over."""
        return self._run_over() if self.run else self

    @property
    def is_code(self) -> bool:
        """Whether code stands here; ask a place whose run is over, as ``after_run`` returns it."""
        return bool(self.fence or self.span or self.is_indented)

    def _behind(self, part: str) -> "TextPlace":
        if part[0] in "`~":
            if not self.run or self.run[0] == part[0]:
                return replace(self, run=self.run + part)
            return replace(self._run_over(), run=part)
        place = self.after_run()
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

    def _run_over(self) -> "TextPlace":
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


def _line_over(place: TextPlace) -> TextPlace:
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


# --- tags -----------------------------------------------------------------------------------------

CONTENT_MAX_CHARS: Final = 400


class Tag(StrEnum):
    """A tag's name, as it is written."""

    STATUS = "status"
    TITLE = "title"


_SHOWN_MAX_CHARS: Final[Mapping[Tag, int]] = {Tag.TITLE: 60}
ALL: Final = frozenset(Tag)
_NONE: Final = frozenset[Tag]()
_OPENINGS: Final = {tag: f"<{tag.value}>" for tag in Tag}
_CLOSINGS: Final = {tag: f"</{tag.value}>" for tag in Tag}


class FoundTag(msgspec.Struct, frozen=True):
    """A tag that was taken out of the text, and what stood in it, stripped."""

    tag: Tag
    text: str


class TagState(msgspec.Struct, frozen=True):
    """Text that may still become a tag, and where it stands."""

    held: str = ""
    place: TextPlace = field(default_factory=TextPlace)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What the text from one ``<`` on turned out to be; None where it takes more text to know."""

    length: int
    clean: str = ""
    found: FoundTag | None = None


def feed(
    state: TagState, text: str, invited: AbstractSet[Tag] = ALL
) -> tuple[TagState, str, tuple[FoundTag, ...]]:
    """Take in the next text; return the new state, the text to show, and the tags found."""
    return _scan(state, text, invited, final=False)


def flush(
    state: TagState, invited: AbstractSet[Tag] = ALL
) -> tuple[TagState, str, tuple[FoundTag, ...]]:
    """Give back what was held, at the end of the text; what never closed is plain text."""
    _, clean, found = _scan(state, "", invited, final=True)
    return TagState(), clean, found


def invited_by(prompt: str) -> frozenset[Tag]:
    """Return the tags that a system prompt invites the model to use."""
    return frozenset(tag for tag, opening in _OPENINGS.items() if opening in prompt)


def _scan(
    state: TagState, text: str, invited: AbstractSet[Tag], *, final: bool
) -> tuple[TagState, str, tuple[FoundTag, ...]]:
    text, place = state.held + text, state.place
    clean: list[str] = []
    found: list[FoundTag] = []
    at = 0
    while (start := text.find("<", at)) != -1:
        clean.append(text[at:start])
        place = place.after(text[at:start]).after_run()
        is_read = not place.is_code and place.last != ">"
        piece = _piece(text, start, invited if is_read else _NONE, final=final)
        if piece is None:
            return TagState(text[start:], place), "".join(clean), tuple(found)
        clean.append(piece.clean)
        place = place.after(piece.clean)
        if piece.found is not None and piece.found.text:
            found.append(piece.found)
        at = start + piece.length
    clean.append(text[at:])
    return TagState("", place.after(text[at:])), "".join(clean), tuple(found)


def _piece(text: str, start: int, invited: AbstractSet[Tag], *, final: bool) -> _Piece | None:
    for tag, opening in _OPENINGS.items():
        if tag not in invited:
            continue
        if text.startswith(opening, start):
            return _tagged(text, start, tag, final=final)
        if not final and opening.startswith(text[start:]):
            return None
    return _Piece(length=1, clean="<")


def _tagged(text: str, start: int, tag: Tag, *, final: bool) -> _Piece | None:
    opening, closing = _OPENINGS[tag], _CLOSINGS[tag]
    inside = start + len(opening)
    close_max = inside + CONTENT_MAX_CHARS + len(closing)
    end = text.find(closing, inside, close_max)
    if end != -1:
        shown = text[inside:end].strip()[: _SHOWN_MAX_CHARS.get(tag)].rstrip()
        return _Piece(length=end + len(closing) - start, found=FoundTag(tag, shown))
    if not final and len(text) < close_max:
        return None
    return _Piece(length=len(opening), clean=opening)
