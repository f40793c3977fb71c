"""What running calls report: they begin, ask, want something, and return."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cmdc_runtime.events import (
    AskUser,
    Event,
    PluginEvent,
    TodoChange,
    ToolCallUnknown,
    ToolExecutionMetrics,
    ToolExecutionStart,
)
from workers.core import cycle, inputs, records, runs
from workers.core.conversation import children_of, find_running, is_running
from workers.core.inputs import QuestionAsked, ToolBegun, ToolEmitted, ToolReturned
from workers.core.loops import fingerprint
from workers.core.records import Record, TodosChanged, ToolStarted, UserAsked
from workers.core.state import Memory
from workers.core.step import AnswerTool, EndSubagents, Step
from workers.core.tool_calls import CallEnd, close_call

_UNKNOWN_TOOL: Final = "unknown_tool"
_BAD_ARGUMENTS: Final = "invalid_arguments"
"""Why a call that returns at once was not made, as ``ToolBlocked`` has it."""


def begin(step: Step, begun: ToolBegun) -> None:
    """Record that a call runs, before it does; an approval that it needs is used up.

    A call that runs again after a crash has started already: observers get its new time only.
    """
    open_ = find_running(step.memory, begun.call_id)
    if open_ is None:
        return
    call = open_.call
    call_hash = fingerprint(call.name, call.arguments, None)
    is_first = open_.started_at_ms is None  # made again after a crash it has its approval
    granted = call_hash if is_first and call_hash in step.memory.granted else None
    step.record(ToolStarted(call_id=call.call_id, at_ms=begun.at_ms, granted=granted))
    if is_first:
        started = ToolExecutionStart(
            name=call.name,
            call_id=call.call_id,
            args=call.arguments if begun.args is None else begun.args,
            summary=begun.summary,
        )
        step.publish(started)
    meta = {"started_at_ms": begun.at_ms}
    step.publish(ToolExecutionMetrics(name=call.name, call_id=call.call_id, meta=meta))


def collect(step: Step, returned: ToolReturned) -> None:
    """Record one result; after the last one of the batch the cycle goes on."""
    open_ = find_running(step.memory, returned.call_id)
    if open_ is None:
        return
    name, call_id = open_.call.name, returned.call_id
    outgoing: list[Record | Event] = []
    if returned.is_unknown:
        outgoing.append(ToolCallUnknown(name=name, call_id=call_id))
    if returned.effect is not None:
        outgoing += _apply_effect(step.memory, *returned.effect)
    if open_.started_at_ms is not None:
        meta = {
            "started_at_ms": open_.started_at_ms,
            "ended_at_ms": returned.at_ms,
            "duration_ms": max(0, returned.at_ms - open_.started_at_ms),
        }
        outgoing.append(ToolExecutionMetrics(name=name, call_id=call_id, meta=meta))
    why_not = _UNKNOWN_TOOL if returned.is_unknown else _BAD_ARGUMENTS
    left = children_of(step.memory, (call_id,))  # the call has waited long enough
    end = CallEnd(returned.text, why_not, returned.ok, tuple(outgoing), returned.is_cut)
    close_call(step, open_, end)
    if left:
        step.perform(EndSubagents(left))
    cycle.after_call(step, returned.at_ms)


def emit(step: Step, emitted: ToolEmitted) -> None:
    """Publish an event of a running call."""
    if is_running(step.memory, emitted.call_id):
        step.publish(PluginEvent(name=emitted.name, payload=emitted.payload))


def report_step(step: Step, outgoing: inputs.ToolStepReported) -> None:
    """Publish a step of a running call, and count it: a later run passes over it."""
    if is_running(step.memory, outgoing.call_id):
        run_step = runs.step_of(outgoing.event)
        step.record(records.ToolStepRecorded(call_id=outgoing.call_id, step=run_step))
        step.publish(outgoing.event)


def ask_user(step: Step, asked: QuestionAsked) -> None:
    """Put a question to the user, or answer it at once where that was done before a crash."""
    if not is_running(step.memory, asked.call_id):
        return
    for known, response in step.memory.answers:
        if known.ref == asked.ref:
            step.perform(AnswerTool(asked.ref, response))
            return
    step.record(UserAsked(ref=asked.ref, call_id=asked.call_id))
    step.publish(
        AskUser(
            session_id=step.memory.policy.session_id,
            question=asked.question,
            options=asked.options,
            ref=asked.ref,
        )
    )


# --- effects that tools return ------------------------------------------------------------------


class _Todos(msgspec.Struct, frozen=True):
    todos: tuple[dict[str, str], ...]


def _update_todos(memory: Memory, payload: Any) -> tuple[Record | Event, ...]:
    todos = msgspec.convert(payload, _Todos).todos
    outgoing = TodoChange(session_id=memory.policy.session_id, todos=todos)
    return TodosChanged(todos=todos), outgoing


# Any: the payload of the effect of its own row.
_EFFECTS: Final[Mapping[str, Callable[[Memory, Any], tuple[Record | Event, ...]]]] = {
    "update_todos": _update_todos,
}
"""What a tool can make the kernel do; any other effect is published under its name."""


def _apply_effect(memory: Memory, name: str, payload: Any) -> tuple[Record | Event, ...]:
    outgoing = PluginEvent(name=name, payload=payload)
    if name not in _EFFECTS:
        return (outgoing,)
    try:
        return (outgoing, *_EFFECTS[name](memory, payload))
    except msgspec.ValidationError:
        return (outgoing,)  # not in the kernel's form: somebody else's effect of the same name
