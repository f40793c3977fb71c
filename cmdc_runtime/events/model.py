"""Requests to the model and what they stream."""

from cmdc_runtime.events.base import Event
from cmdc_runtime.lines import duration, one_line
from cmdc_runtime.messages import Message, TokenUsage


class RequestStart(Event, frozen=True, kw_only=True):
    """A request goes to ``model`` with ``messages`` messages."""

    span = "chat"

    model: str
    messages: int

    def _line(self) -> str:
        return f"request to {one_line(self.model)} with {self.messages} messages"


class MessageStart(Event, frozen=True, kw_only=True):
    """The first piece of an answer's text is about to follow."""

    durable = False
    level = "debug"
    span = "chat"


class MessageDelta(Event, frozen=True, kw_only=True):
    """A piece of the answer's text, tags removed."""

    durable = False
    level = "debug"
    content_fields = ("delta",)

    delta: str

    def _line(self) -> str:
        return one_line(self.delta)


class ThinkingStart(Event, frozen=True, kw_only=True):
    """The first piece of the model's thinking is about to follow."""

    durable = False
    level = "debug"
    span = "chat"


class ThinkingDelta(Event, frozen=True, kw_only=True):
    """A piece of the model's thinking."""

    durable = False
    level = "debug"
    content_fields = ("delta",)

    delta: str

    def _line(self) -> str:
        return one_line(self.delta)


class ResponseComplete(Event, frozen=True, kw_only=True):
    """The answer is parsed, tool calls included; ``usage`` is what its request took.

    Where a cycle opened with a call, its result is an answer too: that took no request, and has
    ``messages.OPENING`` in its metadata.
    """

    content_fields = ("message",)
    span = "chat"

    message: Message
    usage: TokenUsage = TokenUsage()

    def _line(self) -> str:
        return one_line(self.message.content)


class CostUnknown(Event, frozen=True, kw_only=True):
    """Nobody knows what an answer of ``model`` has cost, so ``max_cost_usd`` does not count it.

    Told at the first such answer, and again after a switch of the model or an answer with a cost.
    """

    level = "warning"
    notice = "warning"

    model: str

    def _line(self) -> str:
        return f"what {one_line(self.model)} costs is not known: max_cost_usd does not count it"


class StatusUpdate(Event, frozen=True, kw_only=True):
    """The content of a ``<status>`` tag of the answer."""

    content_fields = ("text",)
    notice = "quiet"

    text: str

    def _line(self) -> str:
        return one_line(self.text)


class TitleGenerated(Event, frozen=True, kw_only=True):
    """The content of a ``<title>`` tag of the answer, at most 60 characters."""

    content_fields = ("title",)

    title: str

    def _line(self) -> str:
        return one_line(self.title)


class StreamError(Event, frozen=True, kw_only=True):
    """The stream failed; a retry, an abort or an error follows."""

    level = "warning"
    span = "chat"

    reason: str

    def _line(self) -> str:
        return f"the stream failed: {one_line(self.reason)}"


class RequestCut(Event, frozen=True, kw_only=True):
    """A request was ended in the middle of its answer, or before it.

    Nobody tells what it took: ``usage`` is an estimate, of the request and of what had come of text
    and thinking.
    """

    span = "chat"

    usage: TokenUsage

    def _line(self) -> str:
        return f"the request was cut off; it took about {self.usage.total_tokens} tokens"


class StreamStalled(Event, frozen=True, kw_only=True):
    """Nothing came for ``elapsed_s`` seconds."""

    level = "warning"
    notice = "warning"
    span = "chat"

    elapsed_s: float

    def _line(self) -> str:
        return f"the provider is silent for {self.elapsed_s:g} s"


class StreamReset(Event, frozen=True, kw_only=True):
    """The request is sent again: discard the text and the thinking of the answer so far."""

    notice = "warning"
    span = "chat"

    def _line(self) -> str:
        return "the answer begins anew"


class Retry(Event, frozen=True, kw_only=True):
    """Attempt ``attempt`` (from 1) starts in ``delay_ms``."""

    level = "warning"
    notice = "warning"
    span = "chat"

    attempt: int
    delay_ms: int
    reason: str

    def _line(self) -> str:
        return f"attempt {self.attempt} in {duration(self.delay_ms)}: {one_line(self.reason)}"


class ContextOverflow(Event, frozen=True, kw_only=True):
    """The conversation does not fit into the model's window."""

    level = "warning"
    notice = "bad"
    span = "chat"

    reason: str

    def _line(self) -> str:
        return f"the conversation is too long: {one_line(self.reason)}"


class ModelSwitched(Event, frozen=True, kw_only=True):
    """The next request goes to ``to``."""

    notice = "quiet"
    span = "chat"

    from_: str
    to: str
    provider_opts_changed: bool = False

    def _line(self) -> str:
        return f"from {one_line(self.from_)} to {one_line(self.to)}"
