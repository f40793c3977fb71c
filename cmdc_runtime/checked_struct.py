"""Values that come from outside: the ranges of their numbers, and structs that a caller makes.

An option, a field of the wire and a column of the journal that mean the same take the same range,
which is written once. As an annotation a range is checked by msgspec, in options and in frames
alike; NaN is in none. To add one, add it here and name it in the field's annotation.

What is wrong with the names of a struct's fields is an error of the project. msgspec raises a bare
``TypeError`` for an unknown or missing field, and what ``__post_init__`` raises. A class with the
metaclass ``Checked`` raises ``InvalidFields`` in their place, which names the class, the field and
the one that may have been meant. Types of values are not looked at where there is nothing else
wrong: whoever takes the struct does. A decoder does not come here.
"""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from cmdc_runtime.plain import nearest, short

# --- ranges ---------------------------------------------------------------------------------------

COUNT_MAX: Final = 10**12
"""Of turns, tokens, retries: more than any session lives to see, and far from 64 bits."""
TOTAL_MAX: Final = 2**63 - 1
"""Of a sum of counts, which stays there however much is added: what a journal can keep."""
SECONDS_MAX: Final = 1_000_000.0
"""Eleven days: the longest wait that anybody may ask for."""
INCARNATION_MAX: Final = 2**31 - 1
"""Processes of one session; at one restart a second it takes 68 years."""
INDEX_MAX: Final = 2**53 - 1
"""Of an event, a record or a command in its session: what JSON's readers distinguish."""
TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, in ms since 1970: the last moment that has a date."""
COMMAND_VALUES_MAX: Final = 200_000
"""Values in one command, keys included: the daemon looks at each, for 0.1 s at most."""
NAME_CHARS_MAX: Final = 256
"""Of a group, a reference, a command's id: what names a thing and is one line."""
STOP_REASON_CHARS_MAX: Final = 1_000
"""Of what a caller gives as the reason of a session's end, which everybody reads."""
MEMORY_BYTES_MAX: Final = 2**62
"""What the kernel takes as a limit, with room to add to it."""

Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Total = Annotated[int, Meta(ge=0, le=TOTAL_MAX)]
Positive = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Milliseconds = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Moment = Annotated[float, Meta(gt=0, le=SECONDS_MAX)]
Silence = Annotated[float, Meta(ge=0.5, le=SECONDS_MAX)]
Share = Annotated[float, Meta(ge=0, le=1)]
Cost = Annotated[float, Meta(gt=0, le=1_000_000_000)]
Loops = Annotated[int, Meta(ge=2, le=10)]
Depth = Annotated[int, Meta(ge=0, le=8)]
MemoryBytes = Annotated[int, Meta(ge=1, le=MEMORY_BYTES_MAX)]
Cores = Annotated[float, Meta(ge=0.01, le=4096)]
Processes = Annotated[int, Meta(ge=4, le=1_000_000)]
OpenFiles = Annotated[int, Meta(ge=64, le=1_000_000)]
RING_EVENTS_MAX: Final = 1_000_000
RingEvents = Annotated[int, Meta(ge=0, le=RING_EVENTS_MAX)]


# --- names of fields ------------------------------------------------------------------------------

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
                # An error stands above what it is about, and is loaded when there is one.
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


def misfit(problem: str, kind: Any, value: object, name: str) -> str:
    """Return the words for the value of the field ``name`` that is not of its type.

    ``problem`` is what a converter says: what may be chosen, and what was given, are added.
    """
    words = _choices(kind)
    choices = f", expected of {', '.join(map(str, words))}" if words else ""
    return f"{problem}{choices}, got {short(value, (name,))}"


def _choices(kind: Any) -> tuple[object, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    return next(filter(None, map(_choices, get_args(kind))), ())


def _misfit(field: msgspec.structs.FieldInfo, value: object) -> str | None:
    try:
        with suppress(TypeError):  # a type that is checked elsewhere
            msgspec.convert(value, field.type)
    except ValueError as error:  # a ValidationError, or half a surrogate
        return f"{field.name}: {misfit(str(error), field.type, value, field.name)}"
    return None


def _fields(kind: Any) -> dict[str, msgspec.structs.FieldInfo] | None:
    """Return the fields by name, None where the annotations of a subclass can't be read."""
    try:
        return {field.name: field for field in msgspec.structs.fields(kind)}
    except (NameError, TypeError):
        return None
