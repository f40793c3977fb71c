"""What a model says of its work: ``<status>…</status>`` and ``<title>…</title>`` in its text.

They are taken out of streamed text and reported beside it. What is found depends on the whole text
alone, never on where the stream was cut: text that may still become a tag is held back, at most
``HELD_MAX_CHARS`` of it. A tag that does not close within ``CONTENT_MAX_CHARS``, or not at all, is
plain text. Only assistant text is read; a user's text is never interpreted.

To add a tag, add it to ``Tag``, with its bound in ``_SHOWN_MAX_CHARS`` where it has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CONTENT_MAX_CHARS: Final = 400


class Tag(StrEnum):
    """A tag's name, as it is written."""

    STATUS = "status"
    TITLE = "title"


_SHOWN_MAX_CHARS: Final[Mapping[Tag, int]] = {Tag.TITLE: 60}
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
    """Text that may still become a tag."""

    held: str = ""


@dataclass(frozen=True, slots=True)
class _Piece:
    """What the text from one ``<`` on turned out to be; None where more text must tell."""

    length: int
    clean: str = ""
    found: Found | None = None


def feed(state: TagState, text: str) -> tuple[TagState, str, tuple[Found, ...]]:
    """Take in the next text; return the new state, the text to show, and the tags found."""
    return _scan(state.held + text, final=False)


def flush(state: TagState) -> tuple[TagState, str, tuple[Found, ...]]:
    """Give back what was held, at the end of the text; what never closed is plain text."""
    return _scan(state.held, final=True)


def _scan(text: str, *, final: bool) -> tuple[TagState, str, tuple[Found, ...]]:
    clean: list[str] = []
    found: list[Found] = []
    at = 0
    while at < len(text):
        start = text.find("<", at)
        if start < 0:
            clean.append(text[at:])
            break
        clean.append(text[at:start])
        piece = _piece(text, start, final=final)
        if piece is None:
            return TagState(text[start:]), "".join(clean), tuple(found)
        clean.append(piece.clean)
        if piece.found is not None and piece.found.text:
            found.append(piece.found)
        at = start + piece.length
    return TagState(), "".join(clean), tuple(found)


def _piece(text: str, start: int, *, final: bool) -> _Piece | None:
    for tag, opening in _OPENINGS.items():
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
    if end >= 0:
        shown = text[inside:end].strip()[: _SHOWN_MAX_CHARS.get(tag)].rstrip()
        return _Piece(length=end + len(closing) - start, found=Found(tag, shown))
    if not final and len(text) < close_max:
        return None
    return _Piece(length=len(opening), clean=opening)
