"""Everything a client may ask of a session, and what it answers.

To add a command: its class here, its handlers and its row in ``workers/core/commands.py``.
A ``durable`` command is in the journal before it reaches the agent and takes effect exactly once;
the others are questions. One that ``looks`` asks how things are: a session that sleeps answers it
without being woken. One that ``waits`` wakes none either, and is answered when there is an answer.
One that only ``ends`` work is taken where the journal has no room for it, too.
``answer`` is the type of what comes back.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.checked_struct import Checked, Seconds
from cmdc_runtime.checkpoints import KeptCheckpoint, Snapshot
from cmdc_runtime.ids import CallId, CommandId, EventIndex, Incarnation, SessionId
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.messages import Message, OpeningCall, TokenUsage
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.pages import Page
from cmdc_runtime.reasons import snake
from cmdc_runtime.redaction import printed, printed_fields

KillTools = Literal["all", "killable", "none"]
SteerScope = Literal["session", "tree"]
ApprovalKind = Literal["approve_once", "approve_always"]

PROMPT_CHARS_MAX: Final = 1_000_000
"""Of one prompt; a larger text belongs into a file that a tool reads."""

CALL_BYTES_MAX: Final = 2**20
"""Of the arguments of a call that a prompt carries, as MessagePack."""

REASON_BYTES_MAX: Final = 2**16
"""Of the reason of one abort: each event, record and answer about it has it."""

IMMUNE_TOOLS: Final = (
    "write_file",
    "edit_file",
    "apply_patch",
    "write_todos",
    "compact_conversation",
)
"""Tools that an abort and a steering leave running: half of their work would be worse."""
TOOLS_MAX: Final = 512
"""Tools of one session."""
PLUGINS_MAX: Final = 128
"""Plugins of one session."""


class PromptReceipt(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """The prompt is in the journal; ``queued`` means that it waits for the running cycle."""

    queued: bool
    command_id: CommandId


class SteerReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The steering is in the journal; ``ref`` is what its events name.

    ``opened`` means that the session was idle: it became a prompt, whose command id ``ref`` is.
    """

    ref: str
    opened: bool


class CycleResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one cycle ended; ``text`` is the last answer's, ``messages`` are those it added.

    Of a very long cycle ``messages`` are the newest; ``GetMessages`` has all of them.
    """

    outcome: Literal["finished", "aborted", "failed", "dropped"]
    text: str = ""
    messages: tuple[Message, ...] = ()
    usage: TokenUsage = TokenUsage()
    reason: Any = None  # Any: plain data of whoever aborted it


class ToolsDiff(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """What ``replace_tools`` changed, by name; tools that stayed are in neither."""

    attached: tuple[str, ...]
    detached: tuple[str, ...]


class PendingTool(msgspec.Struct, frozen=True, kw_only=True):
    """A call that runs now."""

    name: str
    call_id: CallId
    started_at_ms: int


class UncertainCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was cut short, and of which nobody knows whether it took effect."""

    name: str
    call_id: CallId


class McpServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How an MCP server of a session stands.

    ``state`` is declared (no request has needed it so far), connecting, ready, restarting or
    failed; ``tools`` are what the model calls its tools while it is ready. ``problem`` says why it
    was lost, and which of its tools are left out.
    """

    name: str
    state: str
    tools: tuple[str, ...] = ()
    problem: str = ""
    confined_by: str = ""
    """The sandbox that its program runs in; "": none confines it, or it is at a url."""
    network: bool = False
    """It is declared to need the network, so it has it whatever that sandbox gives tools."""
    share: str = "session"
    """"daemon": its program serves other sessions, too."""


class SkillStatus(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A skill that a session has, or (``problem``) a file that gives none or is half understood."""

    name: str
    id: str = ""
    source: str = ""
    path: str = ""
    """Its folder."""
    digest: str = ""
    needs_consent: bool = False
    """It is the project's, and nobody has agreed to this text of it."""
    problem: str | None = None


StateName = Literal[
    "idle",
    "running",
    "streaming",
    "executing_tools",
    "starting",
    "restarting",
    "stopping",
    "hibernated",
    "unresponsive",
    "parked",
    "ended",
]
"""What a session can be doing: its agent says the first four, the daemon the others."""
if TYPE_CHECKING:
    SessionState: TypeAlias = StateName
else:
    SessionState = str
    """On the wire: what a newer agent says is shown as it is."""


