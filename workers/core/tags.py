"""What a model says of its work: ``<status>…</status>`` and ``<title>…</title>`` in its text.

They are taken out of streamed text and reported beside it. What is found depends on the whole text
alone, never on where the stream was cut: text that may still become a tag is held back, at most
``HELD_MAX_CHARS`` of it. A tag that does not close within ``CONTENT_MAX_CHARS``, or not at all, is
plain text. Only assistant text is read, and only the tags that the system prompt invites. In code,
be it a fence or within a line, and right behind markup, as ``<title>`` stands in HTML, a tag is
text like any other.

To add a tag, add it to ``Tag``, with its bound in ``_SHOWN_MAX_CHARS`` where it has one.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from workers.core.code_spans import Place

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
HELD_MAX_CHARS: Final = CONTENT_MAX_CHARS + max(
    len(_OPENINGS[tag]) + len(_CLOSINGS[tag]) for tag in Tag
)


@dataclass(frozen=True, slots=True)
class Found:
    """A tag that was taken out of the text, and what stood in it, stripped."""

    tag: Tag
    text: str


@dataclass(frozen=True, slots=True)
class TagState:
    """Text that may still become a tag, and where it stands."""

    held: str = ""
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What the text from one ``<`` on turned out to be; None where more text must tell."""

    length: int
    clean: str = ""
    found: Found | None = None


def feed(
    state: TagState, text: str, invited: AbstractSet[Tag] = ALL
) -> tuple[TagState, str, tuple[Found, ...]]:
    """Take in the next text; return the new state, the text to show, and the tags found."""
    return _scan(state, text, invited, final=False)


def flush(
    state: TagState, invited: AbstractSet[Tag] = ALL
) -> tuple[TagState, str, tuple[Found, ...]]:
    """Give back what was held, at the end of the text; what never closed is plain text."""
    _, clean, found = _scan(state, "", invited, final=True)
    return TagState(), clean, found


def invited_by(prompt: str) -> frozenset[Tag]:
    """Return the tags that a system prompt tells the model of."""
    return frozenset(tag for tag, opening in _OPENINGS.items() if opening in prompt)


def _scan(
    state: TagState, text: str, invited: AbstractSet[Tag], *, final: bool
) -> tuple[TagState, str, tuple[Found, ...]]:
    text, place = state.held + text, state.place
    clean: list[str] = []
    found: list[Found] = []
    at = 0
    while (start := text.find("<", at)) != -1:
        clean.append(text[at:start])
        place = place.after(text[at:start]).settled()
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
        return _Piece(length=end + len(closing) - start, found=Found(tag, shown))
    if not final and len(text) < close_max:
        return None
    return _Piece(length=len(opening), clean=opening)
