"""Hot plugins: what is attached, updated and detached while the session lives.

As with tools the shell opens the parcel; it also lets the new plugin hear ``session_start``, so
that one that wants no session is refused. A change is made as a whole or not at all: hooks at which
plugins are being asked go on with those there were.
"""

from collections.abc import Mapping
from dataclasses import replace

from cmdc_runtime.commands import PLUGINS_MAX, AttachPlugin, DetachPlugin
from cmdc_runtime.errors import AlreadyAttached, CmdcError, InvalidOptions, PluginNotFound
from cmdc_runtime.events import PluginAttached, PluginDetached, PluginUpdated
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.core.changes import attached_plugin
from workers.core.effects import ChangePlugins, LoadPlugin
from workers.core.inputs import Order, PluginLoaded
from workers.core.plugins import apply_verdict
from workers.core.records import PluginSetChanged
from workers.core.state import Memory
from workers.core.step import Step


def load(step: Step, order: Order, command: AttachPlugin) -> None:
    """Have the parcel opened; ``use_loaded`` goes on."""
    step.perform(LoadPlugin(order.id, command))


def use_loaded(step: Step, loaded: PluginLoaded) -> None:
    """Ask the plugin from now on, or refuse it and say why."""
    facts, error = loaded.plugin, _refusal(step.memory, loaded)
    if error is not None or facts is None:
        step.complete(loaded.id, error)
        step.perform(ChangePlugins(loaded.id, attached=False, detached=()))
        return
    name, is_update = facts.name, loaded.command.is_update
    step.record(PluginSetChanged(attached=(attached_plugin(facts),)))
    step.publish(PluginUpdated(name=name) if is_update else PluginAttached(name=name))
    apply_verdict(step, loaded.verdict)
    step.complete(loaded.id, name)
    step.perform(ChangePlugins(loaded.id, attached=True, detached=()))


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
    """Return the memory with the hooks that its plugins hear in this process, by their names."""
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
