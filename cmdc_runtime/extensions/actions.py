"""What a plugin may answer: the actions, which hook takes which, and how several become one.

``MATRIX`` says what a hook takes, as its row in ``hooks`` does: annotations are checked against it
when a plugin is loaded, answers when it runs. ``COMPOSITION`` says what the answers of several
plugins amount to. To add an action: a class here with a word in ``COMPOSITION``, its column in
``hooks``, and its field in ``workers.core.verdict``.

The kernel carries out some emits itself, which are called kernel emits:
``Emit(UpdateSystemContext(key="plan", text="..."))`` changes the system prompt; observers do not
get these. Each is a Struct whose snake_case name is that of the emit; a payload that does not
fit it is a bad action, and counts as a failure of the plugin. To add one: a class here, in
``AnyKernelEmit`` too, and its row in ``workers.core.evolve``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType, NoneType, SimpleNamespace
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.commands import SkillStatus
from cmdc_runtime.errors import UsageError
from cmdc_runtime.extensions.hooks import ACTION_NAMES, RULINGS, BeforeTool, Ruling, kind_of
from cmdc_runtime.ids import CallId, MessageId
from cmdc_runtime.messages import Message
from cmdc_runtime.plain import copied, is_a, own, short
from cmdc_runtime.provider_options import model_problem, options_problem
from cmdc_runtime.reasons import snake
from cmdc_runtime.redaction import printed, printed_fields

# --- emits that the kernel acts on ----------------------------------------------------------------

ApprovalOption = Literal["approve_once", "approve_always", "reject_once"]
APPROVAL_OPTIONS: Final[tuple[ApprovalOption, ...]] = get_args(ApprovalOption)
APPROVAL_TIMEOUT_S: Final = 120.0
"""After which a call that is held counts as rejected, unless its plugin says otherwise."""
APPROVAL_TIMEOUT_S_MAX: Final = 30 * 86_400.0
SYSTEM_MESSAGE_ID: Final = MessageId("m-0")
"""The system prompt, where a message's id is asked for."""

_Key = Annotated[str, Meta(min_length=1, max_length=128)]


class KernelEmit(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=Checked
):
    """Base of all emits that the kernel acts on."""


class MemoryContents(KernelEmit, frozen=True, kw_only=True):
    """Show these memory files in the system prompt, in place of those shown so far."""

    contents: dict[_Key, str]
    """What is in each, by its name."""


class SkillsFound(KernelEmit, frozen=True, kw_only=True):
    """These are the skills of the session, in place of those known so far."""

    skills: tuple[SkillStatus, ...]
    listing: str | None = None
    """What the system prompt says of them from now on; None leaves that as it is."""


class UpdateSystemContext(KernelEmit, frozen=True, kw_only=True):
    """Set a section of the system prompt, or remove it: an empty ``text``."""

    key: _Key
    """The section's title; one of a key there is."""
    text: str


