"""Anthropic's wire for messages: the body of a request, and the events of a reply."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from cmdc_runtime.extensions.provider import (
    Chunk,
    ModelRequest,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
)
from cmdc_runtime.ids import CallId
from workers.builtin.providers._conversation import CACHE_CONTROL, arguments_of
from workers.builtin.providers._failures import Heard
from workers.builtin.providers._formats import Way, way_of
from workers.builtin.wires.claude_schemas import BETA, sent_schema
from workers.builtin.wires.reply import StreamedReply
from workers.builtin.wires.routes import Route
from workers.builtin.wires.table import Priced

# --- the request ----------------------------------------------------------------------------------

PATH: Final = "/v1/messages"
VERSION: Final = "2023-06-01"
"""Of the wire; Anthropic has had no other since."""
TOKENS_MAX: Final = 128_000
"""Of an answer, where neither the request nor the table has a bound: the wire demands one."""
THINKING_ROOM: Final = 4_096
"""Tokens of an answer beside its thoughts, where nothing bounds both together."""
EMPTY: Final = "[System: Empty message content sanitised to satisfy protocol]"
"""Stands for a user's text without a sign in it, which Anthropic refuses."""
NO_TOOL: Final[Mapping[str, object]] = {
    "name": "dummy_tool",
    "input_schema": {"type": "object", "properties": {}},
    "type": "custom",
    "description": "This is a dummy tool call",
}
"""Offered where a history has calls and the request has no tools: Anthropic wants to see some."""
_SAME: Final = ("temperature", "top_p", "top_k", "thinking")
_SCHEMA: Final = "$schema"


def address_of(route: Route) -> str:
    """Return where requests go: an address may end in the path already."""
    address = route.address
    return address if address.endswith(PATH) else address + PATH


def body_of(route: Route, request: ModelRequest) -> dict[str, object]:
    """Return what is sent."""
    arguments = arguments_of(request, route.facts)
    entries = cast("Sequence[dict[str, Any]]", arguments["messages"])
    system = [one for one in _leading(entries) if one["content"]]
    messages = [*_turns(entries[len(_leading(entries)) :])]
    body: dict[str, object] = {
        "model": route.model_id,
        "messages": messages,
        "max_tokens": _tokens_max(route, arguments),
        "stream": True,
    }
    if system:
        body["system"] = [_text(one) for one in system]
    if "tools" in arguments:
        body["tools"] = [_tool(one) for one in cast("Sequence[dict[str, Any]]", arguments["tools"])]
    elif any("tool_calls" in one for one in entries):
        body["tools"] = [NO_TOOL]
    body |= {name: arguments[name] for name in _SAME if arguments.get(name) is not None}
    stop = arguments.get("stop")
    if stop is not None:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    choice = _tool_choice(arguments)
    if choice is not None:
        body["tool_choice"] = choice
    wanted = arguments.get("response_format")
    if isinstance(wanted, Mapping):
        schema = sent_schema(wanted["json_schema"]["schema"])
        body["output_format"] = {"type": "json_schema", "schema": schema}
    return body


def headers_of(route: Route, request: ModelRequest) -> dict[str, str]:
    """Return the headers that say who asks, and in which version of the wire."""
    headers = {"x-api-key": route.key} if route.key else {}
    if way_of(request, route.facts) is Way.PARAMETER:
        headers["anthropic-beta"] = BETA
    return {**headers, "anthropic-version": VERSION}


def _tokens_max(route: Route, arguments: Mapping[str, object]) -> object:
    for name in ("max_completion_tokens", "max_tokens"):
        if arguments.get(name) is not None:
            return arguments[name]
    thinking = arguments.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    if isinstance(budget, int):
        return budget + THINKING_ROOM
    return route.facts.answer_tokens or TOKENS_MAX


def _leading(entries: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    at = next((at for at, one in enumerate(entries) if one["role"] != "system"), len(entries))
    return entries[:at]


def _turns(entries: Sequence[dict[str, Any]]) -> Iterator[dict[str, object]]:
    """Yield messages of user and model in turns; a round's results belong to the user."""
    turns: list[tuple[str, list[dict[str, object]]]] = []
    for entry in entries:
        role = "assistant" if entry["role"] == "assistant" else "user"
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(_blocks(entry))
    for role, blocks in turns:
        yield {"role": role, "content": blocks}


def _blocks(entry: dict[str, Any]) -> Iterator[dict[str, object]]:
    if entry["role"] == "tool":
        yield {
            "type": "tool_result",
            "tool_use_id": entry["tool_call_id"],
            "content": entry["content"],
            **_mark(entry),
        }
        return
    if isinstance(entry["content"], list):
        yield from ({**_seen(block), **_mark(block)} for block in entry["content"])
        return
    if entry["role"] == "user":
        blank = not entry["content"].strip()
        yield _text({**entry, "content": EMPTY} if blank else entry)
        return
    if entry["content"]:
        yield _text(entry)
    for call in entry.get("tool_calls") or ():
        function = call["function"]
        yield {
            "type": "tool_use",
            "id": call["id"],
            "name": function["name"],
            "input": msgspec.json.decode(function["arguments"]),
        }


def _seen(block: Mapping[str, Any]) -> dict[str, object]:
    """Return text, an image or a file of a user's message."""
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    if block["type"] == "image_url":
        return {"type": "image", "source": _source(block["image_url"]["url"])}
    file = block["file"]
    return {"type": "document", "source": _source(file.get("file_data") or file["file_id"])}


def _source(url: str) -> dict[str, object]:
    """Return where the bytes are: in the request, or at an address."""
    head, comma, data = url.partition(";base64,")
    if not comma:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}