class Status(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """How a session stands. Times that end in ``_ms`` are milliseconds.

    ``skills`` are those of ``skills_dirs``, by name, and behind them what is wrong there.
    ``state`` is idle, running, streaming or executing_tools; while no process answers it is
    starting, restarting, stopping, hibernated or unresponsive. Those of a hibernated session are
    the counters that it had when it fell asleep; else they are 0 while no process answers. Of what
    lives no more it is parked or ended, and ``reason`` says why. ``unsaved`` says that the session
    has done what waits for room on the daemon's disk: the newest of it, and of its messages, is
    lost if daemon and agent both die before. ``uncertain`` names calls of which nobody knows
    whether they took effect, oldest first: the newest 100 whose results are in the conversation.
    One leaves the list when a compaction takes its result away, and by nothing else.
    ``pending_questions`` are the references of questions that wait for ``user_respond``.
    ``spent_limit`` names the limit of the budget that the next request would break.
    ``active_at_ms`` is when its process published last, or when it ended, wall time; 0 where nobody
    knows.
    ``pending_client_calls`` are those of ``pending_tools`` that the program of their tool makes.
    """

    state: SessionState
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
    skills: tuple[SkillStatus, ...] = ()
    last_index: EventIndex = EventIndex(0)
    reason: str | None = None
    unsaved: bool = False
    uncertain: tuple[UncertainCall, ...] = ()
    mcp_servers: tuple[McpServerStatus, ...] = ()
    pending_questions: tuple[str, ...] = ()
    spent_limit: str | None = None
    active_at_ms: int = 0
    tool_call_count: int = 0
    """Calls of tools that the model has asked for, over the session's life."""
    context_window: int | None = None
    """Tokens that fit into a request to the model; None where that is not known, or it sleeps."""
    current_context_tokens: int | None = None
    """Tokens of the newest request that its provider has counted, with its answer; None: of none
    yet, or none since a compaction."""
    disabled_tools: tuple[str, ...] = ()
    """Tools of the definition that are left out, since their code has killed processes."""
    pending_client_calls: tuple[PendingTool, ...] = ()
    agent: str | None = None
    """Who acts in a session with handoffs: its own agent, or the one that it was handed to."""


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=snake):
    """Base of all commands; the imperative mood says that it is a request."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    durable: ClassVar[bool] = False
    looks: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    ends: ClassVar[bool] = False
    reads_ended: ClassVar[bool] = False
    answer: ClassVar[Any] = None  # Any: a type, as msgspec takes it


class Prompt(Command, frozen=True, kw_only=True):
    """Start a cycle, or wait for the running one to end.

    With ``call`` the cycle makes that call in place of asking the model, and its result is the
    answer; without, it does what the session's definition says. ``response_format`` is the form of
    this cycle's answer, in place of the session's. The bytes of ``parts`` are kept before
    (``KeepBlob``).
    """

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = PromptReceipt

    text: str
    call: OpeningCall | None = None
    response_format: dict[str, Any] | None = None  # Any: a JSON Schema
    parts: tuple[MessagePart, ...] = ()


class Abort(Command, frozen=True, kw_only=True):
    """End the running cycle; the session stays usable.

    ``children`` False lets the subagents that the cycle waits for run on to their own ends.
    ``reason`` is plain data, of at most ``REASON_BYTES_MAX`` as MessagePack.
    """

    durable: ClassVar[bool] = True
    ends: ClassVar[bool] = True

    reason: Any = None  # Any: the caller's own
    clear_queue: bool = True
    kill_tools: KillTools = "killable"
    children: bool = True


class Steer(Command, frozen=True, kw_only=True):
    """Add a text to the running cycle; the model reads it before its next turn.

    Killable tools are ended at once; ``scope`` "tree" ends subagents too. To an idle session it is
    a prompt.
    """

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = SteerReceipt

    text: str
    scope: SteerScope = "session"
    parts: tuple[MessagePart, ...] = ()


class Approve(Command, frozen=True, kw_only=True):
    """Allow a call that waits for approval: this one, or ("approve_always") all of its tool.

    The answer is the id of the cycle that ``auto_resume`` opened, or put behind the running one.
    """

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = CommandId | None

    approval_id: str
    auto_resume: bool = True
    kind: ApprovalKind = "approve_once"


class Reject(Command, frozen=True, kw_only=True):
    """Refuse a call that waits for approval; answered as ``Approve`` is."""

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = CommandId | None

    approval_id: str
    auto_resume: bool = False


class UserRespond(Command, frozen=True, kw_only=True):
    """Answer a question that a tool asks the user."""

    durable: ClassVar[bool] = True

    ref: str
    response: Any  # Any: whatever MessagePack takes


class ClientAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call in the program of its tool.

    ``ok``: ``value`` is what the tool has returned, or ``effect`` the name, payload and text of its
    effect. Else ``error`` is what the model reads; without one, nobody has taken the call.
    """

    ok: bool
    value: Any = None  # Any: whatever MessagePack takes
    effect: tuple[str, Any, str] | None = None  # Any: the tool's own
    error: str | None = None


class TakeToolCall(Command, frozen=True, kw_only=True):
    """Say that the program of a tool makes the call of ``ref``, which is over otherwise."""

    ref: str


class AnswerToolCall(Command, frozen=True, kw_only=True):
    """Report what came of a call in the program of its tool."""

    durable: ClassVar[bool] = True

    ref: str
    outcome: ClientAnswer


class AttachTools(Command, frozen=True, kw_only=True):
    """Add tools, all or none; ``single`` asks for the errors of one tool instead of a batch's.

    With ``is_update`` a tool takes the place of the one of its name, if there is one.
    """

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = tuple[str, ...]

    tools: tuple[Packed, ...]
    single: bool = False
    is_update: bool = False


