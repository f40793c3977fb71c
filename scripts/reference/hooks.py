"""``hooks.md``: the hooks, what a plugin may answer at each, and what answers amount to."""

from typing import Final, get_type_hints

import msgspec

from cmdc_runtime.extensions.actions import (
    COMPOSITION,
    KERNEL_EMITS,
    MATRIX,
    Action,
    Composition,
    KernelEmit,
)
from cmdc_runtime.extensions.hooks import HOOKS, Hook, Ruling
from cmdc_runtime.reasons import snake
from scripts.reference import markdown
from scripts.reference.annotations import type_text, value_text
from scripts.reference.sources import fields_of

_INTRO: Final = (
    "A plugin has a method for each hook that it wants to hear. The method gets the hook and a"
    " `PluginContext`, and returns an action, a list of actions, or None, which is `Continue`."
    " [plugins.md](plugins.md) has the built-in ones, [../howto/plugins.md](../howto/plugins.md)"
    " shows how one is written."
)
_MATRIX: Final = (
    "`yes`: the action is carried out. `noted`: a plugin may answer it, but it is not carried out,"
    " and a debug log says so. Nothing: a method whose return annotation names the action is"
    " refused when the session is created; without an annotation the answer is"
    " the plugin's failure."
)
_WORDS: Final = {Ruling.TAKEN: "yes", Ruling.NOTED: "noted", Ruling.REFUSED: ""}
_COMPOSITION: Final = {
    Composition.PASS: "says nothing",
    Composition.COLLECT: "all count, in the order of the plugins",
    Composition.LAST: "the last one counts",
    Composition.STOP: "counts, and no further plugin is asked",
}
_EMITS: Final = (
    "`Emit` of one of these Structs is a kernel emit: the session carries it out, and observers do"
    " not get it."
    " They are in `cmdc_runtime.extensions.actions`; the name is what counts, so that"
    ' `Emit("memory_contents", {"contents": {}})` is the same. A payload that does not fit is a'
    " failure of the plugin."
)


def page() -> str:
    """Return the page."""
    return markdown.page(
        "Hooks and actions",
        _INTRO,
        "## Hooks",
        markdown.table(("hook", "method", "fields", "when"), map(_hook, HOOKS.values())),
        "## Actions",
        markdown.table(("action", "fields", "of several", "meaning"), map(_action, COMPOSITION)),
        "## Which hook takes which action",
        _MATRIX,
        markdown.table(("", *map(_name, COMPOSITION)), map(_row, HOOKS)),
        "## Orders to the session",
        _EMITS,
        markdown.table(("emit", "fields", "meaning"), map(_emit, KERNEL_EMITS.values())),
    )


def _hook(hook: type[Hook]) -> tuple[str, ...]:
    kind = str(hook.__struct_config__.tag)
    return markdown.code(hook.__name__), markdown.code(kind), _fields(hook), _meaning(hook)


def _action(action: type[Action]) -> tuple[str, ...]:
    return _name(action), _fields(action), _COMPOSITION[COMPOSITION[action]], _meaning(action)


def _row(kind: str) -> tuple[str, ...]:
    return markdown.code(kind), *(_WORDS[MATRIX[kind, action]] for action in COMPOSITION)


def _emit(emit: type[KernelEmit]) -> tuple[str, ...]:
    return markdown.code(snake(emit.__name__)), _fields(emit), _meaning(emit)


def _name(action: type[Action]) -> str:
    return markdown.code(action.__name__)


def _meaning(kind: type) -> str:
    """Return what a class says of itself, and of the fields that it says something of."""
    parts = [
        f"`{field.name}`: {_sentence(field.meaning)}"
        for field in fields_of(kind)
        if field.meaning and not field.meaning.startswith("Any: ")
    ]
    return " ".join([markdown.prose(kind.__doc__), *parts])


def _sentence(text: str) -> str:
    shown = markdown.prose(text)
    return shown if shown.endswith(".") else f"{shown}."


def _fields(kind: type[msgspec.Struct]) -> str:
    hints = get_type_hints(kind)
    return ", ".join(
        markdown.code(f"{field.name}: {type_text(hints[field.name])}{_default(field)}")
        for field in msgspec.structs.fields(kind)
    )


def _default(field: msgspec.structs.FieldInfo) -> str:
    return "" if field.default is msgspec.NODEFAULT else f" = {value_text(field.default)}"
