"""Tool calls, and changes of the tools."""

from typing import Literal

from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import CallId, SessionId


class ToolCalls(Event, frozen=True, kw_only=True):
    """The model asked for ``count`` calls."""

    count: int


class ToolExecutionStart(Event, frozen=True, kw_only=True):
    """One call starts; ``summary`` says in a few words what it does, as the tool puts it.

    Of each call there is this event or ``ToolBlocked``, and later ``ToolExecutionEnd``, each once,
    whatever ends the call and however many processes it takes. A session that is stopped, or ends
    with its parent, ends its calls first, but for one that waits for a person's leave. The process
    that runs them has to be alive for that: where it is killed and no other one follows, the
    session's ``Down`` is the end of all that ran.
    """

    name: str
    call_id: CallId
    args: dict[str, object]
    summary: str = ""


class ToolExecutionMetrics(Event, frozen=True, kw_only=True):
    """Times of one call: ``started_at_ms``, and at its end ``ended_at_ms`` and ``duration_ms``.

    A call that is made again after a crash has a new start.
    """

    name: str
    call_id: CallId
    meta: dict[str, int]


class ToolExecutionEnd(Event, frozen=True, kw_only=True):
    """One call is over, however it ended; ``text`` is what the model reads.

    ``uncertain``: it was cut short (by its timeout, an abort, a steering, the end of its process or
    of its agent), its tool writes, and nobody knows whether it took effect.
    """

    name: str
    call_id: CallId
    ok: bool
    text: str
    uncertain: bool = False


class ToolBlocked(Event, frozen=True, kw_only=True):
    """The call is not made: a plugin or a person refused it, or it waits for a person.

    Other words of ``reason`` are ``unknown_tool``, ``invalid_arguments``, ``aborted``, ``steered``,
    ``loop_detected``, ``plugin_aborted``, ``stopped`` and ``crashed``: what came before the
    call could begin.
    """

    name: str
    call_id: CallId
    reason: str


class ToolKilled(Event, frozen=True, kw_only=True):
    """A call was ended from outside; ``ToolExecutionEnd`` follows."""

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
