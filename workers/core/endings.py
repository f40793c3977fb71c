"""How a cycle is closed: who is told, what is written down, and which callers are answered."""

from dataclasses import replace
from typing import Any

from cmdc_runtime.commands import CycleResult
from cmdc_runtime.errors import CollectTimeout
from cmdc_runtime.events import AgentAbort, Event
from cmdc_runtime.extensions.hooks import AfterTurn
from workers.core.changes import children_of_plugins
from workers.core.conversation import close_cycle, cycle_result, forget_turn, newest, since
from workers.core.effects import (
    Answer,
    Consult,
    Effect,
    EndSubagents,
    Keep,
    Publish,
    Refuse,
    Step,
)
from workers.core.inputs import ANY_WORK, WaitExpired
from workers.core.records import CycleEnded, OutcomeKind
from workers.core.state import Answering, Cycle, Memory, State


# Any, here and below: plain data of whoever aborted it.
def close(
    memory: Memory, outcome: OutcomeKind, reason: Any, told: tuple[Event, int]
) -> tuple[Memory, tuple[Effect, ...]]:
    """End the running cycle with an event, at a time; say how in words of ``outcome``."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle ends
    event, at_ms = told
    command_id, ended = memory.cycle.command_id, memory.cycle
    children = children_of_plugins(memory)
    left: tuple[Effect, ...] = (EndSubagents(children),) if children else ()
    # A result that is still to come belongs to work that is over, and so does half an answer: the
    # next cycle may be aborted before it asks a model, and must not say it again.
    memory = replace(
        close_cycle(forget_turn(memory), outcome, reason),
        work=memory.work + 1,
        answering=Answering(),
    )
    record = CycleEnded(command_id=command_id, outcome=outcome, reason=reason)
    result = cycle_result(memory, memory.outcomes[-1])
    answered = answer_waiters(memory, (command_id, result))
    asked = _after_turn(answered.memory, ended, at_ms)
    return answered.memory, (Publish(event), Keep(record), *left, *answered.effects, *asked)


def aborted(memory: Memory, reason: Any) -> AgentAbort:
    """Return the event of an abort."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle ends
    return AgentAbort(reason=reason, command_id=memory.cycle.command_id)


def answer_waiters(memory: Memory, *results: tuple[str, CycleResult]) -> Step:
    """Answer the callers that wait for one of the prompts in ``results``."""
    by_prompt = dict(results)
    latest = results[-1][1] if results else None
    answered: list[Effect] = []
    waiting = []
    for waiter in memory.waiters:
        value = latest if waiter.prompt_id is None else by_prompt.get(waiter.prompt_id)
        if value is None:
            waiting.append(waiter)
        else:
            answered.append(Answer(waiter.id, value))
    return Step(State.IDLE, replace(memory, waiters=tuple(waiting)), tuple(answered))


def give_up_waits(state: State, memory: Memory, expired: WaitExpired) -> Step:
    """Let go of the callers whose time to wait is over."""
    error = CollectTimeout("the time to wait for the cycle is over; it goes on")
    refused: list[Effect] = []
    waiting = []
    for waiter in memory.waiters:
        if waiter.due_ms is None or waiter.due_ms > expired.at_ms:
            waiting.append(waiter)
        else:
            refused.append(Refuse(waiter.id, error))
    return Step(state, replace(memory, waiters=tuple(waiting)), tuple(refused))


def _after_turn(memory: Memory, ended: Cycle, at_ms: int) -> tuple[Effect, ...]:
    """Tell plugins of a cycle that is over; nothing waits for them."""
    if not memory.hears(AfterTurn):
        return ()
    outcome = memory.outcomes[-1]
    hook = AfterTurn(
        outcome="finished" if outcome.outcome == "finished" else "aborted",
        abort_reason=outcome.reason,
        messages_diff=newest(since(memory, outcome.first, outcome.end)),
        token_usage_diff=outcome.usage,
        started_at_ms=ended.started_at_ms,
        ended_at_ms=at_ms,
        duration_ms=max(0, at_ms - ended.started_at_ms),
    )
    return (Consult(ANY_WORK, hook),)
