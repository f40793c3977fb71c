"""What an event of a reply may hold, judged as it comes: one edge for three wire formats.

litellm takes an empty piece for what it can't read, so a field of a wrong type would be an answer
with nothing in it. Here it is refused by its name. What vendors tell in another way is put as
litellm reads it: content in parts, a refusal, a call in the older form.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from workers.builtin.providers._failures import RefusedAnswerError

MARKS: Final = (b'"choices"', b'"content_block', b'"candidates"')
"""What an event of a reply has in it: OpenAI's, Anthropic's, Google's."""
_DELTA: Final = {"reasoning_content": str, "refusal": str, "tool_calls": list, "content": str}
_CALL: Final = {"index": int, "id": str, "type": str, "function": dict}
_FUNCTION: Final = {"name": str, "arguments": str}
_BLOCK: Final = {"text": str, "thinking": str, "id": str, "name": str, "input": dict}
_BLOCK_DELTA: Final = {"text": str, "thinking": str, "partial_json": str}
_PART: Final = {"text": str, "functionCall": dict}
_GOOGLES_CALL: Final = {"name": str, "args": dict, "id": str}
_NAMES: Final[Mapping[type, str]] = {dict: "object", list: "array"}


def settle_event(told: Mapping[str, Any]) -> bool:  # Any: JSON as it came
    """Put an event as litellm reads it; say whether anything was changed.

    Raises:
        RefusedAnswerError: a field of it has a wrong type; the text names both.
    """
    block, delta = told.get("content_block"), told.get("delta")
    if isinstance(block, dict):
        _check(block, _BLOCK, "a content block")
    if isinstance(delta, dict):
        _check(delta, _BLOCK_DELTA, "a content block's delta")
    for candidate in _objects(told.get("candidates")):
        content = candidate.get("content")
        for part in _objects(content.get("parts") if isinstance(content, dict) else None):
            _check(part, _PART, "a part")
            _check(part.get("functionCall") or {}, _GOOGLES_CALL, "a function call")
    is_changed = _drop_others(told)
    return sum(_settle_choice(choice) for choice in _objects(told.get("choices"))) > 0 or is_changed


def _drop_others(told: Mapping[str, Any]) -> bool:
    """Leave of several answers to one request the first; say whether there were others."""
    is_changed = False
    for choices in (told.get("choices"), told.get("candidates")):
        if isinstance(choices, list):
            own = [one for one in choices if not _is_other(one)]
            is_changed |= len(own) < len(choices)
            choices[:] = own
    return is_changed


def _is_other(choice: object) -> bool:
    index = choice.get("index") if isinstance(choice, dict) else None
    if not isinstance(index, int | float) or math.isinf(index):  # the reader's to refuse
        return False
    return index != 0


def _settle_choice(choice: dict[str, Any]) -> bool:
    _check(choice, {"delta": dict, "finish_reason": str}, "a choice")
    delta = choice.get("delta") or {}
    is_changed = _join_parts(delta) | _say_refusal(delta)
    _check(delta, _DELTA, "a delta")
    if delta.get("function_call") is not None:
        _check(delta, {"function_call": dict}, "a delta")
        delta["tool_calls"] = [{"index": 0, "function": delta.pop("function_call")}]
        is_changed = True
    if choice.get("finish_reason") == "function_call":
        choice["finish_reason"] = "tool_calls"
        is_changed = True
    for call in delta.get("tool_calls") or ():
        is_changed |= _settle_call(call)
    return is_changed


def _settle_call(call: object) -> bool:
    if not isinstance(call, dict):
        raise _refused("a member", "tool_calls", call, dict)
    _check(call, _CALL, "a tool call")
    function = call.get("function")
    if function is None:
        if call.get("custom") is not None:
            return False
        raise _refused("function", "a tool call", function, dict)
    is_object = isinstance(function.get("arguments"), dict)
    if is_object:
        function["arguments"] = json.dumps(function["arguments"])
    _check(function, _FUNCTION, "a tool call")
    return is_object


def _join_parts(delta: dict[str, Any]) -> bool:
    """Make one text of a content in parts, and one of the thoughts among them."""
    parts = delta.get("content")
    if not isinstance(parts, list):
        return False
    texts, thoughts = list[str](), list[str]()
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "thinking":
            thoughts += _texts(part.get("thinking"))
        else:
            texts += _texts([part])
    delta["content"] = "".join(texts)
    if thoughts:
        delta["reasoning_content"] = "".join(thoughts)
    return True


def _texts(parts: object) -> Iterable[str]:
    for part in parts if isinstance(parts, list) else [parts]:
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            raise _refused("text", "a part of content", text, str)
        yield text


def _say_refusal(delta: dict[str, Any]) -> bool:
    """Make a refusal the text that it is."""
    _check(delta, {"refusal": str}, "a delta")
    refusal = delta.pop("refusal", None)
    if refusal:
        _check(delta, {"content": str}, "a delta")
        delta["content"] = (delta.get("content") or "") + refusal
    return bool(refusal)


def _objects(given: object) -> Iterable[dict[str, Any]]:
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else ()


def _check(holder: Mapping[str, object], fields: Mapping[str, type], of: str) -> None:
    for name, kind in fields.items():
        value = holder.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise _refused(name, of, value, kind)


def _refused(name: str, of: str, value: object, kind: type) -> RefusedAnswerError:
    found = _NAMES.get(type(value), type(value).__name__)
    told = f"{name} of {of} is {found}, not {_NAMES.get(kind, kind.__name__)}"
    return RefusedAnswerError(f"the provider's answer can't be read: {told}")
