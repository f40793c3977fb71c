"""What of a session's life is recorded: an agent's memory is the fold of these.

To add a record: one class here and its row in ``workers/core/evolve.py``; a test says which is
missing. A field is only ever added, with a default: old journals must stay readable.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import msgspec
from msgspec.structs import FieldInfo, asdict, fields

from cmdc_runtime.checked_struct import Count, Milliseconds, Positive, Total
from cmdc_runtime.extensions.actions import APPROVAL_OPTIONS, ApprovalOption
from cmdc_runtime.ids import CallId, CommandId, SessionId
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.messages import Message, OpeningCall, TokenUsage
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.reasons import snake
from cmdc_runtime.redaction import printed, printed_fields
from cmdc_runtime.wire.frames import Generation

OutcomeKind = Literal["finished", "aborted", "failed", "dropped"]


class RecordedActivity(msgspec.Struct, frozen=True, array_like=True):
    """What a session was doing: the name of an activity of ``state.py``, and its fields."""

    name: str
    fields: dict[str, Any] = {}  # Any: as ``causes.py`` writes them


class Cause(msgspec.Struct, frozen=True, array_like=True):
    """What a step came of, as ``causes.py`` writes it: its input, and what that met.

    ``given`` are the input's fields, ``work`` numbers the request or batch that was under way,
    ``records`` are those of the step. ``activity`` is None where the step before left it at that.
    """

    input: str
    given: dict[str, Any]  # Any: as ``causes.py`` writes them
    work: Count = 0
    records: Count = 1
    activity: RecordedActivity | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag=snake):
    """Base of all records; the first one of a step says what the step came of."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    cause: Cause | None = msgspec.field(default=None, name="input")
    """Under another name than in journals before it had the input itself, which have none."""


class PromptQueued(Record, frozen=True, kw_only=True):
    """A prompt was accepted while a cycle ran; ``metadata`` goes into the user's message."""

    command_id: CommandId
    text: str
    metadata: dict[str, object] = {}
    call: OpeningCall | None = None
    response_format: dict[str, Any] | None = None  # Any: a JSON Schema
    parts: tuple[MessagePart, ...] = ()


class CycleStarted(Record, frozen=True, kw_only=True):
    """A cycle began with ``text`` as the user's message; the prompt leaves the queue.

    ``call`` is what it does in place of asking the model, as its prompt or the definition says.
    """

    command_id: CommandId
    text: str
    at_ms: Milliseconds
    metadata: dict[str, object] = {}
    call: OpeningCall | None = None
    response_format: dict[str, Any] | None = None  # Any: a JSON Schema
    parts: tuple[MessagePart, ...] = ()


class MessageAdded(Record, frozen=True, kw_only=True, tag="said"):
    """An answer, or what there was of it, was added to the conversation."""

    message: Message


class TurnSpent(Record, frozen=True, kw_only=True):
    """A request was answered and used this much."""

    usage: TokenUsage


class CutSpent(Record, frozen=True, kw_only=True):
    """A request was ended in the middle of its answer, and took about this much."""

    usage: TokenUsage


class ToolStarted(Record, frozen=True, kw_only=True):
    """One call is about to run; ``granted`` is the approved call, by its hash, that it uses up."""

    call_id: CallId
    at_ms: Milliseconds
    granted: str | None = msgspec.field(default=None, name="allowance")


class RunStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step that a call has published says of the tree of its run of reasoning.

    ``asked`` is the branch that was asked for, below ``parent_id``; ``come`` the one whose thought
    is there; ``scored`` the one that has ``score`` now. ``is_no_answer``: what was asked for judges
    others, or has come to nothing.
    """

    run_id: str
    strategy: str
    asked: str | None = None
    parent_id: str | None = None
    come: str | None = None
    scored: str | None = None
    score: float | None = None
    is_no_answer: bool = False
    is_end: bool = False


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a run of reasoning ends whose call was over before it.

    ``waits``: its end is published when the branches that still run are gone and counted.
    ``answer`` is the best one so far, where it has failed.
    """

    status: Literal["aborted", "failed"]
    reason: str
    answer: str | None = None
    waits: bool = False


class ToolStepRecorded(Record, frozen=True, kw_only=True, tag="tool_told"):
    """A running call has published a step of its own, by an event of the same write."""

    call_id: CallId
    step: RunStep | None = None


class CallKept(Record, frozen=True, kw_only=True):
    """A running call keeps what a later run of it goes on with, empty: nothing any more.

    ``asked`` counts the questions that it has put to the user by then.
    """

    call_id: CallId
    content: bytes
    asked: Count = 0


class ToolEnded(Record, frozen=True, kw_only=True):
    """One call has its result; ``run_end`` is that of its run, which has none of its own."""

    message: Message
    run_end: RunEnd | None = None


