"""What was said, as the semantic conventions write it down: messages as JSON of bounded size.

A message is a role with parts: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from cmdc_runtime.messages import Message

TEXT_CHARS_MAX: Final = 8_192
"""Of one text, or of what a tool was given or returned."""
MESSAGES_CHARS_MAX: Final = 65_536
"""Of all messages of one attribute: the newest are kept."""
_ROLES: Final = {"tool_result": "tool"}


def messages_json(messages: Sequence[Message]) -> tuple[str, int]:
    """Return the newest messages as JSON, oldest first, and how many were left out."""
    kept: list[str] = []
    chars = 0
    for message in reversed(messages):
        told = _json(_told(message))
        chars += len(told)
        if kept and chars > MESSAGES_CHARS_MAX:
            break
        kept.append(told)
    return f"[{','.join(reversed(kept))}]", len(messages) - len(kept)


def arguments_json(arguments: object) -> str:
    """Return the arguments of a call as JSON."""
    return text_of(_json(arguments))


def text_of(text: str) -> str:
    """Return a text with a mark in the place of what is too much of it."""
    left = len(text) - TEXT_CHARS_MAX
    return text if left <= 0 else f"{text[:TEXT_CHARS_MAX]}… ({left} more characters)"


def _told(message: Message) -> dict[str, Any]:  # Any: JSON
    told: dict[str, Any] = {
        "role": _ROLES.get(message.role, message.role),
        "parts": list(_parts(message)),
    }
    if reason := message.metadata.get("finish_reason"):
        told["finish_reason"] = str(reason)
    return told


def _parts(message: Message) -> Iterator[dict[str, Any]]:  # Any: JSON
    if message.role == "tool_result":
        answer = text_of(message.content)
        yield {"type": "tool_call_response", "id": message.call_id, "response": answer}
        return
    if message.thinking:
        yield {"type": "reasoning", "content": text_of(message.thinking)}
    if message.content:
        yield {"type": "text", "content": text_of(message.content)}
    for call in message.tool_calls:
        given = arguments_json(call.arguments)
        yield {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": given}


def _json(thing: object) -> str:
    try:
        return msgspec.json.encode(thing).decode()
    except (TypeError, ValueError, RecursionError) as error:
        return msgspec.json.encode(f"{type(error).__name__}: no JSON").decode()
