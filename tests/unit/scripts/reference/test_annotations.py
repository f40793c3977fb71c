"""Types and bounds are kept apart, in words."""

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from scripts.reference.annotations import (
    bound_text,
    greatest,
    number_text,
    type_text,
    value_text,
)

Short = Annotated[str, Meta(max_length=5, pattern="^a")]


@pytest.mark.parametrize(
    ("annotation", "text", "bound"),
    [
        (int, "int", ""),
        (Any, "Any", ""),
        (str | None, "str | None", ""),
        (Annotated[int, Meta(ge=1)], "int", "at least 1"),
        (Annotated[float, Meta(gt=0, le=1_000.0)], "float", "more than 0, at most 1,000"),
        (Annotated[int, Meta(ge=1)] | None, "int | None", "at least 1"),
        (Literal["a", "b"], '"a" | "b"', ""),
        (list[Short], "list[str]", "each at most 5 long, matches `^a`"),
        (Annotated[list[Short], Meta(max_length=2)], "list[str]",
         "at most 2 long, each at most 5 long, matches `^a`"),
        (tuple[int, ...], "tuple[int, ...]", ""),
    ],
)  # fmt: skip
def test_a_type_and_its_bound(annotation, text, bound):
    """The type is what one writes, the bound is a sentence about the value."""
    assert (type_text(annotation), bound_text(annotation)) == (text, bound)


def test_the_highest_number():
    """Only an upper bound that belongs to the range is one to try."""
    assert greatest(Annotated[int, Meta(ge=1, le=7)]) == 7
    assert greatest(Annotated[int, Meta(ge=1)]) is None
    assert greatest(int) is None


@pytest.mark.parametrize(
    ("value", "text"), [("x", '"x"'), ([], "[]"), ({}, "{}"), (None, "None"), (2.0, "2.0")]
)
def test_a_default_is_shown_as_one_writes_it(value, text):
    """Text has quotes, and nothing is abbreviated."""
    assert value_text(value) == text


@pytest.mark.parametrize(("value", "text"), [(3600.0, "3,600"), (0.5, "0.5"), ("a", "a")])
def test_a_bound_is_shown_as_people_write_it(value, text):
    """Thousands are grouped, and a whole number has no point."""
    assert number_text(value) == text
