"""Events that are no step of a cycle: of the session as a whole, of supervision, of the client.

A session reports subagents, compaction, hibernation, plugins, and what extensions emit.
Supervisors report their children on the topic of the supervision tree. The client makes what only
it can know, and hands events on in an ``Envelope``.
"""

from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import CallId, EventIndex, Incarnation, SessionId
from cmdc_runtime.lines import one_line
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasons import LINE_CHARS_MAX, snake

_Own = TypeVar("_Own", bound=msgspec.Struct)

# --- the session ----------------------------------------------------------------------------------


class SubagentStart(Event, frozen=True, kw_only=True):
    """A call of the task tool, or of one that branches, started a session of its own.

    Of a branch of a reasoning run the last three say which; None of any other.
    """

    content_fields = ("description",)
    notice = "quiet"
    span = "execute_tool"

    call_id: CallId
    subagent_type: str
    child_session_id: SessionId
    description: str
    of_run: str | None = None
    strategy: str | None = None
    branch_id: str | None = None

    def _line(self) -> str:
        kind = f"{one_line(self.subagent_type)} ({self.child_session_id})"
        return f"subagent {kind}: {one_line(self.description)}"


class SubagentEnd(Event, frozen=True, kw_only=True):
    """The subagent is done; ``text`` is what the parent's model reads."""

    content_fields = ("text",)
    notice = "quiet"
    span = "execute_tool"

    call_id: CallId
    child_session_id: SessionId
    ok: bool
    text: str
    usage: TokenUsage

    def _line(self) -> str:
        outcome = "done" if self.ok else "failed"
        return f"subagent {self.child_session_id} {outcome}: {one_line(self.text)}"


class ConversationCompacted(Event, frozen=True, kw_only=True):
    """The oldest messages gave way to a summary; ``history_file`` has them in full.

    ``before`` and ``after`` count messages; ``usage`` is what the summary took.
    """

    notice = "quiet"
    span = "chat"

    trigger: Literal["size", "overflow", "request"]
    before: int
    after: int
    history_file: str | None
    usage: TokenUsage = TokenUsage()

    def _line(self) -> str:
        return f"{self.before} messages became {self.after} ({self.trigger})" + (
            f", in full in {one_line(self.history_file)}" if self.history_file else ""
        )


class AgentHibernated(Event, frozen=True, kw_only=True):
    """The idle session gave up its process; the next command brings one back."""

    def _line(self) -> str:
        return "its process is given up until somebody calls"


class AgentWoken(Event, frozen=True, kw_only=True):
    """A new process took over from a hibernated one, with the same state."""

    incarnation: Incarnation

    def _line(self) -> str:
        return f"process {self.incarnation} goes on"


class PluginAttached(Event, frozen=True, kw_only=True):
    """A plugin was added."""

    name: str

    def _line(self) -> str:
        return f"plugin attached: {one_line(self.name)}"


class PluginUpdated(Event, frozen=True, kw_only=True):
    """A plugin goes on with other options, or other code."""

    name: str

    def _line(self) -> str:
        return f"plugin updated: {one_line(self.name)}"


class PluginDetached(Event, frozen=True, kw_only=True):
    """A plugin was removed."""

    name: str

    def _line(self) -> str:
        return f"plugin detached: {one_line(self.name)}"


class PluginCrashed(Event, frozen=True, kw_only=True):
    """A plugin raised, took too long or answered nonsense; its ``fail`` says what follows."""

    level = "warning"
    content_fields = ("error",)
    span = "invoke_agent"

    plugin: str
    hook: str
    error: str

    def _line(self) -> str:
        return f"plugin {self.plugin} failed at {self.hook}: {one_line(self.error)}"


class PluginModelCall(Event, frozen=True, kw_only=True):
    """A plugin asked a model for itself, apart from the conversation; ``usage`` is what it took."""

    span = "chat"

    plugin: str
    model: str
    usage: TokenUsage

    def _line(self) -> str:
        return f"{one_line(self.plugin)} asked {one_line(self.model)}"


