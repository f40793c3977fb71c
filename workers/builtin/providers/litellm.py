"""The provider for every model that litellm knows: OpenAI's, Anthropic's, Google's, local ones.

litellm takes seconds to import, so the nursery does it before it forks. The adapter translates
conversations to the OpenAI shape, deltas to chunks and exceptions to ``ProviderError``, and decides
nothing else. Retries are the kernel's, so litellm's own are off. A vendor's oddity that litellm
leaves to its caller is dealt with here, with a test that shows the wire.

A stream may cut a character in two (``SplitPairs``), or break off unnoticed (``Ending``).
"""

import asyncio
import contextlib
import functools
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime import plain
from cmdc_runtime.extensions.provider import (
    Chunk,
    FailureKind,
    FinishChunk,
    ModelRequest,
    Provider,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
    UsageChunk,
)
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.provider_options import OURS
from workers.builtin.providers._addresses import check_addresses
from workers.builtin.providers._failures import border, hidden, secrets_of
from workers.builtin.providers._formats import is_sent, response_format, with_instruction
from workers.builtin.providers._library import litellm
from workers.builtin.providers._models import (
    ModelFacts,
    check_keys,
    facts_of,
    is_claude,
    is_gemini,
    litellm_model,
    missing_keys,
    price_usd,
    usage_of,
)
from workers.builtin.providers._prompt_caching import marked, takes_marks
from workers.builtin.providers._usages import UsageWatch

# --- characters in two halves ---------------------------------------------------------------------


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


# --- how a stream ended ---------------------------------------------------------------------------

GOOGLE_GARBLED: Final = frozenset({"MALFORMED_FUNCTION_CALL"})
"""Google's words for a reply that is no use; litellm calls it a plain stop."""


