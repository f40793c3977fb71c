"""Plugins are asked, and what they say is taken down: the cycle waits for them at a ``Point``."""

from dataclasses import replace
from typing import Any

from cmdc_runtime.events import ModelSwitched, PluginCrashed, PluginEvent
from cmdc_runtime.extensions.hooks import AnyHook
from cmdc_runtime.extensions.kernel_emits import KERNEL_EMITS
from workers.core import changes
from workers.core.changes import change_plugins, note
from workers.core.effects import Consult, Effect, Keep, Publish, Step
from workers.core.kernel_emits import obey
from workers.core.records import ModelChanged, Noted, PluginsChanged
from workers.core.state import Compacting, Consulting, Memory, Point, State
from workers.core.verdict import Verdict


def consult(
    memory: Memory, point: Point, hook: AnyHook, compacting: Compacting | None = None
) -> Step | None:
    """Have the plugins asked before the cycle goes on, or return None where none listens."""
    if not memory.hears(type(hook)):
        return None
    wait = Consulting(point, compacting)
    # A summary that a call of the batch before asked for is not waited for any more.
    memory = replace(memory, work=memory.work + 1, consulting=wait, compacting=None)
    return Step(State.RUNNING, memory, (Consult(memory.work, hook),))


def heed(memory: Memory, verdict: Verdict) -> tuple[Memory, tuple[Effect, ...]]:
    """Take down what plugins said, their aborts apart: states, events, a model, notes."""
    effects: list[Effect] = []
    if verdict.states:
        memory = change_plugins(memory, dict(verdict.states))
        effects.append(Keep(PluginsChanged(states=dict(verdict.states))))
    for plugin, hook, error in verdict.crashed:
        effects.append(Publish(PluginCrashed(plugin=plugin, hook=hook, error=error)))
    for name, payload in verdict.emitted:
        if name in KERNEL_EMITS:
            memory, ordered = obey(memory, name, payload)
            effects += ordered
        else:
            effects.append(Publish(PluginEvent(name=name, payload=payload)))
    if verdict.model is not None:
        memory, switched = switch_model(memory, *verdict.model)
        effects += switched
    if verdict.interventions:
        memory = note(memory, verdict.interventions)
        effects.append(Keep(Noted(notes=verdict.interventions)))
    return memory, tuple(effects)


# Any: litellm's own arguments.
def switch_model(
    memory: Memory, model: str, given: dict[str, Any] | None
) -> tuple[Memory, tuple[Effect, ...]]:
    """Use ``model`` from the next request on; options that are not given stay as they are."""
    opts = memory.provider_opts if given is None else given
    changed = opts != memory.provider_opts
    if model == memory.model and not changed:
        return memory, ()
    told = ModelSwitched(from_=memory.model, to=model, provider_opts_changed=changed)
    kept = Keep(ModelChanged(model=model, provider_opts=opts))
    return changes.switch_model(memory, model, opts), (kept, Publish(told))
