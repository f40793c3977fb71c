"""Sessions brought into a state by the agent's own tables, and what can be put to them there.

``scene(state)`` is a session with as much going on as the state allows. Every command has a sample
and every result some, made for the memory that they are put to; None is a result that could not
come of it. To add a command or a result: its samples here, a test says which are missing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cmdc_runtime.commands import (
    Abort,
    AddMemory,
    AddSkillsDirs,
    AnswerToolCall,
    Approve,
    AttachMcpServer,
    AttachPlugin,
    AttachTools,
    AwaitCycle,
    ClientAnswer,
    Command,
    DeleteOwnCheckpoint,
    DetachMcpServer,
    DetachPlugin,
    DetachTools,
    ForgetWait,
    GetMessages,
    GetStatus,
    ListOwnCheckpoints,
    LoadOwnCheckpoint,
    NextPage,
    Prompt,
    Reject,
    ReplaceTools,
    SaveCheckpoint,
    Steer,
    SwitchModel,
    TakeToolCall,
    UserRespond,
)
from cmdc_runtime.events import PluginEvent
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.ids import CallId, CommandId, SessionId
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import TokenUsage, ToolCall
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.subagent import TRANSFER_TOOL
from workers.core import commands, results
from workers.core.assemble import Reply
from workers.core.inputs import (
    ApprovalExpired,
    ApprovalRequest,
    BranchDropped,
    BranchTask,
    BranchWanted,
    ClientCallDropped,
    ClientCallWanted,
    CompactWanted,
    CycleExpired,
    DelegationDropped,
    FirstChunk,
    FoundTool,
    GuardrailsAnswered,
    HistoryFiltered,
    McpServerReported,
    McpToolsListed,
    Order,
    PluginAskedModel,
    PluginDelegated,
    PluginLoaded,
    PluginsAborted,
    PluginsAnswered,
    PluginsReported,
    QuestionAsked,
    Result,
    RetryDue,
    SteeringAnswered,
    Stopped,
    StreamEnded,
    StreamFailed,
    StreamSilent,
    SubagentDone,
    SubagentWanted,
    Summarized,
    SummaryFailed,
    TextArrived,
    ThoughtArrived,
    ToolBegun,
    ToolEmitted,
    ToolKept,
    ToolRefused,
    ToolReturned,
    ToolsLoaded,
    ToolStepReported,
    Tripped,
    WaitExpired,
)
from workers.core.state import (
    AgentFacts,
    Asking,
    HandingOver,
    Memory,
    PluginFacts,
    Policy,
    State,
    Streaming,
    ToolFacts,
)
from workers.core.step import Effect, Step
from workers.core.verdict import Aborted, Verdict

GENERAL: Final = "general-purpose"
NOW_MS: Final = 1_000
_BRANCH: Final = BranchTask("Look.")
_STEP: Final = PluginEvent(name="reasoning_thought", payload=None)
USED: Final = TokenUsage(prompt_tokens=8, completion_tokens=2, total_tokens=10)
PACKED: Final = Packed(kind="ref", label="grep", ref="grep")
TAKEN: Final = Packed(kind="ref", label="shell", ref="shell")
GUARD: Final = Packed(kind="ref", label="guard", ref="guard")
REFUSER: Final = Packed(kind="ref", label="refuser", ref="refuser")
ASKED: Final = RequireApproval(hint="deletes")
HELD: Final = RequireApproval(hint="deletes", hold=True, timeout_s=60.0)
SERVER: Final = McpServer("files", command=["files"])
TOOLS: Final = (
    ToolFacts("shell", isolation="task"),
    ToolFacts("write_file", isolation="thread"),
    ToolFacts("ask_user", is_repeatable=True, isolation="task"),
    ToolFacts("task", isolation="task"),
)
WAY: Final = ToolFacts(
    "transfer_to_desk",
    isolation="task",
    packed=Packed(kind="ref", label="transfer_to_desk", ref=TRANSFER_TOOL),
)
"""What a session has besides that may be handed to ``AGENTS``."""
AGENTS: Final = (AgentFacts("main", is_own=True), AgentFacts("desk", tools=(), has_filter=True))
POLICY: Final = Policy(
    session_id=SessionId("s-1"), cycle_timeout_s=60.0, subagents=frozenset({GENERAL})
)

CommandSample: TypeAlias = Callable[[Memory], Command]
ResultSample: TypeAlias = Callable[[Memory], Result | None]


@dataclass(frozen=True, slots=True)
class Scene:
    """A session after an input; ``effects`` are those of the latest one."""

    memory: Memory
    effects: tuple[Effect, ...] = ()

    @property
    def state(self) -> State:
        """Where it stands."""
        return self.memory.state

    def give(self, command: Command, command_id: str) -> "Scene":
        """Return the session after a command."""
        order = Order(CommandId(command_id), command, NOW_MS)
        return _after(commands.apply(self.memory, order))

    def post(self, result: Result) -> "Scene":
        """Return the session after a result."""
        return _after(results.apply(self.memory, result))

    def call(self, *names: str) -> "Scene":
        """Return the session after an answer with calls; a call's id is its tool's name."""
        return self.post(_ended(self.memory, names))


def new(policy: Policy = POLICY) -> Scene:
    """Return a session that nobody has asked anything."""
    memory = Memory(
        policy=policy, model="openai:small", tools=TOOLS, plugins=guarded(), mcp_servers=(SERVER,)
    )
    return Scene(memory)


def guarded(hooks: Iterable[str] = ()) -> tuple[PluginFacts, ...]:
    """Return the plugins of a session: one, which hears these hooks."""
    return (PluginFacts("guard", frozenset(hooks), GUARD),)


def scene(state: State) -> Scene:
    """Return the session whose reactions the reference shows.

    An earlier cycle ended because its call waits for approval. In the states of a cycle a second
    prompt is queued and a caller waits for the first one; the model has begun to answer; of its
    calls one is killable, one immune, one asks the user and one waits for a subagent.
    """
    rested = new().give(Prompt(text="Tidy up."), "p-1")
    rested = rested.post(FirstChunk(rested.memory.work)).call("shell")
    rested = rested.post(ApprovalRequest(rested.memory.work, CallId("shell"), ASKED, NOW_MS))
    if state is State.IDLE:
        return rested
    running = rested.give(Prompt(text="Then test."), "p-2").give(AwaitCycle(), "w-1")
    running = running.give(Prompt(text="Then report."), "p-3")
    if state is State.RUNNING:
        return running
    work = running.memory.work
    streaming = running.post(FirstChunk(work)).post(TextArrived(work, "I will "))
    if state is State.STREAMING:
        return streaming
    calling = streaming.call("shell", "write_file", "ask_user", "task", "order")
    work = calling.memory.work
    for open_ in calling.memory.calls:
        calling = calling.post(ToolBegun(work, open_.call.call_id, NOW_MS))
    calling = calling.post(QuestionAsked(work, CallId("ask_user"), "ask-1", "Which?", ()))
    calling = calling.post(ClientCallWanted(work, CallId("order"), "client-1", "owner", {}))
    return calling.post(SubagentWanted(work, CallId("task"), "task-1", GENERAL, "Look."))


def _after(step: Step) -> Scene:
    return Scene(step.memory, step.effects)


# --- samples of commands ------------------------------------------------------------------------


def approval_of(memory: Memory) -> str:
    """Return the id of the approval that waits, or one that nothing waits for."""
    return memory.approvals[0].id if memory.approvals else "approval-0"


def ask_of(memory: Memory) -> str:
    """Return the reference of the question that waits, or one that nobody asked."""
    return next((one.ref for one in memory.asks if not one.owner), "ask-0")


def client_call_of(memory: Memory) -> str:
    """Return the reference of the call that its tool's program is to make, or one of none."""
    return next((one.ref for one in memory.asks if one.owner), "client-0")


