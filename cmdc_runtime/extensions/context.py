"""What a tool knows about where it runs.

A tool sees its session through these values only, so it can be called in a unit test with a
``Context`` built by hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cmdc_runtime.events.base import Event
from cmdc_runtime.events.session import Envelope
from cmdc_runtime.ids import CallId, Incarnation, SessionId
from cmdc_runtime.messages import TokenUsage

_FIRST: Final = Incarnation(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchAnswer:
    """What came of a branch: its answer, or (not ``ok``) why it has none, and what it used."""

    ok: bool
    text: str
    usage: TokenUsage
    is_cut: bool = False
    """Whether it ended in the middle of a request, of which nobody knows what it has used."""


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

    @property
    def published(self) -> int:
        """How many events earlier runs of this call have published: the first, in their order."""

    async def publish(self, event: Event) -> None:
        """Publish a step of a reasoning run, and have it counted with the same write.

        A call that runs again after a crash passes over the first ``published`` of its events.
        ``event`` is one of the kinds ``reasoning_*``.

        Raises:
            ToolError: it is another event, too large, or cannot be kept.
        """

    async def recall(self, run_id: str) -> tuple[Envelope, ...]:
        """Return what earlier runs of this call have published of ``run_id``, in its order.

        These are as many as ``published``; fewer where the journal of this session has not all of
        them, as that of a session which goes on from another one's state.

        Raises:
            ToolError: the journal cannot be read now.
        """

    async def branch(  # noqa: PLR0913 - as the contract has it
        self,
        branch_id: str,
        prompt: str,
        *,
        model: str | None = None,
        response_format: object = None,
        fork: bool = False,
        tokens: int | None = None,
        cost_usd: float | None = None,
        shares: int = 1,
    ) -> BranchAnswer:
        """Let a subagent of the general kind answer ``prompt``; cancelling the wait ends it first.

        ``branch_id`` names it within the call. A call that runs again after a crash gets what came
        of it from the session, and nothing is asked or paid twice. It may spend ``tokens`` and
        ``cost_usd``, and no more than its share of what the session has left, where ``shares``
        branches are about to be started, this one included. It starts no sessions of its own. With
        ``fork`` it begins with the conversation of the session, as that is then.

        Raises:
            ToolError: it was not started; the text says why.
            OtherBranchError: ``branch_id`` was asked for with another prompt, model or format.
        """

    async def end_branch(self, branch_id: str) -> BranchAnswer:
        """End a branch and return when it is gone and counted: what came of it, and what it used.

        Who waits for it gets an answer that is not ``ok``. One that has ended, or that nobody has
        asked for, is answered for at once; an answer that was there before is returned.

        Raises:
            ToolError: ``branch_id`` is no name.
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
