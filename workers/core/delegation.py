"""Subagents: started for a call or a plugin, within limits, and settled when they are done."""

from dataclasses import replace

from cmdc_runtime.events import SubagentEnd, SubagentStart
from cmdc_runtime.ids import SessionId
from workers.core.changes import find_child, plugin_call, settle_child, spawn
from workers.core.conversation import find_call, is_running
from workers.core.effects import AnswerTool, Effect, EndSubagents, Keep, Publish, RunSubagent, Step
from workers.core.expense import grant_child
from workers.core.inputs import DelegationDropped, PluginDelegated, SubagentDone, SubagentWanted
from workers.core.records import SubagentSpawned, SubagentSpent
from workers.core.state import Child, Memory, State


def delegate(state: State, memory: Memory, wanted: SubagentWanted) -> Step:
    """Start a subagent for a call, within the limits of depth, breadth, number and budget."""
    if not is_running(memory, wanted.call_id):
        return Step(state, memory)
    return _start(state, memory, wanted, _waiting_calls(memory, wanted))


def delegate_for_plugin(state: State, memory: Memory, wanted: PluginDelegated) -> Step:
    """Start a subagent for a plugin that is being asked while a cycle runs; it ends with that."""
    if memory.cycle is None:
        refused = AnswerTool(wanted.ref, error="no subagent was started: no cycle runs")
        return Step(state, memory, (refused,))
    call_id = plugin_call(wanted.plugin)
    asked = SubagentWanted(
        memory.work, call_id, wanted.ref, wanted.subagent_type, wanted.description
    )
    return _start(state, memory, asked, 1)


def drop(state: State, memory: Memory, dropped: DelegationDropped) -> Step:
    """End the subagent of a plugin that waits for it no longer; what it used is counted still."""
    ids = tuple(child.session_id for child in memory.children if child.ref == dropped.ref)
    if not ids:
        return Step(state, memory)
    children = tuple(
        replace(child, ref=None) if child.ref == dropped.ref else child for child in memory.children
    )
    return Step(state, replace(memory, children=children), (EndSubagents(ids),))


def _start(state: State, memory: Memory, wanted: SubagentWanted, waiting: int) -> Step:
    granted = grant_child(memory, waiting)
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