class SyntheticResult(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """The result that a call without one gets."""

    call_id: CallId
    content: str
    is_error: bool = True


class SyntheticToolResults(KernelEmit, frozen=True, kw_only=True):
    """Give calls of the conversation that have no result, and do not run, one for good."""

    results: tuple[SyntheticResult, ...]


class MetadataUpdate(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """Keys to set in the metadata of one message; None removes a key."""

    id: MessageId
    """``SYSTEM_MESSAGE_ID`` is the system prompt."""
    metadata: dict[_Key, Any]  # Any: whatever MessagePack takes


class UpdateMessageMetadata(KernelEmit, frozen=True, kw_only=True):
    """Change what is noted beside messages; providers read ``cache_control``."""

    updates: tuple[MetadataUpdate, ...]


class RequireApproval(KernelEmit, frozen=True, kw_only=True):
    """Let the call of this ``before_tool`` run only when a person has approved it.

    A call that has been approved runs; so the plugin may ask for each, and for each again. At any
    other hook it is a bad action.
    """

    hint: str = ""
    """Why, in words for the person."""
    family: Annotated[str, Meta(max_length=128)] = ""
    """What "approve_always" allows besides: calls of the tool that the plugin counts to it;
    it looks in ``always_approved`` by itself. Empty is the whole tool."""
    hold: bool = False
    """Keep the call waiting, and run it when it is approved; else it ends with an error result, the
    cycle rests, and an approval opens a new one."""
    timeout_s: Annotated[float, Meta(gt=0, le=APPROVAL_TIMEOUT_S_MAX)] | None = None
    """Seconds after which it counts as rejected; None waits for ever."""
    options: Annotated[tuple[ApprovalOption, ...], Meta(min_length=1)] = APPROVAL_OPTIONS
    """What the person may decide."""


class DecideApproval(KernelEmit, frozen=True, kw_only=True):
    """Decide an approval that waits, as ``approve`` and ``reject`` do, without opening a cycle."""

    approval_id: str
    decision: Literal["approve_once", "approve_always", "reject"]


AnyKernelEmit: TypeAlias = (
    MemoryContents
    | SkillsFound
    | UpdateSystemContext
    | SyntheticToolResults
    | UpdateMessageMetadata
    | RequireApproval
    | DecideApproval
)
KERNEL_EMITS: Final[dict[str, type[KernelEmit]]] = {
    snake(kind.__name__): kind for kind in get_args(AnyKernelEmit)
}
"""Every emit that the kernel acts on, by its name."""


# --- actions --------------------------------------------------------------------------------------

ACTION_BYTES_MAX: Final = 2**20
"""Of one action, as MessagePack; only the messages of one request may be larger."""
NAME_CHARS_MAX: Final = 128
"""Of an emitted event."""
ACTIONS_MAX: Final = 1000
"""Of one answer, and as many events of one ``Emit``; more are a mistake in a loop."""


_PAIR: Final = 2
_A = TypeVar("_A", bound="Action")


class BadActionError(UsageError):
    """An action can't be carried out, whatever the hook; the message says what is wrong with it."""


# Positional too, here and below, since a plugin writes ``return BlockTool("on the deny list")``.
class Action(msgspec.Struct, frozen=True, metaclass=Checked):
    """Base of all actions."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    @property
    def kind(self) -> str:
        """The action's name: ``BlockTool`` is ``block_tool``."""
        return snake(type(self).__name__)

    def sealed(self) -> Self:
        """Return a copy that is checked, and that its plugin cannot change any more.

        Raises:
            BadActionError: a field has the wrong type, or the action is too large.
        """
        return _copy(self, ACTION_BYTES_MAX)


class Continue(Action, frozen=True):
    """Go on; the same as None."""


class Intervene(Action, frozen=True):
    """Say ``text`` to the model; the texts of all plugins are joined by a blank line."""

    text: str


class Abort(Action, frozen=True):
    """End the cycle now; the session lives on.

    ``reason`` is any plain data: a text, a number, a list, a dict, or a Struct, which is shown as a
    dict. Callers and observers get it as it is.
    """

    reason: Any  # Any: the plugin's own

    def sealed(self) -> Self:
        """Return a copy whose reason can be written down."""
        try:
            return type(self)(copied(self.reason, ACTION_BYTES_MAX))
        except ValueError as error:
            raise BadActionError(f"{self.kind}: reason: {error}") from error


class Skip(Action, frozen=True):
    """Ask no further plugin; before a compaction, do not compact."""


class BlockTool(Action, frozen=True):
    """Do not run this call; the model reads ``reason`` as its result, marked as an error."""

    reason: str


class ReplaceToolArgs(Action, frozen=True):
    """Run the call with ``args``; of several plugins the last one counts."""

    args: dict[str, Any]  # Any: whatever the tool takes


class ReplaceToolResult(Action, frozen=True):
    """Give the model ``result``; of several plugins the last one counts.

    ``is_error`` says whether the call failed, as the model, the history and observers have it; None
    leaves it as it was. What a call wanted besides its text is not done where it counts as failed.
    """

    result: str
    is_error: bool | None = None


class Emit(Action, frozen=True):
    """Publish events: observers get each as ``PluginEvent(name, payload)``.

    ``Emit("audited", {"length": 3})``, ``Emit("audited")``, ``Emit(Audited(length=3))`` with a
    Struct of your own, whose name and fields are taken, or ``Emit([...])`` with several of these,
    where a name with a payload is a pair. A payload is anything that MessagePack takes, up to
    1 MiB. If it is a dict, the session's ``user_data`` is added as its key ``user_data``, unless it
    has the key ``_no_user_data``. The Structs of ``cmdc_runtime.extensions.actions`` are
    kernel emits: the session carries them out, and does not publish them.
    """

    name: str | msgspec.Struct | tuple[str, Any] | list[Any]  # Any: a payload, and such events
    payload: Any = None  # Any: the plugin's own

    def events(self) -> tuple[tuple[str, Any], ...]:
        """Return the names and payloads.

        Raises:
            BadActionError: this is no form of an emit.
        """
        if is_a(self.name, list):
            listed: list[object] = own(self.name)
            _refuse_flood(listed, "events of one emit")
            return tuple(_event(event, None) for event in listed)
        return (_event(self.name, self.payload),)

    def sealed(self) -> Self:
        """Return a copy that names each event with its payload."""
        return type(self)([_sealed_event(*event) for event in self.events()])


class SwitchModel(Action, frozen=True):
    """Use ``model`` from the next request on; None keeps the provider's options."""

    model: str
    provider_opts: dict[str, Any] | None = None  # Any: whatever the provider takes

    def sealed(self) -> Self:
        """Return a copy that names a model, with options that can work."""
        if (problem := model_problem(self.model)) is not None:
            raise BadActionError(f"{self.kind}: model: {problem}")
        sealed = _copy(self, ACTION_BYTES_MAX)
        if (problem := options_problem(sealed.provider_opts or {})) is not None:
            raise BadActionError(f"{self.kind}: provider_opts{problem}")
        return sealed


class ReplaceMessages(Action, frozen=True):
    """Send ``messages`` with this one request; the conversation stays as it is."""

    messages: Sequence[Message]

    def sealed(self) -> Self:
        """Return a copy, however large: it is neither journaled nor published."""
        return _copy(self, None)


Actions: TypeAlias = Action | Sequence[Action | None] | None
"""What a plugin returns: None is ``Continue``, a list is several of these."""


class Composition(StrEnum):
    """What the answers of several plugins amount to."""

    PASS = "pass"  # noqa: S105 - it is no password
    COLLECT = "collect"
    """All count, in the order of the plugins."""
    LAST = "last"
    """The last one counts."""
    STOP = "stop"
    """This one counts, and no further plugin is asked."""


# fmt: off
COMPOSITION: Final[Mapping[type[Action], Composition]] = MappingProxyType({
    Continue:          Composition.PASS,
    Intervene:         Composition.COLLECT,
    Abort:             Composition.STOP,
    Skip:              Composition.STOP,
    BlockTool:         Composition.STOP,
    ReplaceToolArgs:   Composition.LAST,
    ReplaceToolResult: Composition.LAST,
    Emit:              Composition.COLLECT,
    SwitchModel:       Composition.LAST,
    ReplaceMessages:   Composition.LAST,
})
"""How each action of several plugins becomes one."""
# fmt: on
_BY_NAME: Final = {snake(action.__name__): action for action in COMPOSITION}
MATRIX: Final[Mapping[tuple[str, type[Action]], Ruling]] = MappingProxyType(
    {
        (kind_of(hook), _BY_NAME[name]): word
        for hook, row in RULINGS.items()
        for name, word in zip(ACTION_NAMES, row, strict=True)
    }
)
"""What becomes of each action at each hook."""
ORDERS_AT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        snake(RequireApproval.__name__): (kind_of(BeforeTool),),
    }
)
"""Emits that the kernel acts on at these hooks only; the others mean the same at each."""
GUARDING: Final = (Abort, BlockTool)
"""What guards answer with: a plugin that may say so fails closed unless it says otherwise."""


