"""Subagents: started for a call or a plugin, within limits, and counted when they are done.

A *branch* is one that a call starts under a name of its own, so that the call, run again after a
crash, finds what came of it.
"""

import dataclasses
from typing import Final

import msgspec

from cmdc_runtime.events import SubagentEnd, SubagentStart
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.ids import SessionId
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.subagent import GENERAL_PURPOSE
from workers.core import runs
from workers.core.budget import Grant, rest_of
from workers.core.children import Branch, Child
from workers.core.conversation import find_branch, find_call, find_child, is_running, plugin_call
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
from workers.core.state import Memory
from workers.core.step import AnswerTool, EndSubagents, RunSubagent, Step

_NOT_STARTED: Final = "no subagent was started: {}"
_OTHER: Final = (
    "{}: a branch of this name was asked something else before: what decides on branches must come"
    " to the same each time that it is run"
)


def delegate(step: Step, wanted: SubagentWanted) -> None:
    """Start a subagent for a call, within the limits of depth, breadth, number and budget."""
    if is_running(step.memory, wanted.call_id):
        _start(step, wanted, _waiting_calls(step.memory, wanted))


def delegate_for_plugin(step: Step, wanted: PluginDelegated) -> None:
    """Start a subagent for a plugin that is being asked while a cycle runs; it ends with that."""
    if step.memory.cycle is None:
        step.perform(AnswerTool(wanted.ref, error="no subagent was started: no cycle runs"))
        return
    call_id, work = plugin_call(wanted.plugin), step.memory.work
    asked = SubagentWanted(work, call_id, wanted.ref, wanted.subagent_type, wanted.description)
    _start(step, asked, 1)


def drop(step: Step, dropped: DelegationDropped) -> None:
    """End the subagent of a plugin that waits for it no longer; what it used is counted still."""
    children = step.memory.children
    ids = tuple(child.session_id for child in children if child.ref == dropped.ref)
    if ids:  # its end is answered to nobody: no wait has this reference any more
        step.perform(EndSubagents(ids))


def branch(step: Step, wanted: BranchWanted) -> None:
    """Start a subagent that a call has branched into, or give what came of it in the past.

    Where ``max_children`` run already it waits: when one has ended, its call is answered to ask
    again. One that ends is answered for when it is counted, be it after a death.
    """
    if not is_running(step.memory, wanted.call_id):
        return
    known = find_branch(step.memory, wanted.ref)
    if known is None:
        _start_branch(step, wanted)
    elif known.digest != wanted.digest:
        step.perform(AnswerTool(wanted.ref, AskedOtherwise(_OTHER.format(wanted.ref))))
    elif isinstance(known, Branch):
        step.perform(AnswerTool(wanted.ref, known.answer))


def drop_branch(step: Step, dropped: BranchDropped) -> None:
    """End a branch that its call waits for no longer; what it used is counted, and answered then.

    One that waits for room is none yet: it is answered for, and does not begin.
    """
    found = find_branch(step.memory, dropped.ref)
    if isinstance(found, Child):
        step.perform(EndSubagents((found.session_id,)))
        return
    waiting = step.memory.waiting_branches
    left = tuple(one for one in waiting if one[1] != dropped.ref)
    step.keep_branches_waiting(left)
    if left != waiting:
        step.perform(AnswerTool(dropped.ref))
    lost = runs.lost_usage(step.memory, dropped.ref)
    if found is None and lost != TokenUsage():
        answer = BranchAnswer(ok=False, text="the branch was ended", usage=lost)
        step.perform(AnswerTool(dropped.ended, answer))
        return
    step.perform(AnswerTool(dropped.ended, None if found is None else found.answer))


def _start_branch(step: Step, wanted: BranchWanted) -> None:
    memory = step.memory
    if _is_full(memory):
        # Each waits once, in the order of asking.
        others = (one for one in memory.waiting_branches if one[1] != wanted.ref)
        step.keep_branches_waiting((*others, (wanted.call_id, wanted.ref)))
        return
    task, kind = wanted.task, GENERAL_PURPOSE.name
    lost = runs.lost_usage(memory, wanted.ref)
    rest = rest_of(wanted.limit, lost)
    granted = rest if isinstance(rest, str) else grant_child(memory, wanted.shares, rest)
    granted = _no_room(memory) or granted
    if lost != TokenUsage() and isinstance(granted, str):
        answer = BranchAnswer(ok=False, text=_NOT_STARTED.format(granted), usage=lost)
        step.perform(AnswerTool(wanted.ref, answer))
        return
    asked = SubagentWanted(memory.work, wanted.call_id, wanted.ref, kind, task.prompt)
    _begin(step, asked, granted, wanted)