class Ending:
    """What is told once the stream is whole: the usage and the reason of the finish.

    ``wrapper`` is litellm's stream, and ``read_usage`` prices the usage at its end; ``is_google``
    says that the stream comes over Google's wire. Who reads the stream sets ``has_calls`` when a
    call comes.

    litellm makes up a clean finish, and a usage, for a stream that stops in the middle. What tells
    is ``received_finish_reason`` of its wrapper; on Google's wire, where it calls every chunk
    finished, only the chunks as they came do.
    """

    def __init__(
        self,
        wrapper: Any,
        read_usage: Callable[[Mapping[str, object]], TokenUsage],
        *,
        is_google: bool,
    ) -> None:
        """Begin to watch, before the first chunk is asked for; Any: litellm's own type."""
        self._wrapper = wrapper
        self._read_usage = read_usage
        self._is_google = is_google
        self._google_reason: str | None = None
        self._usage: TokenUsage | None = None
        self._reason: str | None = None
        self.has_calls = False
        if is_google and wrapper.make_call is not None:
            wrapper.make_call = self._watched(wrapper.make_call)

    def note(self, delta: Any) -> None:  # Any: litellm's own type
        """Keep what ``delta`` says of the end.

        Raises:
            ProviderError: when it says that the reply is whole, and the provider did not.
        """
        usage = getattr(delta, "usage", None)
        if usage is not None:
            self._usage = self._read_usage(usage.model_dump())
        reasons = [choice.finish_reason for choice in delta.choices if choice.finish_reason]
        if reasons and not self._is_whole():
            raise _broken()
        self._reason = reasons[0] if reasons else self._reason

    def chunks(self, *, is_usage_known: bool = True) -> Iterator[Chunk]:
        """Return the last chunks; what litellm makes up for an unknown usage is none of them.

        Raises:
            ProviderError: when the stream did not come to its end.
        """
        if self._reason is None:
            raise _broken()
        if self._google_reason in GOOGLE_GARBLED:
            garbled = f"the model's reply could not be read ({self._google_reason})"
            raise ProviderError(FailureKind.TRANSIENT, garbled)
        if self._reason == "tool_calls" and not self.has_calls:
            empty = "the provider's answer can't be read: it ends in tool_calls and has none"
            raise ProviderError(FailureKind.PERMANENT, empty)
        if self._usage is not None and is_usage_known:
            yield UsageChunk(usage=self._usage)
        yield FinishChunk(reason=self._reason)

    def _is_whole(self) -> bool:
        if self._is_google:
            return self._google_reason is not None
        return self._wrapper.received_finish_reason is not None

    def _watched(self, make_call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return ``make_call``, with an eye on every chunk that its stream takes apart."""

        async def call(*args: Any, **options: Any) -> Any:  # Any: litellm's own types
            stream = await make_call(*args, **options)
            parse = stream.chunk_parser

            def parse_and_note(chunk: Mapping[str, Any]) -> Any:
                self._google_reason = google_reason(chunk) or self._google_reason
                return parse(chunk)

            stream.chunk_parser = parse_and_note
            return stream

        return call


def google_reason(chunk: Mapping[str, Any]) -> str | None:  # Any: JSON as it came
    """Return why Google says that the reply is over, or that there is none; else None."""
    feedback = chunk.get("promptFeedback") or {}
    candidates: Sequence[Mapping[str, Any]] = chunk.get("candidates") or ({},)
    reason: str | None = candidates[0].get("finishReason") or feedback.get("blockReason")
    return reason


def _broken() -> ProviderError:
    return ProviderError(FailureKind.TRANSIENT, "the stream ended before the reply was finished")


# --- the provider ---------------------------------------------------------------------------------

log = structlog.get_logger()

CLOSE_TIMEOUT_S: Final = 2.0
"""How long the end of a cancelled request may take before its connection is left to itself."""
_ALWAYS: Final[Mapping[str, object]] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "num_retries": 0,
    "max_retries": 0,
    "_skip_mcp_handler": True,  # with tools it would import a package that is not installed
}
"""What the adapter depends on; it outranks what the caller asks for."""


def create() -> Provider:
    """Return the provider; it keeps nothing between requests."""
    return _LiteLLM()


class _LiteLLM:
    """See the module."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the reply's chunks as they come; see ``Provider.stream``."""
        silence_s = silence_max_s(request)
        watch = UsageWatch()
        with border(request, missing_keys, watch.heard):
            check_addresses(request.provider_opts)
            check_keys(request, facts_of(request.model).provider)
            async with _bound(silence_s):
                with watch.on():
                    wrapper = await litellm.acompletion(**call_arguments(request))
            read_usage = functools.partial(usage_of, model=request.model)
            is_google = is_gemini(facts_of(request.model))
            ending = Ending(wrapper, read_usage, is_google=is_google)
            pairs = SplitPairs()
            try:
                while (delta := await _next(wrapper, silence_s, watch)) is not None:
                    ending.note(delta)
                    for chunk in pairs.joined(chunks_of(delta)):
                        ending.has_calls |= isinstance(chunk, ToolCallChunk)
                        yield chunk
            finally:
                await _close(wrapper)
            for chunk in pairs.rest():
                yield chunk
            for chunk in ending.chunks(is_usage_known=watch.problem is None):
                yield chunk
            if watch.problem is not None:
                problem = hidden(watch.problem, secrets_of(request))
                log.warning("usage.refused", model=request.model, problem=problem)

    def context_window(self, model: str) -> int | None:
        """Return the tokens that fit into one request; see ``ModelTable``."""
        return facts_of(model).context_window

    def answer_tokens(self, model: str) -> int | None:
        """Return the tokens that an answer can have; see ``AnswerTable``."""
        return facts_of(model).answer_tokens

    def price_usd(self, model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the price of a request; see ``ModelTable``."""
        return price_usd(model, prompt_tokens, completion_tokens)


def silence_max_s(request: ModelRequest) -> float | None:
    """Return the seconds after which silence counts as a failure: the ``timeout`` option."""
    timeout = request.provider_opts.get("timeout")
    return timeout if isinstance(timeout, int | float) else None


@contextlib.asynccontextmanager
async def _bound(silence_s: float | None) -> AsyncGenerator[None, None]:
    # litellm hands the option on to most vendors' clients, and not to Google's.
    try:
        async with asyncio.timeout(silence_s):
            yield
    except TimeoutError as error:
        late = f"nothing came for {silence_s} s, the timeout option"
        raise ProviderError(FailureKind.TIMEOUT, late) from error


async def _next(
    wrapper: Any, silence_s: float | None, watch: UsageWatch
) -> Any:  # Any: litellm's own types
    """Return the next delta, None after the last."""
    async with _bound(silence_s):
        with watch.on():  # to Google the request is sent when the first delta is asked for
            return await anext(wrapper, None)


async def _close(wrapper: Any) -> None:  # Any: litellm's own type
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await wrapper.aclose()
    except TimeoutError:
        return  # the reply is here or given up; only the connection lingers until it breaks


# The request


def call_arguments(request: ModelRequest) -> dict[str, object]:
    """Return the arguments of litellm's ``acompletion`` for ``request``."""
    facts = facts_of(request.model)
    arguments: dict[str, object] = {
        **{name: one for name, one in request.provider_opts.items() if name not in OURS},
        "model": litellm_model(request.model),
        **_ALWAYS,
    }
    system = request.system
    schema = request.response_format
    if schema is not None and is_sent(schema, facts, has_tools=bool(request.tools)):
        arguments["response_format"] = response_format(schema)
    elif schema is not None:
        system = with_instruction(system, schema)
    arguments["messages"] = _messages_for(facts, system, request)
    if request.tools:
        arguments["tools"] = [_openai_tool(tool) for tool in request.tools]
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
    entries = openai_messages(system, request.messages)
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


def openai_messages(system: str, messages: tuple[Message, ...]) -> list[dict[str, object]]:
    """Return a conversation in the OpenAI shape, which litellm turns into any other."""
    head: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
    return head + [_openai_message(message) for message in messages if not _is_empty(message)]


def _is_empty(message: Message) -> bool:
    # An aborted turn may leave one; Anthropic and Google refuse the whole request for it.
    return message.role == "assistant" and not message.content and not message.tool_calls


def _openai_message(message: Message) -> dict[str, object]:
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


# The reply


def chunks_of(delta: Any) -> Iterator[Chunk]:  # Any: litellm's own type
    """Return the text, thinking and tool call pieces of one delta."""
    for choice in delta.choices[:1]:  # it is the only one: ``_usages`` drops others
        thinking = getattr(choice.delta, "reasoning_content", None)
        if thinking:
            yield ThinkingChunk(text=thinking)
        if choice.delta.content:
            yield TextChunk(text=choice.delta.content)
        for piece in choice.delta.tool_calls or ():
            yield ToolCallChunk(
                index=piece.index,
                call_id=CallId(piece.id) if piece.id else None,
                name=piece.function.name or None,
                arguments=piece.function.arguments or "",
            )
