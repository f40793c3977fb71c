"""What an agent's tables are fed with: commands as they come, and results of its own work.

A result names the work that it comes of, so that a late one can be distinguished from a current
one; those with ``work`` ``ANY_WORK`` are about the session as a whole and are never late.

To add a result: its class here, its handler and its rows in ``workers/core/results.py``.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cmdc_runtime.commands import AttachPlugin, AttachTools, Command, ReplaceTools, Steer
from cmdc_runtime.events import Event
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.ids import CallId, CommandId, SessionId
from cmdc_runtime.messages import Message, TokenUsage
from workers.core.assemble import Reply
from workers.core.budget import Grant
from workers.core.state import PluginFacts, ToolFacts
from workers.core.tags import FoundTag
from workers.core.verdict import Aborted, Verdict

ANY_WORK: Final = -1
"""The ``work`` of a result that is about no request and no batch."""


@dataclass(frozen=True, slots=True)
class Order:
    """A command and when it came; ``at_ms`` is wall time."""

    id: CommandId
    command: Command
    at_ms: int


# --- of the model -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FirstChunk:
    """Result of ``CallModel``: the provider started to answer."""

    work: int


@dataclass(frozen=True, slots=True)
class TextArrived:
    """Result of ``CallModel``: a piece of text; ``found`` are tags taken out, None: not looked."""

    work: int
    text: str
    found: tuple[FoundTag, ...] | None = None


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
class Summarized:
    """Result of ``Summarize``: the model's summary; ``history_file`` has what it is of."""

    work: int
    text: str
    usage: TokenUsage
    history_file: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class SummaryFailed:
    """Result of ``Summarize``: there is none."""

    work: int
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Tripped:
    """What a guardrail says that does not pass."""

    guardrail: str
    reason: str
    info: Any = None  # Any: plain data of the application


@dataclass(frozen=True, slots=True)
class GuardrailsAnswered:
    """Result of ``CheckAnswer`` and ``CheckPrompt``; of ``CallModel`` where an input trips."""

    work: int
    tripped: Tripped | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class HistoryFiltered:
    """Result of ``FilterHistory``: what the agent ``to`` is to see; None: ``problem`` says why."""

    work: int
    to: str
    messages: tuple[Message, ...] | None
    at_ms: int
    problem: str = ""


# --- of tools -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolBegun:
    """Result of ``RunTools``: one call is about to run; ``summary`` says for people what it does.

    ``args`` are those that plugins gave it, None where they are the model's own.
    """

    work: int
    call_id: CallId
    at_ms: int
    summary: str = ""
    args: dict[str, Any] | None = None  # Any: whatever the tool takes


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Result of ``RunTools``: one call may not run before a person allows it; it has not run.

    ``args`` are those that plugins gave it, None where they are the model's own. A call that is
    held waits by ``ref``.
    """

    work: int
    call_id: CallId
    asked: RequireApproval
    at_ms: int
    args: dict[str, Any] | None = None  # Any: whatever the tool takes
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """Result of ``RunTools``: one call is done; ``text`` is what the model reads.

    ``effect`` is a name and a payload: what the tool asks the kernel to do besides. ``is_cut``
    says that the tool itself had no end: its time was over, or its process died.
    """

    work: int
    call_id: CallId
    ok: bool
    text: str
    at_ms: int
    is_unknown: bool = False
    effect: tuple[str, Any] | None = None  # Any: the tool's own
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class ToolEmitted:
    """Result of ``RunTools``: a running call publishes an event."""

    work: int
    call_id: CallId
    name: str
    payload: Any  # Any: the tool's own


@dataclass(frozen=True, slots=True)
class ToolStepReported:
    """Result of ``RunTools``: a running call publishes a step of its own, which is counted."""

    work: int
    call_id: CallId
    event: Event


@dataclass(frozen=True, slots=True)
class ToolKept:
    """Result of ``RunTools``: a running call keeps what a later run of it goes on with."""

    work: int
    call_id: CallId
    content: bytes
    asked: int
    """Questions to the user so far."""


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """Result of ``RunTools``: a running call asks the user; ``AnswerTool`` with ``ref`` answers."""

    work: int
    call_id: CallId
    ref: str
    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientCallWanted:
    """Result of ``RunTools``: a running call is to be made by the program of its tool.

    ``owner`` names the tool there. ``AnswerTool`` with ``ref`` brings a ``ClientAnswer``; before
    that, one with ``taken_ref`` of it says that the program has taken the call.
    """

    work: int
    call_id: CallId
    ref: str
    owner: str
    arguments: dict[str, Any]  # Any: whatever the tool takes


@dataclass(frozen=True, slots=True)
class ClientCallDropped:
    """Result of ``RunTools``: nobody has taken the call of ``ref``, and nobody may any more."""

    work: int
    call_id: CallId
    ref: str


def taken_ref(ref: str) -> str:
    """Return what is answered when the call of ``ref`` is taken by its program."""
    return f"{ref}:taken"


@dataclass(frozen=True, slots=True)
class CompactWanted:
    """Result of ``RunTools``: a running call asks for a compaction, and waits by ``ref``."""

    work: int
    call_id: CallId
    ref: str
    reason: str


@dataclass(frozen=True, slots=True)
class SubagentWanted:
    """Result of ``RunTools``: a running call gives a task to a subagent, and waits by ``ref``."""

    work: int
    call_id: CallId
    ref: str
    subagent_type: str
    description: str


@dataclass(frozen=True, slots=True)
class BranchTask:
    """What a branch is asked; None: the session's own model, and an answer in any form."""

    prompt: str
    model: str | None = None
    response_format: dict[str, Any] | None = None  # Any: a JSON Schema
    fork: bool = False
    """It begins with the conversation of the session, as that is when it starts."""