class CycleEnded(Record, frozen=True, kw_only=True):
    """A cycle is over."""

    command_id: CommandId
    outcome: OutcomeKind
    reason: Any = None  # Any: plain data of whoever aborted it


class PromptDiscarded(Record, frozen=True, kw_only=True):
    """A queued prompt, or a steering, was dropped by an abort."""

    command_id: CommandId


class Steered(Record, frozen=True, kw_only=True):
    """A steering was accepted while a cycle ran."""

    ref: CommandId
    text: str
    parts: tuple[MessagePart, ...] = ()


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a person: what is remembered, and recorded as ``ApprovalRequested``.

    A field goes to the end, with a default: causes quote what records have by its order.
    """

    id: str
    call_id: CallId
    tool: str
    args: dict[str, object]
    requested_at_ms: Milliseconds
    family: str = ""
    """What "approve_always" allows of the tool; empty is all of it."""
    ref: str | None = None
    """What the call that is held for it is answered by; None where it has ended instead."""
    due_at_ms: Milliseconds | None = msgspec.field(default=None, name="due_ms")
    """When it counts as rejected; wall time."""
    options: tuple[ApprovalOption, ...] = APPROVAL_OPTIONS

    @property
    def is_held(self) -> bool:
        """Whether its call waits as it is."""
        return self.ref is not None


_APPROVAL_KEYS: Final[Mapping[str, str]] = {"id": "approval_id", "requested_at_ms": "at_ms"}
"""What a record calls the fields of an approval where a snapshot has other names."""


def field_as(field: FieldInfo, key: str) -> tuple[str, Any, Any]:  # Any: a hint, and msgspec's own
    """Return a field of one struct for another, which is written with it under ``key``."""
    default = msgspec.field(default=field.default, name=key)
    if field.default_factory is not msgspec.NODEFAULT:
        default = msgspec.field(default_factory=field.default_factory, name=key)
    return field.name, field.type, default


ApprovalRequested: Final = cast(
    type[Record],
    msgspec.defstruct(
        "ApprovalRequested",
        [field_as(one, _APPROVAL_KEYS.get(one.name, one.encode_name)) for one in fields(Approval)],
        bases=(Record,),
        module=__name__,
        frozen=True,
        kw_only=True,
        tag="approval_asked",
    ),
)
"""A call waits for a person: the record that has the fields of an ``Approval``."""


def approval_requested(approval: Approval) -> Record:
    """Return the record of an approval that is requested."""
    return ApprovalRequested(**asdict(approval))


def approval_of(requested: Record) -> Approval:
    """Return the approval that an ``ApprovalRequested`` is about."""
    return Approval(**{name: getattr(requested, name) for name in Approval.__struct_fields__})


class ApprovalDecided(Record, frozen=True, kw_only=True):
    """A person decided; an allowed call may be made once, or its tool from now on."""

    approval_id: str
    decision: Literal["approve_once", "approve_always", "reject"]


class UserAsked(Record, frozen=True, kw_only=True):
    """A running call asks the user, or (``owner``) the program that its tool runs in."""

    ref: str
    call_id: CallId
    owner: str = ""


class UserAnswered(Record, frozen=True, kw_only=True):
    """The user answered, or the program that the call's tool runs in."""

    ref: str
    response: Any  # Any: whatever the application sent


class TodosChanged(Record, frozen=True, kw_only=True):
    """The list of todos was replaced."""

    todos: tuple[dict[str, str], ...]


class AttachedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that was added, with its packed code."""

    name: str
    is_repeatable: bool
    isolation: Literal["process", "thread", "task"]
    packed: Packed
    chars: Count = 0
    run_strategy: str = ""


class ToolsChanged(Record, frozen=True, kw_only=True):
    """Tools were removed, then others added."""

    attached: tuple[AttachedTool, ...] = ()
    detached: tuple[str, ...] = ()


class McpServersChanged(Record, frozen=True, kw_only=True):
    """MCP servers were removed, with what was known of their tools, then others added."""

    attached: tuple[McpServer, ...] = ()
    detached: tuple[str, ...] = ()


class McpToolsSeen(Record, frozen=True, kw_only=True):
    """A server lists tools that it has not listed so before: their definitions' digests, by name.

    A tool that has another one than at first needs a person's approval again.
    """

    server: str
    tools: dict[str, str]


class ModelChanged(Record, frozen=True, kw_only=True):
    """Requests go to another model, or with other options."""

    model: str
    provider_opts: dict[str, Any]  # Any: litellm's own arguments


class AnswerRetracted(Record, frozen=True, kw_only=True):
    """The latest answer was taken back: a guardrail does not let it pass."""

    guardrail: str


class HandedOff(Record, frozen=True, kw_only=True):
    """The session is another agent from here on, which has these tools and this model.

    ``messages`` are the conversation as that agent sees it, None: it stays. ``is_return``: it is
    the session's own agent again.
    """

    to: str
    is_return: bool = False
    tools: tuple[AttachedTool, ...] = ()
    model: str
    provider_opts: dict[str, Any] = {}  # Any: litellm's own arguments
    messages: tuple[Message, ...] | None = None


class HandoffFailed(Record, frozen=True, kw_only=True):
    """The handoff that a call had asked for was not made, and why."""

    why: str


class Compacted(Record, frozen=True, kw_only=True):
    """The oldest ``evicted`` messages gave way to ``summary``, which took ``usage`` to make."""

    evicted: Positive
    summary: Message
    usage: TokenUsage


class SubagentSpawned(Record, frozen=True, kw_only=True):
    """A call started a session of its own, with this much of the budget.

    ``digest`` names what a branch was asked; empty where the call has not branched.
    """

    child_id: SessionId
    call_id: CallId
    ref: str
    tokens: Total | None = None
    cost_usd: float | None = None
    digest: str = ""


class SubagentSpent(Record, frozen=True, kw_only=True):
    """A subagent is done and used this much.

    ``ok`` and ``text`` are what came of a branch; ``ok`` None: it is no branch, or was lost.
    """

    child_id: SessionId
    usage: TokenUsage
    ok: bool | None = None
    text: str = ""


class Noted(Record, frozen=True, kw_only=True):
    """Plugins have notes for the model, given between turns."""

    notes: tuple[str, ...]


class PluginsChanged(Record, frozen=True, kw_only=True):
    """Plugins have other states than before."""

    states: dict[str, bytes]


class AttachedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that was added, with its packed code."""

    name: str
    hooks: frozenset[str]
    packed: Packed


class PluginSetChanged(Record, frozen=True, kw_only=True):
    """Plugins were removed; others were added, or took the place of those of their names."""

    attached: tuple[AttachedPlugin, ...] = ()
    detached: tuple[str, ...] = ()


class PluginOrdered(Record, frozen=True, kw_only=True):
    """A plugin returned a ``KernelEmit`` of ``extensions.actions``."""

    name: str
    payload: Any  # Any: checked against the emit of this name


class PluginSpent(Record, frozen=True, kw_only=True):
    """A plugin asked a model for itself, and that took this much."""

    plugin: str
    usage: TokenUsage


class Resumed(Record, frozen=True, kw_only=True):
    """A new process went on with the running cycle; ``is_blamed``: it may have been the cycle."""

    incarnation: Generation
    is_blamed: bool = True


class Continued(Record, frozen=True, kw_only=True):
    """The session goes on from a saved state, with other options; None: what it had stays.

    ``resumption`` is the id of the resumption, so that it is recorded once.
    """

    resumption: str
    model: str | None = None
    provider_opts: dict[str, Any] | None = None  # Any: litellm's own arguments
    tools: tuple[AttachedTool, ...] | None = None
    plugins: tuple[AttachedPlugin, ...] | None = None
    mcp_servers: tuple[McpServer, ...] | None = None


class SetAside(Record, frozen=True, kw_only=True):
    """A record, the snapshot, a tool or a ``session_start`` is left out whenever it is rebuilt.

    ``digest`` names it by what it says, ``what`` is the record's kind, "snapshot", "tool" or
    "session_start"; ``name`` is what the tool or the plugin is called.
    """

    digest: str
    what: str
    why: str = ""
    name: str = ""


class CodeTaken(Record, frozen=True, kw_only=True):
    """A process took the code that it found under the names of packed code, by their digests.

    ``code`` has the digest of each module by its name; ``workers.loader`` compares.
    """

    code: dict[str, dict[str, str]]


RECORDS: Final[tuple[type[Record], ...]] = tuple(Record.__subclasses__())
_decoder: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(
    PromptQueued
    | CycleStarted
    | MessageAdded
    | TurnSpent
    | CutSpent
    | ToolStarted
    | ToolStepRecorded
    | CallKept
    | ToolEnded
    | CycleEnded
    | PromptDiscarded
    | Steered
    | ApprovalRequested
    | ApprovalDecided
    | UserAsked
    | UserAnswered
    | TodosChanged
    | ToolsChanged
    | McpServersChanged
    | McpToolsSeen
    | ModelChanged
    | AnswerRetracted
    | HandedOff
    | HandoffFailed
    | Compacted
    | SubagentSpawned
    | SubagentSpent
    | Noted
    | PluginsChanged
    | PluginSetChanged
    | PluginOrdered
    | PluginSpent
    | Resumed
    | Continued
    | SetAside
    | CodeTaken
)  # Any: the union; mypy has no name for it


def decode_record(body: bytes) -> Record:
    """Return the record that ``body`` holds.

    Raises:
        msgspec.DecodeError: it holds none.
    """
    try:
        record = _decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"not a record: {error}") from error
    assert isinstance(record, Record)  # noqa: S101 - the decoder's union guarantees it
    return record
