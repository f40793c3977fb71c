"""Everything a client may ask of a session, and what it answers.

To add a command: its class here, its handlers and its row in ``workers/core/commands.py``.
A ``durable`` command is in the journal before it reaches the agent and takes effect exactly once;
the others are questions. ``answer`` is the type of what comes back.
"""

from typing import Any, ClassVar, Final, Literal

import msgspec

from cmdc_runtime.ids import CallId, CommandId, EventIndex, Incarnation, SessionId
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import snake

KillTools = Literal["all", "killable", "none"]

PROMPT_CHARS_MAX: Final = 1_000_000
"""Of one prompt; a larger text belongs into a file that a tool reads."""


class PromptReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt is in the journal; ``queued`` means that it waits for the running cycle."""

    queued: bool
    command_id: CommandId


class CycleResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one cycle ended; ``text`` is the last answer's, ``messages`` are those it added.

    Of a very long cycle ``messages`` are the newest; ``GetMessages`` has all of them.
    """

    outcome: Literal["finished", "aborted", "failed", "dropped"]
    text: str = ""
    messages: tuple[Message, ...] = ()
    usage: TokenUsage = TokenUsage()
    reason: str | None = None


class PendingTool(msgspec.Struct, frozen=True, kw_only=True):
    """A call that runs now."""

    name: str
    call_id: CallId
    started_at_ms: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a session stands. Times that end in ``_ms`` are milliseconds.

    ``state`` is idle, running, streaming or executing_tools; while no process answers it is
    starting, restarting, stopping or unresponsive, and the counters are 0.
    """

    state: str
    session_id: SessionId
    turns: int = 0
    cost_usd: float | None = None
    uptime_ms: int = 0
    timestamp_ms: int = 0
    token_usage: TokenUsage = TokenUsage()
    total_tokens: int = 0
    model: str = ""
    queued_prompts: int = 0
    queued_steering: int = 0
    pending_tools: tuple[PendingTool, ...] = ()
    pending_approvals: tuple[str, ...] = ()
    incarnation: Incarnation
    restarts: int = 0
    pid: int | None = None
    parent_id: SessionId | None = None
    group_id: str | None = None
    last_index: EventIndex = EventIndex(0)


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=snake):
    """Base of all commands; the imperative mood says that it is a request."""

    durable: ClassVar[bool] = False
    answer: ClassVar[Any] = None  # Any: a type, as msgspec takes it


class Prompt(Command, frozen=True, kw_only=True):
    """Start a cycle, or wait for the running one to end."""

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = PromptReceipt

    text: str


class Abort(Command, frozen=True, kw_only=True):
    """End the running cycle; the session stays usable."""

    durable: ClassVar[bool] = True

    reason: str | None = None
    clear_queue: bool = True
    kill_tools: KillTools = "killable"


class AwaitCycle(Command, frozen=True, kw_only=True):
    """Answer when the cycle of prompt ``prompt_id`` has ended; None means the latest prompt."""

    answer: ClassVar[Any] = CycleResult

    prompt_id: CommandId | None = None


class GetStatus(Command, frozen=True, kw_only=True):
    """Answer how the session stands."""

    answer: ClassVar[Any] = Status


class GetMessages(Command, frozen=True, kw_only=True):
    """Answer the conversation, oldest first, the system message included."""

    answer: ClassVar[Any] = tuple[Message, ...]
