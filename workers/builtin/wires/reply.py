"""What is the same for replies on every wire: events decoded, a usage judged, an end that is one.

A wire is decoded twice: at first as it should be, which is quick, and where it is not so by the
reader that knows what vendors do instead, and names what can't be read. Server-sent events are
taken from pieces of any size and bounded as they come.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from cmdc_runtime.extensions.provider import (
    Chunk,
    FailureKind,
    FinishChunk,
    ProviderError,
    UsageChunk,
)
from cmdc_runtime.messages import TokenUsage
from workers.builtin.providers import _metering as metering
from workers.builtin.providers._failures import Heard, cut_error, words_of
from workers.builtin.providers._usages import (
    SplitPairs,
    drop_nulls,
    normalize_event,
    read_whole,
    usage_problem,
)
from workers.builtin.wires.http import refusal
from workers.builtin.wires.table import Priced

# --- server-sent events ---------------------------------------------------------------------------

_DATA: Final = b"data:"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OTHER_BYTES_MAX: Final = 64 * 2**10
"""Kept of an answer that has no events: what it says instead."""


class Events:
    """What the events of one answer say: their data, in order, each without its lines' ends."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._is_after_cr = False
        self._bytes = self._count = 0
        self._event_bytes = self._event_lines = 0
        self._is_first = True
        self._other = bytearray()

    def take(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in ``piece``.

        Raises:
            RefusedAnswerError: the answer is too much.
        """
        self._bytes += len(piece)
        metering.check("bytes", self._bytes, metering.REPLY_BYTES_MAX)
        piece = self._with_line_feeds(piece)
        first, *others = piece.split(b"\n")
        self._event_bytes += len(first)
        metering.check("bytes in one event", self._event_bytes, metering.EVENT_BYTES_MAX)
        self._line.append(first)
        if not others:
            return []
        parsed: list[bytes] = []
        self._take_line(b"".join(self._line), parsed)
        for line in others[:-1]:
            self._event_bytes += len(line)
            self._take_line(line, parsed)
        self._line = [others[-1]]
        self._event_bytes += len(others[-1])
        metering.check("bytes in one event", self._event_bytes, metering.EVENT_BYTES_MAX)
        return parsed

    def rest(self) -> list[bytes]:
        """Return the data of the last event, where no empty line has ended it."""
        parsed: list[bytes] = []
        self._take_line(b"".join(self._line), parsed)
        self._take_line(b"", parsed)
        return parsed

    def _with_line_feeds(self, piece: bytes) -> bytes:
        if self._is_after_cr and piece[:1] == b"\n":
            piece = piece[1:]
            self._is_after_cr = False
        if b"\r" in piece:
            self._is_after_cr = piece.endswith(b"\r")
            return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._is_after_cr = self._is_after_cr and not piece
        return piece

    def instead(self) -> dict[str, Any] | None:  # Any: JSON as it came
        """Return the object that has come in the place of events, None where there is none."""
        if self._count:
            return None
        try:
            found = msgspec.json.decode(self._other)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def _take_line(self, line: bytes, parsed: list[bytes]) -> None:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BYTE_ORDER_MARK), False
        if line:
            self._event_lines += 1
            metering.check("lines in one event", self._event_lines, metering.EVENT_LINES_MAX)
            metering.check("bytes in one event", self._event_bytes, metering.EVENT_BYTES_MAX)
            if line.startswith(_DATA):
                self._data.append(line[len(_DATA) :].strip())
            elif not self._count and len(self._other) + len(line) < _OTHER_BYTES_MAX:
                self._other += line + b"\n"
            return
        self._event_bytes = self._event_lines = 0
        if self._data:
            self._count += 1
            metering.check("events", self._count, metering.EVENTS_MAX)
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            if data:  # one that says nothing is none
                parsed.append(data)
            self._data = []


# --- replies --------------------------------------------------------------------------------------

_Event = TypeVar("_Event", bound=msgspec.Struct)

REASONS: Final[Mapping[str, str]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "compaction": "length",
    "pause_turn": "length",
    "model_context_window_exceeded": "length",
}
"""Words of vendors for why a reply ends, and OpenAI's; any other is a plain stop."""
FAILED: Final = frozenset({"error", "abort"})
"""Words for a reply that the server has given up."""
STATUSES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
}
"""What an error of these types and codes has for a status where it comes as an event."""
_REFUSING: Final = range(400, 500)
_STATUS_OF_TEXT: Final = {**STATUSES, **{str(number): number for number in _REFUSING}}
_ERROR_FIELDS: Final = ("code", "status", "type")


