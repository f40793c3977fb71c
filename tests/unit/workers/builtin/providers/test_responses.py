"""What is counted of an answer, and whose fault a connection is that does not come about."""

import asyncio
import errno
import gzip
import socket
import tracemalloc
import zlib

import httpx
import pytest

from workers.builtin.providers import _metering
from workers.builtin.providers._failures import NoServerError, RefusedAnswerError
from workers.builtin.providers._metering import Meter
from workers.builtin.providers._responses import BoundedTransport

MB = 2**20
REQUEST = httpx.Request("POST", "http://user:pw@host:1/v1")


def taken(pieces, *, is_error=False, has_events=True):
    meter = Meter(is_error=is_error, has_events=has_events)
    return [meter.take(piece) for piece in pieces]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_events_end_however_they_are_cut(monkeypatch, end, size):
    """A bound on one event is none on many, wherever pieces begin."""
    monkeypatch.setattr(_metering, "EVENT_BYTES_MAX", 60)
    text = (b"event: x" + end[: len(end) // 2] + b"data: " + b"a" * 20 + end) * 20
    pieces = [text[at : at + size] for at in range(0, len(text), size)]

    assert b"".join(taken(pieces)) == text


TOO_MUCH = {
    "bytes": ("REPLY_BYTES_MAX", b"a\n\n", True),
    "events": ("EVENTS_MAX", b"a\n\n", True),
    "bytes in one event": ("EVENT_BYTES_MAX", b"aaa", True),
    "lines in one event": ("EVENT_LINES_MAX", b"a\n", True),
    "mixed ends": ("EVENT_LINES_MAX", b"a\n\r\n", True),
    "one line": ("EVENT_BYTES_MAX", b"aaa", False),
    "many lines": ("EVENTS_MAX", b"a\n", False),
}


@pytest.mark.parametrize(("name", "piece", "has_events"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_too_much_is_refused_by_name(monkeypatch, name, piece, has_events):
    """Each bound has its own words."""
    monkeypatch.setattr(_metering, name, 10)

    with pytest.raises(RefusedAnswerError, match="more than 10 "):
        taken([piece] * 12, has_events=has_events)


def test_lines_have_no_empty_line_between_them():
    """What is sent line by line is no event without an end."""
    assert taken([b'{"a": 1}\n' * 5_000], has_events=False)


def test_an_error_is_cut(monkeypatch):
    """Nothing of it is refused: its beginning says what is wrong."""
    monkeypatch.setattr(_metering, "ERROR_BYTES_MAX", 10)

    assert taken([b"aaaa", b"bbbb", b"cccc", b"dddd"], is_error=True) == [
        b"aaaa",
        b"bbbb",
        b"cc",
        b"",
    ]


class Body(httpx.AsyncByteStream):
    """Gives bytes, and says whether it was closed."""

    def __init__(self, *pieces):
        self.pieces = pieces
        self.is_closed = False

    async def __aiter__(self):
        for piece in self.pieces:
            yield piece

    async def aclose(self):
        self.is_closed = True


class Plain(httpx.AsyncBaseTransport):
    """Answers with what it has, or raises it."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = None

    async def handle_async_request(self, request):
        self.asked = request
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Bounded(BoundedTransport, Plain):
    """As litellm's, bounded."""


def answer(*pieces, status=200, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=named, stream=Body(*pieces))


async def read(transport):
    response = await transport.handle_async_request(REQUEST)
    try:
        return response, b"".join([piece async for piece in response.aiter_bytes()])
    finally:
        await response.aclose()


def test_an_answer_comes_through_and_is_given_back():
    """Its connection too; only what names the packing is left out."""
    packed = gzip.compress(b"data: 1\n\n")
    given = answer(packed, content_encoding="gzip", content_length="30", x_other="1")
    transport = Bounded(given)
    response, body = asyncio.run(read(transport))

    assert body == b"data: 1\n\n"
    assert dict(response.headers) == {"x-other": "1"}
    assert transport.asked.headers["accept-encoding"] == "gzip"
    assert given.stream.is_closed


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "deflate"])
def test_another_packing_is_refused_before_anything_is_read(encoding):
    """And its connection is given up."""
    given = answer(b"x", content_encoding=encoding)

    with pytest.raises(RefusedAnswerError, match="only gzip was asked for"):
        asyncio.run(read(Bounded(given)))
    assert given.stream.is_closed


def test_what_is_no_gzip_is_refused():
    """As what it is."""
    with pytest.raises(RefusedAnswerError, match="no valid gzip"):
        asyncio.run(read(Bounded(answer(b"plain text", content_encoding="gzip"))))


def test_unpacking_takes_no_more_memory_than_its_bounds():
    """Three megabytes that would be gigabytes are given up early."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(16 * MB)) for _ in range(20)) + packer.flush()
    given = answer(packed, content_encoding="gzip", content_type="text/event-stream")
    tracemalloc.start()
    try:
        with pytest.raises(RefusedAnswerError, match="in one event"):
            asyncio.run(read(Bounded(given)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 * _metering.EVENT_BYTES_MAX + 4 * MB


def because(*causes):
    error = httpx.ConnectError("all failed")
    at = error
    for cause in causes:
        at.__cause__ = cause
        at = cause
    return error


ABSENT = {
    "refused": (because(OSError("x"), ConnectionRefusedError(111, "no")), "connection refused"),
    "unknown name": (
        because(socket.gaierror(-2, "Name or service not known")),
        "its name is not known (Name or service not known)",
    ),
    "no route": (because(OSError(errno.EHOSTUNREACH, "no route")), "it can't be connected to"),
    "unsaid": (because(), "it can't be connected to"),
}


@pytest.mark.parametrize(("error", "why"), ABSENT.values(), ids=ABSENT)
def test_an_address_with_nobody_is_named(error, why):
    """Without the user and the path, which may say more than is to be shown."""
    with pytest.raises(NoServerError) as caught:
        asyncio.run(read(Bounded(error)))

    assert str(caught.value) == f"no server at http://host:1: {why}"


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EMFILE, errno.ETIMEDOUT])
def test_a_connection_that_breaks_says_nothing_about_the_address(number):
    """Nor does one that we are too poor to make."""
    error = because(OSError(number, "x"))

    with pytest.raises(httpx.ConnectError):
        asyncio.run(read(Bounded(error)))
