"""What a server sends, unpacked in small pieces and counted, whoever reads it from the wire.

``is_packed`` and ``pieces`` unpack, ``Meter`` counts, ``absence`` distinguishes an address without
a server from a connection that failed.
"""

import errno
import re
import socket
import zlib
from collections.abc import Iterator
from typing import Any, Final

from workers.builtin.providers._facts import shown_address
from workers.builtin.providers._failures import ERROR_BYTES_MAX, RefusedAnswerError

ENCODING: Final = "gzip"
"""What servers are asked for; all else that is no plain text is refused."""
PIECE_BYTES_MAX: Final = 64 * 2**10
"""Unpacked at once; the loop turns between two pieces."""
REPLY_BYTES_MAX: Final = 256 * 2**20
"""Of a whole reply: the longest that is kept, in chunks of one token with 500 bytes around each."""
EVENT_BYTES_MAX: Final = 8 * 2**20
"""Of one event, or of one line where the reply has no events: four times a whole reply."""
EVENT_LINES_MAX: Final = 1_000
"""Ends of lines in one event: vendors send few, and to join them costs the square."""
EVENTS_MAX: Final = 400_000
"""Of one reply: no model says as many tokens, and litellm keeps an object for each."""

_OURS: Final = frozenset(
    (
        *(errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.EADDRNOTAVAIL),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS),
    )
)
"""Why a connection fails though there may be a server: it broke, or we are short of something."""
_CAUSES_MAX: Final = 12
EVENT_ENDS: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
LINE_ENDS: Final = re.compile(rb"\r?\n|\r")
_CARRIED_BYTES: Final = 3
"""Of the end of a piece: the longest end of an event but for its last byte."""
GZIP: Final = 32 + zlib.MAX_WBITS
"""zlib's word for gzip or its own format, whichever the head says."""


def check_kind(kind: str, address: str) -> None:
    """Refuse what is said with ``content-type`` ``kind`` to be a web page; it is no model's answer.

    Raises:
        RefusedAnswerError: it is one; the text names the address, without credentials.
    """
    if "html" in kind.lower():
        problem = f"what answers at {shown_address(address)} is a web page and no model"
        raise RefusedAnswerError(
            f"{problem}; api_base is to be the address of its API, which often ends in /v1"
        )


def is_packed(encoding: str) -> bool:
    """Say whether an answer with this ``content-encoding`` is gzip, and no plain text.

    Raises:
        RefusedAnswerError: it is packed in a way that nobody asked for.
    """
    packed = encoding.strip().lower()
    if packed in {"", "identity"}:
        return False
    if packed not in {ENCODING, f"x-{ENCODING}"}:
        raise RefusedAnswerError(
            f"the answer is packed as {packed[:80]!r}, and only gzip was asked for"
        )
    return True


def pieces(raw: bytes, unpacker: Any) -> Iterator[bytes]:  # Any: zlib has no name for its type
    """Yield what ``raw`` holds; ``unpacker`` is None where it is plain text.

    Raises:
        RefusedAnswerError: it can't be unpacked.
    """
    if unpacker is None:
        yield raw
        return
    try:
        while raw and not unpacker.eof:
            yield unpacker.decompress(raw, PIECE_BYTES_MAX)
            raw = unpacker.unconsumed_tail
    except zlib.error as error:
        raise RefusedAnswerError(f"the answer is no valid gzip: {error}") from error


class Meter:
    """Counts what comes of one answer; ``has_events``: they are separated by empty lines."""

    def __init__(self, *, is_error: bool, has_events: bool) -> None:
        """Begin with nothing."""
        self._is_error = is_error
        self._ends = EVENT_ENDS if has_events else LINE_ENDS
        self._bytes = self._events = self._event_bytes = self._event_lines = 0
        self._carry = b""

    def take(self, piece: bytes) -> bytes:
        """Return what of ``piece`` is passed on: less than all of it where an error is cut.

        Raises:
            RefusedAnswerError: the reply is too much.
        """
        if self._is_error:
            piece = piece[: ERROR_BYTES_MAX - self._bytes]
        self._bytes += len(piece)
        if not self._is_error:
            check("bytes", self._bytes, REPLY_BYTES_MAX)
            self._count(piece)
        return piece

    def _count(self, piece: bytes) -> None:
        data, counted, began = self._carry + piece, len(self._carry), 0
        for end in self._ends.finditer(data):
            self._add(data[counted : end.end()])
            self._event_bytes = self._event_lines = 0
            self._events += 1
            counted = began = end.end()
        check("events", self._events, EVENTS_MAX)
        self._add(data[counted:])
        self._carry = data[max(began, len(data) - _CARRIED_BYTES) :]

    def _add(self, part: bytes) -> None:
        """Count a part of an event. Its lines count before it ends: parsers join them."""
        self._event_bytes += len(part)
        self._event_lines += part.count(b"\n") + part.count(b"\r")
        check("bytes in one event", self._event_bytes, EVENT_BYTES_MAX)
        check("lines in one event", self._event_lines, EVENT_LINES_MAX)


def check(what: str, found: int, most: int) -> None:
    """Hold a count of an answer to its bound.

    Raises:
        RefusedAnswerError: there is more; the text names what.
    """
    if found > most:
        raise RefusedAnswerError(f"the provider's answer has more than {most:,} {what}")


def absence(error: BaseException) -> str | None:
    """Return why there is nobody at the address; None where there may be."""
    at: BaseException | None = error
    why = "it can't be connected to"
    for _ in range(_CAUSES_MAX):
        if at is None:
            break
        if isinstance(at, OSError) and at.errno in _OURS:
            return None
        if isinstance(at, ConnectionRefusedError):
            why = "connection refused"
        elif isinstance(at, socket.gaierror):
            why = f"its name is not known ({at.strerror})"
        at = at.__cause__ or at.__context__
    return why
