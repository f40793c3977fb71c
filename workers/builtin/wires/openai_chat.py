"""OpenAI's wire for chat completions: the body of a request, and the events of a reply."""

from collections.abc import Iterator, Mapping
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
from workers.builtin.wires.reply import StreamedReply
from workers.builtin.wires.routes import OF_THE_WAY, Route

# --- the request ----------------------------------------------------------------------------------

PATH: Final = "/chat/completions"
_STREAM: Final[Mapping[str, object]] = {"stream": True, "stream_options": {"include_usage": True}}
_IN_HEADERS: Final = frozenset({"organization"})


def body_of(route: Route, request: ModelRequest) -> dict[str, object]:
    """Return what is sent; it has no option that says where or how to ask."""
    arguments = arguments_of(request, route.facts)
    messages = cast("list[dict[str, object]]", arguments.pop("messages"))
    extra = arguments.pop("extra_body", None)
    body = {
        "model": route.model_id,
        "messages": [_suited(one, route) for one in messages],
        **{
            name: one
            for name, one in arguments.items()
            if one is not None and name not in OF_THE_WAY and name not in _IN_HEADERS
        },
        **_STREAM,
        **(route.vendor.body or {}),
        **(extra if isinstance(extra, Mapping) else {}),
    }
    if route.reasons and "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    return body


def _suited(entry: Mapping[str, object], route: Route) -> dict[str, object]:
    """Return a message as the model knows it: a mark for a cache is one of its text."""
    fields = {name: one for name, one in entry.items() if one is not None}
    mark = fields.pop(CACHE_CONTROL, None)
    if mark is not None:
        fields["content"] = [{"type": "text", "text": fields["content"], CACHE_CONTROL: mark}]
    if fields["role"] == "system" and not route.takes_system:
        fields["role"] = "user"
    return fields


def headers_of(route: Route, request: ModelRequest) -> dict[str, str]:
    """Return the headers that say who asks."""
    headers = {"authorization": f"Bearer {route.key}"} if route.key else {}
    organization = request.provider_opts.get("organization") or route.organization
    if isinstance(organization, str) and organization:
        headers["openai-organization"] = organization
    return headers


# --- the reply ------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function
    index: int | None = None
    id: str | None = None
    type: str | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None
    refusal: None = None
    function_call: None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    index: int | None = 0
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None  # Any: judged by itself, so that it costs no reply
    error: Any = None  # Any: whatever a server says of its failure


_EVENT: Final = msgspec.json.Decoder(_Event)
_DONE: Final = b"[DONE]"


class OpenAIReply(StreamedReply):
    """A reply in chat completion chunks; see ``StreamedReply``."""

    def take(self, data: bytes) -> Iterator[Chunk]:
        """Yield the chunks of one event; see ``StreamedReply.take``."""
        if data == _DONE:
            self.is_over = True
            return
        event = self._decoded(data, _EVENT)
        if event.error:
            self._fail({"error": event.error})
        for choice in event.choices or ():
            if choice.index:  # another answer to the request: the first one is the reply
                continue
            if choice.finish_reason:
                self._finish(choice.finish_reason)
            if choice.delta is not None:
                yield from self._pieces(choice.delta)
        if event.usage is not None and self._is_true(event.usage):
            self._usage = self._priced(event.usage)

    def _pieces(self, delta: _Delta) -> Iterator[Chunk]:
        thinking = delta.reasoning_content or delta.reasoning
        if thinking:
            yield from self._pairs.joined((ThinkingChunk(text=thinking),))
        if delta.content:
            yield from self._pairs.joined((TextChunk(text=delta.content),))
        for call in delta.tool_calls or ():
            self._has_calls = True
            yield ToolCallChunk(
                index=call.index or 0,
                call_id=CallId(call.id) if call.id else None,
                name=call.function.name or None,
                arguments=call.function.arguments or "",
            )
