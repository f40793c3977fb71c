"""Requests to the model and what they stream."""

from typing import ClassVar

from cmdc_runtime.events.base import Event
from cmdc_runtime.messages import Message, TokenUsage


class RequestStart(Event, frozen=True, kw_only=True):
    """A request goes to ``model`` with ``messages`` messages."""

    model: str
    messages: int


class MessageStart(Event, frozen=True, kw_only=True):
    """The first piece of an answer's text is about to follow."""

    durable: ClassVar[bool] = False


class MessageDelta(Event, frozen=True, kw_only=True):
    """A piece of the answer's text, tags removed."""

    durable: ClassVar[bool] = False

    delta: str


class ThinkingStart(Event, frozen=True, kw_only=True):
    """The first piece of the model's thinking is about to follow."""

    durable: ClassVar[bool] = False


class ThinkingDelta(Event, frozen=True, kw_only=True):
    """A piece of the model's thinking."""

    durable: ClassVar[bool] = False

    delta: str


class ResponseComplete(Event, frozen=True, kw_only=True):
    """The answer is parsed, tool calls included; ``usage`` is what its request took.

    Where a cycle opened with a call, its result is an answer too: that took no request, and has
    ``messages.OPENING`` in its metadata.
    """

    message: Message
    usage: TokenUsage = TokenUsage()


class CostUnknown(Event, frozen=True, kw_only=True):
    """Nobody knows what an answer of ``model`` has cost, so ``max_cost_usd`` does not count it.

    Told at the first such answer, and again after a switch of the model or an answer with a cost.
    """

    model: str


class StatusUpdate(Event, frozen=True, kw_only=True):
    """The content of a ``<status>`` tag of the answer."""

    text: str


class TitleGenerated(Event, frozen=True, kw_only=True):
    """The content of a ``<title>`` tag of the answer, at most 60 characters."""

    title: str


class StreamError(Event, frozen=True, kw_only=True):
    """The stream failed; a retry, an abort or an error follows."""

    reason: str


class StreamStalled(Event, frozen=True, kw_only=True):
    """Nothing came for ``elapsed_s`` seconds."""

    elapsed_s: float


class StreamReset(Event, frozen=True, kw_only=True):
    """The request is sent again: discard the text and the thinking of the answer so far."""


class Retry(Event, frozen=True, kw_only=True):
    """Attempt ``attempt`` (from 1) starts in ``delay_ms``."""

    attempt: int
    delay_ms: int
    reason: str


class ContextOverflow(Event, frozen=True, kw_only=True):
    """The conversation does not fit into the model's window."""

    reason: str


class ModelSwitched(Event, frozen=True, kw_only=True):
    """The next request goes to ``to``."""

    from_: str
    to: str
    provider_opts_changed: bool = False
