"""The provider for every model that litellm knows: OpenAI's, Anthropic's, Google's, local ones.

litellm takes seconds to import, so the zygote does it before it forks. The adapter translates
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
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Final

import structlog

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
    UsageChunk,
)
from cmdc_runtime.ids import CallId
from cmdc_runtime.message_parts import Medium
from cmdc_runtime.messages import TokenUsage
from workers.builtin.providers._answer_call import answer_call
from workers.builtin.providers._conversation import arguments_of
from workers.builtin.providers._facts import check_addresses, check_keys, is_gemini, litellm_model
from workers.builtin.providers._failures import border, hidden, secrets_of
from workers.builtin.providers._library import litellm
from workers.builtin.providers._models import facts_of, missing_keys, price_usd, usage_of
from workers.builtin.providers._usages import SplitPairs, UsageWatch

# --- how a stream ended ---------------------------------------------------------------------------

GOOGLE_GARBLED: Final = frozenset({"MALFORMED_FUNCTION_CALL"})
"""Google's words for a reply that is no use; litellm calls it a plain stop."""


class Ending:
    """What comes once the stream is whole: the usage and the reason of the finish.

    ``wrapper`` is litellm's stream, and ``read_usage`` prices the usage at its end; ``is_google``
    says that the stream comes over Google's wire. Who reads the stream sets ``has_calls`` when a
    call comes.

    litellm makes up a clean finish, and a usage, for a stream that stops in the middle. What shows
    it is ``received_finish_reason`` of its wrapper; on Google's wire, where it calls every chunk
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
        called = answer_call(request, facts_of(request.model))
        async with contextlib.aclosing(self._reply(request)) as chunks:
            async for chunk in chunks:
                for one in (chunk,) if called is None else called.through((chunk,)):
                    yield one

    async def _reply(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
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

    def media(self, model: str) -> frozenset[Medium] | None:
        """Return what a model takes beside text; see ``MediaTable``."""
        return facts_of(model).media

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
    return {
        **arguments_of(request, facts_of(request.model)),
        "model": litellm_model(request.model),
        **_ALWAYS,
    }


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
