"""What an agent remembers between inputs: states, policy, memory.

Nothing in ``workers.core`` awaits, sleeps, reads a clock or sends: time is an argument, work is an
effect (``step.py``) that ``workers.performers`` carries out, and what became of it comes back as a
result (``inputs.py``).
"""

from collections.abc import Callable, Mapping
from enum import StrEnum, auto
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import field

from cmdc_runtime.checked_struct import Count, Milliseconds, Total
from cmdc_runtime.commands import IMMUNE_TOOLS, SkillStatus
from cmdc_runtime.extensions.hooks import TURN_HOOKS, BeforeCompact, Hook, kind_of
from cmdc_runtime.ids import CallId, CommandId, SessionId
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.message_parts import Medium, MessagePart
from cmdc_runtime.messages import Message, OpeningCall, TokenUsage, ToolCall
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.subagent import TRANSFER_TOOL
from workers.core.budget import Budget
from workers.core.children import Branch, Child, EndedRun, LostBranch, OpenRun
from workers.core.records import Approval, OutcomeKind
from workers.core.retry import Backoff
from workers.core.tags import ALL, Tag, TagState

OUTCOMES_MAX: Final = 64
"""How many ended cycles are remembered for callers that ask late."""
WAITERS_MAX: Final = 1_000
"""How many callers may wait for the ends of cycles; one whose time is over waits no more."""
IMMUNE: Final = frozenset(IMMUNE_TOOLS)
"""Tools that a steering or an abort leaves running, unless the options say otherwise."""


class State(StrEnum):
    """Where a session stands."""

    IDLE = auto()
    RUNNING = auto()  # a request is under way, nothing came yet
    STREAMING = auto()  # chunks arrive
    EXECUTING_TOOLS = auto()  # the batch of the answer's tool calls runs


# --- what does not change -----------------------------------------------------------------------


def _unknown_window(_model: str) -> int | None:
    return None


def no_problem(_model: str, _opts: Mapping[str, Any]) -> None:  # Any: litellm's own
    """Have nothing against any model."""


def _unknown_answer(_model: str) -> int | None:
    return None


def _unknown_media(_model: str) -> frozenset[Medium] | None:
    return None


def _unknown_price(_model: str, _prompt: int, _completion: int) -> float | None:
    return None


class AgentFacts(msgspec.Struct, frozen=True):
    """An agent that the session may be handed to, as the tables know it.

    ``tools`` are its own, None where it has the session's; ``transfers`` those by which it hands
    over. A ``model`` of None is the session's. It sees the whole conversation if ``sees_all``, and
    what a function leaves of it if ``has_filter``; else what the user has said in the cycle.
    """

    name: str
    is_own: bool = False
    tools: tuple["ToolFacts", ...] | None = None
    transfers: tuple["ToolFacts", ...] = ()
    model: str | None = None
    provider_opts: dict[str, Any] | None = None  # Any: litellm's own arguments
    sees_all: bool = True
    has_filter: bool = False
    system_chars: int = 0
    tags: frozenset[Tag] = ALL


class Policy(msgspec.Struct, frozen=True):
    """What of the options the tables need; what reads offline tables is a function."""

    session_id: SessionId = SessionId("")
    max_turns: int = 100
    max_queued_prompts: int = 100
    max_steering_queue: int = 3
    max_retries: int = 3
    max_cycle_crashes: int = 2
    max_tokens: int | None = None
    system_chars: int = 0
    """Of the system prompt without what tools add to it."""
    tags: frozenset[Tag] = ALL
    """Those that the system prompt invites the model to use."""
    backoff: Backoff = field(default_factory=Backoff)
    stall_timeout_s: float = 120.0
    cycle_timeout_s: float | None = None
    immune: frozenset[str] = IMMUNE
    loop_threshold: int = 3
    loop_abort: int = 5
    loop_exempt: frozenset[str] = frozenset()
    budget: Budget = field(default_factory=Budget)
    exit_on: frozenset[str] = frozenset()
    response_format: dict[str, Any] | None = None  # Any: a JSON Schema
    max_children: int = 8
    max_spawns: int = 64
    subagents: frozenset[str] = frozenset()
    agents: tuple[AgentFacts, ...] = ()
    """Those that the session may be handed to, its own one first; none without handoffs."""
    guards_input: bool = False
    guards_output: bool = False
    """There are guardrails that look at a prompt, or at an answer."""
    opening_call: OpeningCall | None = None
    """Of a cycle whose prompt carries none."""
    window_of: Callable[[str], int | None] = _unknown_window
    answer_max_of: Callable[[str], int | None] = _unknown_answer
    price_of: Callable[[str, int, int], float | None] = _unknown_price
    media_of: Callable[[str], frozenset[Medium] | None] = _unknown_media
    vendor_problem_of: Callable[[str, Mapping[str, Any]], str | None] = no_problem  # Any: options
    """Why a model with its options names no vendor, or None where it may."""


