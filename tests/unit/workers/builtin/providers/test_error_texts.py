"""What is left of an error that is too long, and that nothing else is cut."""

import json
import re

import pytest

from workers.builtin.providers._failures import (
    ERROR_BYTES_MAX,
    TEXT_CHARS_MAX,
    with_cut_text,
)
from workers.builtin.providers._usages import UsageSieve, UsageWatch

LONG = "e" * ERROR_BYTES_MAX


def passed(sent):
    """Return what is passed on of an event."""
    event = b"data: " + json.dumps(sent).encode() + b"\n\n"
    sieve = UsageSieve(UsageWatch(), re.compile(rb"\n\n"))
    return json.loads(sieve.take(event).removeprefix(b"data: "))


CUT = {
    "object": (
        {"type": "error", "n": 1, "error": {"message": LONG, "code": 503, "param": None}},
        {"type": "error", "error": {"message": LONG[:TEXT_CHARS_MAX], "code": 503, "param": None}},
    ),
    "text": ({"error": LONG}, {"error": LONG[:TEXT_CHARS_MAX]}),
    "list": ({"error": [LONG]}, {"error": json.dumps([LONG])[:TEXT_CHARS_MAX]}),
    "nested": (
        {"error": {"error": {"message": LONG}}},
        {"error": {"error": json.dumps({"message": LONG})[:TEXT_CHARS_MAX]}},
    ),
    "many members": (
        {"error": {str(at): at for at in range(10_000)}},
        {"error": {str(at): at for at in range(6)}},
    ),
}


@pytest.mark.parametrize(("sent", "left"), CUT.values(), ids=CUT)
def test_the_beginning_of_a_long_error_is_left(sent, left):
    """With what says its kind."""
    assert passed(sent) == left


UNTOUCHED = {
    "short": {"error": {"message": "e" * TEXT_CHARS_MAX * 2}},
    "null": {"error": None, "text": LONG},
    "further in": {"a": {"error": LONG}},
    "list": [{"error": LONG}],
}


@pytest.mark.parametrize("sent", UNTOUCHED.values(), ids=UNTOUCHED)
def test_all_else_is_left_as_it_is(sent):
    """A long reply may speak of errors."""
    assert passed(sent) == sent


def test_a_text_is_cut_before_it_is_read():
    """Whoever reads it gets the beginning alone."""
    assert with_cut_text(str.upper)(LONG) == "E" * TEXT_CHARS_MAX
