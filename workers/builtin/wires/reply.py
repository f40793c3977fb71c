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
    read_whole,
    settle_event,
    usage_problem,
)
from workers.builtin.wires.table import Priced

# --- server-sent events ---------------------------------------------------------------------------

_DATA: Final = b"data:"


class Events:
    """What the events of one answer say: their data, in order, each without its lines' ends."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._is_after_cr = False
        self._bytes = self._count = 0
        self._event_bytes = self._event_lines = 0

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

    def _take_line(self, line: bytes, parsed: list[bytes]) -> None:
        if line:
            self._event_lines += 1
            metering.check("lines in one event", self._event_lines, metering.EVENT_LINES_MAX)
            metering.check("bytes in one event", self._event_bytes, metering.EVENT_BYTES_MAX)
            if line.startswith(_DATA):
                self._data.append(line[len(_DATA) :].strip())
            return
        self._event_bytes = self._event_lines = 0
        if self._data:
            self._count += 1
            metering.check("events", self._count, metering.EVENTS_MAX)
            parsed.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
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

    @abstractmethod
    def take(self, data: bytes) -> Iterator[Chunk]:
        """Yield the chunks of one event.

        Raises:
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

    def _finish(self, reason: str) -> None:
        self._reason = REASONS.get(reason, "stop")

    def _decoded(self, data: bytes, decoder: "msgspec.json.Decoder[_Event]") -> _Event:
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._settled(data, decoder)

    def _settled(self, data: bytes, decoder: "msgspec.json.Decoder[_Event]") -> _Event:
        """Return an event that is not written as it should be."""
        try:
            parsed = json.loads(data, parse_int=read_whole)
        except (ValueError, UnicodeError) as error:
            torn = "the stream has an event that is no JSON"
            raise ProviderError(FailureKind.TRANSIENT, torn) from error
        if isinstance(parsed, dict):
            settle_event(parsed)
        event: _Event = msgspec.convert(parsed, decoder.type)
        return event

    def _fail(self, parsed: dict[str, Any]) -> NoReturn:  # Any: JSON as it came
        """Raise what a server says in an event; only the beginning of a long text is looked at."""
        cut_error(parsed)
        self._heard.note_event(json.dumps(parsed).encode())
        raise MidStreamError(words_of(parsed) or "the server gave no reason")

    def _is_true(self, usage: Any) -> bool:  # Any: JSON as it came
        """Say whether a usage can be true; what is null of it is left out."""
        problem = usage_problem(usage)
        if problem is not None:
            self.problem = self.problem or f"usage{problem}"
            return False
        drop_nulls(usage)
        return True
