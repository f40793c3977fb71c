"""Requests and answers of OpenAI's API, as a model of 135 million parameters can follow them. Pure.

Such a model knows no tool role and cannot hold a call format by itself. So a request with tools
becomes a request for JSON under a schema made of the tools' own, which the engine enforces as a
grammar; a tool's result becomes a plain user message, and the answer to it is plain text. The
engine's chunks are put into the shapes that a client expects.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

# --- requests -------------------------------------------------------------------------------------

Json: TypeAlias = dict[str, Any]  # Any: JSON

ANSWER_TOKENS: Final = 256
ANSWER_TOKENS_MAX: Final = 512
"""A small model may babble until its context is full; no answer is longer than this."""
_PASSED_ON: Final = ("temperature", "top_p", "seed", "stop", "response_format")
# Tried on SmolLM2-135M: without a penalty it repeats itself until the bound, with one it will not
# repeat a tool's result; without a system message it answers in French; and it picks a tool best
# from lines that it only has to fill in.
_TALK: Final[Json] = {"temperature": 0.0, "repeat_penalty": 1.1}
_EXACT: Final[Json] = {"temperature": 0.0}
_SYSTEM: Final = "You are a helpful assistant."
_TOOLS_RULE: Final = "Tools:"
_CALL_RULE: Final = "Which of the tools answers this? Write its line, filled in."
_RESULT_RULE: Final = "The tool {name} returned: {content}\nTell me this in one short sentence."


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """What to ask the engine, and whether its answer is a tool call."""

    body: Json
    is_call: bool


def plan(request: Json) -> AnswerPlan:
    """Return what to ask the engine for one chat request.

    Raises:
        ValueError: the request has no messages, or asks for a tool that it does not offer.
    """
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a non-empty list")
    tools = _tools_to_call(request, messages[-1])
    defaults = _EXACT if tools or messages[-1].get("role") == "tool" else _TALK
    body = defaults | {key: request[key] for key in _PASSED_ON if request.get(key) is not None}
    body["max_tokens"] = _tokens_max(request)
    body["messages"] = _flattened(messages, tools)
    if tools:
        schema = {"name": "call", "schema": {"anyOf": [_call_schema(tool) for tool in tools]}}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return AnswerPlan(body=body, is_call=bool(tools))


def _tools_to_call(request: Json, last: Json) -> list[Json]:
    functions = [tool["function"] for tool in request.get("tools") or []]
    choice = request.get("tool_choice") or "auto"
    if isinstance(choice, dict):
        name = choice["function"]["name"]
        named = [function for function in functions if function["name"] == name]
        if not named:
            raise ValueError(f"tool_choice names {name!r}, which is not among the tools")
        return named
    if choice == "none" or (choice == "auto" and last.get("role") == "tool"):
        return []
    return functions


def _tokens_max(request: Json) -> int:
    asked = request.get("max_completion_tokens") or request.get("max_tokens") or ANSWER_TOKENS
    return min(int(asked), ANSWER_TOKENS_MAX)


def _call_schema(function: Json) -> Json:
    arguments = function.get("parameters") or {"type": "object", "properties": {}}
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _flattened(messages: list[Json], tools: list[Json]) -> list[Json]:
    names = {
        call["id"]: call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls") or []
    }
    system = [_text(message) for message in messages if message.get("role") == "system"]
    spoken = [_spoken(message, names) for message in messages if message.get("role") != "system"]
    if tools:
        system.append("\n".join([_TOOLS_RULE, *map(_call_line, tools)]))
        spoken.append({"role": "user", "content": _CALL_RULE})
    content = "\n\n".join(system) or _SYSTEM
    return [{"role": "system", "content": content}, *_joined(spoken)]


def _call_line(function: Json) -> str:
    """Return a call with the values left out, and what the tool is for."""
    properties = (function.get("parameters") or {}).get("properties") or {}
    call = {"name": function["name"], "arguments": dict.fromkeys(properties, "...")}
    return f"{json.dumps(call)}  # {function.get('description') or ''}"


def _joined(messages: list[Json]) -> list[Json]:
    """Return the messages with neighbours of one role made one, as the chat template expects."""
    groups = itertools.groupby(messages, key=lambda message: message["role"])
    return [
        {"role": role, "content": "\n".join(message["content"] for message in group)}
        for role, group in groups
    ]


def _spoken(message: Json, names: dict[str, str]) -> Json:
    role, content = message.get("role"), _text(message)
    if role == "tool":
        name = names.get(message.get("tool_call_id", ""), "tool")
        return {"role": "user", "content": _RESULT_RULE.format(name=name, content=content)}
    calls = [call["function"]["name"] for call in message.get("tool_calls") or []]
    said = [f"I will look that up with {name}." for name in calls]
    return {"role": role, "content": " ".join([content, *said]).strip()}


def _text(message: Json) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def call_of(text: str) -> tuple[str, str] | None:
    """Return name and arguments of the call that the engine wrote; None if it was cut short."""
    try:
        call = json.loads(text)
    except ValueError:
        return None
    return call["name"], json.dumps(call["arguments"], ensure_ascii=False)


# --- answers --------------------------------------------------------------------------------------

MODEL: Final = "local"
ARGUMENT_CHUNK_CHARS: Final = 8
_KEPT: Final = ("id", "object", "created", "choices", "usage")


def cleaned(chunk: Json) -> Json:
    """Return the engine's chunk without timings and without the path of the weights."""
    return {key: chunk[key] for key in _KEPT if key in chunk} | {"model": MODEL}


