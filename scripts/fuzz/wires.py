"""What a provider might stream: the three wires, right but for what is hostile in their midst."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from scripts.fuzz.entropy import Entropy, one_in, pick

Json = Any  # Any: JSON, and what only looks like it

HOSTILE_ONE_IN: Final = 60
"""Nodes of an event that are replaced by a hostile one."""
EVENTS_MAX: Final = 6

_TEXTS: Final = (
    *("Hello", " world", "", "\ud83d", "\udc00x", "\x1b[2J", "a\0b", "é😀", "x" * 3_000),
    *("<title>", "</status>", "```", "[DONE]", "data: {}", "\n\n"),
)
_ARGUMENTS: Final = (
    *('{"path": "a"}', "{", '{"a": ', "[1]", "null", "", '{"n": 1e999}', '{"n": NaN}'),
    *('{"s": "\\ud800"}', '{"n": 123456789012345678901234567890}', '{"a":1}{"b":2}'),
)
_DEEP: Final = "@deep"
"""Stands for a deep nesting until the text is there: the encoder would not write one."""
_DEPTHS: Final = (65, 300, 970, 2_000)


def _numbers(entropy: Entropy) -> Json:
    return pick(entropy, (0, 5, -1, 2**63, 2**64, 10**30, 1.5, math.inf, math.nan, "7", None))


def _hostile(entropy: Entropy) -> Json:
    match entropy.below(6):
        case 0:
            return _numbers(entropy)
        case 1:
            return pick(entropy, _TEXTS)
        case 2:
            return f"{_DEEP}{pick(entropy, _DEPTHS)}"
        case 3:
            return [{}] * entropy.below(50)
        case 4:
            return {pick(entropy, _TEXTS): _numbers(entropy)}
        case _:
            return pick(entropy, (None, True, [], {}, ""))


def _spiced(node: Json, entropy: Entropy) -> Json:
    if one_in(entropy, HOSTILE_ONE_IN):
        return _hostile(entropy)
    if isinstance(node, dict):
        return {name: _spiced(one, entropy) for name, one in node.items()}
    return [_spiced(one, entropy) for one in node] if isinstance(node, list) else node


def _text(event: Json, entropy: Entropy) -> str:
    text = json.dumps(_spiced(event, entropy))
    for levels in _DEPTHS:
        text = text.replace(f'"{_DEEP}{levels}"', "[" * levels + "]" * levels)
    return text


def argument_text(entropy: Entropy) -> str:
    """Return the arguments of a call as a model might write them."""
    if one_in(entropy, 12):
        levels = pick(entropy, _DEPTHS)
        return '{"a": ' + "[" * levels + "]" * levels + "}"
    return pick(entropy, _ARGUMENTS)


def call_id(entropy: Entropy) -> str:
    """Return an id of a call."""
    return pick(entropy, ("call_1", "call_2", "", "c\x1b[2J", "\ud800", "c" * 5_000))


def tool_name(entropy: Entropy) -> str:
    """Return the name of a tool that is called."""
    return pick(entropy, ("read_file", "read_file", "", "nobody", "r\udfff", "n" * 3_000))


def openai(entropy: Entropy) -> Sequence[str]:
    """Return the lines of a stream of chat completions."""
    events = [_openai_chunk(entropy) for _ in range(entropy.below(EVENTS_MAX))]
    usage = {
        "prompt_tokens": _numbers(entropy),
        "completion_tokens": 2,
        "total_tokens": _numbers(entropy),
        "prompt_tokens_details": {"cached_tokens": _numbers(entropy)},
    }
    reason = pick(entropy, ("stop", "tool_calls", "length", "content_filter", "odd"))
    events.append({**_OPENAI, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    events.append({**_OPENAI, "choices": [], "usage": usage})
    return [*(f"data: {_text(one, entropy)}\n\n" for one in events), "data: [DONE]\n\n"]


_OPENAI: Final = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt-4o-mini",
}


def _openai_chunk(entropy: Entropy) -> Json:
    piece = {
        "index": pick(entropy, (0, 0, 1, -1, 10**9)),
        "id": call_id(entropy),
        "type": "function",
        "function": {"name": tool_name(entropy), "arguments": argument_text(entropy)},
    }
    delta = pick(
        entropy,
        (
            {"role": "assistant", "content": pick(entropy, _TEXTS)},
            {"content": pick(entropy, _TEXTS)},
            {"reasoning_content": pick(entropy, _TEXTS)},
            {"tool_calls": [piece] * (1 + entropy.below(2))},
        ),
    )
    return {**_OPENAI, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def anthropic(entropy: Entropy) -> Sequence[str]:
    """Return the lines of a stream of messages."""
    usage = {"input_tokens": _numbers(entropy), "cache_read_input_tokens": _numbers(entropy)}
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-3-5-haiku-latest",
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    events: list[Json] = [{"type": "message_start", "message": message}]
    for at in range(entropy.below(EVENTS_MAX)):
        events += _anthropic_block(at, entropy)
    reason = pick(entropy, ("end_turn", "tool_use", "max_tokens", "refusal", "odd"))
    last = {"stop_reason": reason, "stop_sequence": None}
    spent = {"output_tokens": _numbers(entropy)}
    events += [
        {"type": "message_delta", "delta": last, "usage": spent},
        {"type": "message_stop"},
    ]
    return [f"event: {one['type']}\ndata: {_text(one, entropy)}\n\n" for one in events]


def _anthropic_block(at: int, entropy: Entropy) -> list[Json]:
    start, delta = pick(
        entropy,
        (
            (
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": pick(entropy, _TEXTS)},
            ),
            (
                {"type": "thinking", "thinking": ""},
                {"type": "thinking_delta", "thinking": pick(entropy, _TEXTS)},
            ),
            (
                {
                    "type": "tool_use",
                    "id": call_id(entropy),
                    "name": tool_name(entropy),
                    "input": {},
                },
                {"type": "input_json_delta", "partial_json": argument_text(entropy)},
            ),
        ),
    )
    return [
        {"type": "content_block_start", "index": at, "content_block": start},
        {"type": "content_block_delta", "index": at, "delta": delta},
        {"type": "content_block_stop", "index": at},
    ]


def gemini(entropy: Entropy) -> Sequence[str]:
    """Return the lines of a stream of generated content."""
    lines = []
    for _ in range(1 + entropy.below(EVENTS_MAX)):
        part = pick(
            entropy,
            (
                {"text": pick(entropy, _TEXTS)},
                {"text": pick(entropy, _TEXTS), "thought": True},
                {
                    "functionCall": {
                        "name": tool_name(entropy),
                        "args": _spiced({"a": [1]}, entropy),
                    }
                },
            ),
        )
        candidate = {
            "content": {"parts": [part], "role": "model"},
            "finishReason": pick(entropy, (None, "STOP", "MAX_TOKENS", "SAFETY", "ODD")),
            "index": 0,
        }
        usage = {"promptTokenCount": _numbers(entropy), "totalTokenCount": 3}
        event = {"candidates": [candidate], "usageMetadata": usage}
        lines.append(f"data: {_text(event, entropy)}\n\n")
    return lines


WIRES: Final[Mapping[str, Callable[[Entropy], Sequence[str]]]] = {
    "openai:gpt-4o-mini": openai,
    "anthropic:claude-3-5-haiku-latest": anthropic,
    "gemini:gemini-2.0-flash": gemini,
}
"""By the model that a request for this wire names."""
