"""What becomes of plugins' words: the cycle goes on from its point, or ends.

``_CONTINUATIONS`` says how it goes on; a test fails when a ``Point`` has no row.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from cmdc_runtime.commands import Steer
from cmdc_runtime.errors import SteeringRejected
from cmdc_runtime.events import PluginModelCall, SteeringReceived
from workers.core import cycle, interrupt, shrink
from workers.core.batch import CallEnd, close_call, give_results
from workers.core.consult import heed
from workers.core.conversation import find_running, spend
from workers.core.effects import (
    CancelModel,
    Effect,
    Keep,
    Publish,
    Settle,
    Step,
)
from workers.core.inputs import (
    ANY_WORK,
    Consulted,
    PluginAskedModel,
    PluginsAborted,
    PluginsSpoke,
    SteeringJudged,
    ToolRefused,
)
from workers.core.kernel_emits import patched
from workers.core.records import PluginSpent
from workers.core.repair import repair
from workers.core.state import Consulting, Memory, OpenCall, Point, State
from workers.core.verdict import Aborted, Verdict

_STOPPED: Final = CallEnd(
    "Error: the cycle was ended by a plugin before this call was done.",
    "plugin_aborted",
    is_cut=True,
)


def go_on(state: State, memory: Memory, consulted: Consulted) -> Step:
    """Take down what the plugins say and go on from where the cycle waited for them."""
    wait = memory.consulting
    if wait is None:
        return Step(state, memory)
    verdict, at_ms = consulted.verdict, consulted.at_ms
    memory, effects = heed(replace(memory, consulting=None), verdict)
    if verdict.abort is not None:
        return cycle.then(_end(memory, verdict.abort, at_ms), effects)
    return cycle.then(_CONTINUATIONS[wait.point](memory, wait, verdict, at_ms), effects)


def listen(state: State, memory: Memory, spoke: PluginsSpoke) -> Step:
    """Take down what plugins say where nothing waits for them.

    What they want of a batch that is over comes too late for it, and is not for another one.
    """
    verdict = spoke.verdict
    if spoke.batch not in {ANY_WORK, memory.work}:
        verdict = replace(verdict, interventions=(), model=None)
    memory, effects = heed(memory, verdict)
    return Step(state, memory, effects)


def stop(_state: State, memory: Memory, stopped: PluginsAborted) -> Step:
    """End the cycle with its running calls, as a plugin wants; keep what was said so far."""
    memory, said = interrupt.keep_partial(memory)
    ended = _end(memory, stopped.abort, stopped.at_ms)
    first, *rest = ended.effects
    return Step(ended.state, ended.memory, (first, *said, *rest))


def charge(state: State, memory: Memory, asked: PluginAskedModel) -> Step:
    """Count what a plugin spent."""
    kept = Keep(PluginSpent(plugin=asked.plugin, usage=asked.usage))
    told = Publish(PluginModelCall(plugin=asked.plugin, model=asked.model, usage=asked.usage))
    return Step(state, spend(memory, asked.usage), (kept, told))


def refuse(state: State, memory: Memory, refused: ToolRefused) -> Step:
    """Give a call that a plugin blocked its result: the reason."""
    open_ = find_running(memory, refused.call_id)
    if open_ is None:
        return Step(state, memory)
    end = CallEnd(f"Error: blocked: {refused.reason}", refused.reason)
    memory, effects = close_call(memory, open_, end)
    return cycle.after_call(memory, effects, refused.at_ms)


def judge(state: State, memory: Memory, judged: SteeringJudged) -> Step:
    """Take a steering that plugins have heard, with what they add, or reject it."""
    order, command, verdict = judged.order, judged.command, judged.verdict
    memory, effects = heed(memory, replace(verdict, interventions=()))
    if verdict.abort is not None:
        reason = verdict.abort.reason
        told = SteeringReceived(ref=order.id, status="rejected", text=command.text)
        rejected = Settle(order.id, SteeringRejected(reason))
        return Step(state, memory, (*effects, rejected, Publish(told)))
    text = "\n\n".join((command.text, *verdict.interventions))
    heard = Steer(text=text, scope=command.scope)
    return cycle.then(_HEARD[state](state, memory, order, heard), effects)


_HEARD: Final = {
    State.IDLE: interrupt.start_steering,
    State.RUNNING: interrupt.keep_heard,
    State.STREAMING: interrupt.keep_heard,
    State.EXECUTING_TOOLS: interrupt.end_calls_and_keep,
}
"""What a steering does that plugins have heard, as the table of commands has it for a new one."""


def _end(memory: Memory, abort: Aborted, at_ms: int) -> Step:
    """End the cycle; the abort is announced before the rest of it is cleared away."""
    running = [open_ for open_ in memory.calls if open_.result is None]
    ids = tuple(open_.call.call_id for open_ in running)
    cleared: list[Effect] = [CancelModel()] if memory.compacting is not None else []
    cleared += interrupt.cancel(memory, ids)
    before = memory

    def end_of(open_: OpenCall) -> CallEnd:
        if open_.started_at_ms is None:
            return _STOPPED
        return interrupt.killed(before, open_, _STOPPED, abort.reason)

    memory, kept = give_results(memory, end_of)
    ended = cycle.end_by_plugin(memory, abort, at_ms)
    first, *rest = ended.effects
    return Step(ended.state, ended.memory, (*kept, first, *cleared, *rest))


def _send(memory: Memory, _wait: Consulting, verdict: Verdict, _at_ms: int) -> Step:
    known = len(memory.messages)
    memory, told = cycle.tell_notes(memory)
    messages = patched(memory)
    if verdict.messages is not None:
        messages = (*verdict.messages, *memory.messages[known:])
    return cycle.then(cycle.send(memory, repair(messages)), told)


def _finish(memory: Memory, _wait: Consulting, _verdict: Verdict, at_ms: int) -> Step:
    if memory.notes or memory.steering:
        return cycle.ask(memory, at_ms)
    return cycle.finish(memory, at_ms)


def _compact(memory: Memory, wait: Consulting, verdict: Verdict, at_ms: int) -> Step:
    wanted = wait.compacting
    assert wanted is not None  # noqa: S101 - it is what the plugins were asked about
    if wanted.trigger == "request":
        return shrink.compact_unless(memory, wanted, verdict.skipped)
    if verdict.skipped is None:
        return cycle.summarize(memory, wanted)
    return cycle.do_without_summary(memory, wanted, at_ms)


Continuation = Callable[[Memory, Consulting, Verdict, int], Step]
# fmt: off
_CONTINUATIONS: Final[Mapping[Point, Continuation]] = {
    Point.PROMPT:   lambda memory, _wait, _verdict, at_ms: cycle.begin(memory, at_ms),
    Point.REQUEST:  _send,
    Point.RESPONSE: lambda memory, _wait, _verdict, at_ms: cycle.go_on_after_answer(memory, at_ms),
    Point.BATCH:    lambda memory, _wait, _verdict, at_ms: cycle.go_on_after_batch(memory, at_ms),
    Point.FINISH:   _finish,
    Point.COMPACT:  _compact,
}
# fmt: on