# --- memory -------------------------------------------------------------------------------------


class ToolFacts(msgspec.Struct, frozen=True):
    """One tool of the session, as the tables know it.

    ``packed`` is its packed code; it is None in tests only.
    """

    name: str
    is_repeatable: bool = False
    isolation: Literal["process", "thread", "task"] = "process"
    packed: Packed | None = None
    chars: Count = 0
    """Of its description in every request."""
    run_strategy: str = ""
    """As ``Tool.run_strategy``."""

    @property
    def is_transfer(self) -> bool:
        """Whether a call of it hands the session to another agent."""
        return self.packed is not None and self.packed.ref == TRANSFER_TOOL


class SeenTool(msgspec.Struct, frozen=True):
    """A tool of an MCP server: digests of its definition, the first one and the latest."""

    server: str
    name: str
    first: str
    latest: str


class PluginFacts(msgspec.Struct, frozen=True):
    """One plugin of the session, as the tables know it; ``packed`` as for ``ToolFacts``."""

    name: str
    hooks: frozenset[str]
    packed: Packed | None = None


class QueuedPrompt(msgspec.Struct, frozen=True):
    """A prompt that waits for its cycle; ``metadata`` goes into the user's message.

    ``call`` is made in place of asking the model. ``response_format`` is the form of its answer, in
    place of the session's.
    """

    command_id: CommandId
    text: str
    metadata: dict[str, object] = field(default_factory=dict)
    call: OpeningCall | None = None
    response_format: dict[str, Any] | None = None  # Any: a JSON Schema
    parts: tuple[MessagePart, ...] = ()


class Steering(msgspec.Struct, frozen=True):
    """A text that waits until the turn is over."""

    ref: CommandId
    text: str
    parts: tuple[MessagePart, ...] = ()


class Cycle(msgspec.Struct, frozen=True):
    """The way from idle to idle; ``first`` is the place of its first message.

    ``turns`` are those that were answered. ``is_blocked``: a call of the latest batch waits for
    approval, so its end is the cycle's end.
    ``opening`` is the call that is made in place of the first request.
    """

    command_id: CommandId
    first: Count
    usage_before: TokenUsage
    started_at_ms: Milliseconds = 0
    turns: Count = 0
    crashes: Count = 0
    repairs: Count = 0
    is_blocked: bool = False
    opening: OpeningCall | None = None
    response_format: dict[str, Any] | None = None  # Any: a JSON Schema
    handoffs: Count = 0


class PendingHandoff(msgspec.Struct, frozen=True):
    """A call has handed the session over; that is done when the calls beside it have ended."""

    call_id: CallId
    to: str


class OwnParts(msgspec.Struct, frozen=True):
    """What the session's own agent has, for as long as another one acts."""

    tools: tuple[ToolFacts, ...]
    model: str
    provider_opts: dict[str, Any]  # Any: litellm's own arguments


class Waiter(msgspec.Struct, frozen=True):
    """A caller that waits for the end of a prompt's cycle, None for the next one that ends.

    ``due_ms``, wall time, is when it waits no more.
    """

    id: CommandId
    prompt_id: CommandId | None = None
    due_ms: Milliseconds | None = None


class Outcome(msgspec.Struct, frozen=True):
    """How a cycle ended; its messages are those from ``first`` up to ``end``."""

    command_id: CommandId
    outcome: OutcomeKind
    reason: Any  # Any: plain data of whoever aborted it, None where it finished
    usage: TokenUsage
    first: Count
    end: Count


class Answering(msgspec.Struct, frozen=True):
    """The answer of the running request, as far as it came.

    ``is_delayed``: it failed, and is sent again later; none is under way.
    """

    retries: Count = 0
    text: str = ""
    is_text_started: bool = False
    is_thinking_started: bool = False
    thinking_chars: Count = 0
    is_delayed: bool = False
    is_compacted: bool = False
    tags: TagState = field(default_factory=TagState)


class OpenCall(msgspec.Struct, frozen=True):
    """One call of the batch; ``result`` is None until it has ended.

    ``notice`` is added to the result: what the kernel adds for the model about this call.
    ``steps`` counts the steps that it has published, over all processes; ``run`` is the run
    of reasoning that they are of. ``kept`` is what a later run of it goes on with, and ``asked``
    how many questions to the user it had put by then.
    """

    call: ToolCall
    started_at_ms: Milliseconds | None = None
    result: Message | None = None
    notice: str = ""
    steps: Count = field(default=0, name="told")
    run: OpenRun | None = None
    kept: bytes = b""
    asked: Count = 0


