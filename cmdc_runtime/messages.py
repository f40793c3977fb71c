"""The conversation: what a model and a session say to each other, and what it costs."""

from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import Any, Final, Literal, TypeVar

import msgspec

from cmdc_runtime.checked_struct import TOTAL_MAX, Checked, Total
from cmdc_runtime.ids import CallId, MessageId, new_message_id
from cmdc_runtime.message_parts import MessagePart

MessageRole = Literal["system", "user", "assistant", "tool_result"]
Number = TypeVar("Number", int, float)


OWN_PROMPT_CHARS: Final = "own_prompt_chars"
"""Key of the system message's metadata, as ``messages()`` returns it: how much of the beginning of
its text is the application's own prompt. The rest is what the runtime adds to it."""
OPENING: Final = "opening"
"""Key of an assistant message's metadata: no model said it. It is the call that its cycle opened
with, or that call's result as the cycle's answer."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A model's request to run one tool."""

    call_id: CallId
    name: str
    arguments: dict[str, object] = {}
    malformed: str | None = None
    """The arguments as the model wrote them, where they are no JSON object that can be kept."""


class OpeningCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of one of the session's tools that a cycle makes in place of asking its model.

    ``text_as`` is the argument that gets the prompt's text; None: none of them does.
    """

    name: str
    arguments: dict[str, Any] = {}  # Any: whatever the tool takes
    text_as: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=Checked):
    """One entry of a conversation."""

    id: MessageId = msgspec.field(default_factory=new_message_id)
    role: MessageRole
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: CallId | None = None
    name: str | None = None
    is_error: bool = False
    thinking: str | None = None
    parent_id: MessageId | None = None
    metadata: dict[str, object] = {}
    parts: tuple[MessagePart, ...] = ()
    """Images and files of a user's message, in their order; ``content`` is its text alone."""

    @classmethod
    def system(cls, content: str) -> "Message":
        """Return a system message."""
        return cls(role="system", content=content)

    @classmethod
    def user(cls, content: str) -> "Message":
        """Return a user message."""
        return cls(role="user", content=content)

    @classmethod
    def assistant(
        cls, content: str, tool_calls: tuple[ToolCall, ...] = (), *, thinking: str | None = None
    ) -> "Message":
        """Return an assistant message."""
        return cls(role="assistant", content=content, tool_calls=tool_calls, thinking=thinking)

    @classmethod
    def tool_result(cls, call_id: str, output: str, *, is_error: bool = False) -> "Message":
        """Return the result of one tool call."""
        return cls(role="tool_result", content=output, call_id=CallId(call_id), is_error=is_error)


def without_system(
    messages: Sequence[Message], system_prompt: str | None
) -> tuple[list[Message], str | None]:
    """Return a history without its system messages, and the one system prompt there is then.

    ``system_prompt``, if it is given, stands in their place. Else it is what they say; of one that
    comes from ``messages()`` only the application's part, since a session adds its own again.
    """
    said = [_own_prompt(one) for one in messages if one.role == "system"]
    left = [one for one in messages if one.role != "system"]
    return left, "\n\n".join(filter(None, said)) or None if system_prompt is None else system_prompt


def _own_prompt(message: Message) -> str:
    chars = message.metadata.get(OWN_PROMPT_CHARS)
    return message.content[:chars] if type(chars) is int and chars >= 0 else message.content


_PROMPT_KEYS: Final = ("prompt_tokens", "input_tokens", "prompt_token_count", "promptTokenCount")
_COMPLETION_KEYS: Final = (
    "completion_tokens",
    "output_tokens",
    "candidates_token_count",
    "candidatesTokenCount",
)
_TOTAL_KEYS: Final = ("total_tokens", "total_token_count", "totalTokenCount")
_CACHED_KEYS: Final = (
    "cached_tokens",
    "cache_read_input_tokens",
    "cached_content_token_count",
    "cachedContentTokenCount",
)
_DETAILS_KEYS: Final = ("prompt_tokens_details", "input_tokens_details")
_ASIDE_KEYS: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Prompt tokens that Anthropic does not count among its ``input_tokens``."""
_THOUGHT_KEYS: Final = ("thoughts_token_count", "thoughtsTokenCount")
"""Completion tokens that Google does not count among its candidates' tokens."""


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """Tokens of one or more requests; ``a + b`` adds them up.

    ``cost_usd`` is None where the model has no known price, ``cached_tokens`` None where the
    provider does not say.
    """

    prompt_tokens: Total = 0
    completion_tokens: Total = 0
    total_tokens: Total = 0
    cost_usd: float | None = None
    cached_tokens: Total | None = None

    @classmethod
    def from_raw(cls, raw: Mapping[str, object]) -> "TokenUsage":
        """Return the usage in a provider's own words: OpenAI's, Anthropic's or Google's.

        In every case ``prompt_tokens`` counts cached tokens too, and ``completion_tokens`` counts
        thoughts. The price is left open.
        """
        prompt = _first_int(raw, _PROMPT_KEYS) or 0
        if "prompt_tokens" not in raw:
            prompt += sum(_first_int(raw, (key,)) or 0 for key in _ASIDE_KEYS)
        completion = _first_int(raw, _COMPLETION_KEYS) or 0
        completion += _first_int(raw, _THOUGHT_KEYS) or 0
        cached = _first_int(raw, _CACHED_KEYS)
        for key in _DETAILS_KEYS:
            details = raw.get(key)
            if cached is None and isinstance(details, Mapping):
                cached = _first_int(details, _CACHED_KEYS)
        return cls(
            prompt_tokens=prompt,
            completion_tokens=completion,
            total_tokens=_first_int(raw, _TOTAL_KEYS) or prompt + completion,
            cached_tokens=cached,
        )

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        """Return the sum; what is unknown on both sides stays unknown."""
        return TokenUsage(
            prompt_tokens=_total(self.prompt_tokens, other.prompt_tokens),
            completion_tokens=_total(self.completion_tokens, other.completion_tokens),
            total_tokens=_total(self.total_tokens, other.total_tokens),
            cost_usd=_known(add, self.cost_usd, other.cost_usd),
            cached_tokens=_known(_total, self.cached_tokens, other.cached_tokens),
        )

    def __sub__(self, earlier: "TokenUsage") -> "TokenUsage":
        """Return what came on top of ``earlier``."""
        return TokenUsage(
            prompt_tokens=self.prompt_tokens - earlier.prompt_tokens,
            completion_tokens=self.completion_tokens - earlier.completion_tokens,
            total_tokens=self.total_tokens - earlier.total_tokens,
            cost_usd=None if self.cost_usd is None else self.cost_usd - (earlier.cost_usd or 0.0),
            cached_tokens=None
            if self.cached_tokens is None
            else self.cached_tokens - (earlier.cached_tokens or 0),
        )


def _first_int(raw: Mapping[str, object], keys: tuple[str, ...]) -> int | None:
    values = (raw.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int)), None)


def _total(one: int, other: int) -> int:
    return min(one + other, TOTAL_MAX)


def _known(
    added: Callable[[Number, Number], Number], one: Number | None, other: Number | None
) -> Number | None:
    if one is None:
        return other
    return one if other is None else added(one, other)