def _start(step: Step, wanted: SubagentWanted, waiting: int) -> None:
    granted = grant_child(step.memory, waiting)
    _begin(step, wanted, _refusal(step.memory, wanted.subagent_type) or granted)


def _begin(
    step: Step, wanted: SubagentWanted, granted: Grant | str, branch_: BranchWanted | None = None
) -> None:
    """Start a subagent that may spend what was granted; a text says why none is started."""
    if isinstance(granted, str):
        step.perform(AnswerTool(wanted.ref, error=_NOT_STARTED.format(granted)))
        return
    child_id = SessionId(f"{step.memory.policy.session_id}.{step.memory.spawns + 1}")
    step.record(
        SubagentSpawned(
            child_id=child_id,
            call_id=wanted.call_id,
            ref=wanted.ref,
            tokens=granted.tokens,
            cost_usd=granted.cost_usd,
            digest="" if branch_ is None else branch_.digest,
        )
    )
    step.publish(_started(step.memory, wanted, child_id))
    task = None if branch_ is None else branch_.task
    step.perform(RunSubagent(child_id, wanted.subagent_type, wanted.description, granted, task))


def _started(memory: Memory, wanted: SubagentWanted, child_id: SessionId) -> SubagentStart:
    open_ = find_call(memory, wanted.call_id)
    run = None if open_ is None else open_.run
    branch_id = runs.branch_of(run, wanted.call_id, wanted.ref)
    started = SubagentStart(
        call_id=wanted.call_id,
        subagent_type=wanted.subagent_type,
        child_session_id=child_id,
        description=wanted.description,
    )
    if run is None or branch_id is None:
        return started
    whose = {"of_run": run.run_id, "strategy": run.strategy, "branch_id": branch_id}
    return msgspec.structs.replace(started, **whose)


def subagent_done(step: Step, done: SubagentDone) -> None:
    """Add what a subagent used, and give its answer to the call, if one still waits.

    Of a branch that was lost nothing but the usage is kept: who waits for it asks again.
    """
    child = find_child(step.memory, done.child_id)
    if child is None:
        return
    answer = BranchAnswer(ok=done.ok and not done.is_lost, text=done.text, usage=done.usage)
    used = done.usage + runs.lost_usage(step.memory, child.branch)
    run_events = runs.ends_behind(step.memory, done.child_id, answer)
    is_answer = bool(child.branch) and not done.is_lost
    step.record(
        SubagentSpent(
            child_id=done.child_id,
            usage=done.usage,
            ok=done.ok if is_answer else None,
            text=done.text if is_answer else "",
        )
    )
    step.publish(
        SubagentEnd(
            call_id=child.call_id,
            child_session_id=child.session_id,
            ok=done.ok,
            text=done.text,
            usage=done.usage,
        ),
        *run_events,
    )
    _answer(step, child, done, used)
    waiting = step.memory.waiting_branches
    free = max(0, step.memory.policy.max_children - len(step.memory.children))
    step.perform(*(AnswerTool(ref) for _, ref in waiting[:free]))
    step.keep_branches_waiting(waiting[free:])


def _answer(step: Step, child: Child, done: SubagentDone, used: TokenUsage) -> None:
    """Give what came of a subagent to the call that waits for it; ``used`` in all of its lives."""
    if child.branch:
        known = find_branch(step.memory, child.branch)
        answer = (
            dataclasses.replace(known.answer, is_cut=done.is_cut)
            if isinstance(known, Branch)
            else None
        )
        end = BranchAnswer(ok=done.ok, text=done.text, usage=used, is_cut=done.is_cut)
        step.perform(AnswerTool(child.branch, answer), AnswerTool(ended_ref(child.branch), end))
    elif child.ref is not None:
        value, error = (done.text, None) if done.ok else (None, done.text)
        step.perform(AnswerTool(child.ref, value, error))


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