def _text(entry: Mapping[str, Any]) -> dict[str, object]:
    return {"type": "text", "text": entry["content"], **_mark(entry)}


def _mark(entry: Mapping[str, Any]) -> dict[str, object]:
    return {CACHE_CONTROL: entry[CACHE_CONTROL]} if CACHE_CONTROL in entry else {}


def _tool(tool: Mapping[str, Any]) -> dict[str, object]:
    declared = tool["function"]
    schema = {key: one for key, one in declared["parameters"].items() if key != _SCHEMA}
    return {
        "name": declared["name"],
        "input_schema": schema,
        "type": "custom",
        "description": declared["description"],
    }


def _tool_choice(arguments: Mapping[str, Any]) -> dict[str, object] | None:
    wanted, parallel = arguments.get("tool_choice"), arguments.get("parallel_tool_calls")
    choice: dict[str, object] = {"type": "any" if wanted == "required" else "auto"}
    if isinstance(wanted, Mapping):
        choice = {"type": "tool", "name": wanted["function"]["name"]}
    if parallel is None:
        return None if wanted is None else choice
    return {**choice, "disable_parallel_tool_use": not parallel}


# --- the reply ------------------------------------------------------------------------------------


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None  # Any: JSON as it came


class _Delta(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    usage: Any = None  # Any: judged by itself, so that it costs no reply


class _Event(msgspec.Struct):
    type: str = ""
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Any = None  # Any: as above
    error: Any = None  # Any: whatever a server says of its failure


_EVENT: Final = msgspec.json.Decoder(_Event)
_CALLS: Final = frozenset({"tool_use", "server_tool_use"})


class _OpenCall(msgspec.Struct):
    """A call whose block is open: its number, and its arguments where they came with its start."""

    number: int
    input: dict[str, Any] | None  # Any: JSON as it came
    has_arguments: bool = False


class AnthropicReply(StreamedReply):
    """See ``StreamedReply``: one in content blocks. Calls count from 0, other blocks do not."""

    def __init__(self, heard: Heard, priced: Priced) -> None:
        """Begin with nothing."""
        super().__init__(heard, priced)
        self._counts: dict[str, object] = {}
        self._calls = 0
        self._open: dict[int | None, _OpenCall] = {}
        """By the index of its block."""

    def take(self, data: bytes) -> Iterator[Chunk]:
        """Yield the chunks of one event; see ``StreamedReply.take``."""
        event = self._decoded(data, _EVENT)
        if event.error:
            self._fail({"type": event.type, "error": event.error})
        if event.content_block is not None:
            yield from self._begin(event.index, event.content_block)
        elif event.type == "content_block_stop":
            yield from self._close(event.index)
        elif event.delta is not None:
            yield from self._pieces(event.index, event.delta)
        elif event.type == "message_stop":
            self.is_over = True
        usage = event.message.usage if event.message is not None else event.usage
        if usage is not None and self._is_true(usage):
            # The last one counts all, but may leave out what the first has said.
            self._counts |= usage
            self._usage = self._priced(self._counts)

    def _begin(self, index: int | None, block: _Block) -> Iterator[Chunk]:
        if block.type in _CALLS:
            self._open[index] = call = _OpenCall(self._calls, block.input)
            self._calls += 1
            self._has_calls = True
            call_id = CallId(block.id) if block.id else None
            yield ToolCallChunk(index=call.number, call_id=call_id, name=block.name or None)
            return
        self._open.pop(index, None)  # of a block that was not closed
        if block.type == "text" and block.text:
            yield from self._pairs.joined((TextChunk(text=block.text),))

    def _pieces(self, index: int | None, delta: _Delta) -> Iterator[Chunk]:
        if delta.stop_reason is not None:
            self._finish(delta.stop_reason)
        if delta.thinking:
            yield from self._pairs.joined((ThinkingChunk(text=delta.thinking),))
        if delta.text:
            yield from self._pairs.joined((TextChunk(text=delta.text),))
        call = self._open.get(index)
        if delta.partial_json and call is not None:
            call.has_arguments = True
            yield ToolCallChunk(index=call.number, arguments=delta.partial_json)

    def _close(self, index: int | None) -> Iterator[Chunk]:
        call = self._open.pop(index, None)
        if call is not None and call.input and not call.has_arguments:  # all at once, as some do
            arguments = msgspec.json.encode(call.input).decode()
            yield ToolCallChunk(index=call.number, arguments=arguments)
