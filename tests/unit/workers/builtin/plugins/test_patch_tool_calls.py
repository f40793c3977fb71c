"""Patching of tool calls: which ones lack a result, what they get, and that it is once."""

import msgspec
import pytest

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import Emit, SyntheticResult, SyntheticToolResults
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.messages import Message, ToolCall
from workers.builtin.plugins.patch_tool_calls import PATCHED_MAX, PatchToolCalls, unanswered

TEXT = "Error: Tool call was interrupted or not executed."
USER = Message.user("go")


def calls(*ids):
    """Return an answer of the model that makes these calls."""
    return Message.assistant("", tuple(ToolCall(call_id=id_, name="look") for id_ in ids))


def result(call_id):
    return Message.tool_result(call_id, "seen")


def ask(messages, **options):
    """Return what the plugin says; the request's own messages are repaired, so they are no help."""
    context = PluginContext(session_id="s-1", messages=tuple(messages))
    return PatchToolCalls(**options).before_request(BeforeRequest(()), context)


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([], []),
        ([USER], []),
        ([USER, calls("a", "b"), result("a"), result("b")], []),
        ([USER, calls("a", "b"), result("a")], ["b"]),
        ([USER, calls("a", "b"), result("b"), USER], ["a"]),
        ([USER, calls("a", "b")], ["a", "b"]),
        ([calls("a"), USER, calls("b", "c"), result("b"), calls("d")], ["a", "c", "d"]),
        ([result("a"), USER, calls("a")], ["a"]),
        ([calls("a"), USER, result("a")], []),
        ([calls("a"), result("a"), USER, calls("a")], ["a"]),
        ([calls("a"), result("a"), calls("a"), result("a")], []),
        ([calls("a", "a")], ["a"]),
        ([calls("a"), Message(role="tool_result", content="whose?")], ["a"]),
    ],
)
def test_calls_without_a_result_are_found(messages, found):
    """A result stands behind its call; an id may be used again."""
    assert unanswered(tuple(messages)) == found


def test_each_gets_the_result_of_the_options():
    """For good, by a kernel emit; observers hear which."""
    order = SyntheticToolResults(
        results=(
            SyntheticResult(call_id="a", content=TEXT, is_error=True),
            SyntheticResult(call_id="c", content=TEXT, is_error=True),
        )
    )
    messages = [USER, calls("a"), USER, calls("b", "c"), result("b")]

    assert ask(messages) == [Emit(order), Emit("tool_calls_patched", {"call_ids": ["a", "c"]})]


def test_words_and_mark_may_be_other_ones():
    """Both are options."""
    [order, _] = ask([calls("a")], synthetic_content="skipped", is_error=False)

    assert order.name.results == (SyntheticResult(call_id="a", content="skipped", is_error=False),)


def test_a_whole_conversation_is_left_alone():
    """Nothing is ordered and nobody is notified."""
    assert ask([USER, calls("a"), result("a")]) == []


def test_very_many_take_several_requests():
    """The oldest first; the others have their turn later."""
    [order, reported] = ask([calls(*(f"c{number}" for number in range(PATCHED_MAX + 5)))])

    assert [one.call_id for one in order.name.results] == reported.payload["call_ids"]
    assert reported.payload["call_ids"] == [f"c{number}" for number in range(PATCHED_MAX)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"synthetic_content": ""}, "'synthetic_content': Expected `str` of length >= 1"),
        ({"synthetic_content": "x" * 4_001}, "'synthetic_content': Expected `str` of length <="),
        ({"is_error": "yes"}, "'is_error': Expected `bool`, got `str`"),
        ({"text": "x"}, "there is no option 'text'"),
    ],
)
def test_bad_options_are_named(options, problem):
    """Each with what would have been right."""
    with pytest.raises(InvalidOptions, match=problem):
        PatchToolCalls(**options)


def test_defaults_are_those_of_the_reference():
    """They stand there only."""
    assert msgspec.to_builtins(PatchToolCalls().config) == {}
    assert PatchToolCalls().config == plugins.PatchToolCalls(synthetic_content=TEXT, is_error=True)
