"""The provider for every model that litellm knows: OpenAI's, Anthropic's, Google's, local ones.

The only module that imports litellm, which takes seconds: the nursery imports it before it forks.
It translates three things and decides nothing else: conversations to the OpenAI shape, deltas to
chunks, exceptions to ``ProviderError``. Retries are the kernel's, so litellm's own are off.
"""

import asyncio
import contextlib
import email.utils
import math
import os
import re
import time
import warnings
from collections.abc import AsyncGenerator, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

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
    classify,
)
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import Message, TokenUsage, ToolCall

# Both must be set before the import: without the first litellm starts a thread that asks the
# network for prices, without the second it loads a .env file into the environment.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LITELLM_MODE", "PRODUCTION")

import litellm

litellm.suppress_debug_info = True  # it would print advice to standard output at every failure
# Its types make pydantic warn once each on standard error, about nothing that anyone here can do.
warnings.filterwarnings("ignore", message="Items? .* `ReadOnly` qualifier", category=UserWarning)

CLOSE_TIMEOUT_S: Final = 2.0
"""How long the end of a cancelled request may take before its connection is left to itself."""
REASON_MAX_CHARS: Final = 500
CHAIN_MAX: Final = 12
"""How many causes of an exception are looked at."""
_SECRET_MIN_CHARS: Final = 6
"""Shorter values are placeholders (``none``, ``x``); hiding them would blank out plain words."""

_SECRET_NAME: Final = re.compile(
    r"key|token|secret|password|credential|authorization|cookie", re.IGNORECASE
)
_SECRET_SHAPE: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][\w*.-]{6,}"  # prefixed keys, also when masked with stars
    r"|\bAIza[\w-]{20,}"
    r"|\bAKIA[A-Z0-9]{12,}"
    r"|\bBearer\s+[^\s'\",]+"
    r"|(?<=[?&]key=)[^&\s'\"]+",
    re.IGNORECASE,
)
_HIDDEN: Final = "[hidden]"
_NOISE: Final = re.compile(
    r"^(?:(?:litellm\.)?\w*(?:Error|Exception|Timeout)(?: Error)?(?:: | - ))+"
)
"""The names of classes that litellm puts before a provider's own words."""

_OURS: Final[Mapping[str, object]] = {
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
        with _border(request):
            wrapper = await litellm.acompletion(**call_arguments(request))
            ending = _Ending(request.model)
            try:
                async for delta in wrapper:
                    ending.note(delta, is_finished=_is_finished(wrapper))
                    for chunk in chunks_of(delta):
                        yield chunk
            finally:
                await _close(wrapper)
            for chunk in ending.chunks():
                yield chunk


class _Ending:
    """What is told once the stream is whole: the usage and the reason of the finish."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._usage: TokenUsage | None = None
        self._reason: str | None = None

    def note(self, delta: Any, *, is_finished: bool) -> None:  # Any: litellm's own type
        """Keep what ``delta`` says of the end; ``is_finished``: the provider itself said so."""
        usage = getattr(delta, "usage", None)
        if usage is not None:
            self._usage = usage_of(usage.model_dump(), self._model)
        reasons = [choice.finish_reason for choice in delta.choices if choice.finish_reason]
        if reasons and not is_finished:
            raise _broken()
        self._reason = reasons[0] if reasons else self._reason

    def chunks(self) -> Iterator[Chunk]:
        """Return the last chunks."""
        if self._reason is None:
            raise _broken()
        if self._usage is not None:
            yield UsageChunk(usage=self._usage)
        yield FinishChunk(reason=self._reason)


def _is_finished(wrapper: Any) -> bool:  # Any: litellm's own type
    # litellm makes up a clean finish, and a usage, for a stream that broke off; only this tells.
    # The second is where it keeps Google's reason; it makes up that one too, so that on Google's
    # wire a stream that was cut cleanly between two chunks passes for a whole one.
    return bool(wrapper.received_finish_reason or wrapper.intermittent_finish_reason)


def _broken() -> ProviderError:
    return ProviderError(FailureKind.TRANSIENT, "the stream ended before the reply was finished")


async def _close(wrapper: Any) -> None:  # Any: litellm's own type
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await wrapper.aclose()
    except TimeoutError:
        return  # the reply is here or given up; only the connection lingers until it breaks


# The request


def call_arguments(request: ModelRequest) -> dict[str, object]:
    """Return the arguments of litellm's ``acompletion`` for ``request``."""
    arguments: dict[str, object] = {
        **request.provider_opts,
        "model": litellm_model(request.model),
        "messages": openai_messages(request.system, request.messages),
        **_OURS,
    }
    if request.tools:
        arguments["tools"] = [_openai_tool(tool) for tool in request.tools]
    if request.max_tokens is not None:
        arguments["max_tokens"] = request.max_tokens
    return arguments


def litellm_model(model: str) -> str:
    """Return litellm's name of a model: ``provider:model_id`` becomes ``provider/model_id``.

    A colon after a slash belongs to the model id (``ollama/llama3:8b``) and stays.
    """
    provider, colon, model_id = model.partition(":")
    return f"{provider}/{model_id}" if colon and "/" not in provider else model


def openai_messages(system: str, messages: tuple[Message, ...]) -> list[dict[str, object]]:
    """Return a conversation in the OpenAI shape, which litellm turns into any other."""
    head: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
    return head + [_openai_message(message) for message in messages if not _is_empty(message)]


def _is_empty(message: Message) -> bool:
    # An aborted turn may leave one; Anthropic and Google refuse the whole request for it.
    return message.role == "assistant" and not message.content and not message.tool_calls


def _openai_message(message: Message) -> dict[str, object]:
    if message.role == "tool_result":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [_openai_call(call) for call in message.tool_calls]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}


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
    for choice in delta.choices[:1]:
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