@dataclass(slots=True)
class Gathered:
    """An answer that is collected before it is sent; it owns what ``add`` was given."""

    id: str = ""
    created: int = 0
    finish: str | None = None
    usage: Json = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)

    def add(self, chunk: Json) -> None:
        """Take the engine's next chunk."""
        self.id, self.created = chunk["id"], chunk["created"]
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            self.parts.append(choice["delta"].get("content") or "")
            self.finish = choice["finish_reason"] or self.finish

    def completion(self, *, is_call: bool) -> Json:
        """Return the whole answer; as a tool call if it is one and was not cut short."""
        text = "".join(self.parts)
        call = call_of(text) if is_call else None
        message: Json = {"role": "assistant", "content": text}
        if call:
            message = {"role": "assistant", "content": None, "tool_calls": [self._call(*call)]}
        choice = {"index": 0, "message": message, "finish_reason": self._finish(call)}
        return self._object("chat.completion", [choice]) | {"usage": self.usage}

    def call_chunks(self) -> Iterator[Json]:
        """Yield the answer as a stream of a tool call, or of text if it was cut short."""
        text = "".join(self.parts)
        call = call_of(text)
        if call is None:
            yield self._chunk({"role": "assistant", "content": text})
        else:
            yield from self._fragments(*call)
        yield self._chunk({}, self._finish(call))

    def usage_chunk(self) -> Json:
        """Return the chunk that carries only the usage."""
        return self._object("chat.completion.chunk", []) | {"usage": self.usage}

    def _fragments(self, name: str, arguments: str) -> Iterator[Json]:
        opening = self._call(name, "") | {"index": 0}
        yield self._chunk({"role": "assistant", "content": None, "tool_calls": [opening]})
        for at in range(0, len(arguments), ARGUMENT_CHUNK_CHARS):
            function = {"arguments": arguments[at : at + ARGUMENT_CHUNK_CHARS]}
            yield self._chunk({"tool_calls": [{"index": 0, "function": function}]})

    def _call(self, name: str, arguments: str) -> Json:
        # One call per answer, so the answer's id makes the call's unique too.
        function = {"name": name, "arguments": arguments}
        return {"id": f"call_{self.id[-12:]}", "type": "function", "function": function}

    def _finish(self, call: tuple[str, str] | None) -> str | None:
        return self.finish if call is None else "tool_calls"

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._object("chat.completion.chunk", [choice])

    def _object(self, kind: str, choices: list[Json]) -> Json:
        created = self.created
        return {"id": self.id, "object": kind, "created": created, "model": MODEL} | {
            "choices": choices
        }
