"""A cycle begins, ends, and survives its process; it asks the model, whose answer streams."""

from typing import Any, Literal, TypeAlias

from cmdc_runtime.events.base import Event, SpanNote
from cmdc_runtime.ids import CallId, CommandId, Incarnation, MessageId
from cmdc_runtime.lines import duration, one_line
from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import LINE_CHARS_MAX, AnyReason

# --- cycles ---------------------------------------------------------------------------------------


class PromptReceived(Event, frozen=True, kw_only=True):
    """A prompt was accepted; ``queued`` means that it waits for the running cycle."""

    content_fields = ("text",)
    span = "invoke_agent"

    text: str
    queued: bool
    command_id: CommandId
    parts: tuple[MessagePart, ...] = ()

    def _line(self) -> str:
        first = f"{'queued' if self.queued else 'accepted'} prompt: {one_line(self.text)}"
        return "; ".join((first, *map(str, self.parts)))


class AgentStart(Event, frozen=True, kw_only=True):
    """A cycle begins with the prompt of ``command_id``."""

    span = "invoke_agent"

    command_id: CommandId

    def _line(self) -> str:
        return f"cycle of {self.command_id} begins"


class AgentEnd(Event, frozen=True, kw_only=True):
    """The cycle is finished; ``messages`` are those it added, ``usage`` is what it used.

    Of a very long cycle ``messages`` are the newest; ``messages()`` returns all of them.
    """

    content_fields = ("messages",)
    span = "invoke_agent"

    messages: tuple[Message, ...]
    usage: TokenUsage
    command_id: CommandId

    def _line(self) -> str:
        return f"finished: {len(self.messages)} messages, {self.usage.total_tokens} tokens"


class AgentAbort(Event, frozen=True, kw_only=True):
    """The cycle was ended; sent when idle too, so observers reconcile.

    ``reason`` is that of the caller or the plugin, as data, or the name of a limit.
    """

    level = "warning"
    span = "invoke_agent"

    reason: Any = None  # Any: plain data of whoever ended it
    command_id: CommandId | None = None

    def _line(self) -> str:
        return f"aborted: {one_line(shown(self.reason, LINE_CHARS_MAX) or 'no reason given')}"


class AgentError(Event, frozen=True, kw_only=True):
    """The provider or the kernel failed for good; ``retryable`` says that later may work."""

    level = "warning"
    span = "invoke_agent"

    reason: str
    retryable: bool
    command_id: CommandId

    def _line(self) -> str:
        return f"failed: {one_line(self.reason)}" + (" (later may work)" if self.retryable else "")


class AgentRecovered(Event, frozen=True, kw_only=True):
    """A new process took over after ``reason``; ``resumed`` says what it goes on with."""

    level = "warning"
    notice = "good"
    span = "invoke_agent"

    incarnation: Incarnation
    reason: AnyReason
    resumed: Literal["idle", "stream", "tools"]

    def _line(self) -> str:
        return (
            f"process {self.incarnation} took over after {one_line(str(self.reason))}; "
            f"goes on with: {self.resumed}"
        )


class RecordSetAside(Event, frozen=True, kw_only=True):
    """Something in the session's journal is left out from now on, since no process can bear it.

    ``what`` is the kind of the record, "record" where that is unknown, "snapshot", "cycle",
    "command", "tool", or "session_start" of a plugin that is not asked at that hook any more;
    ``digest`` names a record, or the code of a tool or plugin, by what it holds, ``name`` is what
    that is called. Of a command that brought what kills, both say what it brought.
    """

    level = "warning"
    notice = "bad"

    what: str
    why: str
    digest: str = ""
    name: str = ""

    def _line(self) -> str:
        return f"set aside: {one_line(f'{self.what} {self.name}'.strip())}: {one_line(self.why)}"


class AgentResumed(Event, frozen=True, kw_only=True):
    """An approval or a rejection opened a turn by itself."""

    span = "invoke_agent"

    trigger: Literal["tool_approved", "tool_rejected"]
    approval_id: str

    def _line(self) -> str:
        return f"{self.trigger} {one_line(self.approval_id)}"