class PendingAsk(msgspec.Struct, frozen=True):
    """A question that a running call waits for: to the user, or to the program of its tool.

    ``owner`` names the tool there; empty: it is the user who is asked.
    """

    ref: str
    call_id: CallId
    owner: str = ""


class Compacting(msgspec.Struct, frozen=True):
    """A compaction under way: the first ``evicted`` messages give way.

    ``ref`` is what the tool that asked for it is answered by.
    """

    evicted: int
    trigger: Literal["size", "overflow", "request"]
    ref: str | None = None


# --- what a session is doing; only the running process knows --------------------------------------


class Resting(msgspec.Struct, frozen=True):
    """No cycle runs."""

    state: ClassVar[State] = State.IDLE


class Asking(msgspec.Struct, frozen=True):
    """A turn has begun: a request is under way, or a delay before it, and nothing came yet."""

    state: ClassVar[State] = State.RUNNING
    answering: Answering = field(default_factory=Answering)


class Streaming(msgspec.Struct, frozen=True):
    """The answer arrives."""

    state: ClassVar[State] = State.STREAMING
    answering: Answering


class Summarizing(msgspec.Struct, frozen=True):
    """The model sums up what is to go before the request is sent."""

    state: ClassVar[State] = State.RUNNING
    compacting: Compacting
    answering: Answering = field(default_factory=Answering)


class AskingPlugins(msgspec.Struct, frozen=True):
    """Plugins are being asked at ``point``, the kind of a hook; the cycle goes on from there.

    ``wanted`` is what waits for them before a compaction.
    """

    state: ClassVar[State] = State.RUNNING
    point: str
    wanted: Compacting | None = None
    answering: Answering = field(default_factory=Answering)


class Calling(msgspec.Struct, frozen=True):
    """A batch of calls runs; ``compacting`` is the summary that one of them waits for.

    ``is_judged``: plugins are being asked whether it may be made.
    """

    state: ClassVar[State] = State.EXECUTING_TOOLS
    compacting: Compacting | None = None
    is_judged: bool = False


class HandingOver(msgspec.Struct, frozen=True):
    """A function decides what the agent ``to`` sees of the conversation."""

    state: ClassVar[State] = State.RUNNING
    to: str


class Guarding(msgspec.Struct, frozen=True):
    """The output guardrails look at the answer; or those of the input, at a prompt with a call."""

    state: ClassVar[State] = State.RUNNING
    is_input: bool = False


Activity: TypeAlias = (
    Resting | Asking | Streaming | Summarizing | AskingPlugins | Calling | HandingOver | Guarding
)
_NOTHING: Final = Answering()


