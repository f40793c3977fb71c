"""Hot plugins: what is attached, updated and detached while the session lives.

As with tools the shell opens the parcel; it also lets the new plugin hear ``session_start``, so
that one that wants no session is refused. A change is made as a whole or not at all: hooks at which
plugins are being asked go on with those there were.
"""

from collections.abc import Mapping
from dataclasses import replace

from cmdc_runtime.commands import PLUGINS_MAX, AttachPlugin, DetachPlugin
from cmdc_runtime.errors import AlreadyAttached, CmdcError, InvalidOptions, PluginNotFound
from cmdc_runtime.events import Event, PluginAttached, PluginDetached, PluginUpdated
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.core.changes import attached_plugin, change_plugin_set
from workers.core.consult import heed
from workers.core.effects import ChangePlugins, Keep, LoadPlugin, Publish, Settle, Step
from workers.core.inputs import Order, PluginLoaded
from workers.core.records import PluginSetChanged
from workers.core.state import Memory, State


def load(state: State, memory: Memory, order: Order, command: AttachPlugin) -> Step:
    """Have the parcel opened; ``use_loaded`` goes on."""
    return Step(state, memory, (LoadPlugin(order.id, command),))


def use_loaded(state: State, memory: Memory, loaded: PluginLoaded) -> Step:
    """Ask the plugin from now on, or refuse it and say why."""
    facts = loaded.plugin
    error = _refusal(memory, loaded)
    if error is not None or facts is None:
        dropped = ChangePlugins(loaded.id, attached=False, detached=())
        return Step(state, memory, (Settle(loaded.id, error), dropped))
    attached = attached_plugin(facts)
    memory = change_plugin_set(memory, (attached,), ())
    memory, said = heed(memory, loaded.verdict)
    event: Event = (
        PluginUpdated(name=facts.name)
        if loaded.command.is_update
        else PluginAttached(name=facts.name)
    )
    effects = (
        Keep(PluginSetChanged(attached=(attached,))),
        Publish(event),
        *said,
        Settle(loaded.id, facts.name),
        ChangePlugins(loaded.id, attached=True, detached=()),
    )
    return Step(state, memory, effects)


def detach(state: State, memory: Memory, order: Order, command: DetachPlugin) -> Step:
    """Ask a plugin no more; what it knew is forgotten."""
    if not _has(memory, command.name):
        return Step(state, memory, (Settle(order.id, _unknown(memory, command.name)),))
    gone = (command.name,)
    effects = (
        Keep(PluginSetChanged(detached=gone)),
        Publish(PluginDetached(name=command.name)),
        Settle(order.id, None),
        ChangePlugins(order.id, attached=False, detached=gone),
    )
    return Step(state, change_plugin_set(memory, (), gone), effects)


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
