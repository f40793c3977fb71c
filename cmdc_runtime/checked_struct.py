"""Structs that a caller makes: what is wrong with their fields' names is an error of the project.

msgspec raises a bare ``TypeError`` for an unknown or missing field, and what ``__post_init__``
raises. A class with the metaclass ``Checked`` raises ``InvalidFields`` in their place, which names
the class, the field and the one that may have been meant. Types of values are not looked at where
there is nothing else wrong: whoever takes the struct does. A decoder does not come here.
"""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cmdc_runtime.plain import nearest, short

NAMES_MAX: Final = 32
"""Of fields that nobody knows, in one error; each is compared with all that there are."""


class Checked(msgspec.StructMeta):
    """The metaclass of such structs."""

    if not TYPE_CHECKING:  # who checks types sees the fields of the class

        def __call__(self, *args: Any, **given: Any) -> Any:  # Any: fields of any class
            """Return the struct.

            Raises:
                InvalidFields: fields are unknown, missing or too many, or do not fit together.
            """
            try:
                return super().__call__(*args, **given)
            except Exception as error:  # ``__post_init__`` may stumble over anything
                # An error stands above what it tells of, and is loaded when there is one.
                errors = importlib.import_module("cmdc_runtime.errors")
                if isinstance(error, errors.CmdcError):
                    raise
                found = _problems(self, args, given)
                if not found and not isinstance(error, ValueError):  # which says itself what it is
                    found = _misfits(self, args, given)
                found = found or [str(error)]
                problems = [f"{self.__name__}: {problem}" for problem in found]
                raise errors.InvalidFields(problems) from None


def no_such(name: object, known: Sequence[str], noun: str = "field") -> str:
    """Return the problem that nothing is called ``name``, with what may have been meant."""
    near = nearest(name, known) if isinstance(name, str) else None
    hint = "" if near is None else f"; did you mean {near}?"
    return f"there is no {noun} {short(name)}, only {', '.join(known) or 'none at all'}{hint}"


# Any, here and below: fields of any class.
def _problems(kind: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the names of the fields."""
    fields = _fields(kind)
    if fields is None:
        return []
    by_place = kind.__match_args__
    problems = [no_such(name, [*fields]) for name in islice(given.keys() - fields, NAMES_MAX)]
    if len(args) > len(by_place):
        problems.append(f"{len(args)} values without a name, at most {len(by_place)} are taken")
    known = {*by_place[: len(args)], *given}
    missing = (one.name for one in fields.values() if one.required and one.name not in known)
    return [*problems, *(f"{name} is missing" for name in missing)]


def _misfits(kind: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the types of the values."""
    fields = _fields(kind) or {}
    values = {**dict(zip(kind.__match_args__, args, strict=False)), **given}
    found = (_misfit(fields[name], values[name]) for name in values if name in fields)
    return [*filter(None, found)]


def _misfit(field: msgspec.structs.FieldInfo, value: object) -> str | None:
    try:
        with suppress(TypeError):  # a type that is checked elsewhere
            msgspec.convert(value, field.type)
    except ValueError as error:  # a ValidationError, or half a surrogate
        return f"{field.name}: {error}, got {short(value, (field.name,))}"
    return None


def _fields(kind: Any) -> dict[str, msgspec.structs.FieldInfo] | None:
    """Return the fields by name, None where the annotations of a subclass can't be read."""
    try:
        return {field.name: field for field in msgspec.structs.fields(kind)}
    except (NameError, TypeError):
        return None
