"""Answers as vendors stream them, each generated from a number: whole ones, and ones that fail."""

import json
import random
from dataclasses import dataclass, field

TEXTS = ("Hello", " world", ".\n", "ä😀", "  ", "{", "data: x", "<b>", '"', "\\n", "x" * 300)
ARGUMENTS = (
    {},
    {"path": "a.txt"},
    {"a": [1, {"b": None}], "t": "ä😀\n"},
    {"n": 1.5, "x": "y" * 99},
)
FAILURES = {
    "openai": (
        (400, {"error": {"message": "no", "type": "invalid_request_error", "code": None}}),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
        (401, {"error": {"message": "who?", "code": "invalid_api_key"}}),
        (403, {"error": {"message": "no"}}),
        (404, {"error": {"message": "no such model"}}),
        (422, {"error": {"message": "odd"}}),
        (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
        (500, {"error": {"message": "broken"}}),
        (503, {"error": {"message": "later"}}),
        (529, {"error": {"message": "overloaded"}}),
    ),
    "anthropic": (
        (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}),
        (400, {"type": "error", "error": {"type": "x", "message": "prompt is too long: 9 > 7"}}),
        (401, {"type": "error", "error": {"type": "authentication_error", "message": "who?"}}),
        (403, {"type": "error", "error": {"type": "permission_error", "message": "no"}}),
        (404, {"type": "error", "error": {"type": "not_found_error", "message": "model: x"}}),
        (413, {"type": "error", "error": {"type": "request_too_large", "message": "big"}}),
        (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}),
        (500, {"type": "error", "error": {"type": "api_error", "message": "broken"}}),
        (503, {"type": "error", "error": {"type": "api_error", "message": "later"}}),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}),
    ),
}
"""Refusals in each vendor's words."""
WAITS = ({}, {"retry-after": "7"}, {"retry-after": "0.5"}, {"retry-after": "soon"})
ENDS = ("whole",) * 6 + ("cut", "torn", "error")
"""How a stream ends: as it should, too early, inside an event, or by what its server says."""


@dataclass
class Answer:
    """What a server answers to one request; ``pieces`` are written one after the other."""

    status: int = 200
    headers: dict = field(default_factory=lambda: {"content-type": "text/event-stream"})
    pieces: list = field(default_factory=list)


