"""One batch of tool calls: how it starts, which calls a person has approved, how it is answered."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.events import (
    Event,
    ToolApproved,
    ToolBlocked,
    ToolCalls,
    ToolExecutionEnd,
    ToolRejected,
)
from cmdc_runtime.extensions.hooks import AfterTool
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import ToolCall
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.core import runs
from workers.core.agents import HANDOFF
from workers.core.conversation import UNCERTAIN, Decision, result_of
from workers.core.loops import fingerprint
from workers.core.records import Approval, ApprovalDecided, Record, RunEnd, ToolEnded
from workers.core.state import Calling, Memory, OpenCall
from workers.core.step import RunTools, Step

Why: TypeAlias = Literal["timeout"] | None
"""Why an approval is denied: nobody decided in time, or (None) a person said so."""
_MAY_HAVE_ACTED: Final = (
    "It may or may not have taken effect, and was not made again. Check before you repeat it."
)
"""What the model reads of a call whose outcome nobody knows, besides how it ended."""


def call_tools(step: Step, calls: tuple[ToolCall, ...]) -> None:
    """Run ``calls`` of the open batch."""
    # A compaction that a call of an earlier batch asked for ended with that call.
    step.become(Calling())
    step.begin_work()
    memory = step.memory
    run = RunTools(
        memory.work,
        memory.turns,
        memory.model,
        calls,
        _granted_calls(memory, calls),
        is_suspect=memory.cycle is not None and memory.cycle.crashes > 0,
        steps_before={open_.call.call_id: open_.steps for open_ in memory.calls if open_.steps},
        kept={one.call.call_id: (one.kept, one.asked) for one in memory.calls if one.kept},
    )
    step.publish(ToolCalls(count=len(calls)))
    step.perform(run)


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ends: with a text for the model, and why it was not made, if it has not begun."""

    text: str
    why_not_made: str
    ok: bool = False
    outgoing: tuple[Record | Event, ...] = ()
    """What belongs between its beginning and its end."""
    is_cut: bool = False
    """It ends without an end of its tool: with its time, its process, its cycle."""
    has_failed: bool = False
    """It is cut since processes have died of it: its run of reasoning has failed."""
    why: str = ""
    """Who or what has cut it, for its run of reasoning; empty: as its text says."""
    leaves: bool = False
    """Nobody waits for the ends of the subagents that it has started."""
    handed_to: str = ""
    """The agent that it has handed the session to."""


def may_have_acted(memory: Memory, open_: OpenCall) -> bool:
    """Say whether a call that is cut short may have taken effect, and may not be made again.

    It has begun, and its tool writes, or is gone, so that nobody knows what it does. One that has
    kept something goes on from there.
    """
    tool = memory.tool(open_.call.name)
    is_repeatable = bool(open_.kept) or (tool is not None and tool.is_repeatable)
    return open_.started_at_ms is not None and not is_repeatable


def close_call(step: Step, open_: OpenCall, end: CallEnd) -> None:
    """Give one open call its result and publish its end; every call that ends does it by this.

    So observers get for each call once that it starts, or that it is not made, and once that it is
    over, whatever ended it and however many processes it took.
    """
    memory, name, call_id = step.memory, open_.call.name, open_.call.call_id
    uncertain = end.is_cut and may_have_acted(memory, open_)
    text = f"{end.text}\n{_MAY_HAVE_ACTED}" if uncertain else end.text
    result = result_of(memory, call_id, text, is_error=not end.ok)
    if uncertain:
        result = msgspec.structs.replace(result, metadata={**result.metadata, UNCERTAIN: True})
    if end.handed_to:
        metadata = {**result.metadata, HANDOFF: end.handed_to}
        result = msgspec.structs.replace(result, metadata=metadata)
    run_end, run_events = _run_end(memory, open_, end)
    step.record(ToolEnded(message=result, run_end=run_end))
    if open_.started_at_ms is None:
        step.publish(ToolBlocked(name=name, call_id=call_id, reason=end.why_not_made))
    step.add(*end.outgoing, *run_events)
    ended = ToolExecutionEnd(
        name=name, call_id=call_id, ok=end.ok, text=result.content, uncertain=uncertain
    )
    step.publish(ended)


def _run_end(
    memory: Memory, open_: OpenCall, end: CallEnd
) -> tuple[RunEnd | None, tuple[Event, ...]]:
    """Return how the open run of a call ends, where it has one, and the events of that."""
    said = end.why or end.text.removeprefix("Error: ")
    is_aborted = end.is_cut and not end.has_failed
    status: Literal["aborted", "failed"] = "aborted" if is_aborted else "failed"
    reason = shown(said, LINE_CHARS_MAX)
    if open_.run is None:
        unpublished = None if end.ok else runs.unpublished(memory, open_)
        return None, () if unpublished is None else (
            runs.done(unpublished, RunEnd(status=status, reason=reason)),
        )
    run_end = RunEnd(
        status=status,
        reason=reason,
        answer=None if is_aborted else runs.best_of(memory, open_),
        waits=not end.leaves and bool(runs.running(memory, open_)),
    )
    return run_end, runs.ends_at_once(memory, open_, run_end)


def end_calls(step: Step, end_of: Callable[[OpenCall], CallEnd | None]) -> None:
    """End open calls, so that the conversation stays valid; None: this one runs on."""
    for open_ in step.memory.calls:
        end = end_of(open_) if open_.result is None else None
        if end is not None:
            close_call(step, open_, end)


def latest_results(memory: Memory) -> tuple[AfterTool, ...]:
    """Return the results that the conversation ends with."""
    asked = {call.call_id: call.name for said in memory.messages for call in said.tool_calls}
    latest = itertools.takewhile(lambda said: said.role == "tool_result", reversed(memory.messages))
    results = [
        AfterTool(asked.get(said.call_id, ""), said.call_id, said.content, said.is_error)
        for said in latest
        if said.call_id is not None
    ]
    return tuple(reversed(results))


def _granted_calls(memory: Memory, calls: tuple[ToolCall, ...]) -> frozenset[CallId]:
    """Return the calls that a person has approved; one approval is good for one call.

    A call that has begun, and runs again after a crash, had its approval then.
    """
    begun = {open_.call.call_id for open_ in memory.calls if open_.started_at_ms is not None}
    left = list(memory.granted)
    granted: list[CallId] = []
    for call in calls:
        call_hash = fingerprint(call.name, call.arguments, None)
        if (call.name, "") in memory.always_approved or call.call_id in begun:
            granted.append(call.call_id)
        elif call_hash in left:
            left.remove(call_hash)
            granted.append(call.call_id)
    return frozenset(granted)


def decide_approval(step: Step, found: Approval, decision: Decision, reason: Why = None) -> None:
    """Record and publish whether a call is approved, whoever decides: person, plugin or clock."""
    step.record(ApprovalDecided(approval_id=found.id, decision=decision))
    step.publish(
        ToolRejected(approval_id=found.id, reason=reason)
        if decision == "reject"
        else ToolApproved(approval_id=found.id)
    )
