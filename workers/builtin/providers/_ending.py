"""How a stream ended: whole, or broken off in a way that litellm passes for whole.

litellm makes up a clean finish, and a usage, for a stream that stops in the middle. What tells is
``received_finish_reason`` of its wrapper; on Google's wire, where it calls every chunk finished,
only the chunks as they came do.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from cmdc_runtime.extensions.provider import (
    Chunk,
    FailureKind,
    FinishChunk,
    ProviderError,
    UsageChunk,
)
from cmdc_runtime.messages import TokenUsage

GOOGLE_GARBLED: Final = frozenset({"MALFORMED_FUNCTION_CALL"})
"""Google's words for a reply that is no use; litellm calls it a plain stop."""


class Ending:
    """What is told once the stream is whole: the usage and the reason of the finish.

    ``wrapper`` is litellm's stream, and ``read_usage`` prices the usage at its end; ``is_google``
    says that the stream comes over Google's wire. Who reads the stream sets ``has_calls`` when a
    call comes.
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