# fmt: off
COMMANDS: Final[Mapping[type[Command], CommandSample]] = {
    Prompt:       lambda _: Prompt(text="Go on."),
    Steer:        lambda _: Steer(text="Rather so."),
    Abort:        lambda _: Abort(reason="enough"),
    Approve:      lambda memory: Approve(approval_id=approval_of(memory)),
    Reject:       lambda memory: Reject(approval_id=approval_of(memory)),
    UserRespond:  lambda memory: UserRespond(ref=ask_of(memory), response="that one"),
    TakeToolCall: lambda memory: TakeToolCall(ref=client_call_of(memory)),
    AnswerToolCall: lambda memory: AnswerToolCall(
        ref=client_call_of(memory), outcome=ClientAnswer(ok=True, value="done")
    ),
    AttachTools:  lambda _: AttachTools(tools=(PACKED,)),
    DetachTools:  lambda _: DetachTools(names=("shell",)),
    ReplaceTools: lambda _: ReplaceTools(tools=(PACKED,)),
    AttachMcpServer: lambda _: AttachMcpServer(server=McpServer("search", command=["search"])),
    DetachMcpServer: lambda _: DetachMcpServer(name="files"),
    AttachPlugin: lambda _: AttachPlugin(plugin=REFUSER),
    DetachPlugin: lambda _: DetachPlugin(name="guard"),
    AddSkillsDirs: lambda _: AddSkillsDirs(dirs=(("team", "skills"),)),
    AddMemory:    lambda _: AddMemory(files=("NOTES.md",)),
    SwitchModel:  lambda _: SwitchModel(model="openai:large"),
    AwaitCycle:   lambda _: AwaitCycle(),
    ForgetWait:   lambda _: ForgetWait(wait_id=CommandId("w-1")),
    SaveCheckpoint: lambda _: SaveCheckpoint(label="before the change"),
    ListOwnCheckpoints: lambda _: ListOwnCheckpoints(),
    LoadOwnCheckpoint: lambda _: LoadOwnCheckpoint(checkpoint_id="c-1"),
    DeleteOwnCheckpoint: lambda _: DeleteOwnCheckpoint(checkpoint_id="c-1"),
    GetStatus:    lambda _: GetStatus(),
    GetMessages:  lambda _: GetMessages(),
    NextPage:     lambda _: NextPage(page_id="p", offset=0),
}
"""Of each command the usual one."""
# fmt: on


