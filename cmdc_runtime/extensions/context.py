"""What a tool knows about where it runs; what a plugin sees of its session, and may ask of it.

Both see their session through these values only, so that they can be called in a unit test with a
``Context`` or a ``PluginContext`` built by hand.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.errors import ExtensionError
from cmdc_runtime.events.base import Event
from cmdc_runtime.events.envelope import Envelope
from cmdc_runtime.extensions.actions import Emit
from cmdc_runtime.extensions.sandbox import Sandbox
from cmdc_runtime.ids import CallId, CommandId, Incarnation, SessionId
from cmdc_runtime.messages import Message, TokenUsage

# --- of a tool ------------------------------------------------------------------------------------

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

    def emit(self, name: str | msgspec.Struct, payload: object = None) -> None:
        """Publish: observers get ``PluginEvent(name, payload)``. Anything MessagePack takes.

        It is journaled and replayed as other events are. Of a Struct of your own the name and the
        fields are taken: ``emit(Indexed(files=3))`` is ``emit("indexed", {"files": 3})``, and
        ``PluginEvent.payload_as(Indexed)`` gives it back. A payload has 1 MiB at most, and a call
        10,000 events.

        Raises:
            ToolError: it is too large, one too many, or cannot be kept.
        """

    async def ask_user(self, question: str, options: Sequence[str] = ()) -> object:
        """Ask the user and return what ``user_respond`` sends; waits as long as the call may run.

        Raises:
            ToolError: the question can't be asked.
        """

    async def call_client(self, owner: str, arguments: dict[str, Any], absent_s: float) -> object:
        """Have the program that has attached the tool ``owner`` make this call; return its result.

        It is made once, however often it is asked for. A program that has not taken it within
        ``absent_s`` seconds is not there.

        Raises:
            ToolError: nobody is there, or the tool has failed; the text says which.
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
    def kept(self) -> bytes:
        """What an earlier run of this call has kept last, from which this one goes on; or empty."""

    async def keep(self, content: bytes) -> None:
        """Keep what a later run of this call goes on with; return when it is in the journal.

        While something is kept, a process that dies has the call made again, whatever its tool's
        ``effects``: nothing that it does between this and the next ``keep`` may matter twice. Empty
        bytes end that, before it acts.

        Raises:
            ToolError: it is no bytes, or more than 64 KiB.
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


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a session stood when a batch of its calls was begun; fields as those of ``Context``."""

    todos: tuple[dict[str, str], ...] = ()
    usage: TokenUsage = TokenUsage()
    tools: tuple[str, ...] = ()
    subagents: tuple[str, ...] = ()
    prompt_mode: str = "full"
    last_assistant_reply: str | None = None
    memory_contents: dict[str, str] = {}


def seen(facts: SessionFacts) -> dict[str, Any]:  # Any: arguments of Context
    """Return what a call's ``Context`` takes over."""
    return {name: getattr(facts, name) for name in SessionFacts.__struct_fields__}


