"""Everything an observer can see a session do.

To add an event, add one class here: the codec, the journal and the reference pages derive from
``Event.__subclasses__()``. ``durable`` says whether the journal keeps it: a durable event outlives
every crash, an ephemeral one lives as long as the ring remembers it. Names and payloads are those
of the CMDC event catalogue; where a field's name is a reserved word it ends in an underscore.
"""

from typing import Any, ClassVar, Literal

import msgspec

from cmdc_runtime.ids import CallId, CommandId, EventIndex, Incarnation, SessionId
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import AnyReason, snake


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=snake):
    """Base of all events."""

    durable: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """The event's name on the wire: ``MessageDelta`` is ``message_delta``."""
        return str(self.__struct_config__.tag)


# --- lifecycle of a cycle -------------------------------------------------------------------


class PromptReceived(Event, frozen=True, kw_only=True):
    """A prompt was accepted; ``queued`` means that it waits for the running cycle."""

    text: str
    queued: bool
    command_id: CommandId


class AgentStart(Event, frozen=True, kw_only=True):
    """A cycle begins with the prompt of ``command_id``."""

    command_id: CommandId


class AgentEnd(Event, frozen=True, kw_only=True):
    """The cycle is finished; ``messages`` are those it added, ``usage`` is what it used.

    Of a very long cycle ``messages`` are the newest; ``messages()`` returns all of them.
    """

    messages: tuple[Message, ...]
    usage: TokenUsage
    command_id: CommandId


class AgentAbort(Event, frozen=True, kw_only=True):
    """The cycle was ended by a caller or a limit; sent when idle too, so observers reconcile."""

    reason: str | None = None
    command_id: CommandId | None = None


class AgentError(Event, frozen=True, kw_only=True):
    """The provider or the kernel failed for good; ``retryable`` says that later may work."""

    reason: str
    retryable: bool
    command_id: CommandId


class AgentRecovered(Event, frozen=True, kw_only=True):
    """A new process took over after ``reason``; ``resumed`` says what it goes on with."""

    incarnation: Incarnation
    reason: AnyReason
    resumed: Literal["idle", "stream", "tools"]


class AgentResumed(Event, frozen=True, kw_only=True):
    """An approval or a rejection opened a turn by itself."""

    trigger: Literal["tool_approved", "tool_rejected"]
    approval_id: str


class PromptDropped(Event, frozen=True, kw_only=True):
    """A queued prompt was discarded by an abort."""

    text: str
    command_id: CommandId


# --- model request and stream ---------------------------------------------------------------


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
    """The answer is parsed, tool calls included."""

    message: Message


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


# --- tools ----------------------------------------------------------------------------------


class ToolCalls(Event, frozen=True, kw_only=True):
    """The model asked for ``count`` calls."""

    count: int


class ToolExecutionStart(Event, frozen=True, kw_only=True):
    """One call starts."""

    name: str
    call_id: CallId
    args: dict[str, object]


class ToolExecutionMetrics(Event, frozen=True, kw_only=True):
    """Times of one call: ``started_at_ms``, and at its end ``ended_at_ms`` and ``duration_ms``."""

    name: str
    call_id: CallId
    meta: dict[str, int]


class ToolExecutionEnd(Event, frozen=True, kw_only=True):
    """One call is done; ``text`` is what the model reads."""

    name: str
    call_id: CallId
    ok: bool
    text: str


class ToolBlocked(Event, frozen=True, kw_only=True):
    """A plugin refused the call."""

    name: str
    call_id: CallId
    reason: str


class ToolKilled(Event, frozen=True, kw_only=True):
    """A running call was ended from outside."""

    name: str
    call_id: CallId
    reason: str


class ToolCallUnknown(Event, frozen=True, kw_only=True):
    """The model called a tool that the session does not have."""

    name: str
    call_id: CallId


class ToolAttached(Event, frozen=True, kw_only=True):
    """A tool was added."""

    name: str


class ToolDetached(Event, frozen=True, kw_only=True):
    """A tool was removed."""

    name: str


class ToolsUpdated(Event, frozen=True, kw_only=True):
    """Summary of a batch of tool changes, after the single ones."""

    attached: tuple[str, ...]
    detached: tuple[str, ...]


class LoopDetected(Event, frozen=True, kw_only=True):
    """The model repeats itself."""

    type: Literal["repeat", "cycle"]
    name: str
    count: int


class TodoChange(Event, frozen=True, kw_only=True):
    """The list of todos was replaced."""

    session_id: SessionId
    todos: tuple[dict[str, str], ...]


# --- made by the client ---------------------------------------------------------------------


class EventsLost(Event, frozen=True, kw_only=True):
    """Events ``first`` to ``last`` were published and cannot be had any more."""

    first: EventIndex
    last: EventIndex


class UnknownEvent(Event, frozen=True, kw_only=True):
    """An event of a newer daemon: its name and payload as they came."""

    name: str
    data: dict[str, Any]  # Any: whatever a later version sends

    @property
    def kind(self) -> str:
        """The name that the newer daemon gave it."""
        return self.name


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One event as a subscriber gets it; ``at_ms`` is wall time, milliseconds since 1970."""

    session_id: SessionId
    index: EventIndex
    at_ms: int
    event: Event
