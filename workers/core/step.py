"""A step under way: what a decision records, publishes and has performed.

The effects are what an agent's tables ask for: work to start, events to publish, records to write.
Each work has a performer. To add one: its class here, its place in ``Work``, and its row in the
table of ``workers/performers/table.py``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec.structs import replace

from cmdc_runtime.commands import AttachPlugin, AttachTools, OfBackend, ReplaceTools, Steer
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.events import Event
from cmdc_runtime.extensions.hooks import AnyHook
from cmdc_runtime.ids import CallId, CommandId, SessionId
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.reasons import PlainReason
from workers.core.budget import Grant
from workers.core.evolve import evolve
from workers.core.inputs import BranchTask, Order
from workers.core.records import Record
from workers.core.state import Activity, Cycle, Memory, State, ToolFacts, Waiter

# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model with ``messages``; the request before, if any, is over.

    What comes of it is held back until the input guardrails have passed ``guarded``, a prompt.
    """

    work: int
    model: str
    messages: tuple[Message, ...]
    guarded: str | None = None


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """Have the output guardrails look at ``text``, and post ``GuardrailsAnswered``.

    ``CancelModel`` ends it.
    """

    work: int
    text: str


@dataclass(frozen=True, slots=True)
class CheckPrompt:
    """Have the input guardrails look at ``text``, as ``CheckAnswer`` has; no request is sent."""

    work: int
    text: str


@dataclass(frozen=True, slots=True)
class Summarize:
    """Have the model sum up ``messages``, and keep them in the history file."""

    work: int
    model: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class FilterHistory:
    """Have a function decide what of ``messages`` the agent ``to`` sees, post ``HistoryFiltered``.

    ``CancelModel`` ends it.
    """

    work: int
    to: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class ExchangeTools:
    """Have these tools, all of them opened before, in the place of those that there are.

    ``put_by`` are those of the session's own agent, while another one acts; ``takes_servers``: the
    tools of MCP servers are there, too.
    """

    tools: tuple[ToolFacts, ...]
    put_by: tuple[ToolFacts, ...]
    takes_servers: bool


@dataclass(frozen=True, slots=True)
class Sleep:
    """Post ``RetryDue`` in ``delay_s`` seconds."""

    work: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class CancelModel:
    """End the request, the summary or the delay that is under way."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run a batch of calls; those of ``approved`` need no approval any more.

    ``is_suspect``: the cycle has cost a process already, and this one notes so. No call starts
    before the journal has that, or one that kills at once would never be counted.
    """

    work: int
    turn: int
    model: str
    calls: tuple[ToolCall, ...]
    approved: frozenset[CallId] = frozenset()
    is_suspect: bool = False
    steps_before: Mapping[CallId, int] = field(default_factory=dict)
    """How many steps each has published before; a call that is missing has published none."""
    kept: Mapping[CallId, tuple[bytes, int]] = field(default_factory=dict)
    """What earlier runs of each have kept, and how many questions they had asked by then."""


@dataclass(frozen=True, slots=True)
class CancelCalls:
    """End these running calls; what one of them still returns counts for nothing."""

    call_ids: tuple[CallId, ...]


@dataclass(frozen=True, slots=True)
class AnswerTool:
    """Give a waiting call what it asked for by ``ref``: a value, or an error that it raises."""

    ref: str
    value: Any = None  # Any: what the call asked for
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RunSubagent:
    """Start the session ``child_id``, give it ``description`` as prompt, post ``SubagentDone``.

    ``branch`` is what it is asked where a call has branched.
    """

    child_id: SessionId
    subagent_type: str
    description: str
    grant: Grant
    branch: BranchTask | None = None


@dataclass(frozen=True, slots=True)
class EndSubagents:
    """End these sessions; each still posts its ``SubagentDone``."""

    child_ids: tuple[SessionId, ...]


@dataclass(frozen=True, slots=True)
class CountSubagents:
    """Post ``SubagentDone`` for sessions that ended with the process before this one."""

    child_ids: tuple[SessionId, ...]


@dataclass(frozen=True, slots=True)
class AskPlugins:
    """Ask the plugins and post ``PluginsAnswered``; of ``ANY_WORK`` post ``PluginsReported``."""

    work: int
    hook: AnyHook


@dataclass(frozen=True, slots=True)
class AskAboutSteering:
    """Ask the plugins about a steering and post ``SteeringAnswered``."""

    order: Order
    command: Steer


@dataclass(frozen=True, slots=True)
class LoadTools:
    """Open the packed code of a command and post ``ToolsLoaded``."""

    id: CommandId
    command: AttachTools | ReplaceTools


@dataclass(frozen=True, slots=True)
class ChangeTools:
    """Take ``attached`` of what was loaded for command ``load_id`` into use, and drop the rest."""

    load_id: CommandId
    attached: tuple[str, ...]
    detached: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeServers:
    """Have these MCP servers: end those that are no more among them."""

    servers: tuple[McpServer, ...]


