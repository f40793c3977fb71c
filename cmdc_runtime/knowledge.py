"""What options about knowledge bring along: plugin and tool of skills, plugin of memory files.

Each function returns packed code that stands in a definition as if the application had given it
among its plugins and tools. Where it has given one of them itself, both would say the same thing
twice, so that is refused.
"""

from collections.abc import Iterable

import msgspec

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.option_checks import check_memory, check_skills_dirs
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.packing import built_ins, pack, pack_plugin
from cmdc_runtime.subagent import (
    MEMORY_LABEL,
    MEMORY_PLUGIN,
    OF_SKILLS,
    SKILLS_PLUGIN,
    SKILLS_TOOL,
    SubAgent,
    SubagentSpec,
)


def memory_parts(files: Iterable[object], others: Iterable[Packed]) -> tuple[Packed, ...]:
    """Return the plugin that shows these files, none without any; ``others`` are beside it.

    Raises:
        InvalidOptions: the plugin is there already.
    """
    paths = list(dict.fromkeys(check_memory(tuple(files))))
    if not paths:
        return ()
    if any(one.ref == MEMORY_PLUGIN for one in others):
        raise InvalidOptions(["memory: the plugin MemoryLoader is there: give one of them"])
    packed = pack_plugin((MEMORY_PLUGIN, {"memory_files": paths, "nested": True}), "memory")
    return (msgspec.structs.replace(packed, label=MEMORY_LABEL),)


def skills_parts(dirs: Iterable[object], others: Iterable[Packed] = ()) -> tuple[Packed, ...]:
    """Return the plugin and the tool for these folders, none without any.

    Raises:
        InvalidOptions: one of the two is among ``others`` already.
    """
    folders = tuple(check_skills_dirs(tuple(dirs)))
    if not folders:
        return ()
    if taken := [one.ref for one in others if one.ref in OF_SKILLS]:
        raise InvalidOptions([f"skills_dirs: {taken[0]} is there already: give one of them"])
    plugin = pack_plugin((SKILLS_PLUGIN, {"dirs": folders}), "skills_dirs")
    return plugin, pack(built_ins("tool")[SKILLS_TOOL](dirs=folders), "skills_dirs")


def subagent_skills(given: SubAgent, label: str) -> tuple[Packed, ...]:
    """Return the plugin and the tool of a subagent with skills of its own.

    Raises:
        InvalidOptions: as ``skills_parts``; ``label`` says of which subagent.
    """
    try:
        return skills_parts(given.skills_dirs or ())
    except InvalidOptions as error:
        raise InvalidOptions([f"{label}.{one}" for one in error.problems]) from error


def with_skills(
    inherited: Iterable[Packed],
    subagent: SubagentSpec,
    tools: Iterable[Packed],
    plugins: Iterable[Packed],
) -> tuple[tuple[Packed, ...], tuple[Packed, ...]]:
    """Return tools and plugins of a subagent with what its skills take.

    They are its own, or else those among ``inherited``, its parent's plugins and tools. What it
    brings itself among its tools or plugins stays.
    """
    skills = inherited if subagent.skills is None else subagent.skills
    own = (*(subagent.tools or ()), *(subagent.plugins or ()))
    kept = {one.ref for one in own if one.ref in OF_SKILLS}
    given = [one for one in skills if one.ref in OF_SKILLS and one.ref not in kept]
    plain_tools = [one for one in tools if one.ref not in OF_SKILLS or one in own]
    plain_plugins = [one for one in plugins if one.ref not in OF_SKILLS or one in own]
    return (
        (*plain_tools, *(one for one in given if one.ref == SKILLS_TOOL)),
        (*plain_plugins, *(one for one in given if one.ref == SKILLS_PLUGIN)),
    )