def usage_of(raw: Mapping[str, object], model: str) -> TokenUsage:
    """Return a usage with its price; the price of a model that litellm does not know is None."""
    usage = TokenUsage.from_raw(raw)
    return msgspec.structs.replace(usage, cost_usd=_cost_usd(usage, raw, model))


def _cost_usd(usage: TokenUsage, raw: Mapping[str, object], model: str) -> float | None:
    name = litellm_model(model)
    try:
        parts = litellm.cost_per_token(
            model=name,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            usage_object=litellm.Usage(**raw),
        )
        known = litellm.model_cost.get(litellm.get_model_info(name)["key"], {})
    except Exception:  # noqa: BLE001 - what it raises for an unknown model is of no one class
        return None
    # A model without a price costs 0 in litellm's words; only the table can say that it is free.
    cost_usd = float(sum(parts))
    return cost_usd if cost_usd or "input_cost_per_token" in known else None


# Failures


@contextlib.contextmanager
def _border(request: ModelRequest) -> Iterator[None]:
    """Let nothing but ``ProviderError`` out."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a foreign library raises ends here
        secrets = secrets_of(request)
        texts = [str(cause) for cause in _chain(error)]
        # A traceback prints the causes too, so one that holds a secret is left out of it.
        leaks = any(hidden(text, secrets) != text for text in texts)
        raise translated(error, secrets) from (None if leaks else error)


def translated(error: Exception, secrets: frozenset[str]) -> ProviderError:
    """Return the contract's error for one of litellm's; ``secrets`` are kept out of its text."""
    inner = getattr(error, "original_exception", None)  # what broke a stream is wrapped once
    told = inner if isinstance(inner, Exception) else error
    causes = tuple(_chain(told))
    names = [cls.__name__ for cause in causes for cls in type(cause).__mro__]
    # What a provider names by a code, it does not always say in words.
    codes = [getattr(cause, name, None) for cause in causes for name in ("code", "type")]
    text = " ".join([str(told), *(code for code in codes if isinstance(code, str))])
    status = _status_of(told, names)
    return ProviderError(
        classify(status, names, text),
        reason_of(told, secrets),
        status=status,
        retry_after_s=retry_after_s(getattr(told, "litellm_response_headers", None), time.time()),
    )


def _status_of(error: Exception, class_names: list[str]) -> int | None:
    status = getattr(error, "status_code", None)
    # litellm gives this status to what got no answer at all, too.
    no_answer = status == HTTPStatus.INTERNAL_SERVER_ERROR and "APIConnectionError" in class_names
    return status if isinstance(status, int) and not no_answer else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and its causes, as far as they belong to the same request."""
    at: BaseException | None = error
    for _ in range(CHAIN_MAX):
        if at is None or isinstance(at, ProviderError):
            return
        yield at
        at = at.__cause__ or at.__context__


def reason_of(error: Exception, secrets: frozenset[str]) -> str:
    """Return one readable line: what kind of error, and in whose words."""
    words = " ".join(_NOISE.sub("", str(error)).split())
    line = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return hidden(line, secrets)[:REASON_MAX_CHARS]


def secrets_of(request: ModelRequest) -> frozenset[str]:
    """Return the values that no text may show: those that the options or environment call so."""
    named = [*_strings("", request.provider_opts), *os.environ.items()]
    return frozenset(
        value
        for name, value in named
        if _SECRET_NAME.search(name) and len(value) >= _SECRET_MIN_CHARS
    )


def _strings(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield every string in ``value`` with the names of all that it lies in."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(f"{name}.{key}", inner)


def hidden(text: str, secrets: frozenset[str]) -> str:
    """Return ``text`` without ``secrets``, longest first, and without what looks like a key."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _SECRET_SHAPE.sub(_HIDDEN, text)


def retry_after_s(headers: Mapping[str, str] | None, now_s: float) -> float | None:
    """Return the seconds that a ``retry-after`` header asks for; ``now_s`` is the wall clock.

    The header holds seconds or an HTTP date (RFC 9110, 10.2.3); what is neither counts as absent.
    """
    value = (headers or {}).get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        parsed = email.utils.parsedate_tz(value)
        seconds = math.nan if parsed is None else email.utils.mktime_tz(parsed) - now_s
    return max(seconds, 0.0) if math.isfinite(seconds) else None