@dataclass(frozen=True, slots=True)
class BranchWanted:
    """Result of ``RunTools``: a running call branches, and waits by ``ref``.

    ``digest`` names what it asks; the branch may spend ``limit``, and its share where ``shares``
    branches are about to be started, this one included.
    """

    work: int
    call_id: CallId
    ref: str
    task: BranchTask
    digest: str
    limit: Grant = Grant()  # noqa: RUF009 - frozen
    shares: int = 1


@dataclass(frozen=True, slots=True)
class BranchDropped:
    """Result of ``RunTools``: nobody waits by ``ref`` any more; by ``ended`` one does for its end.

    A branch that is gone, or has never been, is answered for at once.
    """

    work: int
    call_id: CallId
    ref: str

    @property
    def ended(self) -> str:
        """The reference that is answered when the branch is gone and counted."""
        return ended_ref(self.ref)


@dataclass(frozen=True, slots=True)
class AskedOtherwise:
    """Answers a ``BranchWanted`` whose name was given to another task before; ``text`` says so."""

    text: str


def ended_ref(ref: str) -> str:
    """Return by what the end of a branch is waited for."""
    return f"{ref}:end"


# --- of the session -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubagentDone:
    """Result of ``RunSubagent``, also of one that nobody waits for any more.

    ``is_lost``: it was ended, with its parent's process or apart, before its cycle was. ``is_cut``:
    in the middle of a request, which ``usage`` does not count.
    """

    child_id: SessionId
    ok: bool
    text: str
    usage: TokenUsage
    is_lost: bool = False
    is_cut: bool = False
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class ApprovalExpired:
    """The time to decide an approval is over."""

    approval_id: str
    at_ms: int
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class WaitExpired:
    """The time is over for which a caller, or several, wanted to wait for the end of a cycle."""

    at_ms: int
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class Stopped:
    """The session is stopped while its process lives, which ends now."""

    at_ms: int
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class CycleExpired:
    """The cycle of this prompt has run for as long as a cycle may."""

    command_id: CommandId
    at_ms: int
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class FoundTool:
    """One packed tool after it was opened: what is in it, or what is wrong with it."""

    label: str
    tool: ToolFacts | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ToolsLoaded:
    """Result of ``LoadTools``: what the packed code of command ``id`` holds, in its order."""

    id: CommandId
    command: AttachTools | ReplaceTools
    found: tuple[FoundTool, ...]
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class PluginLoaded:
    """Result of ``LoadPlugin``: the plugin and what it said at its start, or what is wrong."""

    id: CommandId
    command: AttachPlugin
    plugin: PluginFacts | None
    verdict: Verdict
    problem: str = ""
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class McpToolsListed:
    """An MCP server lists these tools: digests of their definitions, by the tools' names."""

    server: str
    tools: dict[str, str]
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class McpServerReported:
    """An MCP server has come to another state; ``tools`` counts those that the model has."""

    name: str
    state: str
    tools: int
    problem: str = ""
    work: int = ANY_WORK


# --- of plugins ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PluginsAnswered:
    """Result of ``AskPlugins``: what the plugins say where a cycle waits for them."""

    work: int
    verdict: Verdict
    at_ms: int


@dataclass(frozen=True, slots=True)
class PluginsReported:
    """Plugins have something to say besides, at a hook that nothing waits for.

    ``batch`` is the work whose calls they were asked about: unlike ``work`` it does not make the
    whole of it late.
    """

    verdict: Verdict
    batch: int = ANY_WORK
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class PluginAskedModel:
    """A plugin asked a model for itself; this is what it took."""

    plugin: str
    model: str
    usage: TokenUsage
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class PluginDelegated:
    """A plugin gives a task to a subagent, and waits by ``ref``."""

    plugin: str
    ref: str
    subagent_type: str
    description: str
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class DelegationDropped:
    """The plugin that waited by ``ref`` is not being asked any more."""

    ref: str
    work: int = ANY_WORK


@dataclass(frozen=True, slots=True)
class PluginsAborted:
    """A plugin that was asked about a call wants the cycle to end."""

    work: int
    abort: Aborted
    at_ms: int


@dataclass(frozen=True, slots=True)
class ToolRefused:
    """A plugin does not let a call run; it has not run."""

    work: int
    call_id: CallId
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SteeringAnswered:
    """Result of ``AskAboutSteering``."""

    order: Order
    command: Steer
    verdict: Verdict
    work: int = ANY_WORK


Result: TypeAlias = (
    FirstChunk
    | TextArrived
    | ThoughtArrived
    | StreamSilent
    | StreamEnded
    | StreamFailed
    | RetryDue
    | Summarized
    | SummaryFailed
    | HistoryFiltered
    | GuardrailsAnswered
    | ToolBegun
    | ApprovalRequest
    | ToolReturned
    | ToolEmitted
    | ToolStepReported
    | ToolKept
    | QuestionAsked
    | ClientCallWanted
    | ClientCallDropped
    | CompactWanted
    | SubagentWanted
    | BranchWanted
    | BranchDropped
    | SubagentDone
    | ToolsLoaded
    | PluginLoaded
    | McpServerReported
    | McpToolsListed
    | ApprovalExpired
    | CycleExpired
    | WaitExpired
    | Stopped
    | PluginsAnswered
    | PluginsReported
    | PluginAskedModel
    | PluginDelegated
    | DelegationDropped
    | PluginsAborted
    | ToolRefused
    | SteeringAnswered
)
"""Each names the work that it comes of, so that a late one is distinguished from a current one."""
