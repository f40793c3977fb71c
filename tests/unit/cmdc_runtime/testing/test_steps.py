"""The words of a script: what they mean when they are put together, and what they refuse."""

import pytest

from cmdc_runtime.testing import (
    Delay,
    Disconnect,
    Error,
    Hold,
    ScriptedModel,
    Sequence,
    Stall,
    Text,
    Thinking,
    ToolCalls,
    ToolUse,
    Truncate,
)
from cmdc_runtime.testing.steps import PAUSE_S_MAX, sequence_of


@pytest.mark.parametrize(
    "answer",
    ["hi", Text("hi"), ("hi",), (Text("hi"),), Sequence("hi"), Sequence(Text("hi"))],
    ids=["str", "piece", "tuple of str", "tuple of piece", "sequence of str", "sequence"],
)
def test_every_way_to_write_a_text_means_the_same(answer):
    """A str is a Text, a piece is a sequence of one, a tuple is a sequence."""
    assert sequence_of(answer) == Sequence(Text("hi"))


@pytest.mark.parametrize("ending", [Error(500, "x"), Stall(), Disconnect(), Truncate()])
def test_nothing_follows_an_ending(ending):
    """A piece behind one that ends the answer would never be performed."""
    with pytest.raises(ValueError, match="nothing can follow"):
        Sequence("a", ending, Hold())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Text("a", chunk_chars=0),
        lambda: Thinking("a", delay=-1),
        ToolCalls,
        lambda: ToolCalls(ToolUse("a", {}), delay=PAUSE_S_MAX + 1),
        lambda: Error(200, "fine"),
        lambda: Delay(PAUSE_S_MAX + 1),
        lambda: Stall(after_chars=-1),
        Sequence,
    ],
    ids=["chunk", "negative", "no call", "long", "status", "delay", "count", "empty"],
)
def test_impossible_pieces_are_refused(make):
    """What cannot be performed is refused where it is written, not when it is reached."""
    with pytest.raises(ValueError, match=r"."):
        make()


@pytest.mark.parametrize("step", [3, None, ("a", 3), [Text("a")]])
def test_other_objects_are_no_steps(step):
    """A script holds answers and callables and nothing else."""
    with pytest.raises(TypeError, match="not a piece"):
        ScriptedModel([step])


def test_a_str_is_no_script():
    """A str in place of the list would be read letter by letter."""
    with pytest.raises(TypeError, match="list of answers"):
        ScriptedModel("hello")


@pytest.mark.parametrize("count", [0, 1, 10, 25])
def test_filler_has_the_length_asked_for(count):
    """``after_chars`` is exact."""
    assert len(Stall(after_chars=count).text) == count


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: ToolCalls([ToolUse("a", {})]), TypeError, "by itself, got a list"),
        (lambda: ToolCalls(("a", {})), TypeError, "by itself, got a tuple"),
        (lambda: ToolCalls(ToolUse("a", {}), "b"), TypeError, "by itself, got a str"),
        (lambda: ToolUse("a", ["b"]), TypeError, "arguments of 'a' are a dict"),
        (lambda: ToolUse("a", None), TypeError, "arguments of 'a' are a dict"),
        (lambda: ToolUse(ToolUse, {}), ValueError, "a tool's name is a str"),
        (lambda: ToolUse("a", {"b": object()}), ValueError, "arguments of 'a' are no JSON"),
        (lambda: ToolUse("a", {"b": "\ud800"}), ValueError, "arguments of 'a' are no JSON"),
    ],
    ids=["a list", "a tuple", "a str", "no object", "None", "no name", "no JSON", "half a pair"],
)
def test_a_call_that_cannot_be_sent_is_refused_where_it_is_written(make, error, why):
    """A step that fails while it is answered would be passed over by the next try."""
    with pytest.raises(error, match=why):
        make()