class PluginEvent(Event, frozen=True, kw_only=True):
    """What a plugin, a tool or an effect of one emits for observers.

    ``payload_as(Audited)`` is what was emitted as a Struct of your own.
    """

    content_fields = ("payload",)

    name: str
    payload: Any  # Any: whatever MessagePack takes

    def payload_as(self, kind: type[_Own]) -> _Own | None:
        """Return the payload as a Struct of this class; None where the event has another name.

        The name is that of the class, in snake_case. ``user_data``, which a plugin's event has
        besides, is left out unless the class has it.

        Raises:
            ProtocolError: the payload does not fit the class; the text says where.
        """
        if self.name != snake(kind.__name__):
            return None
        names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        given = dict(self.payload) if isinstance(self.payload, dict) else self.payload
        if isinstance(given, dict):
            if "user_data" not in names:
                given.pop("user_data", None)
            given = {names.get(name, name): value for name, value in given.items()}
        try:
            return msgspec.convert(given, kind)
        except (msgspec.ValidationError, TypeError) as error:
            raise ProtocolError(
                f"the event {self.name!r} is no {kind.__name__}: {error}"
            ) from error

    def _line(self) -> str:
        return f"{one_line(self.name)}: {one_line(str(self.payload))}"


# --- supervision ----------------------------------------------------------------------------------


class SupervisorReport(Event, frozen=True, kw_only=True):
    """One fact about one child of a supervisor; ``subscribe("_supervisor")`` gets all of them.

    ``report`` is OTP's word: progress, start_error, child_terminated, shutdown_error, shutdown; or
    unkillable or unexpected. ``supervisor`` is the path from the root; ``in_window`` of
    ``max_restarts`` restarts count at the moment.
    """

    durable = False
    level = "debug"
    theme = "supervision"

    report: str
    supervisor: str
    context: str
    reason: str | None = None
    pid: int | None = None
    generation: Incarnation = Incarnation(0)
    restarts: int = 0
    in_window: int = 0
    max_restarts: int = 0
    next_attempt_s: float | None = None
    child: str | None = None
    child_type: str | None = None
    restart_type: str | None = None
    significant: bool = False
    shutdown: float | None = None

    def _line(self) -> str:
        path = "/".join(filter(None, (self.supervisor, self.child)))
        why = one_line(self.reason or self.context, LINE_CHARS_MAX)
        count = f" (restart {self.in_window} of {self.max_restarts})"
        return f"{self.report} {one_line(path, LINE_CHARS_MAX)}: {why}" + (
            count if self.next_attempt_s is not None else ""
        )


# --- the client -----------------------------------------------------------------------------------


class EventsLost(Event, frozen=True, kw_only=True):
    """Events ``first`` to ``last`` were published and cannot be had any more.

    Where its own index lies below ``first``, the daemon counts no further than that.
    """

    notice = "bad"
    theme = "client"

    first: EventIndex
    last: EventIndex

    def _line(self) -> str:
        return f"events {self.first} to {self.last} cannot be had any more"


class UnknownEvent(Event, frozen=True, kw_only=True):
    """An event of a newer daemon: its name and payload as they came."""

    theme = "client"

    name: str
    data: dict[str, Any]  # Any: whatever a later version sends

    @property
    def kind(self) -> str:
        """The name that the newer daemon gave it."""
        return self.name

    def _line(self) -> str:
        return one_line(str(self.data))


SessionEvent: TypeAlias = (
    AgentHibernated
    | AgentWoken
    | ConversationCompacted
    | EventsLost
    | PluginAttached
    | PluginCrashed
    | PluginDetached
    | PluginEvent
    | PluginModelCall
    | PluginUpdated
    | SubagentEnd
    | SubagentStart
    | SupervisorReport
    | UnknownEvent
)
"""Each of these."""
