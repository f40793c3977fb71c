"""Numbers that cannot be kept are found among values of any kind."""

import math

import msgspec
import pytest

from cmdc_runtime import plain
from cmdc_runtime.plain import kept_numbers_problem


class Part(msgspec.Struct):
    """A part of options."""

    share: float = 0.5


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (2**64, "it is an integer beyond 64 bits"),
        (math.nan, "nan is not a finite number"),
        ({"a": [len, {"b": -math.inf}]}, "['a'][1]['b']: -inf is not a finite number"),
        ([Part(), Part(share=math.inf)], "[1]['share']: inf is not a finite number"),
        ((1, 2**80, math.nan), "[1]: it is an integer beyond 64 bits"),
        ({"a": len, "b": {1: 2.5, None: True}, "c": Part()}, None),
    ],
)
def test_numbers_are_judged_among_values_of_any_kind(value, problem):
    """The first that cannot be kept is named by its place; what is no number is passed over."""
    assert kept_numbers_problem(value) == problem


def test_numbers_in_what_holds_itself_have_an_end(monkeypatch):
    """It is looked at as long as any other value is."""
    monkeypatch.setattr("cmdc_runtime.plain.VALUES_MAX", 1_000)
    circle = []
    circle.append(circle)

    assert kept_numbers_problem(circle) is None


def test_numbers_are_looked_for_in_so_many_values(monkeypatch):
    """The holder counts as one; the last one that is looked at is seen as any other."""
    monkeypatch.setattr(plain, "VALUES_MAX", 3)

    assert kept_numbers_problem([1, math.inf]) == "[1]: inf is not a finite number"
    assert kept_numbers_problem([1, 2, math.inf]) is None
