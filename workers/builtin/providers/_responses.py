"""Answers of providers as they come over HTTP, bounded before any other code reads them.

A server is not trusted: what it sends is unpacked here, in small pieces, and counted. The body of
an error is cut, since only its beginning is of use and what is done with it may cost more than its
size. A reply that is too much ends in ``RefusedAnswerError``, and an address without a server in
``NoServerError``. Every client that litellm makes gets its transport from ``bounded_transports``.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from workers.builtin.providers._facts import BadAddressError, address_problem, shown_address
from workers.builtin.providers._failures import Heard, NoServerError, RefusedAnswerError
from workers.builtin.providers._metering import (
    ENCODING,
    EVENT_ENDS,
    GZIP,
    LINE_ENDS,
    Meter,
    absence,
    check_kind,
    is_packed,
    pieces,
)
from workers.builtin.providers._usages import UsageSieve, current_watch


class BoundedStream(httpx.AsyncByteStream):
    """The plain bytes of an answer, within their bounds."""

    def __init__(
        self,
        stream: httpx.AsyncByteStream,
        *,
        is_packed: bool,
        meter: Meter,
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
        unpacker = zlib.decompressobj(GZIP) if self._is_packed else None
        async for raw in self._stream:
            for piece in pieces(raw, unpacker):
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


def bounded(response: httpx.Response, request: httpx.Request) -> httpx.Response:
    """Return an answer whose body was not read yet, so that it is read within the bounds.

    Raises:
        RefusedAnswerError: it is a web page, or packed in a way that nobody asked for.
    """
    packed = is_packed(response.headers.get("content-encoding", ""))
    left_out = ("content-encoding", "content-length")
    headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in left_out]
    kind = response.headers.get("content-type", "").lower()
    if response.is_success:
        check_kind(kind, str(request.url))
    has_events = kind.startswith("text/event-stream")
    meter = Meter(is_error=not response.is_success, has_events=has_events)
    watch = current_watch()
    is_text = response.is_success and ("json" in kind or "text/" in kind)
    ends = EVENT_ENDS if has_events else LINE_ENDS
    refusal = watch.heard if watch is not None and response.is_error else None
    if refusal is not None:
        refusal.refuse(response.status_code)
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - of an async transport
    return httpx.Response(
        response.status_code,
        headers=headers,
        stream=BoundedStream(
            response.stream,
            is_packed=packed,
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
            why = absence(error)
            if why is None:
                raise
            address = shown_address(str(request.url.copy_with(raw_path=b"/"))).rstrip("/")
            raise NoServerError(f"no server at {address}: {why}") from error
        try:
            return bounded(response, request)
        except RefusedAnswerError:
            await response.aclose()
            raise


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
