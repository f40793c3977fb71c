"""What OpenAI's chat completions look like on the wire, streamed and whole. Pure.

Rules: nothing here knows a socket or a clock, so the same script makes the same bytes.
The shapes are those of OpenAI's API reference; ``reasoning_content`` is the common extension of it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing.steps import (
    Delay,
    Disconnect,
    Error,
    Hold,
    Piece,
    Request,
    Stall,
    Text,
    Thinking,
    ToolCalls,
    ToolUse,
    Truncate,
)

Json: TypeAlias = dict[str, Any]  # Any: JSON

CHARS_PER_TOKEN: Final = 4
DONE: Final = b"data: [DONE]\n\n"
_ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


@dataclass(frozen=True, slots=True)
class Heading:
    """What every chunk of one answer repeats."""

    number: int
    """The request's, counted from 1."""
    model: str

    def chunk(self, delta: Json, finish: str | None = None) -> Json:
        """Return one streamed chunk."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._object("chat.completion.chunk") | {"choices": [choice]}

    def usage_chunk(self, usage: Json) -> Json:
        """Return the chunk that follows the last choice and carries only the usage."""
        return self._object("chat.completion.chunk") | {"choices": [], "usage": usage}

    def completion(self, message: Json, finish: str | None, usage: Json) -> Json:
        """Return the whole answer of a request that does not stream."""
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return self._object("chat.completion") | {"choices": [choice], "usage": usage}

    def _object(self, kind: str) -> Json:
        id_ = f"chatcmpl-scripted-{self.number}"
        return {"id": id_, "object": kind, "created": 0, "model": self.model}


def encode(body: object) -> bytes:
    """Return JSON."""
    return msgspec.json.encode(body)


def event(body: Json) -> bytes:
    """Return one server-sent event."""
    return b"data: " + encode(body) + b"\n\n"


def fragments(text: str, chunk_chars: int) -> list[str]:
    """Return ``text`` cut into pieces of ``chunk_chars``, the last one shorter."""
    return [text[at : at + chunk_chars] for at in range(0, len(text), chunk_chars)]


def deltas(piece: Piece, heading: Heading, calls_before: int = 0) -> Iterator[Json]:
    """Yield what one piece adds to a stream; ``calls_before`` tool calls of it came earlier."""
    match piece:
        case Text():
            yield from ({"content": part} for part in fragments(piece.text, piece.chunk_chars))
        case Thinking():
            parts = fragments(piece.text, piece.chunk_chars)
            yield from ({"reasoning_content": part} for part in parts)
        case ToolCalls():
            yield from ({"content": part} for part in fragments(piece.text, piece.chunk_chars))
            for index, call in enumerate(piece.calls, start=calls_before):
                yield from _call_deltas(call, index, heading, piece.chunk_chars)
        case Stall() | Disconnect() | Truncate():
            if piece.text:
                yield {"content": piece.text}
        case Error() | Delay() | Hold():
            return


def _call_deltas(call: ToolUse, index: int, heading: Heading, chunk_chars: int) -> Iterator[Json]:
    opening: Json = {"index": index, **tool_call(call, index, heading)}
    arguments = opening["function"]["arguments"]
    opening["function"] |= {"arguments": ""}
    yield {"tool_calls": [opening]}
    for part in fragments(arguments, chunk_chars):
        yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def tool_call(call: ToolUse, index: int, heading: Heading) -> Json:
    """Return one tool call as a whole answer has it."""
    return {
        "id": call.id or f"call_{heading.number}_{index}",
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call)},
    }


def arguments_text(call: ToolUse) -> str:
    """Return the arguments as the model writes them."""
    return call.arguments if isinstance(call.arguments, str) else encode(call.arguments).decode()


def message(pieces: Sequence[Piece], heading: Heading) -> Json:
    """Return the assistant's message that the pieces add up to."""
    text = "".join(p.text for p in pieces if isinstance(p, Text | ToolCalls | Truncate))
    thinking = "".join(p.text for p in pieces if isinstance(p, Thinking))
    calls = [call for p in pieces if isinstance(p, ToolCalls) for call in p.calls]
    body: Json = {"role": "assistant", "content": text or None}
    if thinking:
        body["reasoning_content"] = thinking
    if calls:
        body["tool_calls"] = [tool_call(call, i, heading) for i, call in enumerate(calls)]
    return body


