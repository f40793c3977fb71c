"""Blueprints: an agent's options under a name, to be given away, extended and overridden.

A ``Blueprint`` is a value: every method returns a new one. A class with ``build(opts)`` is a
blueprint too (``options.Builder``), and so is any object with ``to_options()``. To give blueprints
one more field of their own, add it to ``Blueprint``; ``options`` takes every other option.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.admission import as_plugin
from cmdc_runtime.extensions.tool import as_tool
from cmdc_runtime.option_checks import unknown_name
from cmdc_runtime.options import FIELDS, Options
from cmdc_runtime.packing import BuiltIn
from cmdc_runtime.redaction import printed, printed_fields
from cmdc_runtime.subagent import SubAgent

T = TypeVar("T")


class Blueprint(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A named set of options; what is None or empty here is left to the options' defaults.

    ``name`` and ``purpose`` say to the model who it is. Nothing is checked before an agent is made.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    name: str = ""
    purpose: str = ""
    model: Any = None  # "provider:model_id" or a ModelSource
    system_prompt: str | None = None
    tools: list[Any] = []  # tools, decorated functions, classes or "module:name"
    plugins: list[Any] = []  # plugins, classes, (class, options) or "module:Class"
    subagents: list[SubAgent] = []
    memory: list[Any] = []  # memory files
    skills_dirs: list[Any] = []  # folders of skills, or (word, folder)
    provider_opts: dict[str, Any] = {}  # passed to litellm
    response_format: Any = None  # a JSON Schema, or a msgspec or pydantic type
    user_data: dict[str, Any] = {}
    prompt_mode: str | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    options: dict[str, Any] = {}
    """Any other option by its name."""

    Base: ClassVar["Blueprint"]
    """A blueprint to begin with: it guards keys and files, mends histories, loads ``AGENTS.md`` and
    has conversations cached."""

    def add_tools(self, *tools: object) -> Self:
        """Return this with ``tools`` added; one takes the place of an earlier one of its name.

        Raises:
            InvalidTool: one is no tool.
        """
        return self.override(tools=_joined([*self.tools, *tools], tool_name))

    def add_plugins(self, *plugins: object) -> Self:
        """Return this with ``plugins`` added; one takes the place of an earlier one of its name.

        Raises:
            InvalidOptions: one is no plugin.
        """
        return self.override(plugins=_joined([*self.plugins, *plugins], _plugin_name))

    def add_subagents(self, *subagents: SubAgent) -> Self:
        """Return this with ``subagents`` added; one takes the place of an earlier namesake."""
        return self.override(
            subagents=_joined([*self.subagents, *subagents], lambda subagent: subagent.name)
        )

    def add_skills_dirs(self, *dirs: object) -> Self:
        """Return this with folders of skills added, which outrank those that are there."""
        others = [one for one in self.skills_dirs if one not in dirs]
        return self.override(skills_dirs=[*others, *dict.fromkeys(dirs)])

    def add_memory(self, *files: object) -> Self:
        """Return this with memory files added, each of them once."""
        return self.override(memory=[*dict.fromkeys([*self.memory, *files])])

    def override(self, **fields: object) -> Self:
        """Return this with ``fields`` set: its own, and any option of ``create_agent``.

        Raises:
            InvalidOptions: there is no such field and no such option.
        """
        # Any: these are the application's values, checked when an agent is made
        own: dict[str, Any] = {n: v for n, v in fields.items() if n in self.__struct_fields__}
        others = {name: value for name, value in fields.items() if name not in own}
        known = (*self.__struct_fields__, *FIELDS)
        problems = [unknown_name(name, known) for name in others if name not in FIELDS]
        if problems:
            raise InvalidOptions(problems)
        own["options"] = {**own.get("options", self.options), **others}
        return msgspec.structs.replace(self, **own)

    def to_options(self) -> Options:
        """Return the options that this describes; their values are not checked.

        Raises:
            InvalidOptions: ``options`` has a name that is no option, or a field's.
        """
        own = [name for name in self.__struct_fields__ if name in FIELDS]
        problems = [unknown_name(name, FIELDS) for name in self.options if name not in FIELDS]
        problems += [
            f"options: {name} is a field: give it as one" for name in own if name in self.options
        ]
        if problems:
            raise InvalidOptions(problems)
        said = {name: getattr(self, name) for name in own if getattr(self, name) is not None}
        return Options(**{**self.options, **said, "blueprint": self})


Blueprint.Base = Blueprint(
    plugins=["security_guard", "patch_tool_calls", "memory_loader", "prompt_cache"]
)


def identity_of(blueprint: object) -> str:
    """Return what the system prompt says about who the agent is; empty for no blueprint."""
    name, purpose = (_text(blueprint, field) for field in ("name", "purpose"))
    lines = [f"You are {name}." if name else "", f"Your purpose: {purpose}" if purpose else ""]
    return "\n".join(filter(None, lines))


def _text(blueprint: object, field: str) -> str:
    found = getattr(blueprint, field, "")
    return found.strip() if isinstance(found, str) else ""


def _joined(things: Iterable[T], name_of: Callable[[T], str]) -> list[T]:
    return list({name_of(thing): thing for thing in things}.values())


def _plugin_name(plugin: object) -> str:
    given = plugin[0] if isinstance(plugin, tuple) and plugin else plugin
    if isinstance(given, BuiltIn) or (isinstance(given, type) and issubclass(given, BuiltIn)):
        return given.short_name
    if isinstance(given, str):  # what it names may be installed only where the daemon runs
        return given
    return as_plugin(plugin).name


def tool_name(tool: object) -> str:
    """Return what the model will know a tool as; of a name of code that name.

    Raises:
        InvalidTool: it is no tool.
    """
    if isinstance(tool, BuiltIn) or (isinstance(tool, type) and issubclass(tool, BuiltIn)):
        return tool.short_name
    if isinstance(tool, str):  # what it names may be installed only where the daemon runs
        return tool
    return as_tool(tool).name
