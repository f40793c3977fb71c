"""Folders of skills and memory files that a session is given while it lives.

Both are options of built-in plugins, and of the tool that reads skills. So what is added is an
update of these, which the journal has as such: a plugin that is not there comes in, and the model
reads what is new in what it says at its start and before the next request.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cmdc_runtime.commands import AddMemory, AddSkillsDirs, AttachPlugin, AttachTools
from cmdc_runtime.errors import AlreadyAttached
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.subagent import (
    MEMORY_FILES,
    MEMORY_LABEL,
    MEMORY_PLUGIN,
    SKILLS_PLUGIN,
    SKILLS_TOOL,
)
from workers.core.inputs import Order
from workers.core.state import Memory
from workers.core.step import LoadPlugin, LoadTools, Step

_DIRS: Final = "dirs"
_FILES: Final = "memory_files"


def add_skills_dirs(step: Step, order: Order, command: AddSkillsDirs) -> None:
    """Have the skills of more folders; those that are there already come last then."""
    memory = step.memory
    plugin, tool = _plugin_of(memory, SKILLS_PLUGIN), _tool_of(memory, SKILLS_TOOL)
    wanted = [
        _extended(have, ref, _with_dirs(_options(have), command))
        for have, ref in ((plugin, SKILLS_PLUGIN), (tool, SKILLS_TOOL))
    ]
    if wanted != [plugin, tool]:
        _load(step, order, plugin, wanted[0], (wanted[1],))
    else:
        step.complete(order.id, ())


def add_memory(step: Step, order: Order, command: AddMemory) -> None:
    """Show more memory files; those that are shown already stay where they are."""
    plugin = _plugin_of(step.memory, MEMORY_PLUGIN)
    options = _options(plugin)
    have = [] if plugin is None else options.get(_FILES, list(MEMORY_FILES))
    files = [*dict.fromkeys([*have, *command.files])]
    more = {"nested": True} if plugin is None else {}
    wanted = _extended(plugin, MEMORY_PLUGIN, {**options, _FILES: files, **more})
    if plugin is None:
        wanted = replace(wanted, label=MEMORY_LABEL)
    if wanted != plugin:
        _load(step, order, plugin, wanted, ())
    else:
        step.complete(order.id, "")


def _load(
    step: Step, order: Order, have: Packed | None, wanted: Packed, tools: tuple[Packed, ...]
) -> None:
    """Have opened what differs from what is there; ``use_loaded`` of plugins and tools goes on."""
    if wanted.ref is not None and _is_stranger(step.memory, wanted.ref):
        text = f"a plugin of your own is named {wanted.ref!r}; give it what it is to know"
        step.complete(order.id, AlreadyAttached(text))
    elif wanted != have:
        is_update = have is not None
        command = AttachPlugin(plugin=wanted, is_update=is_update, tools=tools)
        step.perform(LoadPlugin(order.id, command))
    else:
        step.perform(LoadTools(order.id, AttachTools(tools=tools, is_update=True)))


def _extended(have: Packed | None, ref: str, options: dict[str, Any]) -> Packed:  # Any: options
    """Return packed code with other options; what has none yet is named by ``ref``."""
    base = Packed(kind="ref", label=ref, ref=ref) if have is None else have
    if options == _options(base):
        return base
    return replace(base, data=msgspec.msgpack.encode(options))


def _with_dirs(options: dict[str, Any], command: AddSkillsDirs) -> dict[str, Any]:  # Any: as above
    new = [list(one) for one in dict.fromkeys(command.dirs)]
    others = [one for one in options.get(_DIRS, []) if one not in new]
    return {**options, _DIRS: [*others, *new]}


def _options(packed: Packed | None) -> dict[str, Any]:  # Any: as above
    found: dict[str, Any] = {}
    if packed is not None and packed.data:
        found = msgspec.msgpack.decode(packed.data)
    return found


def _plugin_of(memory: Memory, ref: str) -> Packed | None:
    return _of_ref((one.packed for one in memory.plugins), ref)


def _tool_of(memory: Memory, ref: str) -> Packed | None:
    return _of_ref((one.packed for one in memory.tools), ref)


def _of_ref(all_packed: Iterable[Packed | None], ref: str) -> Packed | None:
    return next((one for one in all_packed if one is not None and one.ref == ref), None)


def _is_stranger(memory: Memory, name: str) -> bool:
    """Say whether a plugin has the name of a built-in one and is another."""
    named = [one.packed for one in memory.plugins if one.name == name]
    return bool(named) and _of_ref(named, name) is None