def checked_actions(answer: object, hook: str) -> tuple[Action, ...]:
    """Return what a plugin returned at ``hook`` as actions that it may take there, sealed.

    None is ``Continue``, in a list too, so that a list may hold what another method returned.

    Raises:
        BadActionError: it is no answer, or one of its actions is unfit, here or anywhere.
    """
    listed = _listed(answer)
    _refuse_flood(listed, "actions")
    return tuple(_known(action, hook).sealed() for action in listed if action is not None)


def stops_something(answer: object) -> bool:
    """Say whether a plugin that returned this is a guard, be the answer fit or not."""
    return any(is_a(action, GUARDING) for action in _listed(answer))


def may_stop(kinds: Iterable[str], method: object) -> bool:
    """Say whether a method for hooks may answer so that a cycle or a call does not go on.

    What its return annotation admits counts; without one it may answer anything.
    """
    named = _answers_of(method)
    return any(
        MATRIX[kind, action] is Ruling.TAKEN and (named is None or action in named)
        for kind in kinds
        for action in GUARDING
    )


def annotated(method: Any) -> list[Any] | None:  # Any: what a stranger wrote
    """Return the parts of a method's return annotation; None where it has none to be read."""
    try:
        # The return annotation alone: those of parameters may be there for type checkers only.
        annotation = method.__annotations__["return"]
        alone: Any = SimpleNamespace(__annotations__={"return": annotation})
        names = getattr(method, "__globals__", {})
        return list(_leaves(get_type_hints(alone, globalns=names)["return"]))
    except Exception:  # noqa: BLE001 - an annotation that nobody can read says nothing
        return None


