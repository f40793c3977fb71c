"""Guardrails, decided: what they look at, and how a cycle ends in which one has tripped.

Those of the input look at the prompt beside the first request of its cycle; the shell holds back
what that brings until they have passed. Before a call that a cycle opens with they are waited for.
Those of the output look at the answer that ends a cycle, which has been shown by then: if one trips
it is taken back, and observers see that.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from cmdc_runtime.events import GuardrailTripped
from workers.core import cycle, interrupt
from workers.core.inputs import GuardrailsAnswered, Tripped
from workers.core.records import AnswerRetracted
from workers.core.state import Guarding
from workers.core.step import CancelModel, Step

Side: TypeAlias = Literal["input", "output"]


def take(step: Step, answered: GuardrailsAnswered) -> None:
    """Go on where the guardrails of an answer have passed; end the cycle where one tripped."""
    tripped, activity = answered.tripped, step.memory.activity
    is_output = isinstance(activity, Guarding) and not activity.is_input
    if tripped is None:
        if is_output:
            _go_on(step, answered.at_ms)
        elif isinstance(activity, Guarding):
            cycle.make_opening_call(step)
        return
    side: Side = "output" if is_output else "input"
    retracted = step.memory.messages[-1].id if is_output else None
    step.perform(CancelModel())
    interrupt.add_partial_answer(step)
    if is_output:
        step.record(AnswerRetracted(guardrail=tripped.guardrail))
    step.publish(
        GuardrailTripped(
            guardrail=tripped.guardrail,
            side=side,
            reason=tripped.reason,
            info=tripped.info,
            retracted=retracted,
        )
    )
    reason = _reason(tripped, side)
    cycle.announce_abort(step, reason)
    cycle.abort(step, reason, answered.at_ms)


def _go_on(step: Step, at_ms: int) -> None:
    """Go on with an answer that has passed, unless a steering came since."""
    if step.memory.steering or step.memory.notes:
        cycle.ask(step, at_ms)
    else:
        cycle.before_finish(step, at_ms)


def _reason(tripped: Tripped, side: Side) -> dict[str, Any]:  # Any: the application's own
    """Return why the cycle is aborted: what ``errors.aborted`` makes an error of."""
    return {"side": side, **msgspec.to_builtins(tripped)}
