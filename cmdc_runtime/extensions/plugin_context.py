"""What a plugin sees of its session, and what it may ask of it.

A plugin knows its session through these values only, so that it can be called in a unit test with
a ``PluginContext`` built by hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.errors import ExtensionError
from cmdc_runtime.extensions.actions import Emit
from cmdc_runtime.ids import CommandId, Incarnation, SessionId
from cmdc_runtime.messages import Message, TokenUsage

_FIRST: Final = Incarnation(1)


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
        """Tell observers, as the action of a hook does, for who has no action: in ``observe``.

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
    session: PluginPort | None = None
    """None where a plugin runs without a session, as in a unit test."""
