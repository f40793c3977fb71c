"""What a provider's answer holds, judged as it comes: the events of a reply, and its usage.

Vendors' usages are read by litellm, by its clients' models and by tables of prices, and a number
that one of them does not expect fails the whole reply. So a usage is looked at before any of them
has it: one that can't be true is unknown. What could not be read is taken out of its event, and the
reply goes on without it. What a vendor names a count of tokens is a whole number in the range of
counts, or null: then it is not given.

``normalize_event`` is one edge for three wire formats. litellm takes an empty piece for what it
can't read, so a field of a wrong type would be an answer with nothing in it. Here it is refused by
its name. What vendors say in another way is put as litellm reads it: content in parts, a refusal, a
call in the older form. A character that a stream has cut in two waits for its other half.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from cmdc_runtime import checked_struct, plain
from cmdc_runtime.extensions.provider import Chunk, TextChunk, ThinkingChunk
from workers.builtin.providers._failures import (
    Heard,
    RefusedAnswerError,
    cut_error,
    may_be_long_error,
)

# --- characters in halves -------------------------------------------------------------------------


class SplitPairs:
    """Holds the first half of a pair until the next piece of the same kind.

    JSON writes what is beyond U+FFFF as a pair of surrogates, and a server may cut between them.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._held: dict[type[TextChunk | ThinkingChunk], str] = {}

    def joined(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield ``chunks``, each with the half before it and without one at its end."""
        for chunk in chunks:
            if isinstance(chunk, TextChunk | ThinkingChunk) and isinstance(chunk.text, str):
                yield from self._joined(chunk)
            else:
                yield chunk

    def _joined(self, chunk: TextChunk | ThinkingChunk) -> Iterator[Chunk]:
        if not self._held and (chunk.text.isascii() or plain.mended(chunk.text) == chunk.text):
            if chunk.text:
                yield chunk
            return
        text = self._held.pop(type(chunk), "") + chunk.text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._held[type(chunk)] = text[-1]
            text = text[:-1]
        if text:
            yield msgspec.structs.replace(chunk, text=plain.mended(text))

    def rest(self) -> Iterator[Chunk]:
        """Yield the halves without a second one."""
        for kind, half in self._held.items():
            yield kind(text=plain.mended(half))


# --- events of a reply ----------------------------------------------------------------------------

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


def normalize_event(said: Mapping[str, Any]) -> bool:  # Any: JSON as it came
    """Put an event as litellm reads it; say whether anything was changed.

    Raises:
        RefusedAnswerError: a field of it has a wrong type; the text names both.
    """
    block, delta = said.get("content_block"), said.get("delta")
    if isinstance(block, dict):
        _check(block, _BLOCK, "a content block")
    if isinstance(delta, dict):
        _check(delta, _BLOCK_DELTA, "a content block's delta")
    for candidate in _objects(said.get("candidates")):
        content = candidate.get("content")
        for part in _objects(content.get("parts") if isinstance(content, dict) else None):
            _check(part, _PART, "a part")
            _check(part.get("functionCall") or {}, _GOOGLES_CALL, "a function call")
    is_changed = _drop_others(said)
    choices = _objects(said.get("choices"))
    return sum(_normalize_choice(choice) for choice in choices) > 0 or is_changed


def _drop_others(said: Mapping[str, Any]) -> bool:
    """Leave of several answers to one request the first; say whether there were others."""
    is_changed = False
    for choices in (said.get("choices"), said.get("candidates")):
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


def _normalize_choice(choice: dict[str, Any]) -> bool:
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
        is_changed |= _normalize_call(call)
    return is_changed


def _normalize_call(call: object) -> bool:
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
    said = f"{name} of {of} is {found}, not {_NAMES.get(kind, kind.__name__)}"
    return RefusedAnswerError(f"the provider's answer can't be read: {said}")


# --- usages ---------------------------------------------------------------------------------------

NAMES: Final = ("usage", "usageMetadata", "usage_metadata")
"""Keys of a usage, in an event or in an object of it: Anthropic's first is in its ``message``."""
_MARK: Final = re.compile(rb'"(?:%s)"|%s' % ("|".join(NAMES).encode(), b"|".join(MARKS)))
_ERROR: Final = b'"error"'
_COUNT: Final = re.compile(r"(?:tokens|token_?count)$", re.IGNORECASE)
_DETAILS: Final = re.compile(r"details$", re.IGNORECASE)
PLACE_CHARS_MAX: Final = 160
"""Of where in a usage something is wrong, as the log says it."""
DIGITS_MAX: Final = 400
"""Of a whole number in an answer; one with more is infinite, as it is for a reader of floats."""
_CARRIED_BYTES: Final = 3
"""Of what was looked through: the longest end of an event but for its last byte."""


class UsageWatch:
    """What is wrong with the usage of one reply; ``problem`` is the first thing, or None.

    ``heard`` is what servers say where they refuse the request.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.problem: str | None = None
        self.heard = Heard()

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Let answers to requests that are sent inside be looked at for this reply."""
        token = _WATCH.set(self)
        try:
            yield
        finally:
            _WATCH.reset(token)


_WATCH: Final[ContextVar[UsageWatch | None]] = ContextVar("usage_watch", default=None)


def current_watch() -> UsageWatch | None:
    """Return the watch over the reply that is asked for, or None."""
    return _WATCH.get()


class UsageSieve:
    """Passes an answer on, event by event, without the usages that can't be read."""

    def __init__(self, watch: UsageWatch, ends: re.Pattern[bytes]) -> None:
        """Report to ``watch`` what is taken out; ``ends`` are the ends of events.

        An event is held until it ends: who gives the pieces bounds it.
        """
        self._watch = watch
        self._ends = ends
        self._held = bytearray()

    def take(self, piece: bytes) -> bytes:
        """Return the events that end in ``piece``."""
        seen = max(len(self._held) - _CARRIED_BYTES, 0)
        self._held += piece
        whole, at = list[bytes](), 0
        for end in self._ends.finditer(self._held, seen):
            whole.append(self._sifted(bytes(self._held[at : end.end()])))
            at = end.end()
        del self._held[:at]
        return b"".join(whole)

    def rest(self) -> bytes:
        """Return what is left at the end of the answer."""
        left = self._sifted(bytes(self._held))
        self._held.clear()
        return left

    def _sifted(self, event: bytes) -> bytes:
        is_long_error = may_be_long_error(event)
        if _MARK.search(event) is None and _ERROR not in event:
            return event
        lines = event.splitlines()
        data = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        try:
            said = json.loads(b"\n".join(data) if data else event, parse_int=read_whole)
            if isinstance(said, dict) and said.get("error"):
                self._watch.heard.note_event(json.dumps(said).encode())
            is_changed = self._sift(said)
            if is_long_error and isinstance(said, dict):
                is_changed |= cut_error(said)
            if isinstance(said, dict):
                is_changed |= normalize_event(said)
            # What is no JSON is litellm's to refuse.
            body = json.dumps(said).encode() if is_changed else b""
        except (ValueError, RecursionError):
            return event
        if not is_changed:
            return event
        others = [line for line in lines if line and not line.startswith(b"data:")] if data else []
        ending = event[len(event.rstrip(b"\r\n")) :]
        return b"\n".join((*others, b"data: " + body if data else body)) + ending

    def _sift(self, said: object) -> bool:
        """Take what can't be read out of an event; say whether there was any."""
        if not isinstance(said, dict):
            return False
        is_changed = False
        for holder in (said, *(part for part in said.values() if isinstance(part, dict))):
            for name in NAMES:
                usage = holder.get(name)
                if usage is None:
                    continue
                problem = usage_problem(usage)
                if problem is not None:
                    self._watch.problem = self._watch.problem or f"{name}{problem}"
                    del holder[name]
                    is_changed = True
                else:
                    is_changed |= drop_nulls(usage)
        return is_changed


def read_whole(digits: str) -> int | float:
    # Python makes no int of more than 4,300 digits.
    return int(digits) if len(digits) <= DIGITS_MAX else math.copysign(math.inf, float(digits))


def usage_problem(usage: Any) -> str | None:  # Any: JSON as it came
    """Return what in a vendor's usage can't be true, with its place and value, or None."""
    if not isinstance(usage, dict):
        return f": {plain.short(usage)} is no object"
    left: list[tuple[str, Any]] = [("", usage)]
    while left:
        place, holder = left.pop()
        is_named = isinstance(holder, dict)
        for key, part in holder.items() if is_named else enumerate(holder):
            at = f"{place}[{plain.short(key)}]"[:PLACE_CHARS_MAX]
            wrong = _member_problem(str(key), part) if is_named and part is not None else None
            if wrong is not None:
                return f"{at}: {plain.short(part)} is no {wrong}"
            if isinstance(part, dict | list):
                left.append((at, part))
    counts = [key for key in usage if _COUNT.search(key)]
    if counts and all(usage[key] is None for key in counts):
        return f"[{plain.short(counts[0])}]: None, and no other count is reported"
    problem = plain.problem_of(usage)
    is_placed = problem is None or problem.startswith("[")
    return problem if is_placed else f": {problem}"


def _member_problem(key: str, part: object) -> str | None:
    """Return what the member of a usage should be, where it is not."""
    if _DETAILS.search(key):
        many = part if isinstance(part, list) else (part,)
        return None if all(isinstance(one, dict) for one in many) else "object, or array of them"
    if not _COUNT.search(key):
        return None
    count = int(part) if isinstance(part, float) and part.is_integer() else part
    problem = plain.whole_problem(count, 0, checked_struct.COUNT_MAX)
    return None if problem is None else f"whole number from 0 to {checked_struct.COUNT_MAX:,}"


def drop_nulls(usage: dict[str, object]) -> bool:
    # One of the readers compares null with a number.
    nulls = [key for key in usage if usage[key] is None and _COUNT.search(key)]
    for key in nulls:
        del usage[key]
    return bool(nulls)
