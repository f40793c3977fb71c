"""What running calls report: they begin, ask, want something, and return."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from cmdc_runtime.events import (
    AskUser,
    PluginEvent,
    TodoChange,
    ToolCallUnknown,
    ToolExecutionMetrics,
    ToolExecutionStart,
)
from workers.core import cycle, inputs, records, runs
from workers.core.batch import CallEnd, close_call
from workers.core.changes import ask, children_of
from workers.core.conversation import (
    begin_call,
    count_told,
    find_running,
    is_running,
)
from workers.core.effects import AnswerTool, Effect, EndSubagents, Keep, Publish, Step
from workers.core.inputs import (
    QuestionAsked,
    ToolBegun,
    ToolEmitted,
    ToolReturned,
)
from workers.core.loops import fingerprint
from workers.core.records import (
    TodosChanged,
    ToolStarted,
    UserAsked,
)
from workers.core.state import Ask, Memory, State

_UNKNOWN_TOOL: Final = "unknown_tool"
_BAD_ARGUMENTS: Final = "invalid_arguments"
"""Why a call that returns at once was not made, in words of ``ToolBlocked``."""


def begin(state: State, memory: Memory, begun: ToolBegun) -> Step:
    """Write down that a call runs, before it does; a leave that it needs is used up.

    A call that runs again after a crash has started already: observers hear of its new time only.
    """
    open_ = find_running(memory, begun.call_id)
    if open_ is None:
        return Step(state, memory)
    call = open_.call
    leave = fingerprint(call.name, call.arguments, None)
    is_first = open_.started_at_ms is None  # made again after a crash it has its leave
    allowance = leave if is_first and leave in memory.allowances else None
    meta = {"started_at_ms": begun.at_ms}
    started = ToolExecutionStart(
        name=call.name,
        call_id=call.call_id,
        args=call.arguments if begun.args is None else begun.args,
        summary=begun.summary,
    )
    effects = (
        Keep(ToolStarted(call_id=call.call_id, at_ms=begun.at_ms, allowance=allowance)),
        *((Publish(started),) if is_first else ()),
        Publish(ToolExecutionMetrics(name=call.name, call_id=call.call_id, meta=meta)),
    )
    return Step(state, begin_call(memory, call.call_id, begun.at_ms, allowance), effects)


def collect(state: State, memory: Memory, returned: ToolReturned) -> Step:
    """Keep one result; after the last one of the batch the cycle goes on."""
    open_ = find_running(memory, returned.call_id)
    if open_ is None:
        return Step(state, memory)
    name, call_id = open_.call.name, returned.call_id
    told: list[Effect] = []
    if returned.is_unknown:
        told.append(Publish(ToolCallUnknown(name=name, call_id=call_id)))
    if returned.effect is not None:
        memory, wanted = _apply_effect(memory, *returned.effect)
        told += wanted
    if open_.started_at_ms is not None:
        meta = {
            "started_at_ms": open_.started_at_ms,
            "ended_at_ms": returned.at_ms,
            "duration_ms": max(0, returned.at_ms - open_.started_at_ms),
        }
        told.append(Publish(ToolExecutionMetrics(name=name, call_id=call_id, meta=meta)))
    why_not = _UNKNOWN_TOOL if returned.is_unknown else _BAD_ARGUMENTS
    left = children_of(memory, (call_id,))  # the call has waited long enough
    end = CallEnd(returned.text, why_not, returned.ok, tuple(told), returned.is_cut)
    memory, effects = close_call(memory, open_, end)
    given_up = (EndSubagents(left),) if left else ()
    return cycle.after_call(memory, (*effects, *given_up), returned.at_ms)


def emit(state: State, memory: Memory, emitted: ToolEmitted) -> Step:
    """Tell observers what a running call has to say."""
    if not is_running(memory, emitted.call_id):
        return Step(state, memory)
    return Step(state, memory, (Publish(PluginEvent(name=emitted.name, payload=emitted.payload)),))


def tell(state: State, memory: Memory, told: inputs.ToolTold) -> Step:
    """Tell observers of a step of a running call, and count it: a later run passes over it."""
    if not is_running(memory, told.call_id):
        return Step(state, memory)
    step = runs.step_of(told.event)
    effects = (Keep(records.ToolTold(call_id=told.call_id, step=step)), Publish(told.event))
    return Step(state, count_told(memory, told.call_id, step), effects)


def ask_user(state: State, memory: Memory, asked: QuestionAsked) -> Step:
    """Put a question to the user, or answer it at once where that was done before a crash."""
    if not is_running(memory, asked.call_id):
        return Step(state, memory)
    for known, response in memory.answers:
        if known.ref == asked.ref:
            return Step(state, memory, (AnswerTool(asked.ref, response),))
    question = AskUser(
        session_id=memory.policy.session_id,
        question=asked.question,
        options=asked.options,
        ref=asked.ref,
    )
    kept = Keep(UserAsked(ref=asked.ref, call_id=asked.call_id))
    memory = ask(memory, Ask(asked.ref, asked.call_id))
    return Step(state, memory, (kept, Publish(question)))


# --- effects that tools return ------------------------------------------------------------------


class _Todos(msgspec.Struct, frozen=True):
    todos: tuple[dict[str, str], ...]


def _update_todos(memory: Memory, payload: Any) -> tuple[Memory, list[Effect]]:
    todos = msgspec.convert(payload, _Todos).todos
    told = TodoChange(session_id=memory.policy.session_id, todos=todos)
    return replace(memory, todos=todos), [Keep(TodosChanged(todos=todos)), Publish(told)]


# Any: the payload of the effect of its own row.
_EFFECTS: Final[Mapping[str, Callable[[Memory, Any], tuple[Memory, list[Effect]]]]] = {
    "update_todos": _update_todos,
}
"""What a tool can make the kernel do; any other effect is told to observers under its name."""


def _apply_effect(memory: Memory, name: str, payload: Any) -> tuple[Memory, list[Effect]]:
    told: list[Effect] = [Publish(PluginEvent(name=name, payload=payload))]
    if name not in _EFFECTS:
        return memory, told
    try:
        return _EFFECTS[name](memory, payload)
    except msgspec.ValidationError:
        return memory, told  # not in the kernel's form: somebody else's effect of the same name
