"""A request in the OpenAI shape, as every wire begins with it: conversation, tools, bounds, schema.

What is the same for all ways to a model is decided here: which thoughts are asked for, which bound
counts, where a schema goes, where marks for a cache are.

A message asks for a mark by ``cache_control`` in its metadata, as Anthropic writes it:
``{"type": "ephemeral"}``. litellm turns a message's mark into one of its last content block, or
into what Bedrock has instead. Other vendors refuse the key or make something else of it (Google a
cache that is paid by the hour), so they never see it.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from cmdc_runtime.extensions.provider import ModelRequest, ToolSpec
from cmdc_runtime.message_parts import Medium, MessagePart
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.provider_options import OURS, VIA
from workers.builtin.providers._answer_call import answer_tool, forced
from workers.builtin.providers._facts import ModelFacts, is_claude
from workers.builtin.providers._formats import Way, response_format, way_of, with_instruction

# --- marks for a cache ----------------------------------------------------------------------------

CACHE_CONTROL: Final = "cache_control"
PROVIDERS: Final = frozenset(
    {"anthropic", "azure_ai", "bedrock", "databricks", "openrouter", "vertex_ai"}
)
"""Who serves Claude and is sent marks by litellm."""
MARKS_MAX: Final = 4
"""Anthropic refuses a request with more."""


def takes_marks(provider: str, model_id: str) -> bool:
    """Say whether a model caches what is marked; ``provider`` is empty where it goes unsaid."""
    is_claude = "claude" in model_id.lower()
    return provider == "anthropic" or (is_claude and provider in PROVIDERS | {""})


def marked(
    entries: Sequence[dict[str, object]], metadata: Sequence[Mapping[str, object]]
) -> list[dict[str, object]]:
    """Return messages in the OpenAI shape with the marks that their metadata ask for.

    A message without text cannot have one. Of too many marks the first and the latest count.
    """
    wanted = {
        at: mark
        for at, (entry, noted) in enumerate(zip(entries, metadata, strict=True))
        if isinstance(mark := noted.get(CACHE_CONTROL), Mapping) and entry["content"]
    }
    places = list(wanted)
    if len(places) > MARKS_MAX:
        places = [places[0], *places[1 - MARKS_MAX :]]
    return [
        _with_mark(entry, wanted[at]) if at in places else entry for at, entry in enumerate(entries)
    ]


def _with_mark(entry: dict[str, object], mark: Mapping[str, object]) -> dict[str, object]:
    """Return a message with a mark; where it has blocks, litellm reads that of the last one."""
    blocks = entry["content"]
    if not isinstance(blocks, list):
        return {**entry, CACHE_CONTROL: dict(mark)}
    return {**entry, "content": [*blocks[:-1], {**blocks[-1], CACHE_CONTROL: dict(mark)}]}


# --- images and files -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownParts:
    """What a model is shown of the images and files of messages.

    ``media`` is what it takes, None where nobody knows; ``blobs`` are the bytes that there are. In
    the place of all else stands a line that says what is not there.
    """

    media: frozenset[Medium] | None = None
    blobs: Mapping[str, bytes] = field(default_factory=dict)

    def blocks(self, message: Message) -> Iterator[dict[str, object]]:
        """Yield text, images and files of a message in the order in which they were given."""
        begun = 0
        for part in sorted(message.parts, key=lambda one: one.at):
            yield from _text_block(message.content[begun : part.at])
            begun = max(begun, part.at)
            yield self._block(part)
        yield from _text_block(message.content[begun:])

    def _block(self, part: MessagePart) -> dict[str, object]:
        medium = part.medium
        if self.media is not None and medium is not None and medium not in self.media:
            return _said(f"[{part}: it is left out, since you cannot read it]")
        if part.url:
            is_image = medium == "image_url"
            return _image(part.url) if is_image else {"type": "file", "file": {"file_id": part.url}}
        body = self.blobs.get(part.digest)
        if body is None:
            return _said(f"[{part}: it is left out of this request]")
        if medium is None:
            name = (part.name or part.media_type).replace('"', "'")
            return _said(f'<file name="{name}">\n{body.decode(errors="replace")}\n</file>')
        data = f"data:{part.media_type};base64,{base64.b64encode(body).decode()}"
        if medium == "image":
            return _image(data)
        file = {"filename": part.name or UNNAMED, "file_data": data}
        return {"type": "file", "file": file}


ANY_PARTS: Final = ShownParts()
UNNAMED: Final = "file.pdf"
"""What a PDF is called that has no name: OpenAI wants one."""


def _image(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def _said(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def _text_block(text: str) -> Iterator[dict[str, object]]:
    """Yield a text beside an image, without the empty lines between them."""
    if text.strip():
        yield _said(text.strip("\n"))


# --- the request ----------------------------------------------------------------------------------

_NEVER_SENT: Final = frozenset({*OURS, VIA})
"""Options that say something to the runtime, and nothing to a model."""


def arguments_of(request: ModelRequest, facts: ModelFacts) -> dict[str, object]:
    """Return a request to a model of ``facts`` in the OpenAI shape, its options included."""
    arguments: dict[str, object] = {
        name: one for name, one in request.provider_opts.items() if name not in _NEVER_SENT
    }
    system = request.system
    tools, schema = request.tools, request.response_format or {}
    match way_of(request, facts):
        case Way.PARAMETER:
            arguments["response_format"] = response_format(schema)
        case Way.TOOL:
            tool = answer_tool(request, schema)
            arguments["tool_choice"] = forced(tool, has_others=bool(tools))
            tools = (*tools, tool)
        case Way.WORDS:
            system = with_instruction(system, schema)
        case None:
            pass
    arguments["messages"] = _messages_for(facts, system, request)
    if tools:
        arguments["tools"] = [_openai_tool(tool) for tool in tools]
    if request.max_tokens is not None:
        _bound_answer(arguments, request.max_tokens)
    if is_claude(facts) and _is_inside_a_round(request.messages):
        _drop_signed_thinking(arguments, thinks_adaptively=facts.thinks_adaptively)
    return arguments


def _bound_answer(arguments: dict[str, object], tokens_max: int) -> None:
    """Ask for no longer an answer than that, or than the options say if that is less."""
    name = "max_completion_tokens" if "max_completion_tokens" in arguments else "max_tokens"
    own = arguments.get(name)
    arguments[name] = min(own, tokens_max) if isinstance(own, int) else tokens_max
    thinking = arguments.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    # Claude refuses a request whose thoughts alone may be as long as the answer with them.
    if isinstance(budget, int) and budget >= tokens_max:
        del arguments["thinking"]


def _messages_for(facts: ModelFacts, system: str, request: ModelRequest) -> list[dict[str, object]]:
    entries = openai_messages(system, request.messages, ShownParts(facts.media, request.blobs))
    if not takes_marks(facts.provider, facts.model_id):
        return entries
    noted = [message.metadata for message in request.messages if not _is_empty(message)]
    return marked(entries, [request.system_metadata, *noted] if system else noted)


def _is_inside_a_round(messages: tuple[Message, ...]) -> bool:
    spoken = (message for message in reversed(messages) if message.role == "assistant")
    last = next(spoken, None)
    return last is not None and bool(last.tool_calls)


def _drop_signed_thinking(arguments: dict[str, object], *, thinks_adaptively: bool) -> None:
    # Once it has called a tool, Claude refuses to think without its earlier thoughts and their
    # signatures, which a conversation does not keep. Adaptive thinking does without them.
    thinking = arguments.get("thinking")
    if isinstance(thinking, Mapping) and thinking.get("type") == "enabled":
        del arguments["thinking"]
    if not thinks_adaptively:
        arguments.pop("reasoning_effort", None)


def openai_messages(
    system: str, messages: tuple[Message, ...], shown: ShownParts = ANY_PARTS
) -> list[dict[str, object]]:
    """Return a conversation in the OpenAI shape, which litellm turns into any other."""
    head: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
    return head + [
        _openai_message(message, shown) for message in messages if not _is_empty(message)
    ]


def _is_empty(message: Message) -> bool:
    # An aborted turn may leave one; Anthropic and Google refuse the whole request for it.
    return message.role == "assistant" and not message.content and not message.tool_calls


def _openai_message(message: Message, shown: ShownParts) -> dict[str, object]:
    if message.parts:
        return {"role": message.role, "content": [*shown.blocks(message)]}
    if message.role == "tool_result":
        return {"role": "tool", "tool_call_id": message.call_id, "content": _result_text(message)}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [_openai_call(call) for call in message.tool_calls]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}


def _result_text(message: Message) -> str:
    # No vendor's mark of an error gets through litellm, so the text has to say it.
    is_said = not message.is_error or message.content.lower().startswith("error")
    return message.content if is_said else f"Error: {message.content}"


def _openai_call(call: ToolCall) -> dict[str, object]:
    # Other wires parse the arguments, so what was no JSON goes back as a JSON object around it.
    arguments = call.arguments if call.malformed is None else {"malformed_json": call.malformed}
    function = {"name": call.name, "arguments": msgspec.json.encode(arguments).decode()}
    return {"id": call.call_id, "type": "function", "function": function}


def _openai_tool(tool: ToolSpec) -> dict[str, object]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}
