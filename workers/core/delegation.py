"""Subagents: started for a call or a plugin, within limits, and settled when they are done.

A *branch* is one that a call starts under a name of its own, so that the call, run again after a
crash, finds what came of it.
"""

from dataclasses import replace
from typing import Final

from cmdc_runtime.events import SubagentEnd, SubagentStart
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.ids import SessionId
from cmdc_runtime.subagent import GENERAL_PURPOSE
from workers.core import runs
from workers.core.budget import Grant
from workers.core.changes import (
    find_branch,
    find_child,
    plugin_call,
    settle_child,
    spawn,
    stop_waiting,
    wait_for_room,
)
from workers.core.conversation import find_call, is_running
from workers.core.effects import AnswerTool, Effect, EndSubagents, Keep, Publish, RunSubagent, Step
from workers.core.expense import grant_child
from workers.core.inputs import (
    AskedOtherwise,
    BranchDropped,
    BranchWanted,
    DelegationDropped,
    PluginDelegated,
    SubagentDone,
    SubagentWanted,
    ended_ref,
)
from workers.core.records import SubagentSpawned, SubagentSpent
from workers.core.state import Branch, Child, Memory, State

_OTHER: Final = (
    "{}: a branch of this name was asked something else before: what decides on branches must come"
    " to the same each time that it is run"
)


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


def branch(state: State, memory: Memory, wanted: BranchWanted) -> Step:
    """Start a subagent that a call has branched into, or give what came of it in the past.

    Where ``max_children`` run already it waits: when one has ended, its call is told to ask again.
    One that ends, or is counted after a death, answers when it is settled.
    """
    if not is_running(memory, wanted.call_id):
        return Step(state, memory)
    known = find_branch(memory, wanted.ref)
    if known is None:
        return _start_branch(state, memory, wanted)
    if known.digest != wanted.digest:
        refused = AskedOtherwise(_OTHER.format(wanted.ref))
        return Step(state, memory, (AnswerTool(wanted.ref, refused),))
    if isinstance(known, Child):
        return Step(state, memory)
    return Step(state, memory, (AnswerTool(wanted.ref, known.answer),))


def drop_branch(state: State, memory: Memory, dropped: BranchDropped) -> Step:
    """End a branch that its call waits for no longer; what it used is counted, and told then.

    One that waits for room is none yet: it is answered for, and does not begin.
    """
    found = find_branch(memory, dropped.ref)
    if isinstance(found, Child):
        return Step(state, memory, (EndSubagents((found.session_id,)),))
    answer = None if found is None else found.answer
    memory, is_waiting = stop_waiting(memory, dropped.ref)
    waits = (AnswerTool(dropped.ref),) if is_waiting else ()
    return Step(state, memory, (*waits, AnswerTool(dropped.ended, answer)))


def _start_branch(state: State, memory: Memory, wanted: BranchWanted) -> Step:
    if _is_full(memory):
        return Step(state, wait_for_room(memory, wanted.call_id, wanted.ref))
    task, kind = wanted.task, GENERAL_PURPOSE.name
    granted = grant_child(memory, wanted.shares, wanted.limit)
    if problem := _no_room(memory) or (granted if isinstance(granted, str) else None):
        return _refused(state, memory, wanted.ref, problem)
    asked = SubagentWanted(memory.work, wanted.call_id, wanted.ref, kind, task.prompt)
    return _begin(state, memory, asked, granted, wanted)


def _start(state: State, memory: Memory, wanted: SubagentWanted, waiting: int) -> Step:
    granted = grant_child(memory, waiting)
    problem = _refusal(memory, wanted.subagent_type)
    if problem := problem or (granted if isinstance(granted, str) else None):
        return _refused(state, memory, wanted.ref, problem)
    return _begin(state, memory, wanted, granted)


def _refused(state: State, memory: Memory, ref: str, problem: str) -> Step:
    refused = AnswerTool(ref, error=f"no subagent was started: {problem}")
    return Step(state, memory, (refused,))


def _begin(
    state: State,
    memory: Memory,
    wanted: SubagentWanted,
    granted: Grant | str,
    branch_: BranchWanted | None = None,
) -> Step:
    assert isinstance(granted, Grant)  # noqa: S101 - any other word is a refusal
    child_id = SessionId(f"{memory.policy.session_id}.{memory.spawns + 1}")
    digest = "" if branch_ is None else branch_.digest
    key = "" if branch_ is None else wanted.ref
    child = Child(child_id, wanted.call_id, wanted.ref, granted, key, digest)
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
        digest=digest,
    )
    task = None if branch_ is None else branch_.task
    run = RunSubagent(child_id, wanted.subagent_type, wanted.description, granted, task)
    return Step(state, spawn(memory, child), (Keep(spawned), Publish(started), run))


def settle_subagent(state: State, memory: Memory, done: SubagentDone) -> Step:
    """Add what a subagent used, and give its answer to the call, if one still waits.

    Of a branch that was lost nothing but the usage is kept: who waits for it asks again.
    """
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
    is_answer = bool(child.branch) and not done.is_lost
    spent = SubagentSpent(
        child_id=done.child_id,
        usage=done.usage,
        ok=done.ok if is_answer else None,
        text=done.text if is_answer else "",
    )
    settled = settle_child(memory, spent)
    answer_ = BranchAnswer(ok=done.ok and not done.is_lost, text=done.text, usage=done.usage)
    run_told = runs.told_of(memory, done.child_id, answer_)
    effects: tuple[Effect, ...] = (Keep(spent), Publish(ended), *map(Publish, run_told))
    if child.branch:
        known = find_branch(settled, child.branch)
        answer = known.answer if isinstance(known, Branch) else None
        end = BranchAnswer(ok=done.ok, text=done.text, usage=done.usage)
        effects += (AnswerTool(child.branch, answer), AnswerTool(ended_ref(child.branch), end))
    elif child.ref is not None:
        value, error = (done.text, None) if done.ok else (None, done.text)
        effects += (AnswerTool(child.ref, value, error),)
    free = max(0, settled.policy.max_children - len(settled.children))
    admitted = tuple(AnswerTool(ref) for _, ref in settled.waiting_branches[:free])
    settled = replace(settled, waiting_branches=settled.waiting_branches[free:])
    return Step(state, settled, (*effects, *admitted))


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
    if policy.subagents and subagent_type not in policy.subagents:
        known = ", ".join(sorted(policy.subagents))
        return f"there is no subagent_type {subagent_type!r}, only {known}"
    if problem := _no_room(memory):
        return problem
    if memory.spawns - memory.branched >= policy.max_spawns:
        return f"max_spawns: {policy.max_spawns} were started in this session, and that is all"
    return None


def _no_room(memory: Memory) -> str | None:
    policy = memory.policy
    if not policy.subagents:
        return "max_depth: an agent of this level starts no further ones"
    if _is_full(memory):
        return f"max_children: {policy.max_children} run already; wait for one to end"
    return None


def _is_full(memory: Memory) -> bool:
    return len(memory.children) >= memory.policy.max_children
