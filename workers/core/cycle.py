"""How a cycle begins, asks the model, and ends: the verbs that the tables are built from.

Each returns a whole step. A cycle ends in one of three ways (finished, aborted, failed), and each
of them brings the agent back to idle or straight into the cycle of the next queued prompt.
"""

from collections.abc import Iterable
from dataclasses import replace

from cmdc_runtime.commands import CycleResult
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    AgentStart,
    Event,
    PromptReceived,
    RequestStart,
    ToolCalls,
)
from cmdc_runtime.messages import ToolCall
from workers.core.conversation import (
    close_cycle,
    count_turn,
    cycle_result,
    end_call,
    newest,
    open_cycle,
    result_of,
)
from workers.core.records import CycleEnded, CycleStarted, OutcomeKind, ToolEnded
from workers.core.repair import repair
from workers.core.state import (
    Answer,
    Answering,
    CallModel,
    Effect,
    Keep,
    Memory,
    Publish,
    QueuedPrompt,
    RunTools,
    State,
    Step,
)

MAX_TURNS_EXCEEDED = "max_turns_exceeded"


def then(step: Step, effects: Iterable[Effect]) -> Step:
    """Return ``step`` with ``effects`` before its own."""
    return Step(step.state, step.memory, (*effects, *step.effects))


def start(memory: Memory, prompt: QueuedPrompt, at_ms: int) -> Step:
    """Begin the cycle of ``prompt`` with its first request."""
    begun = CycleStarted(command_id=prompt.command_id, text=prompt.text, at_ms=at_ms)
    effects = (Keep(begun), Publish(AgentStart(command_id=prompt.command_id)))
    return then(ask(open_cycle(memory, prompt), at_ms), effects)


def receive(prompt: QueuedPrompt, *, queued: bool) -> Publish:
    """Tell observers that a prompt was accepted."""
    seen = PromptReceived(text=prompt.text, queued=queued, command_id=prompt.command_id)
    return Publish(seen)


def ask(memory: Memory, at_ms: int) -> Step:
    """Begin a turn: ask the model with the whole conversation, or end for want of turns."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle has turns
    if memory.cycle.turns >= memory.policy.max_turns:
        return abort(memory, MAX_TURNS_EXCEEDED, at_ms)
    return ask_again(replace(count_turn(memory), answering=Answering()))


def ask_again(memory: Memory) -> Step:
    """Send the request of the running turn, the first time or once more."""
    memory = replace(memory, work=memory.work + 1)
    messages = repair(memory.messages)
    begun = Publish(RequestStart(model=memory.model, messages=len(messages)))
    return Step(State.RUNNING, memory, (begun, CallModel(memory.work, memory.model, messages)))


def call_tools(memory: Memory, calls: tuple[ToolCall, ...]) -> Step:
    """Run ``calls`` of the open batch."""
    memory = replace(memory, work=memory.work + 1)
    run = RunTools(memory.work, memory.turns, memory.model, calls)
    return Step(State.EXECUTING_TOOLS, memory, (Publish(ToolCalls(count=len(calls))), run))


def finish(memory: Memory, at_ms: int) -> Step:
    """End the cycle because the model is done."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle ends
    ended = AgentEnd(
        messages=newest(memory.messages[memory.cycle.first :]),
        usage=memory.usage - memory.cycle.usage_before,
        command_id=memory.cycle.command_id,
    )
    return _end(memory, "finished", None, ended, at_ms)


def abort(memory: Memory, reason: str | None, at_ms: int) -> Step:
    """End the cycle because a caller or a limit says so."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle ends
    event = AgentAbort(reason=reason, command_id=memory.cycle.command_id)
    return _end(memory, "aborted", reason, event, at_ms)


def fail(memory: Memory, reason: str, at_ms: int, *, retryable: bool) -> Step:
    """End the cycle because the provider failed for good."""
    assert memory.cycle is not None  # noqa: S101 - only a cycle ends
    event = AgentError(reason=reason, retryable=retryable, command_id=memory.cycle.command_id)
    return _end(memory, "failed", reason, event, at_ms)


def give_results(memory: Memory, text: str) -> tuple[Memory, tuple[Effect, ...]]:
    """Give every open call an error result, so that the conversation stays valid."""
    effects: list[Effect] = []
    for open_ in tuple(memory.calls):
        if open_.result is None:
            result = result_of(memory, open_.call.call_id, text, is_error=True)
            memory = end_call(memory, result)
            effects.append(Keep(ToolEnded(message=result)))
    return memory, tuple(effects)


def next_prompt(memory: Memory, at_ms: int) -> Step:
    """Begin the cycle of the next queued prompt, or rest."""
    if not memory.queue:
        return Step(State.IDLE, memory)
    return start(memory, memory.queue[0], at_ms)


def answer_waiters(memory: Memory, *results: tuple[str, CycleResult]) -> Step:
    """Answer the callers that wait for one of the prompts in ``results``."""
    by_prompt = dict(results)
    latest = results[-1][1] if results else None
    answered: list[Effect] = []
    waiting = []
    for waiter, prompt_id in memory.waiters:
        value = latest if prompt_id is None else by_prompt.get(prompt_id)
        if value is None:
            waiting.append((waiter, prompt_id))
        else:
            answered.append(Answer(waiter, value))
    return Step(State.IDLE, replace(memory, waiters=tuple(waiting)), tuple(answered))


def _end(
    memory: Memory, outcome: OutcomeKind, reason: str | None, event: Event, at_ms: int
) -> Step:
    assert memory.cycle is not None  # noqa: S101 - only a cycle ends
    command_id = memory.cycle.command_id
    # A result that is still to come belongs to work that is over.
    memory = replace(close_cycle(memory, outcome, reason), work=memory.work + 1)
    record = CycleEnded(command_id=command_id, outcome=outcome, reason=reason)
    result = cycle_result(memory, memory.outcomes[-1])
    answered = answer_waiters(memory, (command_id, result))
    effects = (Publish(event), Keep(record), *answered.effects)
    return then(next_prompt(answered.memory, at_ms), effects)
