"""Answers of providers as they come over HTTP, bounded before any other code reads them.

A server is not trusted: what it sends is unpacked here, in small pieces, and counted. The body of
an error is cut, since only its beginning is of use and what is done with it may cost more than its
size. A reply that is too much ends in ``RefusedAnswerError``, and an address without a server in
``NoServerError``. Every client that litellm makes gets its transport from ``bounded_transports``.
"""

import asyncio
import errno
import re
import socket
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import httpx

from workers.builtin.providers._addresses import BadAddressError, address_problem, shown_address
from workers.builtin.providers._failures import (
    ERROR_BYTES_MAX,
    Heard,
    NoServerError,
    RefusedAnswerError,
)
from workers.builtin.providers._usages import UsageSieve, current_watch

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
_EVENT_ENDS: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_ENDS: Final = re.compile(rb"\r?\n|\r")
_CARRIED_BYTES: Final = 3
"""Of the end of a piece: the longest end of an event but for its last byte."""
_GZIP: Final = 32 + zlib.MAX_WBITS
"""zlib's word for gzip or its own format, whichever the head says."""


class BoundedStream(httpx.AsyncByteStream):
    """The plain bytes of an answer, within their bounds."""

    def __init__(
        self,
        stream: httpx.AsyncByteStream,
        *,
        is_packed: bool,
        meter: "Meter",
        sieve: UsageSieve | None = None,
        refusal: Heard | None = None,
    ) -> None:
        """Read ``stream``, which is gzip where it ``is_packed``, and pass it through ``sieve``.

        It is noted in ``refusal`` as well.
        """
        self._stream = stream
        self._is_packed = is_packed
        self._meter = meter
        self._sieve = sieve
        self._refusal = refusal

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield pieces.

        Raises:
            RefusedAnswerError: it is too much, or can't be unpacked.
        """
        unpacker = zlib.decompressobj(_GZIP) if self._is_packed else None
        async for raw in self._stream:
            for piece in _pieces(raw, unpacker):
                taken = self._meter.take(piece)
                if self._refusal is not None:
                    self._refusal.note(taken)
                passed = taken if self._sieve is None else self._sieve.take(taken)
                if passed:
                    yield passed
                if len(taken) < len(piece):
                    return
                if unpacker is not None:  # few bytes may be many: they are no reason to stand still
                    await asyncio.sleep(0)
        if self._sieve is not None and (left := self._sieve.rest()):
            yield left

    async def aclose(self) -> None:
        """Give the connection back, or close it."""
        await self._stream.aclose()


def _pieces(raw: bytes, unpacker: Any) -> Iterator[bytes]:  # Any: zlib has no name for its type
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
    """Counts what comes of one answer; ``has_events``: they are told apart by empty lines."""

    def __init__(self, *, is_error: bool, has_events: bool) -> None:
        """Begin with nothing."""
        self._is_error = is_error
        self._ends = _EVENT_ENDS if has_events else _LINE_ENDS
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
            _check("bytes", self._bytes, REPLY_BYTES_MAX)
            self._count(piece)
        return piece

    def _count(self, piece: bytes) -> None:
        data, counted, began = self._carry + piece, len(self._carry), 0
        for end in self._ends.finditer(data):
            self._add(data[counted : end.end()])
            self._event_bytes = self._event_lines = 0
            self._events += 1
            counted = began = end.end()
        _check("events", self._events, EVENTS_MAX)
        self._add(data[counted:])
        self._carry = data[max(began, len(data) - _CARRIED_BYTES) :]

    def _add(self, part: bytes) -> None:
        """Count a part of an event. Its lines count before it ends: parsers join them."""
        self._event_bytes += len(part)
        self._event_lines += part.count(b"\n") + part.count(b"\r")
        _check("bytes in one event", self._event_bytes, EVENT_BYTES_MAX)
        _check("lines in one event", self._event_lines, EVENT_LINES_MAX)


def _check(what: str, found: int, most: int) -> None:
    if found > most:
        raise RefusedAnswerError(f"the provider's answer has more than {most:,} {what}")


def bounded(response: httpx.Response, request: httpx.Request) -> httpx.Response:
    """Return an answer whose body was not read yet, so that it is read within the bounds.

    Raises:
        RefusedAnswerError: it is packed in a way that nobody asked for.
    """
    packed = response.headers.get("content-encoding", "").strip().lower()
    if packed not in {"", "identity", ENCODING, f"x-{ENCODING}"}:
        raise RefusedAnswerError(
            f"the answer is packed as {packed[:80]!r}, and only gzip was asked for"
        )
    told = ("content-encoding", "content-length")
    headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in told]
    kind = response.headers.get("content-type", "").lower()
    has_events = kind.startswith("text/event-stream")
    meter = Meter(is_error=not response.is_success, has_events=has_events)
    watch = current_watch()
    is_text = response.is_success and ("json" in kind or "text/" in kind)
    ends = _EVENT_ENDS if has_events else _LINE_ENDS
    refusal = watch.heard if watch is not None and response.is_error else None
    if refusal is not None:
        refusal.refuse(response.status_code)
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - of an async transport
    return httpx.Response(
        response.status_code,
        headers=headers,
        stream=BoundedStream(
            response.stream,
            is_packed=packed not in {"", "identity"},
            meter=meter,
            sieve=UsageSieve(watch, ends) if watch is not None and is_text else None,
            refusal=refusal,
        ),
        request=request,
        extensions=response.extensions,
    )


class BoundedTransport(httpx.AsyncBaseTransport):
    """Mixed into a transport: what comes by it is ``bounded``."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the head of the answer.

        Raises:
            BadAddressError: no request can be sent to the address.
            NoServerError: there is nobody at the address.
            RefusedAnswerError: the answer is packed in a way that nobody asked for.
        """
        problem = address_problem(str(request.url.copy_with(raw_path=b"/")))
        if problem is not None:
            raise BadAddressError(problem)
        if request.url.userinfo:
            # httpx has made a header of it; aiohttp refuses a request that has both.
            request.url = request.url.copy_with(userinfo=b"")
        request.headers["accept-encoding"] = ENCODING
        if (watch := current_watch()) is not None:
            watch.heard.ask()
        try:
            response = await super().handle_async_request(request)
        except httpx.ConnectError as error:
            why = _absence(error)
            if why is None:
                raise
            address = shown_address(str(request.url.copy_with(raw_path=b"/"))).rstrip("/")
            raise NoServerError(f"no server at {address}: {why}") from error
        try:
            return bounded(response, request)
        except RefusedAnswerError:
            await response.aclose()
            raise


def _absence(error: BaseException) -> str | None:
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


def bounded_transports(
    make: Callable[..., httpx.AsyncBaseTransport | None],
    plain: type[httpx.AsyncHTTPTransport],
) -> Callable[..., httpx.AsyncBaseTransport]:
    """Return ``make``, litellm's maker of transports, so that each one bounds what comes by it.

    Where it leaves the choice to httpx it gets one of the class ``plain``, which is bounded too.
    """

    def create(*args: Any, **options: Any) -> httpx.AsyncBaseTransport:  # Any: litellm's own
        made = make(*args, **options)
        if made is not None:
            return made
        verify = options.get("ssl_context") or options.get("ssl_verify")
        return plain(verify=True if verify is None else verify)

    return create
