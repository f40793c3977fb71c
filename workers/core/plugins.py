"""Plugins in the tables: they are asked at a hook, and come and go while the session lives.

The cycle waits at the hook, and their verdict is applied.

To attach, update or detach one the shell opens the packed code, as with tools; it also runs
``session_start`` of the new plugin, so that one that wants no session is refused. A change is made
as a whole or not at all: hooks at which plugins are being asked go on with those there were.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from cmdc_runtime.commands import PLUGINS_MAX, AttachPlugin, AttachTools, DetachPlugin
from cmdc_runtime.errors import AlreadyAttached, CmdcError, InvalidOptions, PluginNotFound
from cmdc_runtime.events import (
    ModelSwitched,
    PluginAttached,
    PluginCrashed,
    PluginDetached,
    PluginEvent,
    PluginUpdated,
)
from cmdc_runtime.extensions.actions import KERNEL_EMITS, DecideApproval
from cmdc_runtime.extensions.hooks import AnyHook
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.core import evolve
from workers.core.conversation import attached_plugin, find_approval
from workers.core.inputs import Order, PluginLoaded
from workers.core.records import (
    ModelChanged,
    Noted,
    PluginOrdered,
    PluginsChanged,
    PluginSetChanged,
)
from workers.core.state import AskingPlugins, Compacting, Memory
from workers.core.step import AskPlugins, ChangePlugins, LoadPlugin, LoadTools, Step
from workers.core.tool_calls import decide_approval
from workers.core.verdict import Verdict

# --- asked at a point -----------------------------------------------------------------------------


def ask_plugins(step: Step, hook: AnyHook, compacting: Compacting | None = None) -> bool:
    """Have the plugins asked before the cycle goes on; return whether any of them listens.

    From each hook that is asked so ``cycle.go_on`` has a way on.
    """
    if not step.memory.has_hook(type(hook)):
        return False
    # A summary that a call of the batch before asked for is not waited for any more.
    step.become(AskingPlugins(hook.kind, compacting, step.memory.answering))
    step.begin_work()
    step.perform(AskPlugins(step.memory.work, hook))
    return True


def apply_verdict(step: Step, verdict: Verdict) -> None:
    """Apply what plugins decided, their aborts apart: states, events, a model, notes."""
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
    """Carry out one kernel emit; the payload is checked already, by the action that it came in."""
    emit = msgspec.convert(payload, KERNEL_EMITS[name])
    if isinstance(emit, DecideApproval):
        found = find_approval(step.memory, emit.approval_id)
        # A call that is held has its own cycle waiting, and only a person's command ends that.
        if found is not None and found.ref is None:
            decide_approval(step, found, emit.decision)
    elif evolve.apply(step.memory, emit) != step.memory:
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


# --- attached, updated, detached ------------------------------------------------------------------


def load(step: Step, order: Order, command: AttachPlugin) -> None:
    """Have the packed code opened; ``use_loaded`` goes on."""
    step.perform(LoadPlugin(order.id, command))


def use_loaded(step: Step, loaded: PluginLoaded) -> None:
    """Ask the plugin from now on, or refuse it and say why."""
    facts, error = loaded.plugin, _refusal(step.memory, loaded)
    if error is not None or facts is None:
        step.complete(loaded.id, error)
        step.perform(ChangePlugins(loaded.id, attached=False, detached=()))
        return
    name, is_update, tools = facts.name, loaded.command.is_update, loaded.command.tools
    step.record(PluginSetChanged(attached=(attached_plugin(facts),)))
    step.publish(PluginUpdated(name=name) if is_update else PluginAttached(name=name))
    apply_verdict(step, loaded.verdict)
    step.perform(ChangePlugins(loaded.id, attached=True, detached=()))
    if tools:
        step.perform(LoadTools(loaded.id, AttachTools(tools=tools, is_update=True)))
    else:
        step.complete(loaded.id, name)


def detach(step: Step, order: Order, command: DetachPlugin) -> None:
    """Ask a plugin no more; what it knew is forgotten."""
    if not _has(step.memory, command.name):
        step.complete(order.id, _unknown(step.memory, command.name))
        return
    gone = (command.name,)
    step.record(PluginSetChanged(detached=gone))
    step.publish(PluginDetached(name=command.name))
    step.complete(order.id, None)
    step.perform(ChangePlugins(order.id, attached=False, detached=gone))


def with_hooks(memory: Memory, hooks: Mapping[str, frozenset[str]]) -> Memory:
    """Return the memory with the hooks that its plugins have in this process, by their names."""
    plugins = tuple(replace(one, hooks=hooks.get(one.name, one.hooks)) for one in memory.plugins)
    return replace(memory, plugins=plugins)


def _refusal(memory: Memory, loaded: PluginLoaded) -> CmdcError | None:
    facts, is_update = loaded.plugin, loaded.command.is_update
    if facts is None:
        return InvalidOptions([loaded.problem])
    if is_update and not _has(memory, facts.name):
        return _unknown(memory, facts.name)
    if not is_update and _has(memory, facts.name):
        text = f"a plugin named {facts.name!r} is attached; update it, or detach it first"
        return AlreadyAttached(text)
    if not is_update and len(memory.plugins) >= PLUGINS_MAX:
        return InvalidOptions([f"plugin {facts.name!r}: a session has at most {PLUGINS_MAX}"])
    if loaded.verdict.abort is not None:
        why = shown(loaded.verdict.abort.reason, LINE_CHARS_MAX)
        return InvalidOptions([f"plugin {facts.name!r} refused to start: {why}"])
    return None


def _has(memory: Memory, name: str) -> bool:
    return any(one.name == name for one in memory.plugins)


def _unknown(memory: Memory, name: str) -> PluginNotFound:
    known = ", ".join(one.name for one in memory.plugins) or "none"
    return PluginNotFound(f"there is no plugin {name!r}; plugins: {known}")
