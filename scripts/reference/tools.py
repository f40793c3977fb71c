"""``tools.md``: the built-in tools, each made as the worker makes it."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_type_hints

from cmdc_runtime import tools
from cmdc_runtime.extensions import Tool, as_tool
from cmdc_runtime.packing import BuiltIn
from scripts.reference import markdown
from scripts.reference.annotations import bound_text, number_text, type_text, value_text
from scripts.reference.sources import fields_of

_INTRO: Final = (
    "The tools that come with the project, for `tools=[cmdc.tools.ReadFile, cmdc.tools.Shell()]`."
    " Options are given by the application, arguments by the model. Isolation says where a call"
    " runs, effects whether it may run again after a crash: a tool with effects `write` may not."
)
_OPTIONS: Final = ("option", "type", "default", "bound", "meaning")
_ARGUMENTS: Final = ("argument", "type", "default", "bound", "meaning")
_WORDS: Final[Mapping[str, str]] = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches `{}`",
}
"""Keywords of JSON Schema that bound a value, and what a reader gets for each."""
REQUIRED: Final[Mapping[str, Mapping[str, Any]]] = {"fetch_url": {"allow": ["docs.python.org"]}}
"""Options without a default, as an example has them. Any: each of its own type."""


def built_ins() -> list[type[BuiltIn]]:
    """Return the references that ``cmdc_runtime.tools`` offers, in its order."""
    return [one for one in BuiltIn.__subclasses__() if vars(tools).get(one.__name__) is one]


def page() -> str:
    """Return the page."""
    return markdown.page("Built-in tools", _INTRO, *map(_tool, built_ins()))


def made(built_in: type[BuiltIn]) -> Tool:
    """Return the tool as a session gets it, with the options' defaults, or those of an example."""
    module = importlib.import_module(f"workers.builtin.tools.{built_in.short_name}")
    return as_tool(module.create(**REQUIRED.get(built_in.short_name, {})))


def _tool(built_in: type[BuiltIn]) -> str:
    tool = made(built_in)
    facts = f"Name `{tool.name}`, isolation `{tool.isolation}`, effects `{tool.effects}`."
    if tool.timeout is not None:
        facts += f" A call takes {tool.timeout:g} s at most."
    blocks = [
        f"## {built_in.__name__}",
        f"{markdown.prose(built_in.__doc__)} {facts}",
        "What the model reads:",
        "\n".join(f"> {line}".rstrip() for line in tool.spec().description.splitlines()),
    ]
    options = [*_options(built_in)]
    if options:
        blocks.append(markdown.table(_OPTIONS, options))
    arguments = [*_arguments(tool.parameters)]
    if arguments:
        blocks.append(markdown.table(_ARGUMENTS, arguments))
    return "\n\n".join(blocks)


def _options(built_in: type[BuiltIn]) -> Iterator[tuple[str, ...]]:
    hints = get_type_hints(built_in, include_extras=True)
    required = REQUIRED.get(built_in.short_name, {})
    defaults = built_in(**required)
    for field in fields_of(built_in):
        yield (
            markdown.code(field.name),
            markdown.code(type_text(hints[field.name])),
            "required"
            if field.name in required
            else markdown.code(value_text(getattr(defaults, field.name))),
            bound_text(hints[field.name]),
            field.meaning,
        )


def _arguments(schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:  # Any: JSON
    required = schema.get("required", [])
    for name, one in schema["properties"].items():
        resolved = _resolved(one, schema)
        default = "required" if name in required else markdown.code(_default(resolved))
        yield (
            markdown.code(name),
            markdown.code(_type(resolved, schema)),
            default,
            "; ".join(_bounds(resolved, schema)),
            resolved.get("description", ""),
        )


def _resolved(one: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with what it refers to put in."""
    parts = [one, *one.get("allOf", [])]
    named = [
        schema["definitions"][part["$ref"].rpartition("/")[2]] for part in parts if "$ref" in part
    ]
    return {key: value for part in [*named, one] for key, value in part.items()}


def _default(one: Mapping[str, Any]) -> str:
    return value_text(one["default"]) if "default" in one else ""


def _type(one: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    match one:
        case {"enum": words}:
            return " | ".join(map(value_text, words))
        case {"anyOf": choices}:
            return " | ".join(_type(_resolved(choice, schema), schema) for choice in choices)
        case {"type": "array", "items": item}:
            return f"array of {_type(_resolved(item, schema), schema)}"
        case {"type": "object", "properties": inner}:
            fields = (
                f"{name}: {_type(_resolved(kind, schema), schema)}" for name, kind in inner.items()
            )
            return f"{{{', '.join(fields)}}}"
        case {"type": name}:
            return str(name)
        case _:
            return "any"


def _bounds(one: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    for keyword, words in _WORDS.items():
        if keyword in one:
            yield words.format(number_text(one[keyword]))
    if isinstance(one.get("items"), Mapping):
        inner = ", ".join(_bounds(_resolved(one["items"], schema), schema))
        if inner:
            yield f"each {inner}"
    for name, kind in one.get("properties", {}).items():
        inner = ", ".join(_bounds(_resolved(kind, schema), schema))
        if inner:
            yield f"`{name}` {inner}"
