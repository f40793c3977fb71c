"""Types and marks of pydantic in a tool's parameters and results.

A class with ``model_json_schema`` is one of pydantic's, second edition. What ``pydantic.Field``
says of a plain type, of the fields of a dataclass or as a parameter's default has a meaning to that
library alone: such a parameter is checked by it, through a class that ``adapted`` makes. What it
says to the model, and no more, msgspec can say too. Nothing here imports the library unless such a
mark is there: who writes one has it. To take one more kind of type, add it to the three hooks,
which are what msgspec asks about a type or a value that means nothing to it.
"""

import dataclasses
import inspect
import json
import re
import warnings
from typing import (
    Annotated,
    Any,
    Final,
    NewType,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from cmdc_runtime.lines import one_line
from cmdc_runtime.plain import reason_of

# --- what msgspec asks ----------------------------------------------------------------------------

Schema = dict[str, Any]  # Any: JSON

_DEFINITIONS: Final = "$defs"


def schema_hook(kind: type) -> Schema:
    """Return the JSON Schema of a foreign type; what it refers to stands in ``$defs`` of it.

    Raises:
        TypeError: this is no such type either.
    """
    # Two models may each have a part of one name: each part is known by its model as well.
    owner = re.sub(r"\W+", "_", f"{kind.__module__}.{kind.__qualname__}")
    make = method_of(kind, "model_json_schema")
    made: Schema = make(ref_template=f"#/definitions/{owner}.{{model}}")
    parts: Schema = made.pop(_DEFINITIONS, {})
    return {**made, _DEFINITIONS: {f"{owner}.{name}": one for name, one in parts.items()}}


def dec_hook(kind: type, value: object) -> object:
    """Return what a foreign type makes of a value of a call's arguments.

    Raises:
        ValueError: the value does not fit; the text says what and where, for the model.
        TypeError: this is no such type either.
    """
    validate = method_of(kind, "model_validate_json")
    try:
        # As JSON, which it came from: a strict model takes a date as text from there alone.
        return validate(json.dumps(value))
    except ValueError as error:
        raise ValueError(message_of(error)) from error


def enc_hook(value: object) -> object:
    """Return a value of a foreign type as plain data.

    Raises:
        TypeError: it is of no such type either.
    """
    return method_of(type(value), "model_dump")(value, mode="json")


def method_of(kind: type, name: str) -> Any:  # Any: a method of the application's class
    """Return a method of a class of pydantic's.

    Raises:
        TypeError: it is none.
    """
    if hasattr(kind, "model_json_schema"):
        return getattr(kind, name)
    raise TypeError(f"type {kind!r} is none that JSON has a form for")


def message_of(error: ValueError) -> str:
    """Return an error of validation in one line, without the addresses of the library's pages."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in errors())


# --- marks ----------------------------------------------------------------------------------------

EMPTY: Final = inspect.Parameter.empty
Parameter = tuple[str, Any, Any]  # name, annotation, default; Any: whatever was written

_CONSTRAINING: Final = frozenset({"annotated_types", "pydantic"})
"""Libraries whose marks on a plain type say what its values may be."""
_RENAMING: Final = ("alias", "validation_alias")
"""What a field of a model can say and a parameter, whose name is the function's, can't."""
_CHARS_MAX: Final = 300


class UnheededError(Exception):
    """Nothing would check what a parameter says of its values; the text says what, and why."""


def adapted(name: str, annotation: Any, default: Any) -> Parameter:
    """Return a parameter so that msgspec understands it: its pydantic marks checked by pydantic.

    Raises:
        UnheededError: pydantic can't check it either.
    """
    annotation, default = _without_field(name, annotation, default)
    said = unheeded(annotation, set())
    if said is None:
        return name, _described(annotation), default
    try:
        return name, _checked_by_pydantic(name, annotation), default
    except Exception as error:  # foreign classes may do anything
        reason = one_line(reason_of(error), _CHARS_MAX)
        raise UnheededError(f"{said}: {reason}") from error


def _without_field(name: str, annotation: Any, default: Any) -> tuple[Any, Any]:
    """Return annotation and default of a parameter whose ``pydantic.Field`` holds the default."""
    if _is_field(default):
        annotation = Annotated[annotation, default]
        default = EMPTY
    for mark in _marks(annotation):
        renamed = next((one for one in _RENAMING if getattr(mark, one) is not None), None)
        if renamed is not None:
            problem = f"the argument is called {name!r}, as the function's parameter is"
            raise UnheededError(f"{renamed}={getattr(mark, renamed)!r}: {problem}")
        if default is EMPTY and mark.default_factory is not None:
            default = msgspec.field(default_factory=mark.default_factory)
        elif default is EMPTY and not mark.is_required():
            default = mark.default
    return annotation, default


def _marks(annotation: Any) -> list[Any]:
    return [one for one in getattr(annotation, "__metadata__", ()) if _is_field(one)]


def _is_field(thing: object) -> bool:
    """Say whether it is what ``pydantic.Field`` returns."""
    return type(thing).__name__ == "FieldInfo" and _is_of(thing, "pydantic")


def _described(annotation: Any) -> Any:
    """Return an annotation with what ``pydantic.Field`` says to the model said by msgspec."""
    marks = _marks(annotation)
    if not marks:
        return annotation
    said: dict[str, Any] = {}
    for mark in marks:
        said |= {
            name: getattr(mark, name)
            for name in ("title", "description", "examples")
            if getattr(mark, name) is not None
        }
        if isinstance(mark.json_schema_extra, dict):
            said["extra_json_schema"] = mark.json_schema_extra
    others = [one for one in annotation.__metadata__ if not _is_field(one)]
    return Annotated[(annotation.__origin__, *others, msgspec.Meta(**said))]


class _TakesAll(type):
    """Lets whatever pydantic has made of a value pass as an instance of the class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def _checked_by_pydantic(name: str, annotation: Any) -> type:
    """Return a class that stands for ``annotation`` to msgspec.

    Raises:
        Exception: pydantic knows no such type, or is not there.
    """
    import pydantic  # noqa: PLC0415 - optional, and 100 ms; who has written such a mark has it

    with warnings.catch_warnings(action="ignore"):  # of a default in an annotation, which is taken
        adapter: Any = pydantic.TypeAdapter(annotation)

    def model_json_schema(ref_template: str) -> Schema:
        made: Schema = adapter.json_schema(ref_template=ref_template)
        return {key: value for key, value in made.items() if key != "default"}

    adapter.json_schema()
    methods = {"model_json_schema": staticmethod(model_json_schema)}
    methods["model_validate_json"] = staticmethod(adapter.validate_json)
    return _TakesAll(name, (), {**methods, "__module__": "parameter"})


# Any, four times: whatever was written.
def unheeded(annotation: Any, seen: set[Any]) -> str | None:
    """Return a constraint of pydantic's in an annotation, which means nothing to msgspec, or None.

    One on a field of a class says which; ``seen`` are the classes that were looked at.
    """
    for said in getattr(annotation, "__metadata__", ()):
        if _is_of(said, *_CONSTRAINING) and getattr(said, "metadata", True):
            return str(said)[:_CHARS_MAX]
    meant = (annotation.__supertype__,) if isinstance(annotation, NewType) else ()
    parts = (*get_args(annotation), *meant)
    found = next(filter(None, (unheeded(part, seen) for part in parts)), None)
    return found or _unheeded_in(get_origin(annotation) or annotation, seen)


def holds_models(annotation: Any, seen: set[Any]) -> bool:
    """Say whether a model of pydantic's is anywhere in an annotation, or in a class of its fields.

    ``seen`` are the classes that were looked at.
    """
    kind = get_origin(annotation) or annotation
    parts = [*get_args(annotation), getattr(annotation, "__value__", None)]
    parts += [annotation.__supertype__] if isinstance(annotation, NewType) else []
    if isinstance(kind, type) and kind not in seen:
        seen.add(kind)
        if hasattr(kind, "model_json_schema"):
            return True
        parts += [one for _name, one, _default in _fields_of(kind)]
    return any(holds_models(one, seen) for one in parts if one is not None)


def _unheeded_in(kind: Any, seen: set[Any]) -> str | None:
    """Return the same of a class with fields."""
    if not isinstance(kind, type) or kind in seen:
        return None
    seen.add(kind)
    if hasattr(kind, "__pydantic_decorators__") and dataclasses.is_dataclass(kind):
        return f"{kind.__name__}, which is a dataclass of pydantic's"
    for name, annotation, default in _fields_of(kind):
        wrong = str(default) if _is_of(default, "pydantic") else unheeded(annotation, seen)
        if wrong is not None:
            return f"{wrong[:_CHARS_MAX]}, in {kind.__name__}.{name}"
    return None


def _fields_of(kind: type) -> tuple[Parameter, ...]:
    """Return the fields of a class that msgspec fills by itself, none where nobody can say."""
    defaults: dict[str, Any]
    if dataclasses.is_dataclass(kind):
        defaults = {one.name: one.default for one in dataclasses.fields(kind)}
    elif issubclass(kind, msgspec.Struct):
        defaults = {one.name: one.default for one in msgspec.structs.fields(kind)}
    elif is_typeddict(kind) or (issubclass(kind, tuple) and hasattr(kind, "_field_defaults")):
        defaults = getattr(kind, "_field_defaults", {})
    else:
        return ()
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - a name that means nothing, which msgspec reports
        return ()
    return tuple((name, one, defaults.get(name, EMPTY)) for name, one in hints.items())


def _is_of(thing: object, *libraries: str) -> bool:
    return type(thing).__module__.partition(".")[0] in libraries