# --- samples of results -------------------------------------------------------------------------


def loaded(command_id: CommandId, command: AttachTools | ReplaceTools) -> ToolsLoaded:
    """Return what the shell answers when it has opened packed code."""
    found = (FoundTool(one.label, ToolFacts(one.label, packed=one)) for one in command.tools)
    return ToolsLoaded(command_id, command, tuple(found))


def plugin_loaded(command_id: CommandId, command: AttachPlugin) -> PluginLoaded:
    """Return what the shell answers when it has opened a plugin's packed code."""
    facts = PluginFacts(command.plugin.label, frozenset(), command.plugin)
    return PluginLoaded(command_id, command, facts, Verdict())


def _held(work: int, call_id: CallId) -> ApprovalRequest:
    return ApprovalRequest(work, call_id, HELD, NOW_MS, ref=f"{call_id}:approval")


def _expired(memory: Memory) -> Result:
    due = (one.id for one in memory.approvals if one.due_at_ms is not None)
    return ApprovalExpired(next(due, "approval-0"), NOW_MS**2)


def _overrun(memory: Memory) -> Result | None:
    return None if memory.cycle is None else CycleExpired(memory.cycle.command_id, NOW_MS**2)


def _dropped(memory: Memory) -> Result:
    waiting = (child.ref for child in memory.children if child.call_id.startswith("plugin:"))
    return DelegationDropped(next(waiting, None) or "plugin:judge-1")


