"""One batch of tool calls: how it starts, which calls a person has allowed, how it is answered."""

import itertools
from collections.abc import Callable
from dataclasses import replace

from cmdc_runtime.events import ToolCalls
from cmdc_runtime.extensions.hooks import AfterTool
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import ToolCall
from workers.core.conversation import end_call, result_of
from workers.core.effects import Effect, Keep, Publish, RunTools, Step
from workers.core.loops import fingerprint
from workers.core.records import ToolEnded
from workers.core.state import Memory, OpenCall, State


def call_tools(memory: Memory, calls: tuple[ToolCall, ...]) -> Step:
    """Run ``calls`` of the open batch."""
    # A compaction that a call of an earlier batch asked for ended with that call.
    memory = replace(memory, work=memory.work + 1, compacting=None, consulting=None)
    run = RunTools(
        memory.work,
        memory.turns,
        memory.model,
        calls,
        _allowed(memory, calls),
        is_suspect=memory.cycle is not None and memory.cycle.crashes > 0,
    )
    return Step(State.EXECUTING_TOOLS, memory, (Publish(ToolCalls(count=len(calls))), run))


def give_results(
    memory: Memory, text_of: Callable[[OpenCall], str | None]
) -> tuple[Memory, tuple[Effect, ...]]:
    """Give open calls an error result, so that the conversation stays valid; None: it runs on."""
    effects: list[Effect] = []
    for open_ in tuple(memory.calls):
        text = text_of(open_) if open_.result is None else None
        if text is not None:
            result = result_of(memory, open_.call.call_id, text, is_error=True)
            memory = end_call(memory, result)
            effects.append(Keep(ToolEnded(message=result)))
    return memory, tuple(effects)


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


def _allowed(memory: Memory, calls: tuple[ToolCall, ...]) -> frozenset[CallId]:
    """Return the calls that a person has allowed; one leave is good for one call.

    A call that has begun, and runs again after a crash, had its leave then.
    """
    begun = {open_.call.call_id for open_ in memory.calls if open_.started_at_ms is not None}
    left = list(memory.allowances)
    allowed: list[CallId] = []
    for call in calls:
        leave = fingerprint(call.name, call.arguments, None)
        if (call.name, "") in memory.always_approved or call.call_id in begun:
            allowed.append(call.call_id)
        elif leave in left:
            left.remove(leave)
            allowed.append(call.call_id)
    return frozenset(allowed)