def finish_reason(pieces: Sequence[Piece]) -> str | None:
    """Return why the model stopped: its tool calls, else its last text; None if it was cut."""
    if any(isinstance(p, Truncate) for p in pieces):
        return None
    of_calls = [p.finish for p in pieces if isinstance(p, ToolCalls)]
    of_text = [p.finish for p in pieces if isinstance(p, Text)]
    return [*of_calls[-1:], *of_text[-1:], "stop"][0]


def cut(pieces: Sequence[Piece], request: Request) -> tuple[Piece, ...]:
    """Return as much of an answer as the ``max_tokens`` of its request let a model say.

    What is cut has its part of the text, the finish reason ``length`` and a usage of just as many
    tokens; calls of which not all would be said are not made.
    """
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    reported = usage(pieces, request)
    said = reported["completion_tokens"]
    if not isinstance(limit, int) or said <= limit:
        return tuple(pieces)
    left = sum(map(_chars, pieces)) * limit // said
    kept: list[Piece] = []
    for piece in pieces:
        if _chars(piece) > left:
            text = piece.text if isinstance(piece, Text | Thinking | ToolCalls) else ""
            kept.append(Thinking(text[:left]) if isinstance(piece, Thinking) else Text(text[:left]))
            break
        kept.append(piece)
        left -= _chars(piece)
    spent = TokenUsage(prompt_tokens=reported["prompt_tokens"], completion_tokens=limit)
    return (*kept, Text("", finish="length", usage=spent))


def usage(pieces: Sequence[Piece], request: Request) -> Json:
    """Return the usage that the script says, else one computed from the lengths."""
    given = [p.usage for p in pieces if isinstance(p, Text | ToolCalls) and p.usage is not None]
    tokens = given[-1] if given else _estimated(pieces, request)
    total = tokens.total_tokens or tokens.prompt_tokens + tokens.completion_tokens
    body: Json = {
        "prompt_tokens": tokens.prompt_tokens,
        "completion_tokens": tokens.completion_tokens,
        "total_tokens": total,
    }
    if tokens.cached_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": tokens.cached_tokens}
    return body


def _estimated(pieces: Iterable[Piece], request: Request) -> TokenUsage:
    said = sum(_chars(piece) for piece in pieces)
    asked = len(encode(_without_data(request.get("messages") or [])))
    return TokenUsage(
        prompt_tokens=math.ceil(asked / CHARS_PER_TOKEN),
        completion_tokens=math.ceil(said / CHARS_PER_TOKEN),
    )


def _without_data(value: object) -> object:
    """Return messages without the bytes of images and files, whose length says nothing."""
    if isinstance(value, dict):
        return {name: _without_data(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_data(one) for one in value]
    return "" if isinstance(value, str) and value.startswith("data:") else value


def _chars(piece: Piece) -> int:
    match piece:
        case ToolCalls():
            calls = (len(call.name) + len(arguments_text(call)) for call in piece.calls)
            return len(piece.text) + sum(calls)
        case Text() | Thinking() | Truncate():
            return len(piece.text)
        case _:
            return 0


def error_body(error: Error) -> Json:
    """Return the body of an error, or of an error event in a stream."""
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP's own
    kind = _ERROR_TYPES.get(error.status, fallback)
    return {"error": {"message": error.message, "type": kind, "param": None, "code": error.code}}


def last_user_text(request: Request) -> str:
    """Return the text of the newest user message, or an empty one."""
    users = [entry for entry in _entries(request) if entry.get("role") == "user"]
    return text_of(users[-1]) if users else ""


def last_entry(request: Request) -> Json:
    """Return the newest message, or an empty one."""
    entries = _entries(request)
    return entries[-1] if entries else {}


def text_of(entry: Json) -> str:
    """Return the text of one message, whose content may be of parts."""
    content = entry.get("content")
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        return "".join(str(part) for part in parts)
    return str(content or "")


def _entries(request: Request) -> list[Json]:
    messages = request.get("messages")
    found = messages if isinstance(messages, list) else []
    return [entry for entry in found if isinstance(entry, dict)]
