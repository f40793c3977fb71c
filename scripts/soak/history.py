"""Whether a provider accepts a conversation, decided by rules of its own and not by the kernel's.

The rules are the strictest of those that vendors have: every call is answered exactly once, right
after it; nobody answers what was not asked; the model never speaks twice in a row; the last word of
a request is not the model's; no text is blank; arguments are a JSON object; names are names.
``entries_of`` and ``entries_heard`` bring both forms of a conversation to the same one.

To add a rule, add it to ``_RULES`` or to ``_of_calls``.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from cmdc_runtime.messages import Message

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

Speaker = Literal["system", "user", "assistant", "tool"]
_SPEAKERS: Final[dict[str, Speaker]] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "tool_result": "tool",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool; ``arguments`` as they are sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One message, in whichever form it came."""

    speaker: Speaker
    text: str
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    """The id of the call that this is the result of."""


def entries_of(messages: Iterable[dict[str, Any]]) -> list[Entry]:
    """Return the messages of a request in OpenAI's form (Any: JSON)."""
    return [
        Entry(
            _SPEAKERS[message["role"]],
            str(message.get("content") or ""),
            tuple(_call_of(call) for call in message.get("tool_calls") or ()),
            message.get("tool_call_id"),
        )
        for message in messages
    ]


def _call_of(call: dict[str, Any]) -> Call:  # Any: JSON
    function = call["function"]
    return Call(call["id"], function["name"], function["arguments"])


def entries_heard(messages: Iterable[Message]) -> list[Entry]:
    """Return the messages that a session returns, but for answers that hold nothing at all.

    Those are never sent: a model that only thought has left them.
    """
    return [
        Entry(
            _SPEAKERS[message.role],
            message.content,
            tuple(
                Call(call.call_id, call.name, json.dumps(call.arguments))
                for call in message.tool_calls
            ),
            message.call_id,
        )
        for message in messages
        if message.role != "assistant" or message.content or message.tool_calls
    ]


def problems_of(entries: Sequence[Entry], *, is_request: bool) -> list[str]:
    """Return what a provider would refuse, one line for each; ``is_request``: it is asked now."""
    problems = [problem for rule in _RULES for problem in rule(entries)]
    problems += _of_calls(entries)
    if is_request and entries and entries[-1].speaker not in {"user", "tool"}:
        problems.append(f"the last word is the {entries[-1].speaker}'s")
    return problems


def _of_system(entries: Sequence[Entry]) -> Iterator[str]:
    for place, entry in enumerate(entries[1:], 1):
        if entry.speaker == "system":
            yield f"message {place}: a system message in the middle"


def _of_beginning(entries: Sequence[Entry]) -> Iterator[str]:
    said = [entry for entry in entries if entry.speaker != "system"]
    if said and said[0].speaker != "user":
        yield f"the first word is the {said[0].speaker}'s"


def _of_turns(entries: Sequence[Entry]) -> Iterator[str]:
    for place, (before, after) in enumerate(pairwise(entries), 1):
        if before.speaker == after.speaker == "assistant":
            yield f"message {place}: the model speaks twice in a row"


def _of_texts(entries: Sequence[Entry]) -> Iterator[str]:
    for place, entry in enumerate(entries):
        if not entry.text.strip() and not entry.calls and entry.speaker != "tool":
            yield f"message {place}: the {entry.speaker}'s text is blank"


def _of_arguments(entries: Sequence[Entry]) -> Iterator[str]:
    for place, entry in enumerate(entries):
        for call in entry.calls:
            if not NAME.fullmatch(call.name):
                yield f"message {place}: {call.name!r} is no name of a tool"
            if not _is_object(call.arguments):
                yield f"message {place}: arguments of {call.id} are no JSON object"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


_RULES: Final[tuple[Callable[[Sequence[Entry]], Iterator[str]], ...]] = (
    _of_system,
    _of_beginning,
    _of_turns,
    _of_texts,
    _of_arguments,
)


def _of_calls(entries: Sequence[Entry]) -> Iterator[str]:
    waiting: list[str] = []
    for place, entry in enumerate(entries):
        if entry.speaker == "tool":
            if entry.answers in waiting:
                waiting.remove(entry.answers)
            else:
                yield f"message {place}: a result of {entry.answers}, which is not asked for"
            continue
        if waiting:
            yield f"message {place}: no result of {', '.join(waiting)} before it"
        waiting = [call.id for call in entry.calls]
        if len(set(waiting)) < len(waiting):
            yield f"message {place}: one id for two calls"
    if waiting:
        yield f"the end: no result of {', '.join(waiting)}"