class PromptDropped(Event, frozen=True, kw_only=True):
    """A queued prompt was discarded by an abort."""

    level = "warning"
    content_fields = ("text",)
    span = "invoke_agent"

    text: str
    command_id: CommandId

    def _line(self) -> str:
        return f"dropped prompt: {one_line(self.text)}"


# --- requests to the model ------------------------------------------------------------------------


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

    Published at the first such answer, and again after a switch of the model or an answer with a
    cost.
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

    Nobody reports what it took: ``usage`` is an estimate, of the request and of what had come of
    text and thinking.
    """

    span = "chat"

    usage: TokenUsage

    def _line(self) -> str:
        return f"the request was cut off; it took about {self.usage.total_tokens} tokens"


class StreamStalled(Event, frozen=True, kw_only=True):
    """No piece of the answer came for ``elapsed_s`` seconds; a keep-alive is none."""

    level = "warning"
    notice = "warning"
    span = "chat"
    span_note = SpanNote("llm.stalled", {"elapsed_s": "cmdc.elapsed_s"})

    elapsed_s: float

    def _line(self) -> str:
        return f"the provider is silent for {self.elapsed_s:g} s"


class StreamReset(Event, frozen=True, kw_only=True):
    """The request is sent again: discard the text and the thinking of the answer so far."""

    notice = "warning"
    span = "chat"
    span_note = SpanNote("llm.reset")

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
    span_note = SpanNote("llm.overflow")

    reason: str

    def _line(self) -> str:
        return f"the conversation is too long: {one_line(self.reason)}"


class GuardrailTripped(Event, frozen=True, kw_only=True):
    """A guardrail ends the cycle; the abort follows.

    ``side`` says what it looked at: the prompt, of which nothing was answered, or the answer, which
    is taken back. ``retracted`` is the id of its message, which reads as withheld from now on.
    """

    level = "warning"
    notice = "bad"
    content_fields = ("reason", "info")

    guardrail: str
    side: Literal["input", "output"]
    reason: str
    info: Any = None  # Any: plain data of the application
    retracted: MessageId | None = None

    def _line(self) -> str:
        return f"the {self.side} guardrail {one_line(self.guardrail)} says: {one_line(self.reason)}"


class HandedOff(Event, frozen=True, kw_only=True):
    """The session has another prompt, other tools and another model: those of the agent ``to``.

    The call ``call_id`` asked for it. That agent goes on in the same cycle, and sees ``messages``
    messages of the conversation.
    """

    notice = "quiet"

    from_: str
    to: str
    call_id: CallId
    model: str
    tools: tuple[str, ...] = ()
    messages: int = 0

    def _line(self) -> str:
        return f"{one_line(self.from_)} hands over to {one_line(self.to)} ({one_line(self.model)})"


class HandoffFailed(Event, frozen=True, kw_only=True):
    """A handoff that a call had asked for was not made; the agent that acts goes on."""

    level = "warning"
    notice = "warning"
    content_fields = ("reason",)

    to: str
    call_id: CallId
    reason: str

    def _line(self) -> str:
        return f"not handed over to {one_line(self.to)}: {one_line(self.reason)}"


class ModelSwitched(Event, frozen=True, kw_only=True):
    """The next request goes to ``to``."""

    notice = "quiet"
    span = "chat"
    span_note = SpanNote("model.switched", {"from_": "cmdc.model.from", "to": "cmdc.model.to"})

    from_: str
    to: str
    provider_opts_changed: bool = False

    def _line(self) -> str:
        return f"from {one_line(self.from_)} to {one_line(self.to)}"


CycleEvent: TypeAlias = (
    AgentAbort
    | AgentEnd
    | AgentError
    | AgentRecovered
    | AgentResumed
    | AgentStart
    | ContextOverflow
    | CostUnknown
    | GuardrailTripped
    | HandedOff
    | HandoffFailed
    | MessageDelta
    | MessageStart
    | ModelSwitched
    | PromptDropped
    | PromptReceived
    | RecordSetAside
    | RequestCut
    | RequestStart
    | ResponseComplete
    | Retry
    | StatusUpdate
    | StreamError
    | StreamReset
    | StreamStalled
    | ThinkingDelta
    | ThinkingStart
    | TitleGenerated
)
"""Each of these."""
