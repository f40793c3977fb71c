"""The facts of the built-in plugins, from the light references and the classes behind them."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any, Final, get_args, get_type_hints

import msgspec

from cmdc_runtime import plugins as references
from cmdc_runtime.extensions.hooks import HOOKS
from cmdc_runtime.extensions.plugin import (
    FILTER_OUTPUT,
    HANDLE_EVENT,
    OBSERVE,
    Plugin,
    filters_output,
    hooks_of,
    observes,
)
from cmdc_runtime.packing import BuiltIn
from cmdc_runtime.plugins.catalogue import MethodFacts, OptionFacts, PartFacts, PluginFacts
from scripts.reference import markdown
from scripts.reference.annotations import bound_text, type_text, value_text
from scripts.reference.sources import Field, fields_of
from workers.builtin import plugins as package

_SENTENCE: Final = re.compile(r".+?[.:](?=\s|$)")
_FUNCTION: Final = "Function"
"""How a light reference writes the type of an option that is a function; it stands for ``Any``."""

_WHY_ANY: Final = "Any: "
"""How the reason for an ``Any`` begins; behind a field, it is the field's meaning."""


def facts() -> tuple[PluginFacts, ...]:
    """Return what there is to know about each built-in plugin, by name."""
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(_facts(name) for name in sorted(names) if not name.startswith("_"))


def catalogue() -> str:
    """Return the facts as the package ships them."""
    text = msgspec.json.encode(facts())
    return msgspec.json.format(text, indent=2).decode() + "\n"


def class_of(name: str) -> type[Plugin]:
    """Return the class of a built-in plugin."""
    found = importlib.import_module(f"{package.__name__}.{name}").create
    assert isinstance(found, type)  # noqa: S101 - the contract of our own plugins
    assert issubclass(found, Plugin)  # noqa: S101
    return found


def _facts(name: str) -> PluginFacts:
    plugin = class_of(name)
    reference = _reference_of(name)
    meaning = markdown.prose(reference.__doc__)
    sentence = _SENTENCE.match(meaning)
    return PluginFacts(
        name=name,
        reference=reference.__name__,
        sentence=(sentence[0] if sentence else meaning).removesuffix(":").removesuffix("."),
        meaning=meaning,
        priority=plugin.priority,
        fail=plugin.fail,
        methods=tuple(_methods(plugin)),
        emits=plugin.emits,
        options=tuple(_options(reference)),
        parts=tuple(map(_part, _parts_of(reference))),
    )


def _reference_of(name: str) -> type[BuiltIn]:
    for shown in references.__all__:
        found: type[BuiltIn] = getattr(references, shown)
        if found.short_name == name:
            return found
    raise LookupError(f"plugin {name!r} has no light reference in {references.__name__}")


def _methods(plugin: type[Plugin]) -> Iterator[MethodFacts]:
    # Which methods are its own is asked of an instance; the options do not matter for that.
    bare = plugin.__new__(plugin)
    heard = hooks_of(bare)
    names = [kind for kind in HOOKS if kind in heard]
    names += [OBSERVE] * observes(bare) + [FILTER_OUTPUT] * filters_output(bare)
    for name in names:
        own = name if name in vars(plugin) else HANDLE_EVENT
        text = inspect.getdoc(getattr(plugin, own)) or ""
        first, *_ = text.split("\n\n")
        yield MethodFacts(name=name, meaning=markdown.prose(first))


def _options(struct: type[msgspec.Struct]) -> Iterator[OptionFacts]:
    hints = get_type_hints(struct, include_extras=True)
    written = {field.name: field for field in fields_of(struct)}
    for field in msgspec.structs.fields(struct):
        own = written.get(field.name)
        if own is None:  # inherited: described where it stands
            continue
        yield OptionFacts(
            name=field.name,
            type=_type(own, hints[field.name]),
            default=_default(field),
            bound=bound_text(hints[field.name]),
            meaning=markdown.prose(own.meaning.removeprefix(_WHY_ANY)),
        )


def _type(field: Field, hint: Any) -> str:  # Any: an annotation
    if _FUNCTION in field.annotation:
        return field.annotation.replace(_FUNCTION, "function")
    return type_text(hint)


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    """Return a default as one writes it, None where the option is required."""
    if field.required:
        return None
    made = field.default_factory
    value = field.default if made is msgspec.NODEFAULT else made()
    # A list is as good as a tuple, and written like any other one.
    return value_text(list(value) if isinstance(value, tuple) else value)


def _parts_of(struct: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return the Structs that options of ``struct`` are made of, each once, outer ones first."""
    found: list[type[msgspec.Struct]] = []
    waiting = [struct]
    while waiting:
        hints = get_type_hints(waiting.pop(0), include_extras=True).values()
        fresh = [part for hint in hints for part in _structs_in(hint) if part not in found]
        found += dict.fromkeys(fresh)
        waiting += dict.fromkeys(fresh)
    return found


def _structs_in(annotation: Any) -> Iterator[type[msgspec.Struct]]:  # Any: an annotation
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for part in get_args(annotation):
        yield from _structs_in(part)


def _part(part: type[msgspec.Struct]) -> PartFacts:
    return PartFacts(
        name=part.__name__,
        module=part.__module__,
        meaning=markdown.prose(part.__doc__),
        options=tuple(_options(part)),
    )