class Memory(msgspec.Struct, frozen=True):
    """What is remembered between inputs.

    ``activity`` is what the session is doing, and ``work`` numbers the request or batch under way:
    a result that names another number is late.
    ``base`` is how many messages a compaction took away: a message's place in the whole
    conversation is ``base`` plus its place in ``messages``.
    """

    policy: Policy = field(default_factory=Policy)
    model: str = ""
    provider_opts: dict[str, Any] = field(default_factory=dict)  # Any: litellm's own arguments
    former_opts: tuple[dict[str, Any], ...] = ()  # Any: as above
    """Options that were in force before, the newest last: their credentials stay secret."""
    tools: tuple[ToolFacts, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    mcp_tools: tuple[SeenTool, ...] = ()
    messages: tuple[Message, ...] = ()
    base: Total = 0
    agent: str = ""
    """Who acts; empty is the session's own agent, whose ``own_parts`` are put by meanwhile."""
    own_parts: OwnParts | None = None
    handoff: PendingHandoff | None = None
    queue: tuple[QueuedPrompt, ...] = ()
    steering: tuple[Steering, ...] = ()
    notes: tuple[str, ...] = ()
    """What plugins have for the model, added between turns."""
    plugins: tuple[PluginFacts, ...] = ()
    plugin_states: tuple[tuple[str, bytes], ...] = ()
    memory_contents: tuple[tuple[str, str], ...] = ()
    """Name and content of the memory files in the system prompt."""
    sections: tuple[tuple[str, str], ...] = ()
    """Title and text of what plugins add to the system prompt."""
    skills: tuple[SkillStatus, ...] = ()
    skill_listing: str = ""
    """What the system prompt says of them."""
    system_metadata: dict[str, Any] = field(default_factory=dict)  # Any: a plugin's own
    patches: tuple[Message, ...] = ()
    """Results that plugins gave to calls without one."""
    cycle: Cycle | None = None
    calls: tuple[OpenCall, ...] = ()
    call_hashes: tuple[str, ...] = ()
    approvals: tuple[Approval, ...] = ()
    granted: tuple[str, ...] = ()
    """The calls, by their hashes, that a person has approved once and that have not run yet."""
    always_approved: frozenset[tuple[str, str]] = frozenset()
    """Tool and family of what needs no approval any more; "" is the whole tool."""
    asks: tuple[PendingAsk, ...] = ()
    answers: tuple[tuple[PendingAsk, Any], ...] = ()  # Any: what the user sent
    todos: tuple[dict[str, str], ...] = ()
    children: tuple[Child, ...] = ()
    spawns: Count = 0
    """Subagents over the session's life; ``branched`` of them were branches."""
    branched: Count = 0
    branches: tuple[Branch, ...] = ()
    lost_branches: tuple[LostBranch, ...] = ()
    waiting_branches: tuple[tuple[CallId, str], ...] = ()
    """Calls and references of branches that there is no room for; they ask again when there is."""
    ended_runs: tuple[EndedRun, ...] = ()
    activity: Activity = field(default_factory=Resting)
    work: int = 0
    turns: Count = 0
    """Those that were answered."""
    calls_asked: Count = 0
    """Calls of tools that the model has asked for, over the session's life."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    context: tuple[Total, Count] | None = None
    """Tokens of the last answered request, and how many messages it and its answer were."""
    outcomes: tuple[Outcome, ...] = ()
    waiters: tuple[Waiter, ...] = ()
    latest_prompt: CommandId | None = None
    resumption: str = ""
    """The id of the latest resumption from a saved state, empty where there was none."""
    left_out: frozenset[str] = frozenset()
    """Digests of tools, and of plugins at ``session_start``, that were set aside; a definition may
    still have them."""
    code: dict[str, dict[str, str]] = field(default_factory=dict)
    """Digests of the modules behind packed code, by the digests of this, as they were taken."""
    has_answered: bool = False
    """The model, with the options that it has now, has answered this session before."""
    is_costed: bool = True
    """What its latest answer has cost is known; True where there is none."""

    @property
    def cycle_due_ms(self) -> int | None:
        """When the running cycle must be over, None where it may take as long as it likes.

        Wall time, counted from the cycle's first beginning: a crash gives it no time anew.
        """
        limit_s = self.policy.cycle_timeout_s
        if self.cycle is None or limit_s is None:
            return None
        return self.cycle.started_at_ms + round(limit_s * 1000)

    @property
    def state(self) -> State:
        """Where the session stands."""
        return self.activity.state

    @property
    def answering(self) -> Answering:
        """The answer of the running turn, as far as it came."""
        match self.activity:
            case Resting() | Calling() | HandingOver() | Guarding():
                return _NOTHING
            case activity:
                return activity.answering

    @property
    def compacting(self) -> Compacting | None:
        """What the model is summing up."""
        match self.activity:
            case Summarizing(compacting=compacting) | Calling(compacting=compacting):
                return compacting
            case _:
                return None

    @property
    def point(self) -> str | None:
        """The kind of the hook that plugins are being asked at, None where they are not."""
        match self.activity:
            case AskingPlugins(point=point):
                return point
            case Calling(is_judged=True):
                return kind_of(BeforeCompact)
            case _:
                return None

    @property
    def is_asking(self) -> bool:
        """Whether a turn has begun that has no answer so far: a new process knows nothing of it."""
        match self.activity:
            case AskingPlugins(point=point):
                return point in TURN_HOOKS
            case activity:
                return isinstance(activity, Asking | Streaming | Summarizing)

    @property
    def turns_begun(self) -> int:
        """The turns of the session, with the one that waits for its answer."""
        return self.turns + self.is_asking

    @property
    def acting(self) -> AgentFacts | None:
        """The agent that acts; None in a session without handoffs."""
        return self.agent_of(self.agent) or next(iter(self.policy.agents), None)

    @property
    def tags(self) -> frozenset[Tag]:
        """The tags that the system prompt of who acts invites the model to use."""
        return self.policy.tags if self.acting is None else self.acting.tags

    @property
    def system_chars(self) -> int:
        """Of the system prompt of who acts, without what tools add to it."""
        return self.policy.system_chars if self.acting is None else self.acting.system_chars

    def agent_of(self, name: str) -> AgentFacts | None:
        """Return the agent of this name that the session may be handed to."""
        return next((one for one in self.policy.agents if one.name == name), None)

    def has_hook(self, hook: type[Hook]) -> bool:
        """Say whether some plugin has this hook."""
        kind = kind_of(hook)
        return any(kind in plugin.hooks for plugin in self.plugins)

    def tool(self, name: str) -> ToolFacts | None:
        """Return the tool of this name."""
        return next((tool for tool in self.tools if tool.name == name), None)
