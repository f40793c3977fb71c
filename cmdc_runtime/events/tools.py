"""Tool calls, and changes of the tools."""

from typing import Any, Literal, TypeAlias

from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import CallId, SessionId
from cmdc_runtime.lines import call_line, one_line


class ToolCalls(Event, frozen=True, kw_only=True):
    """The model asked for ``count`` calls."""

    count: int

    def _line(self) -> str:
        return f"{self.count} calls"


class ToolExecutionStart(Event, frozen=True, kw_only=True):
    """One call starts; ``summary`` says in a few words what it does, as the tool puts it.

    Of each call there is this event or ``ToolBlocked``, and later ``ToolExecutionEnd``, each once,
    whatever ends the call and however many processes it takes. A session that is stopped, or ends
    with its parent, ends its calls first, but for one that waits for an approval. The process
    that runs them has to be alive for that: where it is killed and no other one follows, the
    session's ``Down`` is the end of all that ran.
    """

    content_fields = ("args", "summary")
    span = "execute_tool"

    name: str
    call_id: CallId
    args: dict[str, object]
    summary: str = ""

    def _line(self) -> str:
        return f"{call_line(self.name, self.args)}"


class ClientToolCalled(Event, frozen=True, kw_only=True):
    """A call waits for the program of its tool: the client that has attached ``owner`` makes it.

    Published again, with the same ``ref``, by a process that goes on with the call after a crash.
    """

    content_fields = ("args",)
    notice = "quiet"

    session_id: SessionId
    name: str
    call_id: CallId
    ref: str
    owner: str
    args: dict[str, Any]  # Any: whatever the tool takes

    def _line(self) -> str:
        return f"{one_line(self.name)} waits for its program ({one_line(self.ref)})"


class ToolExecutionMetrics(Event, frozen=True, kw_only=True):
    """Times of one call: ``started_at_ms``, and at its end ``ended_at_ms`` and ``duration_ms``.

    A call that is made again after a crash has a new start.
    """

    level = "debug"
    span = "execute_tool"

    name: str
    call_id: CallId
    meta: dict[str, int]

    def _line(self) -> str:
        return " ".join(
            [one_line(self.name), *(f"{name}={value}" for name, value in self.meta.items())]
        )


class ToolExecutionEnd(Event, frozen=True, kw_only=True):
    """One call is over, however it ended; ``text`` is what the model reads.

    ``uncertain``: it was cut short (by its timeout, an abort, a steering, the end of its process or
    of its agent), its tool writes, and nobody knows whether it took effect.
    """

    content_fields = ("text",)
    span = "execute_tool"

    name: str
    call_id: CallId
    ok: bool
    text: str
    uncertain: bool = False

    def _line(self) -> str:
        return f"{one_line(self.name)} {'done' if self.ok else 'failed'}: {one_line(self.text)}"


class ToolBlocked(Event, frozen=True, kw_only=True):
    """The call is not made: a plugin or a person refused it, or it waits for a person.

    Other words of ``reason`` are ``unknown_tool``, ``invalid_arguments``, ``aborted``, ``steered``,
    ``loop_detected``, ``plugin_aborted``, ``stopped`` and ``crashed``: what came before the
    call could begin.
    """

    level = "warning"
    content_fields = ("reason",)
    notice = "warning"
    span = "execute_tool"

    name: str
    call_id: CallId
    reason: str

    def _line(self) -> str:
        return f"{one_line(self.name)} was not run: {one_line(self.reason)}"


class ToolKilled(Event, frozen=True, kw_only=True):
    """A call was ended from outside; ``ToolExecutionEnd`` follows."""

    level = "warning"
    notice = "warning"
    span = "execute_tool"

    name: str
    call_id: CallId
    reason: str

    def _line(self) -> str:
        return f"{one_line(self.name)} was ended: {one_line(self.reason)}"


class ToolCallUnknown(Event, frozen=True, kw_only=True):
    """The model called a tool that the session does not have."""

    level = "warning"
    notice = "warning"
    span = "execute_tool"

    name: str
    call_id: CallId

    def _line(self) -> str:
        return f"there is no tool {one_line(self.name)}"


class ToolAttached(Event, frozen=True, kw_only=True):
    """A tool was added."""

    name: str

    def _line(self) -> str:
        return one_line(self.name)


class ToolDetached(Event, frozen=True, kw_only=True):
    """A tool was removed."""

    name: str

    def _line(self) -> str:
        return one_line(self.name)


class ToolsUpdated(Event, frozen=True, kw_only=True):
    """Summary of a batch of tool changes, after the single ones."""

    attached: tuple[str, ...]
    detached: tuple[str, ...]

    def _line(self) -> str:
        return f"{len(self.attached)} tools attached, {len(self.detached)} detached"


class McpServerChanged(Event, frozen=True, kw_only=True):
    """An MCP server has come to another state: connecting, ready, restarting or failed.

    One that is attached to a living session is declared, one that was removed is detached.
    ``tools`` counts those that the model has of it; ``problem`` says why it was lost, and which of
    its tools are left out.
    """

    notice = "quiet"

    name: str
    state: str
    tools: int = 0
    problem: str = ""

    def _line(self) -> str:
        why = f": {one_line(self.problem)}" if self.problem else ""
        count = f", {self.tools} tools" if self.tools else ""
        return f"MCP server {one_line(self.name)} is {self.state}{count}{why}"


class LoopDetected(Event, frozen=True, kw_only=True):
    """The model repeats itself."""

    level = "warning"
    notice = "warning"
    span = "execute_tool"

    type: Literal["repeat", "cycle"]
    name: str
    count: int

    def _line(self) -> str:
        return f"{one_line(self.name)} repeats itself: {self.type}, {self.count} times"


class TodoChange(Event, frozen=True, kw_only=True):
    """The list of todos was replaced."""

    content_fields = ("todos",)

    session_id: SessionId
    todos: tuple[dict[str, str], ...]

    def _line(self) -> str:
        return f"{len(self.todos)} todos"


ToolEvent: TypeAlias = (
    ClientToolCalled
    | LoopDetected
    | McpServerChanged
    | TodoChange
    | ToolAttached
    | ToolBlocked
    | ToolCallUnknown
    | ToolCalls
    | ToolDetached
    | ToolExecutionEnd
    | ToolExecutionMetrics
    | ToolExecutionStart
    | ToolKilled
    | ToolsUpdated
)
"""Each of these."""