def _answers_of(method: object) -> frozenset[object] | None:
    """Return the actions that a return annotation admits; None where it may be any."""
    leaves = annotated(method)
    if leaves is None:
        return None
    known = {*COMPOSITION, NoneType, Ellipsis}
    return frozenset(leaves) if all(leaf in known for leaf in leaves) else None


def _leaves(annotation: object) -> Iterator[object]:
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _leaves(part)


def _listed(answer: object) -> Sequence[object]:
    """Return what an answer lists, whatever a class of the plugin's own makes of a list."""
    listed: Sequence[object] = own(answer) if is_a(answer, (list, tuple)) else (answer,)
    return listed


def _known(thing: object, hook: str) -> Action:
    if type(thing) not in COMPOSITION or not isinstance(thing, Action):
        raise BadActionError(
            f"{type(thing).__name__} is no action: return a cmdc action, a list of actions or None"
        )
    if MATRIX[hook, type(thing)] is Ruling.REFUSED:
        raise BadActionError(f"{hook} does not take {type(thing).__name__}")
    if isinstance(thing, Emit):
        _refuse_misplaced(thing, hook)
    return thing


def _refuse_misplaced(emit: Emit, hook: str) -> None:
    for name, _ in emit.events():
        takers = ORDERS_AT.get(name)
        if takers is not None and hook not in takers:
            raise BadActionError(f"{hook} does not take {name}: emit it at {', '.join(takers)}")


def _refuse_flood(listed: Sequence[object], what: str) -> None:
    if len(listed) > ACTIONS_MAX:
        raise BadActionError(f"{len(listed)} {what} are more than {ACTIONS_MAX}")


def _copy(action: _A, bytes_max: int | None) -> _A:
    body = _encoded(action, action.kind)
    if bytes_max is not None and len(body) > bytes_max:
        raise BadActionError(f"{action.kind} takes {len(body)} bytes, more than {bytes_max}")
    try:
        return msgspec.msgpack.decode(body, type=type(action))
    except msgspec.ValidationError as error:
        raise BadActionError(f"{action.kind}: {error}") from error


def _event(named: Any, payload: object) -> tuple[str, Any]:  # Any: what a stranger named
    """Return one event of an emit: from a name, a pair or a Struct."""
    name = named = own(named)
    if isinstance(named, tuple) and len(named) == _PAIR:
        name, payload = own(named[0]), named[1]
    elif is_a(named, msgspec.Struct):
        name, payload = snake(type(named).__name__), msgspec.structs.asdict(named)
    if not is_a(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        raise BadActionError(
            f"emit takes a name of 1 to {NAME_CHARS_MAX} characters, a (name, payload), a Struct,"
            f" or a list of these, got {short(name)}"
        )
    return name, payload


def _sealed_event(name: str, payload: object) -> tuple[str, Any]:
    body = _encoded((name, payload), f"emit {name!r}")
    if len(body) > ACTION_BYTES_MAX:
        raise BadActionError(
            f"emit {name!r} takes {len(body)} bytes, more than {ACTION_BYTES_MAX}: put large"
            " values into a file and name it"
        )
    if (kind := KERNEL_EMITS.get(name)) is not None:
        try:
            msgspec.msgpack.decode(body, type=tuple[str, kind])  # type: ignore[valid-type]
        except msgspec.ValidationError as error:
            raise BadActionError(f"emit {name!r}: {error}") from error
    sealed: tuple[str, Any] = msgspec.msgpack.decode(body, type=tuple[str, Any])
    return sealed


def _encoded(thing: object, label: str) -> bytes:
    try:
        return msgspec.msgpack.encode(thing)
    except Exception as error:  # a Struct of the plugin's own may hold anything
        raise BadActionError(f"{label} can't be published: {error}") from error
