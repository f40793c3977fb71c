"""A cycle begins, ends, and survives its process."""

from typing import Literal

from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import CommandId, Incarnation
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import AnyReason


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
