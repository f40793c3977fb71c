"""Types that msgspec does not know, in a tool's parameters and results: those of pydantic.

A class with ``model_json_schema`` is one of pydantic's, second edition. Nothing here imports that
library: who has such a class has it. To take one more kind of type, add it to the three hooks,
which are what msgspec asks about a type or a value that means nothing to it.
"""

import json
import re
from typing import Any, Final

import msgspec

from cmdc_runtime.plain import TOO_DEEP, problem_of

Schema = dict[str, Any]  # Any: JSON

_DEFINITIONS: Final = "$defs"
_SHOWN_AS_TEXT: Final = (bool, int, float, bytes, bytearray, memoryview, type(None))


def schema_hook(kind: type) -> Schema:
    """Return the JSON Schema of a foreign type; what it refers to stands in ``$defs`` of it.

    Raises:
        TypeError: this is no such type either.
    """
    # Two models may each have a part of one name: each part is known by its model as well.
    owner = re.sub(r"\W+", "_", f"{kind.__module__}.{kind.__qualname__}")
    make = _method_of(kind, "model_json_schema")
    made: Schema = make(ref_template=f"#/definitions/{owner}.{{model}}")
    parts: Schema = made.pop(_DEFINITIONS, {})
    return {**made, _DEFINITIONS: {f"{owner}.{name}": one for name, one in parts.items()}}


def dec_hook(kind: type, value: object) -> object:
    """Return what a foreign type makes of a value of a call's arguments.

    Raises:
        ValueError: the value does not fit; the text says what and where, for the model.
        TypeError: this is no such type either.
    """
    validate = _method_of(kind, "model_validate_json")
    try:
        # As JSON, which it came from: a strict model takes a date as text from there alone.
        return validate(json.dumps(value))
    except ValueError as error:
        raise ValueError(_told(error)) from error


def enc_hook(value: object) -> object:
    """Return a value of a foreign type as plain data.

    Raises:
        TypeError: it is of no such type either.
    """
    return _method_of(type(value), "model_dump")(value, mode="json")


def text_of(value: object) -> str:
    """Return what the model reads of a tool's result.

    A text is itself and a plain number what Python writes; what has a form in JSON is that: dicts,
    lists, members of an Enum, instances of dataclasses, Structs and pydantic models. All else is
    its ``str()``, and so is what has two keys in one dict that JSON writes alike, as 1 and "1".

    Raises:
        ValueError: the model would read something else than what is there, as null for nan, or it
            nests without an end; the text says what of it and where.
        BaseException: whatever a class of the tool's own raises when it is asked for its text.
    """
    if type(value) in _SHOWN_AS_TEXT or isinstance(value, str):
        return _valid(str.__str__(value) if isinstance(value, str) else str(value))
    try:
        data = msgspec.to_builtins(value, enc_hook=enc_hook, str_keys=True)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _written(value)
    if (problem := problem_of(data)) is not None:
        raise ValueError(problem)
    body = msgspec.json.encode(data)
    return _written(value) if _loses_keys(value, body) else body.decode()


def _written(value: object) -> str:
    try:
        return _valid(str(value))
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error


def _loses_keys(value: object, body: bytes) -> bool:
    """Say whether keys of one dict in ``value`` fell together in ``body``, which is its JSON."""
    try:
        whole = msgspec.json.encode(value, enc_hook=_enc_hook_whole)
        if whole == body:
            return False
        json.loads(whole, object_pairs_hook=_distinct)
    except _KeysAlikeError:
        return True
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return False


class _KeysAlikeError(Exception):
    """A dict has one key twice."""


def _distinct(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _KeysAlikeError


def _enc_hook_whole(value: object) -> msgspec.Raw:
    written: str = _method_of(type(value), "model_dump_json")(value)
    return msgspec.Raw(written.encode())


def _valid(text: str) -> str:
    if (problem := problem_of(text)) is not None:
        raise ValueError(problem)
    return text


def _method_of(kind: type, name: str) -> Any:  # Any: a method of the application's class
    if hasattr(kind, "model_json_schema"):
        return getattr(kind, name)
    raise TypeError(f"type {kind!r} is none that JSON has a form for")


def _told(error: ValueError) -> str:
    """Return an error of validation in one line, without the addresses of the library's pages."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in errors())