def answer_of(wire, number):
    """Return the answer of a number, the same each time; every fifth is a refusal."""
    chance = random.Random(f"{wire} {number}")
    if number % 5 == 4:
        status, body = FAILURES[wire][number // 5 % len(FAILURES[wire])]
        headers = {"content-type": "application/json", **chance.choice(WAITS)}
        return Answer(status, headers, [json.dumps(body).encode()])
    events = EVENTS[wire](chance)
    end = chance.choice(ENDS)
    if end != "whole":
        events = events[: chance.randrange(1, LAST[wire](events))]
    if end == "error":
        events.append(ERRORS[wire])
    named = wire == "anthropic"
    body = "".join(_line(one, chance, named=named) for one in events)
    if end == "torn":
        body += 'data: {"type": "x", "choices": [{'
    if wire == "openai" and end == "whole":
        body += "data: [DONE]\n\n"
    ending = chance.choice(("\n", "\r\n"))
    return Answer(pieces=_cut(body.replace("\n", ending).encode(), chance))


def _line(event, chance, *, named):
    name = f"event: {event['type']}\n" if named else ""
    comment = ": keep alive\n\n" if chance.random() < 0.05 else ""
    return f"{comment}{name}data: {json.dumps(event, ensure_ascii=chance.random() < 0.5)}\n\n"


def _cut(body, chance):
    places = sorted(chance.randrange(len(body)) for _ in range(chance.choice((0, 1, 5, 20))))
    return [body[at:to] for at, to in zip([0, *places], [*places, len(body)], strict=True)]


def _texts(chance):
    return [chance.choice(TEXTS) for _ in range(chance.randint(1, 6))]


def _parts(text, chance):
    """Cut the arguments of a call."""
    places = sorted({chance.randrange(len(text)) for _ in range(chance.choice((0, 1, 3)))} - {0})
    return [text[at:to] for at, to in zip([0, *places], [*places, len(text)], strict=True)]


# --- OpenAI's wire --------------------------------------------------------------------------------


def _chunk(delta, reason=None, **fields):
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    return {**head, "choices": [choice], **fields}


def _openai(chance):
    events = [_chunk({"role": "assistant", "content": ""})]
    if chance.random() < 0.4:
        events += [_chunk({"reasoning_content": one}) for one in _texts(chance)]
    if chance.random() < 0.8:
        events += [_chunk({"content": one}) for one in _texts(chance)]
    calls = chance.choice((0, 0, 1, 2, 3))
    for index in range(calls):
        function = {"name": f"tool_{index}", "arguments": ""}
        head = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        events.append(_chunk({"tool_calls": [head]}))
        for part in _parts(json.dumps(chance.choice(ARGUMENTS)), chance):
            piece = {"index": index, "function": {"arguments": part}}
            events.append(_chunk({"tool_calls": [piece]}))
    reason = "tool_calls" if calls else chance.choice(("stop", "length", "content_filter"))
    prompt, said = chance.randint(1, 9_000), chance.randint(1, 900)
    usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    if chance.random() < 0.5:
        usage["prompt_tokens_details"] = {"cached_tokens": prompt // 3, "audio_tokens": 0}
        usage["completion_tokens_details"] = {"reasoning_tokens": said // 2}
    events.append(_chunk({}, reason))
    return [*events, _chunk({}) | {"choices": [], "usage": usage}]


# --- Anthropic's wire -----------------------------------------------------------------------------


def _block(index, start, deltas):
    head = {"type": "content_block_start", "index": index, "content_block": start}
    pieces = [{"type": "content_block_delta", "index": index, "delta": one} for one in deltas]
    return [head, *pieces, {"type": "content_block_stop", "index": index}]


def _anthropic(chance):
    blocks = []
    if chance.random() < 0.4:
        thoughts = [{"type": "thinking_delta", "thinking": one} for one in _texts(chance)]
        thoughts.append({"type": "signature_delta", "signature": "c2ln"})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, thoughts))
    if chance.random() < 0.8:
        texts = [{"type": "text_delta", "text": one} for one in _texts(chance)]
        blocks.append(({"type": "text", "text": ""}, texts))
    calls = chance.choice((0, 0, 1, 2, 3))
    for index in range(calls):
        parts = _parts(json.dumps(chance.choice(ARGUMENTS)), chance)
        pieces = [{"type": "input_json_delta", "partial_json": one} for one in ("", *parts)]
        start = {"type": "tool_use", "id": f"toolu_{index}", "name": f"tool_{index}", "input": {}}
        blocks.append((start, pieces if chance.random() < 0.8 else []))
    events = [one for at, block in enumerate(blocks) for one in _block(at, *block)]
    first = {"input_tokens": chance.randint(1, 9_000), "output_tokens": 1}
    if chance.random() < 0.5:
        first |= {"cache_read_input_tokens": chance.choice((0, 700))}
        first |= {"cache_creation_input_tokens": chance.choice((0, 30))}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m"}
    reason = "tool_use" if calls else chance.choice(("end_turn", "max_tokens", "stop_sequence"))
    return [
        {"type": "message_start", "message": {**message, "usage": first}},
        *([{"type": "ping"}] if chance.random() < 0.5 else []),
        *events,
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": chance.randint(1, 900)},
        },
        {"type": "message_stop"},
    ]


EVENTS = {"openai": _openai, "anthropic": _anthropic}
LAST = {"openai": lambda events: len(events) - 1, "anthropic": lambda events: len(events) - 1}
"""How many events a stream can be cut to without a finish in it."""
ERRORS = {
    "openai": {"error": {"message": "broken", "type": "server_error", "code": 500}},
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
}
