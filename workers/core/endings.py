"""How a cycle is closed: who is told, what is written down, and which callers are answered."""

from typing import Any

from cmdc_runtime.commands import CycleResult
from cmdc_runtime.errors import CollectTimeout
from cmdc_runtime.events import AgentAbort
from cmdc_runtime.extensions.hooks import AfterTurn
from workers.core.conversation import children_of_plugins, cycle_result, newest, since
from workers.core.effects import Answer, Consult, EndSubagents, Refuse
from workers.core.inputs import ANY_WORK, WaitExpired
from workers.core.records import CycleEnded, OutcomeKind
from workers.core.state import Answering, Cycle, State
from workers.core.step import Step


# Any, here and below: plain data of whoever aborted it.
def close(step: Step, outcome: OutcomeKind, reason: Any, at_ms: int) -> None:
    """End the running cycle, which observers have been told of, in words of ``outcome``."""
    ended, children = step.cycle, children_of_plugins(step.memory)
    step.record(CycleEnded(command_id=ended.command_id, outcome=outcome, reason=reason))
    # A result that is still to come belongs to work that is over, and so does half an answer: the
    # next cycle may be aborted before it asks a model, and must not say it again.
    step.change(
        work=step.memory.work + 1,
        answering=Answering(),
        is_asking=False,
        consulting=None,
        compacting=None,
    )
    step.state = State.IDLE
    if children:
        step.perform(EndSubagents(children))
    result = cycle_result(step.memory, step.memory.outcomes[-1])
    answer_waiters(step, (ended.command_id, result))
    _after_turn(step, ended, at_ms)


def announce_abort(step: Step, reason: Any) -> None:
    """Tell that the cycle ends by an abort, before anything else of it is told."""
    step.publish(AgentAbort(reason=reason, command_id=step.cycle.command_id))


def answer_waiters(step: Step, *results: tuple[str, CycleResult]) -> None:
    """Answer the callers that wait for one of the prompts in ``results``."""
    by_prompt = dict(results)
    latest = results[-1][1] if results else None
    waiting = []
    for waiter in step.memory.waiters:
        value = latest if waiter.prompt_id is None else by_prompt.get(waiter.prompt_id)
        if value is None:
            waiting.append(waiter)
        else:
            step.perform(Answer(waiter.id, value))
    step.change(waiters=tuple(waiting))


def give_up_waits(step: Step, expired: WaitExpired) -> None:
    """Let go of the callers whose time to wait is over."""
    error = CollectTimeout("the time to wait for the cycle is over; it goes on")
    waiting = []
    for waiter in step.memory.waiters:
        if waiter.due_ms is None or waiter.due_ms > expired.at_ms:
            waiting.append(waiter)
        else:
            step.perform(Refuse(waiter.id, error))
    step.change(waiters=tuple(waiting))


def _after_turn(step: Step, ended: Cycle, at_ms: int) -> None:
    """Tell plugins of a cycle that is over; nothing waits for them."""
    memory = step.memory
    if not memory.hears(AfterTurn):
        return
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
    step.perform(Consult(ANY_WORK, hook))
