"""What plugins decide: the cycle goes on from where it waited for them, or ends."""

from dataclasses import replace
from typing import Final

from cmdc_runtime.commands import Steer
from cmdc_runtime.errors import SteeringRejected
from cmdc_runtime.events import PluginModelCall, SteeringReceived
from cmdc_runtime.extensions.hooks import BeforeCompact, kind_of
from workers.core import cycle, interrupt, shrink
from workers.core.conversation import find_running
from workers.core.inputs import (
    ANY_WORK,
    PluginAskedModel,
    PluginsAborted,
    PluginsAnswered,
    PluginsReported,
    SteeringAnswered,
    ToolRefused,
)
from workers.core.plugins import apply_verdict
from workers.core.records import PluginSpent
from workers.core.state import (
    AskingPlugins,
    Calling,
    OpenCall,
    State,
)
from workers.core.step import CancelModel, Step
from workers.core.tool_calls import CallEnd, close_call, end_calls
from workers.core.verdict import Aborted

_STOPPED: Final = CallEnd(
    "Error: the cycle was ended by a plugin before this call was done.",
    "plugin_aborted",
    is_cut=True,
)


def go_on(step: Step, answered: PluginsAnswered) -> None:
    """Apply the verdict of the plugins and go on from where the cycle waited for them."""
    verdict, at_ms = answered.verdict, answered.at_ms
    match step.memory.activity:
        case AskingPlugins(point=point, wanted=wanted):
            pass
        case Calling(is_judged=True, compacting=wanted):
            point = kind_of(BeforeCompact)
        case _:
            return
    apply_verdict(step, verdict)
    if verdict.abort is not None:
        _end(step, verdict.abort, at_ms)
    elif wanted is not None and wanted.trigger == "request":
        shrink.compact_unless(step, wanted, verdict.skipped)
    else:
        cycle.go_on(step, point, wanted, verdict, at_ms)


def report(step: Step, reported: PluginsReported) -> None:
    """Apply the verdict of plugins that nothing waits for.

    What they want of a batch that is over comes too late for it, and is not for another one.
    """
    verdict = reported.verdict
    if reported.batch not in {ANY_WORK, step.memory.work}:
        verdict = replace(verdict, interventions=(), model=None)
    apply_verdict(step, verdict)


def stop(step: Step, stopped: PluginsAborted) -> None:
    """End the cycle with its running calls, as a plugin wants; keep what was said so far."""
    interrupt.add_partial_answer(step)
    _end(step, stopped.abort, stopped.at_ms)


def count_model_call(step: Step, asked: PluginAskedModel) -> None:
    """Count what a plugin spent."""
    step.record(PluginSpent(plugin=asked.plugin, usage=asked.usage))
    step.publish(PluginModelCall(plugin=asked.plugin, model=asked.model, usage=asked.usage))


def refuse(step: Step, refused: ToolRefused) -> None:
    """Give a call that a plugin blocked its result: the reason."""
    open_ = find_running(step.memory, refused.call_id)
    if open_ is None:
        return
    close_call(step, open_, CallEnd(f"Error: blocked: {refused.reason}", refused.reason))
    cycle.after_call(step, refused.at_ms)


def apply_steering_verdict(step: Step, judged: SteeringAnswered) -> None:
    """Accept a steering that plugins were asked about, with what they add, or reject it."""
    order, command, verdict = judged.order, judged.command, judged.verdict
    apply_verdict(step, replace(verdict, interventions=()))
    if verdict.abort is not None:
        step.complete(order.id, SteeringRejected(verdict.abort.reason))
        step.publish(SteeringReceived(ref=order.id, status="rejected", text=command.text))
        return
    text = "\n\n".join(filter(None, (command.text, *verdict.interventions)))
    _ACCEPT[step.state](step, order, Steer(text=text, scope=command.scope, parts=command.parts))


_ACCEPT: Final = {
    State.IDLE: interrupt.start_steering,
    State.RUNNING: interrupt.accept_steering,
    State.STREAMING: interrupt.accept_steering,
    State.EXECUTING_TOOLS: interrupt.end_calls_for_steering,
}
"""What a steering does after plugins were asked, as the table of commands has it for a new one."""


def _end(step: Step, abort: Aborted, at_ms: int) -> None:
    """End the cycle with its running calls."""
    before = step.memory
    if before.compacting is not None:
        step.perform(CancelModel())
    interrupt.cancel(step, tuple(one.call.call_id for one in before.calls if one.result is None))

    def end_of(open_: OpenCall) -> CallEnd:
        if open_.started_at_ms is None:
            return _STOPPED
        return interrupt.killed(before, open_, _STOPPED, abort.reason)

    end_calls(step, end_of)
    cycle.end_by_plugin(step, abort, at_ms)
