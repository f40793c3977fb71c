"""Which call a prompt may carry, and what marks the messages that it makes."""

import msgspec
import pytest

from cmdc_runtime.messages import Message, OpeningCall
from workers.core.opening_call import (
    ARGUMENT_CHARS_MAX,
    CALL_BYTES_MAX,
    answer,
    call_problem,
    said_call,
)
from workers.core.state import Memory


def sized(size):
    """Return a call whose arguments take so many bytes."""
    around = len(msgspec.msgpack.encode({"text": "x" * CALL_BYTES_MAX})) - CALL_BYTES_MAX
    return OpeningCall(name="think", arguments={"text": "x" * (size - around)})


def test_a_call_may_be_as_large_as_may_be():
    """One byte more is too much, and says so."""
    assert call_problem(sized(CALL_BYTES_MAX)) is None
    assert f"got {CALL_BYTES_MAX + 1:,}" in call_problem(sized(CALL_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("text_as", "is_wrong"),
    [(None, False), ("topic", False), ("two\nlines", True), ("x" * (ARGUMENT_CHARS_MAX + 1), True)],
    ids=["none", "a name", "lines", "long"],
)
def test_the_name_of_an_argument_is_one_short_line(text_as, is_wrong):
    """The model reads it."""
    assert (call_problem(OpeningCall(name="think", text_as=text_as)) is not None) == is_wrong


def test_what_opens_a_cycle_is_marked():
    """The call and the answer that its result is: a client distinguishes them from the model's."""
    call = said_call(Memory(), OpeningCall(name="think"), "go")
    answered = answer(Memory(), Message.tool_result("a", "so it is"))

    assert call.metadata == answered.metadata == {"opening": True}
