"""Values of an application's own, ``user_data``, which arrive as they were given.

MessagePack has no tuples, sets, dates or decimals: these travel as extensions, which no plain value
can be taken for. What is in neither set is refused by name, since it would arrive as something
else. A definition of an older program has plain values only, and is read as before. To add a type,
add a row to ``_KINDS``; a code is never used again for another one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec.msgpack import Ext

from cmdc_runtime.plain import DEPTH_MAX, TOO_DEEP, VALUES_MAX, problem_of, short

_PLAIN: Final = (type(None), bool, int, float, str, bytes)
_OFFERED: Final = (
    "give None, bool, int, float, str, bytes, a list, tuple, dict, set or frozenset, a datetime,"
    " date, time or timedelta, a Decimal or a UUID"
)


class UnreadableValueError(ValueError):
    """What a definition holds is no value of an application, or one that is not known here."""


def user_problem(value: object) -> str | None:
    """Return what of ``value`` would not arrive as it is, with its place, or None."""
    open_: list[tuple[str, object, int]] = [("", value, 1)]
    count = 0
    while open_:
        place, part, depth = open_.pop()
        count += 1
        wrong = _own_problem(part, depth, count)
        if wrong is not None:
            return f"{place}: {wrong}" if place else wrong
        if type(part) is dict:
            open_ += ((f"{place}[{short(key)}]"[:80], one, depth + 1) for key, one in part.items())
        elif type(part) in _MANY:
            parts: Any = part  # Any: one of these
            open_ += ((f"{place}[{at}]"[:80], one, depth + 1) for at, one in enumerate(parts))
    return None


def packed(value: Any) -> Any:  # Any: what ``user_problem`` has nothing against
    """Return a value of which every part has a form in MessagePack."""
    if type(value) is dict:
        return {key: packed(one) for key, one in value.items()}
    if type(value) is list:
        return [packed(one) for one in value]
    if type(value) in _PLAIN or isinstance(value, Ext):
        return value
    kind = _BY_TYPE[type(value)]
    return Ext(kind.code, msgspec.msgpack.encode(packed(kind.parts(value))))


def unpacked(value: Any, levels: int = 2 * DEPTH_MAX) -> Any:  # Any: what ``packed`` returned
    """Return the value that ``packed`` was given.

    Raises:
        UnreadableValueError: there was none.
    """
    if levels < 0:
        raise UnreadableValueError("user_data nests too deep")
    if isinstance(value, dict):
        return {key: unpacked(one, levels - 1) for key, one in value.items()}
    if isinstance(value, list):
        return [unpacked(one, levels - 1) for one in value]
    if not isinstance(value, Ext):
        return value
    kind = _BY_CODE.get(value.code)
    if kind is None:
        raise UnreadableValueError(
            f"user_data has a value of kind {value.code}, which this program does not know"
        )
    try:
        return kind.made(unpacked(msgspec.msgpack.decode(value.data), levels - 1))
    except (msgspec.MsgspecError, ArithmeticError, TypeError, ValueError, LookupError) as error:
        raise UnreadableValueError(
            f"user_data has a damaged {kind.type.__name__}: {error}"
        ) from error


def shown(value: Any) -> Any:  # Any: the application's own
    """Return a value as events have it: of plain values only."""
    return msgspec.to_builtins(value, builtin_types=(bytes,))


# --- the kinds ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type, the code of its extension, what it is made of, and how it is made again."""

    code: int
    type: type
    parts: Callable[[Any], Any]
    made: Callable[[Any], Any]


def _zone_parts(zone: tzinfo | None) -> object:
    if zone is None:
        return None
    if isinstance(zone, ZoneInfo):
        return zone.key
    offset = zone.utcoffset(None)
    assert offset is not None  # noqa: S101 - a timezone's own is fixed
    return [offset.days, offset.seconds, offset.microseconds]


def _zone(parts: Any) -> tzinfo | None:  # Any: what ``_zone_parts`` returned
    if parts is None:
        return None
    return ZoneInfo(parts) if isinstance(parts, str) else timezone(_timedelta(parts))


def _moment_parts(value: datetime | time) -> list[object]:
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _zone_parts(value.tzinfo)]


def _datetime(parts: Any) -> datetime:  # Any: what ``_moment_parts`` returned
    text, fold, zone = parts
    return datetime.fromisoformat(text).replace(fold=fold, tzinfo=_zone(zone))


def _time(parts: Any) -> time:  # Any: what ``_moment_parts`` returned
    text, fold, zone = parts
    return time.fromisoformat(text).replace(fold=fold, tzinfo=_zone(zone))


def _timedelta(parts: Any) -> timedelta:  # Any: three numbers
    days, seconds, microseconds = parts
    return timedelta(days, seconds, microseconds)


def _days(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


# fmt: off
_KINDS: Final = (
    #     code type       what it is made of     how it is made again
    _Kind(1,   tuple,     list,                  tuple),
    _Kind(2,   set,       list,                  set),
    _Kind(3,   frozenset, list,                  frozenset),
    _Kind(4,   datetime,  _moment_parts,         _datetime),
    _Kind(5,   date,      date.isoformat,        date.fromisoformat),
    _Kind(6,   time,      _moment_parts,         _time),
    _Kind(7,   timedelta, _days,                 _timedelta),
    _Kind(8,   Decimal,   str,                   Decimal),
    _Kind(9,   UUID,      lambda one: one.bytes, _uuid),
)
# fmt: on
_MANY: Final = (list, tuple, set, frozenset)
_BY_TYPE: Final[Mapping[type, _Kind]] = {kind.type: kind for kind in _KINDS}
_BY_CODE: Final[Mapping[int, _Kind]] = {kind.code: kind for kind in _KINDS}


def _own_problem(value: object, depth: int, count: int) -> str | None:
    """Return what is wrong with a value but for its parts."""
    kind = type(value)
    if depth > DEPTH_MAX:
        return TOO_DEEP
    if count > VALUES_MAX:
        return f"there are more than {VALUES_MAX:,} values"
    if kind is dict:
        keys: Any = value  # Any: a dict of any keys
        return problem_of(dict.fromkeys(keys))
    if kind in _PLAIN:
        return problem_of(value)
    return _zone_problem(value) if kind is list or kind in _BY_TYPE else _refusal(kind)


def _refusal(kind: type) -> str:
    return f"a {kind.__name__} is no plain value; {_OFFERED}"


def _zone_problem(value: object) -> str | None:
    zone: object = getattr(value, "tzinfo", None)
    if zone is None or type(zone) is timezone or (isinstance(zone, ZoneInfo) and zone.key):
        return None
    return f"a {type(zone).__name__} as tzinfo has no name to travel by; use zoneinfo or timezone"
