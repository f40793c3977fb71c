"""A cycle begins, ends, and survives its process."""

from typing import Any, Literal

from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import CommandId, Incarnation
from cmdc_runtime.lines import one_line
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import LINE_CHARS_MAX, AnyReason


class PromptReceived(Event, frozen=True, kw_only=True):
    """A prompt was accepted; ``queued`` means that it waits for the running cycle."""

    content_fields = ("text",)
    span = "invoke_agent"

    text: str
    queued: bool
    command_id: CommandId

    def _line(self) -> str:
        return f"{'queued' if self.queued else 'accepted'} prompt: {one_line(self.text)}"


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