def _ended(memory: Memory, names: tuple[str, ...]) -> StreamEnded:
    calls = tuple(ToolCall(call_id=CallId(name), name=name) for name in names)
    reason = "tool_calls" if calls else "stop"
    return StreamEnded(memory.work, Reply("", None, calls, USED, reason), NOW_MS)


def _failed(kind: FailureKind) -> ResultSample:
    def sample(memory: Memory) -> Result | None:
        is_sent = isinstance(memory.activity, Asking | Streaming)
        return StreamFailed(memory.work, kind, "no answer", NOW_MS) if is_sent else None

    return sample


def _handed_over(memory: Memory) -> Result | None:
    return _ended(memory, (WAY.name,)) if memory.policy.agents else None


def _filtered(problem: str = "") -> ResultSample:
    def sample(memory: Memory) -> Result | None:
        if not isinstance(memory.activity, HandingOver):
            return None
        left = None if problem else memory.messages
        return HistoryFiltered(memory.work, memory.activity.to, left, NOW_MS, problem)

    return sample


def _guarded(tripped: Tripped | None) -> ResultSample:
    def sample(memory: Memory) -> Result | None:
        is_guarded = memory.policy.guards_output or memory.policy.guards_input
        return GuardrailsAnswered(memory.work, tripped, NOW_MS) if is_guarded else None

    return sample


def _first_chunk(memory: Memory) -> Result | None:
    return FirstChunk(memory.work) if _is_asking(memory) else None


def _is_asking(memory: Memory) -> bool:
    """Say whether a request is under way, and nothing that comes before it."""
    return isinstance(memory.activity, Asking)


def _retry_due(memory: Memory) -> Result | None:
    return RetryDue(memory.work, NOW_MS) if memory.answering.retries else None


def _of_call(make: Callable[[int, CallId], Result]) -> ResultSample:
    """Return a sample that is about the first call without a result."""

    def sample(memory: Memory) -> Result | None:
        left = [one.call.call_id for one in memory.calls if one.result is None]
        return make(memory.work, left[0]) if left else None

    return sample


def _returned(work: int, call_id: CallId) -> ToolReturned:
    return ToolReturned(work=work, call_id=call_id, ok=True, text="", at_ms=NOW_MS)


def _summarized(memory: Memory) -> Result | None:
    if memory.compacting is None:
        return None
    return Summarized(memory.work, "So far.", USED, "history.md", NOW_MS)


def _summary_failed(memory: Memory) -> Result | None:
    if memory.compacting is None:
        return None
    return SummaryFailed(memory.work, "no answer", NOW_MS)


def _subagent_done(memory: Memory) -> Result | None:
    if not memory.children:
        return None
    return SubagentDone(memory.children[0].session_id, ok=True, text="Done.", usage=USED)


def _plugins_answered(verdict: Verdict) -> ResultSample:
    return lambda memory: (
        None if memory.point is None else PluginsAnswered(memory.work, verdict, NOW_MS)
    )


def _plugins_aborted(memory: Memory) -> Result:
    return PluginsAborted(memory.work, _ABORT, NOW_MS)


def _steering_judged(verdict: Verdict) -> ResultSample:
    steer = Steer(text="Rather so.")
    order = Order(CommandId("c"), steer, NOW_MS)
    return lambda _: SteeringAnswered(order, steer, verdict)


