"""What running calls report: they begin, ask, want something, and return."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from cmdc_runtime.events import (
    AskUser,
    PluginEvent,
    SubagentEnd,
    SubagentStart,
    TodoChange,
    ToolCallUnknown,
    ToolExecutionEnd,
    ToolExecutionMetrics,
    ToolExecutionStart,
)
from cmdc_runtime.ids import SessionId
from workers.core import cycle
from workers.core.changes import ask, children_of, find_child, settle_child, spawn
from workers.core.conversation import (
    begin_call,
    end_call,
    find_call,
    find_running,
    is_running,
    result_of,
)
from workers.core.effects import AnswerTool, Effect, EndSubagents, Keep, Publish, RunSubagent, Step
from workers.core.expense import grant_child
from workers.core.inputs import (
    QuestionAsked,
    SubagentDone,
    SubagentWanted,
    ToolBegun,
    ToolEmitted,
    ToolReturned,
)
from workers.core.loops import fingerprint
from workers.core.records import (
    SubagentSpawned,
    SubagentSpent,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    UserAsked,
)
from workers.core.state import Ask, Child, Memory, State


def begin(state: State, memory: Memory, begun: ToolBegun) -> Step:
    """Write down that a call runs, before it does; a leave that it needs is used up."""
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
        Publish(started),
        Publish(ToolExecutionMetrics(name=call.name, call_id=call.call_id, meta=meta)),
    )
    return Step(state, begin_call(memory, call.call_id, begun.at_ms, allowance), effects)


def collect(state: State, memory: Memory, returned: ToolReturned) -> Step:
    """Keep one result; after the last one of the batch the cycle goes on."""
    open_ = find_running(memory, returned.call_id)
    if open_ is None:
        return Step(state, memory)
    name, call_id = open_.call.name, returned.call_id
    result = result_of(memory, call_id, returned.text, is_error=not returned.ok)
    effects: list[Effect] = [Keep(ToolEnded(message=result))]
    if returned.is_unknown:
        effects.append(Publish(ToolCallUnknown(name=name, call_id=call_id)))
    if returned.effect is not None:
        memory, wanted = _apply_effect(memory, *returned.effect)
        effects += wanted
    if open_.started_at_ms is not None:
        meta = {
            "started_at_ms": open_.started_at_ms,
            "ended_at_ms": returned.at_ms,
            "duration_ms": max(0, returned.at_ms - open_.started_at_ms),
        }
        effects.append(Publish(ToolExecutionMetrics(name=name, call_id=call_id, meta=meta)))
    ended = ToolExecutionEnd(name=name, call_id=call_id, ok=returned.ok, text=result.content)
    effects.append(Publish(ended))
    if left := children_of(memory, (call_id,)):  # the call has waited long enough
        effects.append(EndSubagents(left))
    return cycle.after_call(end_call(memory, result), tuple(effects), returned.at_ms)


def emit(state: State, memory: Memory, emitted: ToolEmitted) -> Step:
    """Tell observers what a running call has to say."""
    if not is_running(memory, emitted.call_id):
        return Step(state, memory)
    return Step(state, memory, (Publish(PluginEvent(name=emitted.name, payload=emitted.payload)),))


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


def delegate(state: State, memory: Memory, wanted: SubagentWanted) -> Step:
    """Start a subagent for a call, within the limits of depth, breadth, number and budget."""
    if not is_running(memory, wanted.call_id):
        return Step(state, memory)
    granted = grant_child(memory, _waiting_calls(memory, wanted))
    problem = _refusal(memory, wanted.subagent_type) or (
        granted if isinstance(granted, str) else None
    )
    if problem is not None or isinstance(granted, str):
        refused = AnswerTool(wanted.ref, error=f"no subagent was started: {problem}")
        return Step(state, memory, (refused,))
    child_id = SessionId(f"{memory.policy.session_id}.{memory.spawns + 1}")
    child = Child(child_id, wanted.call_id, wanted.ref, granted)
    started = SubagentStart(
        call_id=wanted.call_id,
        subagent_type=wanted.subagent_type,
        child_session_id=child_id,
        description=wanted.description,
    )
    spawned = SubagentSpawned(
        child_id=child_id,
        call_id=wanted.call_id,
        ref=wanted.ref,
        tokens=granted.tokens,
        cost_usd=granted.cost_usd,
    )
    run = RunSubagent(child_id, wanted.subagent_type, wanted.description, granted)
    return Step(state, spawn(memory, child), (Keep(spawned), Publish(started), run))


def settle_subagent(state: State, memory: Memory, done: SubagentDone) -> Step:
    """Add what a subagent used, and give its answer to the call, if one still waits."""
    child = find_child(memory, done.child_id)
    if child is None:
        return Step(state, memory)
    ended = SubagentEnd(
        call_id=child.call_id,
        child_session_id=child.session_id,
        ok=done.ok,
        text=done.text,
        usage=done.usage,
    )
    kept = Keep(SubagentSpent(child_id=done.child_id, usage=done.usage))
    effects: tuple[Effect, ...] = (kept, Publish(ended))
    if child.ref is not None:
        value, error = (done.text, None) if done.ok else (None, done.text)
        effects = (*effects, AnswerTool(child.ref, value, error))
    return Step(state, settle_child(memory, done.child_id, done.usage), effects)


def _waiting_calls(memory: Memory, wanted: SubagentWanted) -> int:
    """Return how many calls of the batch may still start a subagent, this one included."""
    name = _name_of(memory, wanted)
    served = {child.call_id for child in memory.children}
    same = [
        open_
        for open_ in memory.calls
        if open_.result is None and open_.call.name == name and open_.call.call_id not in served
    ]
    return max(1, len(same))


def _name_of(memory: Memory, wanted: SubagentWanted) -> str:
    open_ = find_call(memory, wanted.call_id)
    return open_.call.name if open_ is not None else ""


def _refusal(memory: Memory, subagent_type: str) -> str | None:
    policy = memory.policy
    if not policy.subagents:
        return "max_depth: an agent of this level starts no further ones"
    if subagent_type not in policy.subagents:
        known = ", ".join(sorted(policy.subagents))
        return f"there is no subagent_type {subagent_type!r}, only {known}"
    if len(memory.children) >= policy.max_children:
        return f"max_children: {policy.max_children} run already; wait for one to end"
    if memory.spawns >= policy.max_spawns:
        return f"max_spawns: {policy.max_spawns} were started in this session, and that is all"
    return None


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
