"""Guardrails are looked at where they are given: each can be called as it will be."""

import functools

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.options import parse


def fine(text, context):
    return None


class Method:
    def check(self, text, context):
        return None

    def __call__(self, text, *_rest):
        return None


TAKEN = {
    "a function": fine,
    "by any names": lambda one, other: None,
    "with a default": lambda text, context=None, extra=1: None,
    "a method": Method().check,
    "an object": Method(),
    "a partial": functools.partial(lambda limit, text, context: None, 3),
    "a name": "some.module:guard",
    "without a signature": max,
}
REFUSED = {
    "too few": lambda text: None,
    "none": lambda: None,
    "too many": lambda text, context, limit: None,
    "by name alone": lambda text, *, context: None,
    "a partial of all": functools.partial(fine, "text"),
    "a method of the class": Method.check,
}


@pytest.mark.parametrize("side", ["input_guardrails", "output_guardrails"])
@pytest.mark.parametrize("given", TAKEN.values(), ids=TAKEN)
def test_what_takes_a_text_and_the_context_is_a_guardrail(side, given):
    """Whatever its form."""
    assert parse(None, {"model": "openai:x", side: [given]})


@pytest.mark.parametrize("side", ["input_guardrails", "output_guardrails"])
@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_called_so_is_refused(side, given):
    """Every prompt would fail."""
    with pytest.raises(InvalidOptions, match=rf"{side}: .* is called with \(text, context\): "):
        parse(None, {"model": "openai:x", side: [given]})
