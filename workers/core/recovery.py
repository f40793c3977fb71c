"""What a new process does with what it finds: how it goes on with the memory of its journal.

A started call without an end runs again only if its tool may; otherwise its outcome is unknown, and
the model reads that. One that its tool's own program makes is asked for again, under its name.
"""

from dataclasses import replace
from typing import Final, Literal

from cmdc_runtime.events import AgentRecovered, RecordSetAside, StreamReset
from cmdc_runtime.ids import Incarnation
from cmdc_runtime.process import DAEMON_RESTARTED, RESUMED
from cmdc_runtime.reasons import AnyReason, Other
from cmdc_runtime.subagent import CLIENT_TOOL
from workers.core import cycle
from workers.core.conversation import place
from workers.core.interrupt import CYCLE_TIMEOUT
from workers.core.records import Resumed
from workers.core.state import Memory, OpenCall
from workers.core.step import CountSubagents, Step
from workers.core.tool_calls import CallEnd, call_tools, close_call, end_calls, may_have_acted

_NOBODYS_FAULT: Final = (DAEMON_RESTARTED, RESUMED)
_DIED: Final = "the process died while this call ran"
_CUT: Final = CallEnd(f"Error: {_DIED}.", "crashed", is_cut=True, has_failed=True)
_NOT_MADE: Final = CallEnd("Error: the call was not made: the cycle was given up.", "crashed")


def resume(memory: Memory, incarnation: Incarnation, reason: AnyReason, at_ms: int) -> Step:
    """Say how a new process goes on; ``reason`` is why the one before it ended.

    Subagents ended with it: what they used is counted.
    """
    step = Step(memory)
    children = tuple(child.session_id for child in memory.children)
    if memory.cycle is None:
        _publish_recovery(step, incarnation, reason, "idle")
        cycle.next_prompt(step, at_ms)
    else:
        is_blamed = not (isinstance(reason, Other) and reason.detail in _NOBODYS_FAULT)
        step.record(Resumed(incarnation=incarnation, is_blamed=is_blamed))
        _resume_cycle(step, incarnation, reason, at_ms)
    if children:
        step.perform(CountSubagents(children))
    return step


def drop_cycle(memory: Memory, why: str, at_ms: int) -> Step:
    """Give the running cycle up, since processes have died of going on with it; then the next."""
    step = Step(memory)
    step.publish(RecordSetAside(what="cycle", why=why))
    if memory.cycle is None:
        cycle.next_prompt(step, at_ms)
    else:
        _give_up(step, f"crashed({why})", why, at_ms)
    return step


def _give_up(step: Step, why: str, cause: str, at_ms: int) -> None:
    """Give the running cycle up; ``cause`` is what the last process died of."""
    cut = replace(_CUT, why=f"{_DIED}: {cause}")
    step.publish(StreamReset())
    end_calls(step, lambda open_: _NOT_MADE if open_.started_at_ms is None else cut)
    cycle.announce_abort(step, why)
    cycle.abort(step, why, at_ms)


def _resume_cycle(step: Step, incarnation: Incarnation, reason: AnyReason, at_ms: int) -> None:
    calls = step.memory.calls
    if why := _why_given_up(step, reason, at_ms):
        _publish_recovery(step, incarnation, reason, "idle")
        _give_up(step, why, str(reason), at_ms)
    elif not calls:
        _publish_recovery(step, incarnation, reason, "stream")
        if step.memory.messages[-1].role != "assistant":  # else the answer is whole, and stands
            step.publish(StreamReset())
        _resume_turn(step, at_ms)
    elif all(open_.started_at_ms is None and not open_.result for open_ in calls):
        _publish_recovery(step, incarnation, reason, "tools")
        # Plugins, and the watch for loops, come before the first call of a batch.
        cycle.after_answer(step, at_ms)
    else:
        _publish_recovery(step, incarnation, reason, "tools")
        _resume_tools(step, at_ms)


def _why_given_up(step: Step, reason: AnyReason, at_ms: int) -> str | None:
    """Say why the running cycle is not gone on with: what killed it, or that its time is over."""
    if step.cycle.crashes >= step.memory.policy.max_cycle_crashes:
        return f"crashed({reason})"
    due_ms = step.memory.cycle_due_ms
    return CYCLE_TIMEOUT if due_ms is not None and at_ms >= due_ms else None


def _resume_turn(step: Step, at_ms: int) -> None:
    """Take the step that the last message of the cycle was to be followed by."""
    last = step.memory.messages[-1]
    if last.role == "assistant":
        cycle.after_answer(step, at_ms)
    elif last.role == "tool_result":
        cycle.after_batch(step, at_ms)
    elif place(step.memory) == step.cycle.first + 1:
        cycle.open_again(step, at_ms)
    else:
        cycle.ask(step, at_ms)


def _resume_tools(step: Step, at_ms: int) -> None:
    for open_ in step.memory.calls:
        if open_.result is None and _is_lost(step.memory, open_):
            close_call(step, open_, _CUT)
    left = tuple(open_.call for open_ in step.memory.calls if open_.result is None)
    if left:
        call_tools(step, left)
    else:
        cycle.after_batch(step, at_ms)


def _is_lost(memory: Memory, open_: OpenCall) -> bool:
    """Say whether nobody knows what became of a call, and it may not be made again.

    One that the program of its tool makes is asked for again: the program makes it once.
    """
    tool = memory.tool(open_.call.name)
    packed = None if tool is None else tool.packed
    is_clients = packed is not None and packed.ref == CLIENT_TOOL
    return not is_clients and may_have_acted(memory, open_)


def _publish_recovery(
    step: Step,
    incarnation: Incarnation,
    reason: AnyReason,
    resumed: Literal["idle", "stream", "tools"],
) -> None:
    step.publish(AgentRecovered(incarnation=incarnation, reason=reason, resumed=resumed))
