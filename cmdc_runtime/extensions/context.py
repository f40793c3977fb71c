"""What a tool is told about where it runs.

A tool sees its session through these values only, so it can be called in a unit test with a
``Context`` built by hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cmdc_runtime.ids import CallId, Incarnation, SessionId

_FIRST: Final = Incarnation(1)


class SessionPort(Protocol):
    """What a running call may ask of its own session; a call in a process has only ``emit``."""

    def emit(self, name: str, payload: object = None) -> None:
        """Tell observers: they get ``PluginEvent(name, payload)``. Anything MessagePack takes."""

    async def ask_user(self, question: str, options: Sequence[str] = ()) -> object:
        """Ask the user and return what ``user_respond`` sends; waits as long as the call may run.

        Raises:
            ToolError: the question can't be asked.
        """

    async def compact(self, reason: str) -> str:
        """Compact the conversation now and return a report for the model.

        Raises:
            ToolError: it could not be compacted; the text says why.
        """

    async def delegate(self, description: str, subagent_type: str) -> str:
        """Let a subagent do a task and return its answer; cancelling the call ends it.

        Raises:
            ToolError: it could not be started, failed or crashed; the text says what and why.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may use to describe itself to the model."""

    working_dir: str = "."
    shell: str = "sh"
    """The shell that commands run in."""
    subagents: tuple[tuple[str, str], ...] = ()
    """Name and description of each subagent that the session may start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One tool call and the session that it belongs to."""

    session_id: SessionId
    call_id: CallId
    working_dir: str = "."
    """Relative paths in arguments start here."""
    model: str = ""
    turn: int = 0
    """Which request to the model asked for the call, counted over the session's life."""
    user_data: dict[str, Any] = field(default_factory=dict)  # Any: the application's own
    group_id: str | None = None
    incarnation: Incarnation = _FIRST
    todos: tuple[dict[str, str], ...] = ()
    session: SessionPort | None = None
    """None where a tool runs without a session, as in a unit test."""

    @property
    def idempotency_key(self) -> str:
        """Return a key that stays the same when a crash makes this call run again.

        Give it to services that take one, so that they count the two attempts as one.
        """
        return f"{self.session_id}:{self.call_id}"