class MidStreamError(ConnectionError):
    """A server that had begun to answer reports what went wrong."""


class StreamedReply(ABC):
    """A reply as it comes; ``heard`` notes what a server says of its own failure.

    ``problem`` is the first thing that is wrong with the usage, or None.
    """

    def __init__(self, heard: Heard, priced: Priced) -> None:
        """Begin with nothing."""
        self._heard = heard
        self._priced = priced
        self._pairs = SplitPairs()
        self._usage: TokenUsage | None = None
        self._reason: str | None = None
        self._has_calls = False
        self.problem: str | None = None
        self.is_over = False
        """The server has said that nothing follows."""

    @abstractmethod
    def take(self, data: bytes) -> Iterator[Chunk]:
        """Yield the chunks of one event.

        Raises:
            AnsweredError: the server refuses the request.
            MidStreamError: the server reports what went wrong.
            ProviderError: it is no JSON.
            RefusedAnswerError: it can't be read; the text names what.
            msgspec.ValidationError: the same, of a shape that nobody expects.
        """

    def end(self) -> Iterator[Chunk]:
        """Yield the last chunks, once all has come.

        Raises:
            ProviderError: the reply did not come to its end.
        """
        if self._reason is None:
            broken = "the stream ended before the reply was finished"
            raise ProviderError(FailureKind.TRANSIENT, broken)
        if self._reason == "tool_calls" and not self._has_calls:
            empty = "the provider's answer can't be read: it ends in tool_calls and has none"
            raise ProviderError(FailureKind.PERMANENT, empty)
        yield from self._pairs.rest()
        if self._usage is not None and self.problem is None:
            yield UsageChunk(usage=self._usage)
        is_call = self._reason == "stop" and self._has_calls
        yield FinishChunk(reason="tool_calls" if is_call else self._reason)

    def take_instead(self, body: dict[str, Any]) -> NoReturn:  # Any: JSON as it came
        """Raise what an answer says that is no stream; see ``take``."""
        if body.get("error"):
            self._fail(body)
        whole = "the server answers in one piece; a stream of events was asked for (stream=true)"
        raise ProviderError(FailureKind.PERMANENT, whole)

    def _finish(self, reason: str) -> None:
        if reason in FAILED:
            raise MidStreamError(f"the server has given the answer up (finish_reason {reason!r})")
        self._reason = REASONS.get(reason, "stop")

    def _decoded(self, data: bytes, decoder: "msgspec.json.Decoder[_Event]") -> _Event:
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._normalized(data, decoder)

    def _normalized(self, data: bytes, decoder: "msgspec.json.Decoder[_Event]") -> _Event:
        """Return an event that is not written as it should be."""
        try:
            parsed = json.loads(data, parse_int=read_whole)
        except (ValueError, UnicodeError) as error:
            torn = "the stream has an event that is no JSON"
            raise ProviderError(FailureKind.TRANSIENT, torn) from error
        if isinstance(parsed, dict):
            normalize_event(parsed)
        event: _Event = msgspec.convert(parsed, decoder.type)
        return event

    def _fail(self, parsed: dict[str, Any]) -> NoReturn:  # Any: JSON as it came
        """Raise what a server says in an event; only the beginning of a long text is looked at."""
        status = _status_of(parsed.get("error"))
        cut_error(parsed)
        self._heard.note_event(json.dumps(parsed).encode())
        words = words_of(parsed) or "the server gave no reason"
        raise MidStreamError(words) if status is None else refusal(status, words, {})

    def _is_true(self, usage: Any) -> bool:  # Any: JSON as it came
        """Say whether a usage can be true; what is null of it is left out."""
        problem = usage_problem(usage)
        if problem is not None:
            self.problem = self.problem or f"usage{problem}"
            return False
        drop_nulls(usage)
        return True


def _status_of(error: object) -> int | None:
    """Return the status of a refusal that comes as an event, None of a failure of the server's."""
    fields = error if isinstance(error, Mapping) else {}
    for value in (fields.get(name) for name in _ERROR_FIELDS):
        status = _STATUS_OF_TEXT.get(value) if isinstance(value, str) else value
        if isinstance(status, int) and status in _REFUSING:
            return status
    return None
