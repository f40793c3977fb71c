"""Answers that are too long for a frame, read in pages: both sides that answer use this.

An answer is a value of the moment at which it was asked for. Its first page is sent at once; the
rest is encoded page by page as it is asked for, from that same value, whatever has changed since:
so all pages together are one consistent answer, and a page may end in the middle of an item,
however large that is. What is kept for it is references and one page, within the bounds below. One
that is gone (its reader was too slow, or another process answers now) is asked for anew.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

PAGE_BYTES: Final = 2 * 2**20
"""Of one page: short enough for others to have their turn, long enough for few questions."""
ANSWERS_OPEN_MAX: Final = 16
"""Answers of one side that are being read; the one that was asked for longest ago goes first."""
ANSWER_KEPT_S: Final = 30.0
"""Without a question, until the rest of an answer may go."""

_FIXARRAY_MAX: Final = 15
_ARRAY16_MAX: Final = 2**16 - 1


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer; ``is_gone``: its rest is not known here, ask for all of it anew."""

    body: bytes = b""
    is_last: bool = False
    is_gone: bool = False


@dataclass(slots=True)
class _Open:
    """An answer that is being read; ``page`` is the newest page, which begins at ``offset``."""

    pieces: Iterator[bytes]
    offset: int
    page: Page
    left: bytes
    asked_s: float


class Pages:
    """The answers of one side that are being read, each under a name that nobody else has."""

    def __init__(self, clock: Callable[[], float], encode: Callable[[object], bytes]) -> None:
        """Have none; ``clock`` counts seconds, ``encode`` makes the bytes of a value."""
        self._clock = clock
        self._encode = encode
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def first(self, value: object) -> tuple[bytes, str]:
        """Return the beginning of ``value``, and the name of the rest; "" where that is all.

        A page itself is always whole.
        """
        if isinstance(value, Page):
            return self._encode(value), ""
        pieces = self._pieces(value)
        body, left = _cut(b"", pieces)
        if body is None:
            return left, ""
        self._make_room()
        name = secrets.token_hex(8)
        self._open[name] = _Open(pieces, 0, Page(body=body), left, self._clock())
        return body, name

    def after(self, name: str, offset: int) -> Page:
        """Return the page behind the first ``offset`` bytes; the newest one can be had again."""
        self.forget_old()
        answer = self._open.get(name)
        if answer is None:
            return Page(is_gone=True)
        answer.asked_s = self._clock()
        self._open.move_to_end(name)
        if offset == answer.offset + len(answer.page.body) and not answer.page.is_last:
            body, left = _cut(answer.left, answer.pieces)
            is_last = body is None
            answer.page = Page(body=left if body is None else body, is_last=is_last)
            answer.left = b"" if is_last else left
            answer.offset = offset
        return answer.page if offset == answer.offset else Page(is_gone=True)

    @property
    def has_any(self) -> bool:
        """Whether anything is kept."""
        return bool(self._open)

    def forget_old(self) -> None:
        """Let go of what nobody has asked for in ``ANSWER_KEPT_S``: its reader may be dead."""
        self._make_room(0)

    def _make_room(self, places: int = 1) -> None:
        due_s = self._clock() - ANSWER_KEPT_S
        while self._open:
            name, oldest = next(iter(self._open.items()))
            if oldest.asked_s > due_s and len(self._open) + places <= ANSWERS_OPEN_MAX:
                return
            del self._open[name]

    def _pieces(self, value: object) -> Iterator[bytes]:
        """Return the pieces of a value; what is encoded as a whole is not kept beside its bytes."""
        if isinstance(value, tuple | list):
            return self._items(value)
        return _released([self._encode(value)])

    def _items(self, value: Sequence[object]) -> Iterator[bytes]:
        yield _array_header(len(value))
        for item in value:
            yield self._encode(item)


def _cut(begun: bytes, pieces: Iterator[bytes]) -> tuple[bytes | None, bytes]:
    """Return a full page and what is left over; None and the rest where no page gets full."""
    gathered, size = [begun], len(begun)
    while size <= PAGE_BYTES:
        piece = next(pieces, None)
        if piece is None:
            return None, b"".join(gathered)
        gathered.append(piece)
        size += len(piece)
    whole = b"".join(gathered)
    return whole[:PAGE_BYTES], whole[PAGE_BYTES:]


def _released(pieces: list[bytes]) -> Iterator[bytes]:
    """Yield the pieces, and keep none that was yielded."""
    while pieces:
        yield pieces.pop(0)


def _array_header(count: int) -> bytes:
    """Return what MessagePack begins an array of so many items with."""
    if count <= _FIXARRAY_MAX:
        return bytes([0x90 | count])
    if count <= _ARRAY16_MAX:
        return b"\xdc" + count.to_bytes(2)
    return b"\xdd" + count.to_bytes(4)
