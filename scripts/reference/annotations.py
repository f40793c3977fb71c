"""Annotations as a reader of the reference wants them: the type, and apart from it the bound."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

_BOUNDS: Final[Mapping[str, str]] = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "lt": "less than {}",
    "multiple_of": "a multiple of {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
    "pattern": "matches `{}`",
}


def type_text(annotation: Any) -> str:  # Any: an annotation
    """Return the type without its bounds, ``Literal["a", "b"]`` as ``"a" | "b"``."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (None, NoneType):
        return "None"
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is Literal:
        return " | ".join(f'"{word}"' if isinstance(word, str) else str(word) for word in arguments)
    if origin in (Union, UnionType):
        return " | ".join(map(type_text, arguments))
    if origin is None:
        return "..." if annotation is ... else str(getattr(annotation, "__name__", annotation))
    return f"{origin.__name__}[{', '.join(map(type_text, arguments))}]"


def bound_text(annotation: Any) -> str:  # Any: an annotation
    """Return what the annotation asks of a value beyond its type; "" where that is nothing."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return ""
    if get_origin(annotation) is not Annotated:
        inner = [text for text in map(bound_text, arguments) if text]
        is_many = get_origin(annotation) in (list, tuple, dict)
        words = (f"each {text}" if is_many else text for text in dict.fromkeys(inner))
        return "; ".join(words).replace("each each ", "each ")
    own = [text for meta in arguments[1:] if isinstance(meta, Meta) for text in _bounds(meta)]
    return ", ".join(filter(None, [", ".join(own), bound_text(arguments[0])]))


def greatest(annotation: Any) -> float | None:  # Any: an annotation
    """Return the upper bound of a number, or None where the annotation has none."""
    metas = [meta for meta in get_args(annotation)[1:] if isinstance(meta, Meta)]
    return next((float(meta.le) for meta in metas if meta.le is not None), None)


def value_text(value: object) -> str:
    """Return a default as it would be written in a call, lists and dicts as JSON has them."""
    if isinstance(value, str | list | dict):
        return msgspec.json.encode(value).decode()
    return repr(value)


def number_text(value: object) -> str:
    """Return a bound as people write it: 3,600 and not 3600.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _bounds(meta: Meta) -> list[str]:
    words = {name: getattr(meta, name) for name in _BOUNDS}
    return [
        _BOUNDS[name].format(number_text(value))
        for name, value in words.items()
        if value is not None
    ]