@dataclass(frozen=True, slots=True)
class LoadPlugin:
    """Open the packed code of a command, run ``session_start``, post ``PluginLoaded``."""

    id: CommandId
    command: AttachPlugin


@dataclass(frozen=True, slots=True)
class ChangePlugins:
    """Take what was loaded for command ``load_id`` into use or drop it; drop ``detached``."""

    load_id: CommandId
    attached: bool
    detached: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event."""

    event: Event


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write a record to the journal."""

    record: Record


@dataclass(frozen=True, slots=True)
class Complete:
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
class MakeCheckpoint:
    """Save the memory of this step, and answer the question ``id`` with what came of it."""

    id: CommandId
    label: str | None
    metadata: dict[str, Any]  # Any: whatever MessagePack takes


@dataclass(frozen=True, slots=True)
class AskBackend:
    """Ask the session's own checkpoint backend, and answer ``id`` with what it says."""

    id: CommandId
    command: OfBackend


@dataclass(frozen=True, slots=True)
class AnswerStatus:
    """Answer how the session stands; the shell adds what only it knows."""

    id: CommandId


@dataclass(frozen=True, slots=True)
class AnswerMessages:
    """Answer the conversation; the shell puts the system message before it."""

    id: CommandId


@dataclass(frozen=True, slots=True)
class AnswerPage:
    """Answer what follows the first ``offset`` bytes of an answer that is being read."""

    id: CommandId
    page_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class ExitProcess:
    """End the process for good, as the options ask for ``reason``."""

    reason: PlainReason


Outgoing: TypeAlias = Publish | WriteRecord | Complete
"""What leaves together, in its order, before any work is done."""
Work: TypeAlias = (
    CallModel
    | Summarize
    | CheckAnswer
    | CheckPrompt
    | FilterHistory
    | ExchangeTools
    | Sleep
    | CancelModel
    | RunTools
    | CancelCalls
    | AnswerTool
    | RunSubagent
    | EndSubagents
    | CountSubagents
    | AskPlugins
    | AskAboutSteering
    | LoadTools
    | ChangeTools
    | ChangeServers
    | LoadPlugin
    | ChangePlugins
    | Answer
    | Refuse
    | MakeCheckpoint
    | AskBackend
    | AnswerStatus
    | AnswerMessages
    | AnswerPage
    | ExitProcess
)
Effect: TypeAlias = Outgoing | Work


# --- the step -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Step:
    """What one input does, decision by decision. Who called the table gets it; nobody else has it.

    What is durable changes by ``record`` alone, and by the same function that rebuilds it from the
    journal. The other changes are of what only the running process has: ``snapshot.TRANSIENT``.
    """

    memory: Memory
    outgoing: list[Outgoing] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)

    @property
    def state(self) -> State:
        """Where the session stands."""
        return self.memory.state

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What leaves, in its order, then what is to be done, in its own."""
        return (*self.outgoing, *self.work)

    @property
    def records(self) -> tuple[Record, ...]:
        """What goes to the journal."""
        return tuple(one.record for one in self.outgoing if isinstance(one, WriteRecord))

    @property
    def exits(self) -> bool:
        """Whether the process ends with this step."""
        return any(isinstance(one, ExitProcess) for one in self.work)

    @property
    def cycle(self) -> Cycle:
        """The cycle that runs; the tables ask only where one does.

        Raises:
            LookupError: none runs.
        """
        if self.memory.cycle is None:
            raise LookupError("no cycle runs")
        return self.memory.cycle

    def record(self, record: Record) -> None:
        """Record that something happened; the memory has it from here on."""
        self.memory = evolve(self.memory, record)
        self.outgoing.append(WriteRecord(record))

    def publish(self, *events: Event) -> None:
        """Publish an event."""
        self.outgoing += map(Publish, events)

    def add(self, *outgoing: Record | Event) -> None:
        """Record or publish each."""
        for one in outgoing:
            if isinstance(one, Event):
                self.publish(one)
            else:
                self.record(one)

    # Any: the answer type of the command.
    def complete(self, command_id: CommandId, outcome: Any | CmdcError) -> None:
        """Give a durable command its one outcome: an answer, or an error that is raised."""
        self.outgoing.append(Complete(command_id, outcome))

    def perform(self, *work: Work) -> None:
        """Have work done once all that this step sends is on its way."""
        self.work += work

    # --- what a new process finds empty -----------------------------------------------------------

    def become(self, activity: Activity) -> None:
        """Set what the session is doing from here on."""
        self.memory = replace(self.memory, activity=activity)

    def begin_work(self) -> None:
        """Give the work that begins here a number: what comes of any before changes nothing."""
        self.memory = replace(self.memory, work=self.memory.work + 1)

    def keep_waiting(self, waiters: Iterable[Waiter]) -> None:
        """Set who waits for the end of a cycle."""
        self.memory = replace(self.memory, waiters=tuple(waiters))

    def keep_branches_waiting(self, waiting: Iterable[tuple[CallId, str]]) -> None:
        """Set which branches wait for room, by their calls."""
        self.memory = replace(self.memory, waiting_branches=tuple(waiting))
