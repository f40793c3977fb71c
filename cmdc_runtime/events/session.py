"""The session as a whole: subagents, compaction, hibernation, and what extensions tell."""

from typing import Any, Literal

from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import CallId, Incarnation, SessionId
from cmdc_runtime.messages import TokenUsage


class SubagentStart(Event, frozen=True, kw_only=True):
    """A call of the task tool started a session of its own."""

    call_id: CallId
    subagent_type: str
    child_session_id: SessionId
    description: str


class SubagentEnd(Event, frozen=True, kw_only=True):
    """The subagent is done; ``text`` is what the parent's model reads."""

    call_id: CallId
    child_session_id: SessionId
    ok: bool
    text: str
    usage: TokenUsage


class ConversationCompacted(Event, frozen=True, kw_only=True):
    """The oldest messages gave way to a summary; ``history_file`` has them in full.

    ``before`` and ``after`` count messages; ``usage`` is what the summary took.
    """

    trigger: Literal["size", "overflow", "request"]
    before: int
    after: int
    history_file: str | None
    usage: TokenUsage = TokenUsage()


class AgentHibernated(Event, frozen=True, kw_only=True):
    """The idle session gave up its process; the next command brings one back."""


class AgentWoken(Event, frozen=True, kw_only=True):
    """A new process took over from a hibernated one, with the same state."""

    incarnation: Incarnation


class PluginAttached(Event, frozen=True, kw_only=True):
    """A plugin was added."""

    name: str


class PluginUpdated(Event, frozen=True, kw_only=True):
    """A plugin goes on with other options, or other code."""

    name: str


class PluginDetached(Event, frozen=True, kw_only=True):
    """A plugin was removed."""

    name: str


class PluginCrashed(Event, frozen=True, kw_only=True):
    """A plugin raised, took too long or answered nonsense; its ``fail`` says what follows."""

    plugin: str
    hook: str
    error: str


class PluginModelCall(Event, frozen=True, kw_only=True):
    """A plugin asked a model for itself, apart from the conversation; ``usage`` is what it took."""

    plugin: str
    model: str
    usage: TokenUsage


class PluginEvent(Event, frozen=True, kw_only=True):
    """What a plugin, a tool or an effect of one has to tell observers."""

    name: str
    payload: Any  # Any: whatever MessagePack takes
