"""What a step came of, written with its records, so that it can be played again.

A step's first record has the ``Cause`` of all: the input itself, and what the session was doing,
where that is not what the step before has left it at. Texts that a record has are quoted from it.
An input whose step has no record is not written.

A new input needs nothing here, unless observers see more of it than is decided on: ``_SEEN``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, get_args

import msgspec

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.events import PluginEvent
from cmdc_runtime.reasons import AnyReason, snake
from workers.core import inputs, runs
from workers.core.inputs import Order, Result
from workers.core.quotes import Quotes
from workers.core.records import Cause, Record, RecordedActivity
from workers.core.state import Activity, AskingPlugins, Memory, Streaming
from workers.core.tags import TagState
from workers.core.verdict import Verdict


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
    inputs.ApprovalWanted: "approval_needed",
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
    inputs.ApprovalWanted: lambda given: replace(given, args=None),
    inputs.QuestionAsked: lambda given: replace(given, question="", options=()),
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
            kind_of, found = _ACTIVITIES[cause.activity.name], cause.activity.fields
            memory = msgspec.structs.replace(memory, activity=quotes.read(kind_of, found))
        return memory, quotes.read(kind, cause.given)
    except (msgspec.MsgspecError, ProtocolError, KeyError, TypeError, ValueError) as error:
        raise UnreadableCauseError(
            f"what its cause tells of {cause.input} is odd: {error}"
        ) from error


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