_ABORT: Final = Aborted("guard", "not allowed")
RESULTS: Final[Mapping[type, tuple[ResultSample, ...]]] = {
    FirstChunk: (_first_chunk,),
    TextArrived: (lambda memory: TextArrived(memory.work, "Well"),),
    ThoughtArrived: (lambda memory: ThoughtArrived(memory.work, "Hm"),),
    StreamSilent: (lambda memory: StreamSilent(memory.work, 30.0),),
    StreamEnded: (
        lambda memory: _ended(memory, ()),
        lambda memory: _ended(memory, ("shell",)),
        lambda memory: _ended(memory, ("shell", "write_file")),
        lambda memory: _ended(memory, ("task",)),
        _handed_over,
    ),
    StreamFailed: tuple(map(_failed, FailureKind)),
    RetryDue: (_retry_due,),
    Summarized: (_summarized,),
    SummaryFailed: (_summary_failed,),
    HistoryFiltered: (_filtered(), _filtered("it raised")),
    GuardrailsAnswered: (_guarded(None), _guarded(Tripped("no_secrets", "it has one"))),
    ToolBegun: (_of_call(lambda work, call_id: ToolBegun(work, call_id, NOW_MS)),),
    ApprovalRequest: (
        _of_call(lambda work, call_id: ApprovalRequest(work, call_id, ASKED, NOW_MS)),
        _of_call(_held),
    ),
    ApprovalExpired: (_expired,),
    CycleExpired: (_overrun,),
    WaitExpired: (lambda _: WaitExpired(NOW_MS**2),),
    Stopped: (lambda _: Stopped(NOW_MS),),
    ToolReturned: (_of_call(_returned),),
    ToolEmitted: (_of_call(lambda work, call_id: ToolEmitted(work, call_id, "note", None)),),
    ToolKept: (_of_call(lambda work, call_id: ToolKept(work, call_id, b"here", 1)),),
    ToolStepReported: (_of_call(lambda work, call_id: ToolStepReported(work, call_id, _STEP)),),
    ClientCallWanted: (
        _of_call(lambda work, call_id: ClientCallWanted(work, call_id, "client", "owner", {})),
    ),
    ClientCallDropped: (
        _of_call(lambda work, call_id: ClientCallDropped(work, call_id, "client-1")),
    ),
    QuestionAsked: (_of_call(lambda work, call_id: QuestionAsked(work, call_id, "ask", "?", ())),),
    CompactWanted: (_of_call(lambda work, call_id: CompactWanted(work, call_id, "compact", "")),),
    SubagentWanted: (
        _of_call(lambda work, call_id: SubagentWanted(work, call_id, "task", GENERAL, "Look.")),
    ),
    BranchWanted: (
        _of_call(lambda work, call_id: BranchWanted(work, call_id, "b1", _BRANCH, "digest")),
    ),
    BranchDropped: (_of_call(lambda work, call_id: BranchDropped(work, call_id, "b1")),),
    PluginsAnswered: (
        _plugins_answered(Verdict()),
        _plugins_answered(Verdict(interventions=("Mind the tests.",))),
        _plugins_answered(Verdict(skipped="refuser")),
        _plugins_answered(Verdict(abort=_ABORT)),
    ),
    PluginsAborted: (_plugins_aborted,),
    ToolRefused: (_of_call(lambda work, call_id: ToolRefused(work, call_id, "no", NOW_MS)),),
    PluginsReported: (lambda _: PluginsReported(Verdict(interventions=("Mind the tests.",))),),
    SteeringAnswered: (_steering_judged(Verdict()), _steering_judged(Verdict(abort=_ABORT))),
    SubagentDone: (_subagent_done,),
    McpToolsListed: (lambda _: McpToolsListed("files", {"mcp__files__read": "d"}),),
    McpServerReported: (lambda _: McpServerReported("files", "ready", 2),),
    PluginAskedModel: (lambda _: PluginAskedModel("judge", "openai:small", USED),),
    PluginDelegated: (lambda _: PluginDelegated("judge", "plugin:judge-1", GENERAL, "Look."),),
    DelegationDropped: (_dropped,),
    PluginLoaded: (lambda _: plugin_loaded(CommandId("c"), AttachPlugin(plugin=REFUSER)),),
    ToolsLoaded: (lambda _: loaded(CommandId("c"), AttachTools(tools=(PACKED,))),),
}
"""Of each result those that differ in where they lead."""
