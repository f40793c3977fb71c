"""Plugins are asked, and what they say is taken down: the cycle waits for them at a ``Point``."""

from typing import Any

import msgspec

from cmdc_runtime.events import ModelSwitched, PluginCrashed, PluginEvent
from cmdc_runtime.extensions.hooks import AnyHook
from cmdc_runtime.extensions.kernel_emits import KERNEL_EMITS, DecideApproval
from workers.core import kernel_emits
from workers.core.batch import decide_approval
from workers.core.conversation import find_approval
from workers.core.effects import AskPlugins
from workers.core.records import ModelChanged, Noted, PluginOrdered, PluginsChanged
from workers.core.state import Compacting, Consulting, Point
from workers.core.step import Step
from workers.core.verdict import Verdict


def ask_plugins(
    step: Step, point: Point, hook: AnyHook, compacting: Compacting | None = None
) -> bool:
    """Have the plugins asked before the cycle goes on; return whether any of them listens."""
    if not step.memory.hears(type(hook)):
        return False
    # A summary that a call of the batch before asked for is not waited for any more.
    step.become(Consulting(point, compacting, step.memory.answering))
    step.change(work=step.memory.work + 1)
    step.perform(AskPlugins(step.memory.work, hook))
    return True


def apply_verdict(step: Step, verdict: Verdict) -> None:
    """Take down what plugins said, their aborts apart: states, events, a model, notes."""
    if verdict.states:
        step.record(PluginsChanged(states=dict(verdict.states)))
    for plugin, hook, error in verdict.crashed:
        step.publish(PluginCrashed(plugin=plugin, hook=hook, error=error))
    for name, payload in verdict.emitted:
        if name in KERNEL_EMITS:
            obey(step, name, payload)
        else:
            step.publish(PluginEvent(name=name, payload=payload))
    if verdict.model is not None:
        switch_model(step, *verdict.model)
    if verdict.interventions:
        step.record(Noted(notes=verdict.interventions))


def obey(step: Step, name: str, payload: object) -> None:
    """Carry out one order; the payload is checked already, by the action that it came in."""
    order = msgspec.convert(payload, KERNEL_EMITS[name])
    if isinstance(order, DecideApproval):
        found = find_approval(step.memory, order.approval_id)
        # A call that is held has its own cycle waiting, and only a person's command ends that.
        if found is not None and found.ref is None:
            decide_approval(step, found, order.decision)
    elif kernel_emits.apply(step.memory, order) != step.memory:
        step.record(PluginOrdered(name=name, payload=payload))


# Any: litellm's own arguments.
def switch_model(step: Step, model: str, given: dict[str, Any] | None) -> None:
    """Use ``model`` from the next request on; options that are not given stay as they are."""
    before = step.memory
    opts = before.provider_opts if given is None else given
    changed = opts != before.provider_opts
    if model == before.model and not changed:
        return
    step.record(ModelChanged(model=model, provider_opts=opts))
    step.publish(ModelSwitched(from_=before.model, to=model, provider_opts_changed=changed))
