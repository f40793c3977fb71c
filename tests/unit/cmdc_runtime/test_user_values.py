"""Values of an application's own: they arrive as they were given, or are refused by name."""

import math
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from cmdc_runtime.plain import DEPTH_MAX, problem_of
from cmdc_runtime.user_values import (
    UnreadableValueError,
    packed,
    shown,
    unpacked,
    user_problem,
)


class Point(NamedTuple):
    x: int
    y: int


ZONES = st.none() | st.sampled_from([UTC, timezone(timedelta(hours=-3, seconds=7))])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.datetimes(timezones=ZONES)
    | st.datetimes(timezones=st.timezone_keys().map(ZoneInfo))
    | st.dates()
    | st.times(timezones=ZONES)
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
HASHED = st.recursive(
    LEAVES, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
VALUES = st.recursive(
    HASHED,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        | st.sets(HASHED, max_size=3)
    ),
    max_leaves=8,
)


class Month(IntEnum):
    MAY = 5


class Odd(tzinfo):
    def utcoffset(self, _moment):
        return timedelta(0)


def sent(value):
    """Return a value as the other side has it."""
    return unpacked(msgspec.msgpack.decode(msgspec.msgpack.encode(packed(value))))


def types_in(value):
    """Return the types of a value and of its parts, and what differs between equal moments."""
    if isinstance(value, dict):
        return [dict, *((key, types_in(one)) for key, one in value.items())]
    if isinstance(value, list | tuple):
        return [type(value), *map(types_in, value)]
    return [type(value), str(value) if not isinstance(value, set | frozenset) else len(value)]


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_what_is_taken_arrives_as_it_was(value):
    """The same values of the same types, on the wire and off it, and once more behind it."""
    assert user_problem(value) is None
    found = sent(value)

    assert found == value
    assert types_in(found) == types_in(value)
    assert sent(found) == value
    assert problem_of(shown(value)) is None or "finite" in problem_of(shown(value))


def test_the_second_of_two_equal_hours_stays_the_second():
    """And a decimal keeps its zeros."""
    twice = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Vienna"))
    found = sent({"at": twice, "price": Decimal("1.500"), "none": Decimal("NaN")})

    assert (found["at"].fold, found["at"].tzinfo.key) == (1, "Europe/Vienna")
    assert str(found["price"]) == "1.500"
    assert found["none"].is_nan()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "['x']: a object is no plain value; give None, bool"),
        (Point(1, 2), "['x']: a Point is no plain value"),
        (OrderedDict(), "['x']: a OrderedDict is no plain value"),
        (bytearray(), "['x']: a bytearray is no plain value"),
        (Month.MAY, "['x']: a Month is no plain value"),
        ({1: 2}, "['x']: a key is of type int"),
        ([1, {"y": math.nan}], "['x'][1]['y']: nan is not a finite number"),
        ((2**64,), "['x'][0]: it is an integer beyond 64 bits"),
        ({"a\ud800"}, "['x'][0]: it is no valid UTF-8"),
        (datetime(2026, 1, 1, tzinfo=Odd()), "['x']: a Odd as tzinfo has no name to travel by"),
    ],
)
def test_what_would_arrive_as_something_else_is_refused_by_name(value, problem):
    """The message says where it is, and what may be given instead."""
    assert user_problem({"x": value}).startswith(problem)


def test_what_nests_too_deep_or_holds_itself_is_refused():
    """However it nests."""
    deep = []
    for _ in range(DEPTH_MAX):
        deep = (deep,)
    endless = []
    endless += [endless, endless]

    assert user_problem(deep).endswith(f"it nests more than {DEPTH_MAX} levels deep")
    assert user_problem(endless).endswith("levels deep")
    assert user_problem(deep[0]) is None
    assert sent(deep[0]) == deep[0]


def test_a_definition_of_an_older_program_is_read_as_before():
    """Then a moment with a zone was the one thing that was no plain value."""
    old = {
        "n": [1, {"t": "x"}],
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "day": date.max.isoformat(),
    }
    assert unpacked(msgspec.msgpack.decode(msgspec.msgpack.encode(old))) == old


@pytest.mark.parametrize(
    "value",
    [
        Ext(99, b"\xc0"),
        Ext(4, b"\xc0"),
        Ext(5, msgspec.msgpack.encode("never")),
        Ext(8, msgspec.msgpack.encode("no number")),
        Ext(9, msgspec.msgpack.encode(b"short")),
        Ext(1, b"\xc1"),
        Ext(2, msgspec.msgpack.encode([[]])),
    ],
)
def test_damaged_values_are_reported(value):
    """Whoever builds the agent says so."""
    with pytest.raises(UnreadableValueError, match="user_data has a"):
        unpacked({"x": value})


def test_a_value_packed_too_deep_is_reported():
    """A stranger's definition exhausts no stack."""
    value = Ext(1, msgspec.msgpack.encode([]))
    for _ in range(3 * DEPTH_MAX):
        value = Ext(1, msgspec.msgpack.encode([value]))
    with pytest.raises(UnreadableValueError, match="nests too deep"):
        unpacked(value)


def test_events_hold_plain_values():
    """As they did before: text for what has no other form."""
    published = shown(
        {"a": (1, {2}), "b": b"x", "c": Decimal("1.5"), "d": time(1), "e": UUID(int=1)}
    )
    assert problem_of(published) is None
    assert published["a"] == (1, [2])
    assert published["b"] == b"x"