class DetachTools(Command, frozen=True, kw_only=True):
    """Remove tools, all or none; calls that run go on. ``single`` as for ``AttachTools``."""

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = tuple[str, ...]

    names: tuple[str, ...]
    single: bool = False


class ReplaceTools(Command, frozen=True, kw_only=True):
    """Make these the session's tools: what has a kept name and the same code stays as it is."""

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = ToolsDiff

    tools: tuple[Packed, ...]


class AttachMcpServer(Command, frozen=True, kw_only=True):
    """Add an MCP server; the next request starts it."""

    durable: ClassVar[bool] = True

    server: McpServer


class DetachMcpServer(Command, frozen=True, kw_only=True):
    """Remove an MCP server and end it; calls of its tools that run fail."""

    durable: ClassVar[bool] = True

    name: str


class AttachPlugin(Command, frozen=True, kw_only=True):
    """Add a plugin, or (``is_update``) put it in the place of the one of its name.

    The answer is its name. An updated plugin keeps its state. ``tools`` are attached
    behind it; no client sends any.
    """

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = str

    plugin: Packed
    is_update: bool = False
    tools: tuple[Packed, ...] = ()


class DetachPlugin(Command, frozen=True, kw_only=True):
    """Remove a plugin, with what it knew."""

    durable: ClassVar[bool] = True

    name: str


class AddSkillsDirs(Command, frozen=True, kw_only=True):
    """Have the skills of these folders, too: each with the word of where it is from, or "".

    They outrank those that are there. The answer names the tools that have changed.
    """

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = tuple[str, ...]

    dirs: tuple[tuple[str, str], ...]


class AddMemory(Command, frozen=True, kw_only=True):
    """Show these memory files, too, behind those that are shown.

    The answer is the name of the plugin that does, "" where nothing has changed.
    """

    durable: ClassVar[bool] = True
    answer: ClassVar[Any] = str

    files: tuple[str, ...]


class SwitchModel(Command, frozen=True, kw_only=True):
    """Send the next request to ``model``; ``provider_opts`` None keeps those in force."""

    durable: ClassVar[bool] = True

    model: str
    provider_opts: dict[str, Any] | None = None  # Any: litellm's own arguments


class SaveCheckpoint(Command, frozen=True, kw_only=True):
    """Save the state of the session under a name; the answer comes when it is in the journal.

    Asked again under the same command id it takes the place of the first.
    """

    answer: ClassVar[Any] = Snapshot

    label: str | None = None
    metadata: dict[str, Any] = {}  # Any: whatever MessagePack takes


class ListOwnCheckpoints(Command, frozen=True, kw_only=True):
    """Answer what the session's own checkpoint backend has of it, newest first.

    It runs code of the application: a process that dies of it is distinguished from one that only
    looks.
    """

    answer: ClassVar[Any] = tuple[Snapshot, ...]


class LoadOwnCheckpoint(Command, frozen=True, kw_only=True):
    """Answer a checkpoint of the session's own backend with its body, or with None the newest."""

    answer: ClassVar[Any] = KeptCheckpoint

    checkpoint_id: str | None = None


class DeleteOwnCheckpoint(Command, frozen=True, kw_only=True):
    """Have the session's own backend forget a checkpoint, or with None all of the session."""

    checkpoint_id: str | None = None


OfBackend: TypeAlias = ListOwnCheckpoints | LoadOwnCheckpoint | DeleteOwnCheckpoint
"""What a session's own checkpoint backend is asked."""


class AwaitCycle(Command, frozen=True, kw_only=True):
    """Answer when the cycle of prompt ``prompt_id`` has ended; None means the latest prompt.

    Where no prompt was given yet, that is an error at once, and so it is for one that is unknown.
    After ``within_s`` seconds nobody waits any more: the answer is ``CollectTimeout`` then. A
    client that wants to wait for longer asks anew, so that one that has gone is not waited upon.
    """

    waits: ClassVar[bool] = True
    answer: ClassVar[Any] = CycleResult

    prompt_id: CommandId | None = None
    within_s: Seconds | None = None


class ForgetWait(Command, frozen=True, kw_only=True):
    """Wait upon a caller no more: the ``AwaitCycle`` of this id ends with ``CollectTimeout``.

    A client says so of a wait that was cancelled. There may be none of this id: its answer may be
    on its way, or the wait behind this.
    """

    looks: ClassVar[bool] = True

    wait_id: CommandId


class GetStatus(Command, frozen=True, kw_only=True):
    """Answer how the session stands."""

    looks: ClassVar[bool] = True
    answer: ClassVar[Any] = Status


class GetMessages(Command, frozen=True, kw_only=True):
    """Answer the conversation, oldest first, the system message included; an ended one's, too."""

    looks: ClassVar[bool] = True
    reads_ended: ClassVar[bool] = True
    answer: ClassVar[Any] = tuple[Message, ...]


class NextPage(Command, frozen=True, kw_only=True):
    """Answer what follows the first ``offset`` bytes of an answer that came as ``PagedReply``."""

    looks: ClassVar[bool] = True
    reads_ended: ClassVar[bool] = True
    answer: ClassVar[Any] = Page

    page_id: str
    offset: int
