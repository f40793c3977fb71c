"""What a step came of, written with its records, so that it can be played again.

A step's first record has the ``Cause`` of all: the input itself, and what the session was doing,
where that is not what the step before has left it at. An input whose step has no record is not
written. A new input needs nothing here, unless observers see more of it than is decided on:
``_SEEN``.

``Quotes`` writes dataclasses and structs as plain values that quote a source, the records, in place
of repeating it. What is written lies beside its source, which is read first. A part that is the
very object that the source has is quoted as a whole, a long text as a piece of one there. A field
with its default is left out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache, cached_property
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.msgpack import Ext

from cmdc_runtime.commands import Command
from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.events import Event, PluginEvent
from cmdc_runtime.extensions.hooks import HOOKS
from cmdc_runtime.reasons import AnyReason, snake
from cmdc_runtime.wire.codec import decode, encode
from workers.core import inputs, runs
from workers.core.inputs import Order, Result
from workers.core.records import Cause, Record, RecordedActivity
from workers.core.state import Activity, AskingPlugins, Memory, Streaming
from workers.core.tags import TagState
from workers.core.verdict import Verdict

# --- values that quote ----------------------------------------------------------------------------

T = TypeVar("T")
Plain = dict[str, Any]  # Any: what MessagePack takes

LONG: Final = 24
"""Texts of so many characters or bytes are quoted, and can be."""
_QUOTE: Final = 127
"""The code of the extension that a quote travels as."""
_OPEN: Final = (Command, Event)
"""Bases of which any subclass may stand in a field."""


class _Quote(NamedTuple):
    """Which part of the source; of a text from where on, and how much."""

    number: int
    begin: int = 0
    length: int = 0


class Quotes:
    """Values that quote ``source``: structs, and what these are made of."""

    def __init__(self, source: object) -> None:
        """Prepare; the source is looked at when there is something to quote."""
        self._source = source

    def written(self, value: object) -> Plain:
        """Return the fields of a dataclass or a struct that are not what they are by default."""
        kind: Any = type(value)  # Any: as ``_shape_of`` takes it
        shape = _shape_of(kind)
        plain_fields = {
            field.key: self._written(part)
            for field in shape.fields
            if (part := getattr(value, field.name)) != field.default
        }
        return shape.tag | plain_fields

    def read(self, kind: type[T], plain: Plain) -> T:
        """Return the value of a dataclass that was written so.

        Raises:
            ValueError, TypeError: it was not; msgspec's own errors are among these.
        """
        made: T = _made(kind, self._filled(plain))
        return made

    @cached_property
    def _parts(self) -> tuple[Any, ...]:  # Any: whatever the source has
        return tuple(_parts_of(self._source))

    @cached_property
    def _numbers(self) -> Mapping[int, int]:
        """The numbers of the parts by their identities, while the source is there."""
        return {id(part): number for number, part in enumerate(self._parts)}

    def _written(self, value: Any) -> Any:  # Any: a part of a value, and its plain form
        match value:
            case Enum():
                return value.value
            case str() | bytes():
                return self._piece(value) if len(value) >= LONG else value
            case dict() | list() | tuple() | set() | frozenset() | msgspec.Struct():
                number = self._numbers.get(id(value))
                return self._plain(value) if number is None else _ext(_Quote(number))
            case _:
                return self.written(value) if is_dataclass(value) else value

    def _plain(self, value: Any) -> Any:  # Any: as above
        if isinstance(value, msgspec.Struct):
            return self.written(value)
        if isinstance(value, dict):
            return {key: self._written(one) for key, one in value.items()}
        return [self._written(one) for one in value]

    def _piece(self, text: Any) -> Any:  # Any: a str or bytes; a quote of it, or itself
        for number, part in enumerate(self._parts):
            if type(part) is type(text) and (begin := part.find(text)) >= 0:
                return _ext(_Quote(number, begin, len(text)))
        return text

    def _filled(self, plain: Any) -> Any:  # Any: plain values
        """Return plain values with the texts that they quote."""
        match plain:
            case dict():
                return {key: self._filled(one) for key, one in plain.items()}
            case list():
                return [self._filled(one) for one in plain]
            case Ext(code=code, data=data) if code == _QUOTE:
                return self._quoted(msgspec.msgpack.decode(data, type=_Quote))
            case _:
                return plain

    def _quoted(self, quote: _Quote) -> Any:  # Any: as the part is
        if not 0 <= quote.number < len(self._parts):
            raise ValueError(f"it quotes a part that is not there: number {quote.number}")
        part = self._parts[quote.number]
        if not isinstance(part, str | bytes):
            return msgspec.to_builtins(part, builtin_types=(bytes,))
        piece = part[quote.begin : quote.begin + quote.length]
        if len(piece) != quote.length:
            raise ValueError(f"it quotes {quote.length} of a text, and {len(piece)} are there")
        return piece


def _ext(quote: _Quote) -> Ext:
    return Ext(_QUOTE, msgspec.msgpack.encode(quote))


def _parts_of(value: Any) -> Iterator[Any]:  # Any: a source, and its parts
    """Yield what can be quoted of a value, in an order that is the same when it is read again."""
    match value:
        case str() | bytes():
            if len(value) >= LONG:
                yield value
            return
        case msgspec.Struct():
            inner: Iterable[Any] = (getattr(value, name) for name in value.__struct_fields__)
        case dict():
            inner = value.values()
        case list() | tuple():
            inner = value
        case _:
            return
    if value:
        yield value
        for part in inner:
            yield from _parts_of(part)


# --- the shapes of classes ------------------------------------------------------------------------


class _Field(NamedTuple):
    """A field of a class: its name, what it is called when it is written, its default."""

    name: str
    key: str
    default: Any  # Any: a value of the field's own


class _Shape(NamedTuple):
    """How a class is written: its tag, where it has one, and its fields."""

    tag: Plain
    fields: tuple[_Field, ...]


@cache
def _shape_of(kind: Any) -> _Shape:  # Any: a dataclass or a struct
    if not issubclass(kind, msgspec.Struct):
        return _Shape({}, tuple(_Field(one.name, one.name, _default(one)) for one in fields(kind)))
    config = kind.__struct_config__
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    found = msgspec.structs.fields(kind)
    return _Shape(tag, tuple(_Field(one.name, one.encode_name, _default(one)) for one in found))


def _default(field: Any) -> Any:  # Any: a field of either kind, and its default
    factory = field.default_factory
    return field.default if factory in {MISSING, msgspec.NODEFAULT} else factory()


@cache
def _hints_of(kind: Any) -> Mapping[str, Any]:  # Any: a class, and type hints
    return get_type_hints(kind)


def _made(kind: Any, plain_fields: Plain) -> Any:  # Any: a dataclass, and an instance of it
    hints = _hints_of(kind)
    if unknown := plain_fields.keys() - hints.keys():
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**{name: _part(hints[name], one) for name, one in plain_fields.items()})


def _part(hint: Any, plain_fields: Any) -> Any:  # Any: a type hint, plain values, what they are
    if hint in _OPEN:
        return decode(hint, encode(plain_fields))
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(plain_fields, dict):
        return _made(hint, plain_fields)
    return msgspec.convert(plain_fields, hint, builtin_types=(bytes,))


# --- causes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restarted:
    """A new process goes on where one ended for ``reason``: the input of ``recovery.resume``."""

    reason: AnyReason
    at_ms: int


Given: TypeAlias = Order | Result | Restarted
"""Whatever makes the machine take a step."""


class UnreadableCauseError(Exception):
    """A cause does not give the input of its step again; the message says what is wrong."""


_WRITTEN: Final[Mapping[type, str]] = {
    AskingPlugins: "consulting",
    Restarted: "recovery",
    inputs.ApprovalRequest: "approval_needed",
    inputs.PluginsAnswered: "consulted",
    inputs.PluginsReported: "plugins_spoke",
    inputs.SteeringAnswered: "steering_judged",
    inputs.ToolStepReported: "tool_told",
}
"""Under which names journals have those whose classes were called so before."""


def name_of(kind: type) -> str:
    """Return what an input of this class, or an activity, is called in a cause."""
    return _WRITTEN.get(kind) or snake(kind.__name__)


INPUTS: Final[Mapping[str, type]] = {
    name_of(kind): kind for kind in (Order, Restarted, *get_args(Result))
}
"""Every input by its name."""
_ACTIVITIES: Final[Mapping[str, type]] = {name_of(kind): kind for kind in get_args(Activity)}
_POINTS: Final[Mapping[str, str]] = {
    "before_prompt": "prompt",
    "before_request": "request",
    "after_response": "response",
    "after_tool_batch": "batch",
    "before_finish": "finish",
    "before_compact": "compact",
}
"""Under which words journals have the hooks that plugins are asked at, where it is not the kind."""
_HOOK_OF: Final[Mapping[str, str]] = {_POINTS.get(kind, kind): kind for kind in HOOKS}


# --- written --------------------------------------------------------------------------------------


def with_cause(
    records: Sequence[Record], given: Given, memory: Memory, since: Memory | None
) -> list[Record]:
    """Return the records of a step, the first with its cause.

    ``memory`` is from before the step, ``since`` from behind the last one that had records, None
    where this process has taken none.
    """
    if not records:
        return []
    quotes = Quotes(records)
    fields, activity = quotes.written(_decided_on(given)), memory.activity
    cause = Cause(name_of(type(given)), fields, memory.work, len(records))
    if since is None or since.activity != activity:
        found = RecordedActivity(name_of(type(activity)), quotes.written(_asked_about(activity)))
        cause = msgspec.structs.replace(cause, activity=found)
    return [msgspec.structs.replace(records[0], cause=cause), *records[1:]]


def _decided_on(given: Given) -> Given:
    """Return an input without what only observers see of it: no record depends on that."""
    leave_out = _SEEN.get(type(given))
    return given if leave_out is None else leave_out(given)


def _asked_about(activity: Activity) -> Activity:
    """Return an activity without what was shown of an answer, unless some of it is held back."""
    if isinstance(activity, AskingPlugins):
        return msgspec.structs.replace(activity, point=_POINTS.get(activity.point, activity.point))
    if not isinstance(activity, Streaming):
        return activity
    came = activity.answering
    tags = came.tags if came.tags.held else TagState()
    shown = {"is_text_started": False, "is_thinking_started": False, "tags": tags}
    return Streaming(msgspec.structs.replace(came, **shown))


def _without_verdict_texts(given: Any) -> Any:  # Any: an input that has a verdict
    said: Verdict = given.verdict
    left = replace(said, args=None, result=None, messages=None, crashed=(), ignored=())
    return replace(given, verdict=left)


def _without_texts(given: inputs.ToolStepReported) -> inputs.ToolStepReported:
    step = runs.step_of(given.event)
    event = PluginEvent(name="", payload=None) if step is None else runs.event_of(step)
    return replace(given, event=event)


# Any, twice: an input of the row's class.
_SEEN: Final[Mapping[type, Callable[[Any], Any]]] = {
    inputs.ToolBegun: lambda given: replace(given, summary="", args=None),
    inputs.ToolStepReported: _without_texts,
    inputs.ApprovalRequest: lambda given: replace(given, args=None),
    inputs.QuestionAsked: lambda given: replace(given, question="", options=()),
    inputs.ClientCallWanted: lambda given: replace(given, arguments={}),
    inputs.SubagentWanted: lambda given: replace(given, description=""),
    inputs.PluginDelegated: lambda given: replace(given, description=""),
    inputs.BranchWanted: lambda given: replace(given, task=inputs.BranchTask("")),
    inputs.PluginsAnswered: _without_verdict_texts,
    inputs.PluginsReported: _without_verdict_texts,
    inputs.PluginLoaded: _without_verdict_texts,
    inputs.SteeringAnswered: _without_verdict_texts,
}
"""How an input is written down of which observers see more than is decided on."""


# --- read again -----------------------------------------------------------------------------------


def read_cause(cause: Cause, records: Sequence[Record], left: Memory) -> tuple[Memory, Given]:
    """Return the memory that a step began with, and its input; ``records`` have no cause.

    ``left`` is the memory behind the last step that had records.

    Raises:
        UnreadableCauseError: this program knows no such input, or the cause is malformed.
    """
    kind = INPUTS.get(cause.input)
    if kind is None:
        raise UnreadableCauseError(f"this program knows no input {cause.input!r}")
    quotes = Quotes(records)
    try:
        memory = msgspec.structs.replace(left, work=cause.work)
        if cause.activity is not None:
            memory = msgspec.structs.replace(memory, activity=_activity(quotes, cause.activity))
        return memory, quotes.read(kind, cause.given)
    except (msgspec.MsgspecError, ProtocolError, KeyError, TypeError, ValueError) as error:
        raise UnreadableCauseError(
            f"what its cause says of {cause.input} is odd: {error}"
        ) from error


def _activity(quotes: Quotes, recorded: RecordedActivity) -> Activity:
    found: Activity = quotes.read(_ACTIVITIES[recorded.name], recorded.fields)
    if not isinstance(found, AskingPlugins):
        return found
    return msgspec.structs.replace(found, point=_HOOK_OF[found.point])


# --- shown to people ------------------------------------------------------------------------------

_REFS: Final = ("call_id", "child_id", "approval_id", "command_id", "id", "plugin")
"""What an input is about: the first of these fields that it has."""


def ref_of(given: Given) -> str:
    """Return what an input is about: a command, a call, a child or an approval; "" is none."""
    if isinstance(given, inputs.SteeringAnswered):
        return given.order.id
    return next((str(getattr(given, name)) for name in _REFS if hasattr(given, name)), "")


def at_ms_of(given: Given) -> int:
    """Return when an input came, as wall time; 0 where it has no time."""
    at_ms: int = getattr(
        given.order if isinstance(given, inputs.SteeringAnswered) else given, "at_ms", 0
    )
    return at_ms
