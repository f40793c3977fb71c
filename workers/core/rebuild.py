"""An agent's memory from its journal, and what a new process does with what it finds.

``replay`` folds the records; ``resume`` says how to go on. A started call without an end runs again
only if its tool may; otherwise its outcome is unknown, and the model is told so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from cmdc_runtime.events import AgentRecovered, StreamReset, ToolExecutionEnd
from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import AnyReason
from workers.core import cycle
from workers.core.conversation import (
    begin_call,
    close_cycle,
    count_turn,
    discard,
    end_call,
    enqueue,
    open_cycle,
    result_of,
    say,
    spend,
)
from workers.core.records import (
    CycleEnded,
    CycleStarted,
    PromptDiscarded,
    PromptQueued,
    Record,
    Resumed,
    Said,
    ToolEnded,
    ToolStarted,
    TurnSpent,
)
from workers.core.state import Effect, Keep, Memory, OpenCall, Publish, QueuedPrompt, Step

_UNCERTAIN: Final = (
    "Error: the process died while this call ran. It may or may not have taken effect; it was not "
    "run again. Check before you repeat it."
)


def _cycle_started(memory: Memory, record: CycleStarted) -> Memory:
    return open_cycle(memory, QueuedPrompt(record.command_id, record.text))


def _resumed(memory: Memory, _record: Resumed) -> Memory:
    running = memory.cycle
    if running is None:
        return memory
    return replace(memory, cycle=replace(running, crashes=running.crashes + 1))


# Any: each function takes the record of its own row.
FOLD: Final[Mapping[type[Record], Callable[[Memory, Any], Memory]]] = {
    PromptQueued: lambda memory, record: enqueue(
        memory, QueuedPrompt(record.command_id, record.text)
    ),
    CycleStarted: _cycle_started,
    Said: lambda memory, record: say(memory, record.message),
    TurnSpent: lambda memory, record: count_turn(spend(memory, record.usage)),
    ToolStarted: lambda memory, record: begin_call(memory, record.call_id, record.at_ms),
    ToolEnded: lambda memory, record: end_call(memory, record.message),
    CycleEnded: lambda memory, record: close_cycle(memory, record.outcome, record.reason),
    PromptDiscarded: lambda memory, record: discard(memory, record.command_id),
    Resumed: _resumed,
}


def replay(memory: Memory, records: Iterable[Record]) -> Memory:
    """Return ``memory`` after ``records``, oldest first."""
    for record in records:
        memory = FOLD[type(record)](memory, record)
    return memory


def resume(memory: Memory, incarnation: Incarnation, reason: AnyReason, at_ms: int) -> Step:
    """Say how a new process goes on; ``reason`` is why the one before it ended."""
    if memory.cycle is None:
        told = _told(incarnation, reason, "idle")
        return cycle.then(cycle.next_prompt(memory, at_ms), (told,))
    note = Keep(Resumed(incarnation=incarnation))
    memory = _resumed(memory, Resumed(incarnation=incarnation))
    assert memory.cycle is not None  # noqa: S101 - checked above, and _resumed keeps it
    if memory.cycle.crashes >= memory.policy.max_cycle_crashes:
        memory, kept = cycle.give_results(memory, _UNCERTAIN)
        told = _told(incarnation, reason, "idle")
        ended = cycle.abort(memory, f"crashed({reason})", at_ms)
        return cycle.then(ended, (note, told, Publish(StreamReset()), *kept))
    if memory.calls:
        told = _told(incarnation, reason, "tools")
        return cycle.then(_resume_tools(memory, at_ms), (note, told))
    told = _told(incarnation, reason, "stream")
    again = cycle.finish(memory, at_ms) if _is_answered(memory) else cycle.ask(memory, at_ms)
    return cycle.then(again, (note, told, Publish(StreamReset())))


def _resume_tools(memory: Memory, at_ms: int) -> Step:
    effects: list[Effect] = []
    for open_ in memory.calls:
        if _is_uncertain(memory, open_):
            result = result_of(memory, open_.call.call_id, _UNCERTAIN, is_error=True)
            memory = end_call(memory, result)
            ended = ToolExecutionEnd(
                name=open_.call.name, call_id=open_.call.call_id, ok=False, text=_UNCERTAIN
            )
            effects += (Keep(ToolEnded(message=result)), Publish(ended))
    left = tuple(open_.call for open_ in memory.calls if open_.result is None)
    step = cycle.call_tools(memory, left) if left else cycle.ask(memory, at_ms)
    return cycle.then(step, effects)


def _is_uncertain(memory: Memory, open_: OpenCall) -> bool:
    is_hidden = open_.started_at_ms is not None and open_.result is None
    return is_hidden and open_.call.name not in memory.policy.repeatable


def _is_answered(memory: Memory) -> bool:
    """Say whether the cycle's last answer is there and only its end is missing."""
    last = memory.messages[-1]
    return last.role == "assistant" and not last.tool_calls


def _told(
    incarnation: Incarnation, reason: AnyReason, resumed: Literal["idle", "stream", "tools"]
) -> Publish:
    return Publish(AgentRecovered(incarnation=incarnation, reason=reason, resumed=resumed))
