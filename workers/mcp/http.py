"""MCP servers at an address: messages by HTTP, each answer within a bound and with its status.

The SDK reads an answer as a whole, whatever its size, and forgets with which status it came. Here
each response is looked at before the SDK has it: its body is counted while it is read, packed and
unpacked, and of events each one for itself; a status that is none of success is remembered by the
number of its request, and is in the error that the SDK makes of it.
"""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage

from cmdc_runtime.mcp_oauth import Renewing
from workers.mcp.process import MESSAGE_BYTES_MAX
from workers.mcp.streams import Item, SaysTooMuchError, passed, said_too_much

OLDER_EVENT_BYTES_MAX: Final = 2**20
"""Of one event in the older way: there the SDK takes no other bound."""
STATUSES_MAX: Final = 1_000
"""That are remembered: of requests that the SDK has given up nobody asks."""

_UNWANTED: Final = frozenset({401, 403})
_FINAL: Final = frozenset({404, *_UNWANTED})
_FAILED: Final = 400
_STAND_INS: Final = frozenset({"Server returned an error response", "Not Found"})
"""What the SDK says of a status; what a server says itself stays as it is."""
_EVENTS: Final = "text/event-stream"
_BLANK_LINE: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_BLANK_BYTES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class BadStatus:
    """A status that is none of success."""

    status: int
    phrase: str
    url: str

    @classmethod
    def of(cls, response: httpx2.Response) -> "BadStatus":
        """Return that of a response."""
        url = response.request.url.copy_with(userinfo=b"", query=None, fragment=None)
        return cls(response.status_code, response.reason_phrase, str(url))

    @property
    def is_final(self) -> bool:
        """Whether the same is answered until somebody does something."""
        return self.status in _FINAL

    @property
    def is_unwanted(self) -> bool:
        """Whether it is said to who asks, and not of the address."""
        return self.status in _UNWANTED

    def __str__(self) -> str:
        """Return it in words, with the way out where there is one."""
        text = f"status {self.status} {self.phrase}".rstrip()
        if not self.is_unwanted:
            return text
        return (
            f"{text}: it lets in who has logged in (`cmdc mcp login {self.url}`, then"
            ' `oauth="default"`), or who shows a key (`headers={…}`)'
        )


@contextlib.asynccontextmanager
async def streamable(
    url: str, headers: Mapping[str, str], login: Renewing | None = None
) -> AsyncIterator[TransportStreams]:
    """Carry messages by streamable HTTP."""
    answers = _Answers(httpx2.SSEError(said_too_much(MESSAGE_BYTES_MAX)), MESSAGE_BYTES_MAX)
    async with (
        answers.client(headers=dict(headers), auth=login) as http,
        passed(
            streamable_http_client(url, http_client=http, max_sse_event_size=None), answers.named
        ) as streams,
    ):
        yield streams


@contextlib.asynccontextmanager
async def events(
    url: str, headers: Mapping[str, str], login: Renewing | None = None
) -> AsyncIterator[TransportStreams]:
    """Carry messages by HTTP with server-sent events, as older servers do."""
    answers = _Answers(SaysTooMuchError(OLDER_EVENT_BYTES_MAX), OLDER_EVENT_BYTES_MAX)
    async with sse_client(
        url, headers=dict(headers), auth=login, httpx_client_factory=answers.client
    ) as streams:
        yield streams


class _Answers:
    """What a server answers by HTTP, looked at as it comes."""

    def __init__(self, too_large: Exception, event_bytes_max: int) -> None:
        """Raise ``too_large`` where an event is larger than it may be."""
        self._too_large, self._event_bytes_max = too_large, event_bytes_max
        self._statuses: dict[object, BadStatus] = {}

    def client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Return a client as the SDK makes them, whose responses are looked at."""
        client = create_mcp_http_client(headers, timeout, auth)
        client.event_hooks = {"response": [self._look_at]}
        return client

    async def _look_at(self, response: httpx2.Response) -> None:
        if response.status_code >= _FAILED:
            self._remember(response)
        is_events = response.headers.get("content-type", "").lower().startswith(_EVENTS)
        bounds = _EventBound(self._too_large, self._event_bytes_max) if is_events else _BodyBound()
        packed = _Counted(response.stream, MESSAGE_BYTES_MAX)
        encodings = response.headers.get_list("content-encoding")
        inner = httpx2.Response(
            response.status_code,
            headers=[("content-encoding", one) for one in encodings],
            stream=packed,
        )
        response.headers.pop("content-encoding", None)
        response.stream = _Unpacked(inner, packed, bounds)

    def _remember(self, response: httpx2.Response) -> None:
        with contextlib.suppress(ValueError, LookupError, TypeError, httpx2.RequestNotRead):
            number = json.loads(response.request.content)["id"]
            if len(self._statuses) < STATUSES_MAX:
                self._statuses[number] = BadStatus.of(response)

    def named(self, item: Item) -> Item:
        """Return an item as it is, and an error that stands for a status with what that is."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCResponse):
            self._statuses.pop(message.id, None)
        elif isinstance(message, types.JSONRPCError):
            status = self._statuses.pop(message.id, None)
            code = message.error.code
            if status is not None and message.error.message in _STAND_INS:
                message.error = types.ErrorData(code=code, message=str(status), data=status)
        return item


# --- bodies ---------------------------------------------------------------------------------------


class _BodyBound:
    """Counts a body as a whole."""

    def __init__(self) -> None:
        self._size = 0

    def count(self, part: bytes) -> None:
        """Take a part of it; raises SaysTooMuchError."""
        self._size += len(part)
        if self._size > MESSAGE_BYTES_MAX:
            raise SaysTooMuchError(MESSAGE_BYTES_MAX)


class _EventBound:
    """Counts each event of a body: what stands between two blank lines."""

    def __init__(self, too_large: Exception, bytes_max: int) -> None:
        self._too_large, self._bytes_max = too_large, bytes_max
        self._size = 0
        self._last = b""

    def count(self, part: bytes) -> None:
        """Take a part of the body; raises the error that was given."""
        text = self._last + part  # a blank line may lie over the border
        self._size -= len(self._last)
        begin = 0
        for blank in _BLANK_LINE.finditer(text):
            self._check(self._size + blank.start() - begin)
            self._size, begin = 0, blank.end()
        self._size += len(text) - begin
        self._check(self._size)
        self._last = text[max(begin, len(text) - _BLANK_BYTES_MAX + 1) :]

    def _check(self, size: int) -> None:
        if size > self._bytes_max:
            raise self._too_large


class _Counted(httpx2.AsyncByteStream):
    """A body as it comes; so much of it may come without anything that it unpacks to."""

    def __init__(self, stream: Any, bytes_max: int) -> None:  # Any: what httpx2 has there
        self._stream, self._bytes_max = stream, bytes_max
        self.size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self.size += len(part)
            if self.size > self._bytes_max:
                raise SaysTooMuchError(self._bytes_max)
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Unpacked(httpx2.AsyncByteStream):
    """A body unpacked, within its bound."""

    def __init__(
        self, inner: httpx2.Response, packed: _Counted, bound: _BodyBound | _EventBound
    ) -> None:
        self._inner, self._packed, self._bound = inner, packed, bound

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async with contextlib.aclosing(self._inner.aiter_bytes()) as parts:
                async for part in parts:
                    self._bound.count(part)
                    self._packed.size = 0
                    yield part
        except httpx2.DecodingError as error:
            raise httpx2.StreamError(f"it can't be unpacked: {error}") from error

    async def aclose(self) -> None:
        await self._inner.aclose()
