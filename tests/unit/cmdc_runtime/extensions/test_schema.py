"""Keys of dicts among a tool's parameters: they arrive as annotated, or the tool is refused."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel

from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions.tool import ToolError, as_tool, tool

Number = NewType("Number", int)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Frozen(BaseModel):
    model_config = {"frozen": True}
    x: int


@dataclass(frozen=True)
class Pair:
    x: int


@dataclass
class Tree:
    counts: dict[int, str]
    below: "list[Tree]"


@dataclass
class Wrong:
    below: "list[Wrong]"
    seen: dict[bool, int]


def taking(annotation):
    def f(x):
        """Take it."""
        return repr(x)

    f.__annotations__ = {"x": annotation}
    return f


ID = "7d0a1c1e-0000-4000-8000-000000000000"
DAY = date(2026, 1, 2)
ARRIVING = {
    "int": (dict[int, str], {"1": "a", "-2": "b"}, {1: "a", -2: "b"}),
    "float": (dict[float, int], {"1.5": 1}, {1.5: 1}),
    "decimal": (dict[Decimal, int], {"1.5": 1}, {Decimal("1.5"): 1}),
    "Enum": (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
    "IntEnum": (dict[Level, int], {"1": 1}, {Level.LOW: 1}),
    "Literal": (dict[Literal[1, 2], int], {"1": 1}, {1: 1}),
    "date": (dict[date, int], {"2026-01-02": 1}, {DAY: 1}),
    "datetime": (
        dict[datetime, int],
        {"2026-01-02T03:00:00Z": 1},
        {datetime(2026, 1, 2, 3, tzinfo=UTC): 1},
    ),
    "timedelta": (dict[timedelta, int], {"P1D": 1}, {timedelta(1): 1}),
    "UUID": (dict[UUID, int], {ID: 1}, {UUID(ID): 1}),
    "bytes": (dict[bytes, int], {"YQ==": 1}, {b"a": 1}),
    "NewType": (dict[Number, int], {"1": 1}, {1: 1}),
    "Annotated": (dict[Annotated[int, msgspec.Meta(ge=1)], int], {"1": 1}, {1: 1}),
    "union": (dict[int | None, int], {"1": 1}, {1: 1}),
    "any": (dict[Any, int], {"1": 1}, {"1": 1}),
    "text": (dict[str, int], {"1": 1}, {"1": 1}),
    "Mapping": (Mapping[int, int], {"1": 1}, {1: 1}),
    "below": (list[dict[int, dict[int, int]]], [{"1": {"2": 3}}], [{1: {2: 3}}]),
    "in a class": (
        Tree,
        {"counts": {"1": "a"}, "below": [{"counts": {}, "below": []}]},
        Tree({1: "a"}, [Tree({}, [])]),
    ),
}
REFUSED = {
    "bool": (dict[bool, int], "bool"),
    "tuple": (dict[tuple[int, int], int], "tuple"),
    "dataclass": (dict[Pair, int], "Pair"),
    "pydantic": (dict[Frozen, int], "Frozen"),
    "union": (dict[int | bool, int], "bool"),
    "None": (dict[None, int], "none"),
    "below": (list[dict[str, dict[bool, int]]], "bool"),
    "in a class": (Wrong, "bool"),
}


@pytest.mark.parametrize(("annotation", "given", "found"), ARRIVING.values(), ids=ARRIVING)
def test_a_key_arrives_as_annotated(annotation, given, found):
    """It is text in JSON, whatever it is in the function."""
    made = as_tool(tool(taking(annotation)))

    assert made.check({"x": given}) == {"x": found}
    assert repr(made.check({"x": given})["x"]) == repr(found)


@pytest.mark.parametrize(("annotation", "key"), REFUSED.values(), ids=REFUSED)
def test_a_key_that_never_arrives_is_refused_by_name(annotation, key):
    """Where the tool is defined: each call would fail, or bring a text instead."""
    with pytest.raises(InvalidTool) as caught:
        as_tool(tool(taking(annotation)))

    assert f"parameter 'x': no text of JSON becomes a key of type {key}: " in str(caught.value)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"one": "a"}, "Expected `int`, got `str` - at `key` in `$.x`"),
        ({"1": 2}, "Expected `str`, got `int` - at `$.x[...]`"),
    ],
)
def test_a_key_or_value_that_does_not_fit_is_reported(given, reported):
    """Keys alone are made of text; a value is as the annotation says."""
    with pytest.raises(ToolError) as caught:
        tool(taking(dict[int, str])).check({"x": given})

    assert str(caught.value) == f"Invalid arguments for f: {reported}"
