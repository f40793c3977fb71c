"""A cycle begins, ends, and survives its process."""

from typing import Any, Literal

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
    """The cycle was ended; sent when idle too, so observers reconcile.

    ``reason`` is that of the caller or the plugin, as data, or the name of a limit.
    """

    reason: Any = None  # Any: plain data of whoever ended it
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


class RecordSetAside(Event, frozen=True, kw_only=True):
    """Something in the session's journal is left out from now on, since no process can bear it.

    ``what`` is the kind of the record, "record" where that is unknown, "snapshot", "cycle",
    "command", "tool", or "session_start" of a plugin that is not asked at that hook any more;
    ``digest`` names a record, or the code of a tool or plugin, by what it holds, ``name`` is what
    that is called. Of a command that brought what kills, both tell what it brought.
    """

    what: str
    why: str
    digest: str = ""
    name: str = ""


class AgentResumed(Event, frozen=True, kw_only=True):
    """An approval or a rejection opened a turn by itself."""

    trigger: Literal["tool_approved", "tool_rejected"]
    approval_id: str


class PromptDropped(Event, frozen=True, kw_only=True):
    """A queued prompt was discarded by an abort."""

    text: str
    command_id: CommandId
