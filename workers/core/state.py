"""The words that the agent's tables are written in: states, memory, effects, results, one step.

Nothing in ``workers.core`` awaits, sleeps, reads a clock or sends: time is an argument, work is an
effect that ``workers.effects`` carries out, and what became of it comes back as a result.
"""

from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any, NamedTuple, TypeAlias

from cmdc_runtime.commands import Command, KillTools
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.events import Event
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.ids import CallId, CommandId
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from workers.core.assemble import Reply
from workers.core.records import OutcomeKind, Record
from workers.core.retry import Backoff
from workers.core.tags import TagState

OUTCOMES_MAX = 64
"""How many ended cycles are remembered for callers that ask late."""
WAITERS_MAX = 1_000
"""How many callers may wait for the ends of cycles."""


class State(StrEnum):
    """Where a session stands."""

    IDLE = auto()
    RUNNING = auto()  # a request is under way, nothing came yet
    STREAMING = auto()  # chunks arrive
    EXECUTING_TOOLS = auto()  # the batch of the answer's tool calls runs


# --- memory -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Policy:
    """What of the options the tables need; ``repeatable`` are tools that may run again."""

    max_turns: int = 100
    max_queued_prompts: int = 100
    max_retries: int = 3
    max_cycle_crashes: int = 2
    backoff: Backoff = field(default_factory=Backoff)
    system_prompt: str = ""
    repeatable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueuedPrompt:
    """A prompt that waits for its cycle."""

    command_id: CommandId
    text: str


@dataclass(frozen=True, slots=True)
class Cycle:
    """The way from idle to idle; ``first`` is the place of its first message."""

    command_id: CommandId
    first: int
    usage_before: TokenUsage
    turns: int = 0
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cycle ended; its messages are those from ``first`` up to ``end``."""

    command_id: CommandId
    outcome: OutcomeKind
    reason: str | None
    usage: TokenUsage
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Answering:
    """The answer of the running request, as far as it came."""

    retries: int = 0
    text: str = ""
    is_text_started: bool = False
    is_thinking_started: bool = False
    tags: TagState = field(default_factory=TagState)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """One call of the batch; ``result`` is None until it has ended."""

    call: ToolCall
    started_at_ms: int | None = None
    result: Message | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered between inputs.

    ``work`` numbers the request or batch under way; a result that names another number is late.
    """

    policy: Policy = field(default_factory=Policy)
    model: str = ""
    messages: tuple[Message, ...] = ()
    queue: tuple[QueuedPrompt, ...] = ()
    cycle: Cycle | None = None
    answering: Answering = field(default_factory=Answering)
    calls: tuple[OpenCall, ...] = ()
    work: int = 0
    turns: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    outcomes: tuple[Outcome, ...] = ()
    waiters: tuple[tuple[CommandId, CommandId | None], ...] = ()
    latest_prompt: CommandId | None = None


# --- inputs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """A command and when it came; ``at_ms`` is wall time."""

    id: CommandId
    command: Command
    at_ms: int


@dataclass(frozen=True, slots=True)
class FirstChunk:
    """Result of ``CallModel``: the provider started to answer."""

    work: int


@dataclass(frozen=True, slots=True)
class TextArrived:
    """Result of ``CallModel``: a piece of text."""

    work: int
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtArrived:
    """Result of ``CallModel``: a piece of thinking."""

    work: int
    text: str


@dataclass(frozen=True, slots=True)
class StreamSilent:
    """Result of ``CallModel``: nothing came for ``elapsed_s`` seconds."""

    work: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Result of ``CallModel``: the answer is complete."""

    work: int
    reply: Reply
    at_ms: int


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """Result of ``CallModel``: no answer; ``chance`` (0 to 1) is what the jitter is made of."""

    work: int
    kind: FailureKind
    reason: str
    at_ms: int
    retry_after_s: float | None = None
    chance: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryDue:
    """Result of ``Sleep``: the delay is over."""

    work: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ToolBegun:
    """Result of ``RunTools``: one call is about to run."""

    work: int
    call_id: CallId
    at_ms: int


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """Result of ``RunTools``: one call is done; ``text`` is what the model reads."""

    work: int
    call_id: CallId
    ok: bool
    text: str
    at_ms: int
    is_unknown: bool = False


Result: TypeAlias = (
    FirstChunk
    | TextArrived
    | ThoughtArrived
    | StreamSilent
    | StreamEnded
    | StreamFailed
    | RetryDue
    | ToolBegun
    | ToolReturned
)
"""Each names the work that it comes of, so that a late one is told from a current one."""


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model with ``messages``."""

    work: int
    model: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Post ``RetryDue`` in ``delay_s`` seconds."""

    work: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run a batch of calls."""

    work: int
    turn: int
    model: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class CancelWork:
    """Cancel the request, and of the tools those that ``kill`` says."""

    kill: KillTools = "killable"


@dataclass(frozen=True, slots=True)
class Publish:
    """Tell observers."""

    event: Event


@dataclass(frozen=True, slots=True)
class Keep:
    """Write a record to the journal."""

    record: Record


@dataclass(frozen=True, slots=True)
class Settle:
    """Give a durable command its one outcome: an answer, or an error that is raised."""

    id: CommandId
    outcome: Any  # Any: the answer type of the command, or a CmdcError


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a question."""

    id: CommandId
    value: Any  # Any: the answer type of the command


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer a question with an error."""

    id: CommandId
    error: CmdcError


@dataclass(frozen=True, slots=True)
class TellStatus:
    """Answer how the session stands; the shell adds what only it knows."""

    id: CommandId


Effect: TypeAlias = (
    CallModel
    | Sleep
    | RunTools
    | CancelWork
    | Publish
    | Keep
    | Settle
    | Answer
    | Refuse
    | TellStatus
)


class Step(NamedTuple):
    """What one input does: the next state, the next memory, the work to do, in order."""

    state: State
    memory: Memory
    effects: tuple[Effect, ...] = ()
