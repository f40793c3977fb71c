"""One value of a form that an MCP server asks for: what the user reads of it, and what fits.

The protocol has texts, numbers, truths and choices, each with bounds; all of these stand in the
question, and an answer is held against them. A pattern is no part of the protocol: it is shown, and
not matched, since one can be made to match for ever. What a server writes there beside the protocol
bounds nothing.

To take one more bound, add it to ``_BOUNDS``; one more format, to ``_FORMATS``.
"""

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from cmdc_runtime.lines import one_line

TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}
PATTERN_CHARS_MAX: Final = 200
"""Of a pattern in the question."""

Field = Mapping[str, Any]
"""Any: a JSON Schema."""

_NUMBERS: Final = ("integer", "number")
_FITTING: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
}
_EMAIL: Final = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,63}:[^\s<>\"{}|\\^`]+")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound of a schema: of values of which types, in words, and what of them it bounds."""

    keyword: str
    kinds: tuple[str, ...]
    words: str
    is_least: bool
    measure: Callable[[Any], Any]  # Any: a value of these types, and a number


def _itself(value: Any) -> Any:  # Any: a number
    return value


_BOUNDS: Final = (
    _Bound("minLength", ("string",), "a length of at least {}", is_least=True, measure=len),
    _Bound("maxLength", ("string",), "a length of at most {}", is_least=False, measure=len),
    _Bound("minimum", _NUMBERS, "at least {}", is_least=True, measure=_itself),
    _Bound("maximum", _NUMBERS, "at most {}", is_least=False, measure=_itself),
    _Bound("minItems", ("array",), "at least {} of them", is_least=True, measure=len),
    _Bound("maxItems", ("array",), "at most {} of them", is_least=False, measure=len),
)


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return _DATE.fullmatch(text) is not None and bool(dt.date.fromisoformat(text))
    return False


def _is_time(text: str) -> bool:
    parts = _TIME.fullmatch(text)
    with suppress(ValueError):
        zone = "" if parts is None else parts[3].upper().replace("Z", "+00:00")
        return parts is not None and bool(dt.datetime.fromisoformat(f"{parts[1]}T{parts[2]}{zone}"))
    return False


_FORMATS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "email": ("an email address", _EMAIL.fullmatch),
    "uri": ("a URI, such as https://example.org", _URI.fullmatch),
    "date": ("a date as 2026-01-31", _is_date),
    "date-time": ("a time as 2026-01-31T12:00:00Z", _is_time),
}


# --- for the question -----------------------------------------------------------------------------


def described(one: Field) -> str:
    """Return what is asked for, with its bounds and what there is to choose from."""
    said = one.get("description") or one.get("title")
    kind = kind_of(one)
    facts = [kind] if said and kind in _NUMBERS else []
    facts += _bounds_in_words(one)
    named = choices(one)
    several = "any of " if kind == "array" and named else ""
    facts += [several + ", ".join(_titled(value, title) for value, title in named.items())]
    text = "; ".join(filter(None, facts))
    said = str(said or one.get("type") or "a value")
    return f"{said} ({text})" if text else said


def choices(one: Field) -> dict[str, str]:
    """Return what there is to choose from, each with its title, which may be as the value is."""
    items = one.get("items")
    if kind_of(one) == "array" and isinstance(items, Mapping):
        one = items
    given, names = one.get("enum"), one.get("enumNames")
    if isinstance(given, list | tuple):
        titles = names if isinstance(names, list | tuple) else ()
        named = dict(zip(map(str, given), map(str, titles), strict=False))
        return {str(value): named.get(str(value), str(value)) for value in given}
    titled = one.get("oneOf") or one.get("anyOf")
    if not isinstance(titled, list | tuple):
        return {}
    parts = [part for part in titled if isinstance(part, Mapping) and "const" in part]
    return {str(part["const"]): str(part.get("title") or part["const"]) for part in parts}


def kind_of(one: Field) -> str:
    """Return the type that a field asks for."""
    return str(one.get("type", "string"))


def _titled(value: str, title: str) -> str:
    return value if title == value else f"{value}: {title}"


def _bounds_in_words(one: Field) -> Iterator[str]:
    for bound, limit in _bounds(one):
        yield bound.words.format(limit)
    if kind_of(one) == "string":
        if (form := _FORMATS.get(str(one.get("format")))) is not None:
            yield form[0]
        if isinstance(pattern := one.get("pattern"), str):
            yield f"as the pattern {one_line(pattern, PATTERN_CHARS_MAX)}"


def _bounds(one: Field) -> Iterator[tuple[_Bound, int | float]]:
    for bound in _BOUNDS:
        limit = one.get(bound.keyword)
        if kind_of(one) not in bound.kinds or isinstance(limit, bool):
            continue
        if isinstance(limit, int | float):
            yield bound, limit


# --- for an answer --------------------------------------------------------------------------------


def typed(name: str, value: Any, one: Field) -> Any:  # Any: whatever the application sent
    """Return a value of the type that its field asks for, of a text too.

    Raises:
        ValueError: it does not fit; the text says why.
    """
    kind = kind_of(one)
    if isinstance(value, str):
        value = _read(value, kind)
    fitting = _FITTING.get(kind, (object,))
    if not isinstance(value, fitting) or (isinstance(value, bool) and kind in _NUMBERS):
        raise ValueError(f"{name}: expected {kind}, got {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name}: {value} is no number")
    if named := choices(one):
        parts: list[Any] = value if isinstance(value, list) else [value]
        chosen = [_chosen(name, part, named) for part in parts]
        value = chosen if isinstance(value, list) else chosen[0]
    for bound, limit in _bounds(one):
        size = bound.measure(value)
        if size < limit if bound.is_least else size > limit:
            raise ValueError(f"{name}: expected {bound.words.format(limit)}")
    form = _FORMATS.get(str(one.get("format"))) if kind == "string" else None
    if form is not None and not form[1](value):
        raise ValueError(f"{name}: expected {form[0]}")
    return value


def _chosen(name: str, value: Any, named: Mapping[str, str]) -> Any:
    """Return what was chosen; a title stands for its value."""
    if str(value) in named:
        return value
    meant = [one for one, title in named.items() if title == value]
    if len(meant) != 1:
        raise ValueError(f"{name}: expected one of {', '.join(named)}")
    return meant[0]


def _read(text: str, kind: str) -> Any:
    """Return what a text means as this type; one that means nothing as it is."""
    small = text.strip().lower()
    if kind == "boolean":
        return TRUTHS.get(small, text)
    if kind == "array":
        return _listed(text)
    with suppress(ValueError):
        if kind in _NUMBERS:
            return int(text) if kind == "integer" else float(text)
    return text


def _listed(text: str) -> list[Any]:
    """Return a text as a list: as JSON, or what stands between commas."""
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), list):
            return found
    return [part for one in text.split(",") if (part := one.strip())]