def _config_of(facts: Mapping[str, Any] | None) -> Any:
    """Return the ``Config`` of facts (Any: it stands above; it is loaded where somebody looks)."""
    if facts is None:
        return None
    return importlib.import_module("cmdc_runtime.config").Config(**facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One tool call and the session that it belongs to, as it stood when its batch was begun."""

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
    usage: TokenUsage = field(default_factory=TokenUsage)
    """Of the session so far, its subagents that have ended included."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the model has."""
    subagents: tuple[str, ...] = ()
    """Names of the subagents that the session may start."""
    prompt_mode: str = "full"
    last_assistant_reply: str | None = None
    """What the model has said last, beside its calls."""
    memory_contents: dict[str, str] = field(default_factory=dict)
    """What was loaded from memory files, by file name."""
    config_facts: dict[str, Any] | None = None  # Any: fields of a Config
    session: SessionPort | None = None
    """None where a tool runs without a session, as in a unit test. In a tool with
    ``where="client"`` each name of it is an error that says so."""
    sandbox: Sandbox | None = None
    """Where the call reaches files and runs commands; None without a session, as above."""

    @property
    def total_tokens(self) -> int:
        """What the session has used so far."""
        return self.usage.total_tokens

    @property
    def cost_usd(self) -> float:
        """What the session has spent so far, as far as prices are known."""
        return self.usage.cost_usd or 0.0

    @property
    def config(self) -> Any:  # Any: a Config, which stands above this
        """The ``Config`` that the session was created with, None without one.

        It has no ``providers`` and no ``provider_opts``, and of ``default_tools`` the names.
        """
        return _config_of(self.config_facts)

    @property
    def idempotency_key(self) -> str:
        """Return a key that stays the same when a crash makes this call run again.

        Give it to services that take one, so that they count the two attempts as one.
        """
        return f"{self.session_id}:{self.call_id}"


# --- of a plugin ----------------------------------------------------------------------------------


class PluginCallError(ExtensionError):
    """What a plugin asked of its session could not be done; the text says why."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered to a question of a plugin's own."""

    text: str
    usage: TokenUsage = field(default_factory=TokenUsage)


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a person's decision."""

    id: str
    tool: str
    args: dict[str, Any]  # Any: whatever the tool takes


class PluginPort(Protocol):
    """What an ``async def`` method of a plugin may ask of its session while it is being asked.

    Of an ``async def observe`` it takes no ``complete`` and no ``delegate``.
    """

    async def complete(
        self,
        prompt: str | Sequence[Message],
        *,
        system: str = "",
        model: str | None = None,
        provider_opts: dict[str, Any] | None = None,  # Any: litellm's own arguments
        response_format: dict[str, Any] | None = None,  # Any: a JSON Schema
    ) -> Completion:
        """Ask a model once, apart from the conversation; the session pays for it.

        ``model`` None is the session's own with its options; another one is asked with
        ``provider_opts`` alone. A transient failure is tried again as any request is. The hook's
        own timeout bounds it.

        Raises:
            PluginCallError: the model could not be asked, or gave no answer.
        """

    async def delegate(self, description: str, subagent_type: str) -> str:
        """Let a subagent of the session do a task and return its answer.

        Raises:
            PluginCallError: it could not be started, failed or crashed; the text says what and why.
        """

    async def emit(self, event: Emit) -> None:
        """Publish an event, as the action of a hook does, for who has no action: in ``observe``.

        An order to the session, a kernel emit, is none of these.

        Raises:
            PluginCallError: the event cannot be published.
        """

    async def checkpoint(
        self,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,  # Any: whatever MessagePack takes
    ) -> Snapshot:
        """Save the state of the session as it is now, and return when that is durable.

        It is what the journal would give a new process: a running cycle is part of it. An
        ``async def observe`` may ask for it too.

        Raises:
            PluginCallError: it could not be saved.
        """

    async def checkpoints(self) -> list[Snapshot]:
        """Return the checkpoints of the session without their states, newest first.

        Raises:
            PluginCallError: the daemon did not answer.
        """

    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Delete a checkpoint of the session; none of this id is no error.

        Raises:
            PluginCallError: the daemon did not do it.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContext:
    """What a plugin sees of its session: a snapshot, taken when the hook was reached."""

    session_id: SessionId
    model: str = ""
    turn: int = 0
    """Requests to the model so far, counted over the session's life."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    """Of the session so far, its subagents that have ended included; the next two are of it."""
    total_tokens: int = 0
    cost_usd: float = 0.0
    """What was spent as far as prices are known; see ``is_priced``."""
    is_priced: bool = True
    """Whether the model in use has a known price, and its latest answer a usage that could be read;
    what one without is asked adds no cost."""
    user_data: dict[str, Any] = field(default_factory=dict)  # Any: the application's own
    parent_id: SessionId | None = None
    """The session whose subagent this is: its model writes the prompts."""
    group_id: str | None = None
    working_dir: str = "."
    todos: tuple[dict[str, str], ...] = ()
    tools: tuple[str, ...] = ()
    """Names of the tools that the model is given now."""
    subagents: tuple[str, ...] = ()
    """Names of the subagents that the session may start."""
    prompt_mode: str = "full"
    messages: tuple[Message, ...] = ()
    """The conversation as it stands, without the system prompt, oldest first."""
    last_assistant_reply: str | None = None
    memory_contents: dict[str, str] = field(default_factory=dict)
    """What was loaded from memory files, by file name."""
    approvals: tuple[PendingApproval, ...] = ()
    """The calls that wait for a person."""
    always_approved: frozenset[tuple[str, str]] = frozenset()
    """What a person approved for the session's life: tool and family, "" for the whole tool."""
    incarnation: Incarnation = _FIRST
    cycle_id: CommandId | None = None
    """Of the cycle that runs: the id of its prompt."""
    trace_parent: str | None = None
    """The span of the call or branch that started this session, as W3C's ``traceparent``."""
    config_facts: dict[str, Any] | None = None  # Any: fields of a Config
    state_dir: str | None = None
    """The daemon's folder for what outlives a session; None where there is no daemon."""
    session: PluginPort | None = None
    """None where a plugin runs without a session, as in a unit test."""

    @property
    def config(self) -> Any:  # Any: a Config, which stands above this
        """The ``Config`` that the session was created with, as a tool's ``Context`` has it."""
        return _config_of(self.config_facts)
