"""The shapes of OpenAI's API that a script is given in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import (
    Delay,
    Disconnect,
    Error,
    Hold,
    Text,
    Thinking,
    ToolCalls,
    ToolUse,
    Truncate,
    wire,
)

HEADING = wire.Heading(number=7, model="m")
TWO_CALLS = ToolCalls(ToolUse("read", {"path": "a"}), ToolUse("list", "{bad", id="x"))


def arguments_of(deltas):
    """Put the fragments of every call together, by index."""
    texts = {}
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            arguments = call["function"]["arguments"]
            texts[call["index"]] = texts.get(call["index"], "") + arguments
    return texts


@given(st.text(max_size=50), st.integers(min_value=1, max_value=60))
def test_fragments_add_up(text, chunk_chars):
    """No character is lost or said twice, and no fragment is longer than asked."""
    parts = wire.fragments(text, chunk_chars)

    assert "".join(parts) == text
    assert all(1 <= len(part) <= chunk_chars for part in parts)


def test_a_call_opens_with_id_and_name():
    """The first chunk of a call has id and name and no arguments yet; the rest only arguments."""
    first, *rest = wire.deltas(ToolCalls(ToolUse("read", {"path": "abc"})), HEADING)

    assert first["tool_calls"] == [
        {
            "index": 0,
            "id": "call_7_0",
            "type": "function",
            "function": {"name": "read", "arguments": ""},
        }
    ]
    assert all(set(delta["tool_calls"][0]) == {"index", "function"} for delta in rest)
    assert len(rest) > 1


def test_several_calls_keep_apart_by_index():
    """Each call has its own index, counted on from the calls of earlier pieces."""
    found = arguments_of(wire.deltas(TWO_CALLS, HEADING, calls_before=2))

    assert found == {2: '{"path":"a"}', 3: "{bad"}


def test_whole_message_has_what_the_stream_has():
    """Text, thinking and calls of all pieces make one message."""
    found = wire.message((Thinking("hm"), Delay(0), Text("a"), TWO_CALLS), HEADING)

    assert found == {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": "call_7_0",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path":"a"}'},
            },
            {"id": "x", "type": "function", "function": {"name": "list", "arguments": "{bad"}},
        ],
    }


@pytest.mark.parametrize(
    ("pieces", "right"),
    [
        ((Text("a"),), "stop"),
        ((Text("a", finish="length"),), "length"),
        ((TWO_CALLS, Text("a")), "tool_calls"),
        ((Thinking("a"), Hold()), "stop"),
        ((Text("a"), Truncate()), None),
    ],
    ids=["text", "given", "calls", "neither", "cut"],
)
def test_finish_reason(pieces, right):
    """Tool calls decide, then the last text; an answer that was cut has none."""
    assert wire.finish_reason(pieces) == right


def test_given_usage_is_reported_as_it_is():
    """The script's numbers reach the client, the total filled in."""
    text = Text("a", usage=TokenUsage(prompt_tokens=10, completion_tokens=2, cached_tokens=4))

    assert wire.usage((text,), {}) == {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_usage_is_estimated_from_lengths():
    """About four characters are a token, of everything that was asked and said."""
    pieces = (Thinking("x" * 8), Text("x" * 8), ToolCalls(ToolUse("four", "{}"), text="xx"))
    request = {"messages": [{"role": "user", "content": "x" * 100}]}
    asked = len(wire.encode(request["messages"]))

    found = wire.usage(pieces, request)

    assert found["completion_tokens"] == (8 + 8 + 4 + 2 + 2) // 4
    assert found["prompt_tokens"] == -(-asked // 4)
    assert found["total_tokens"] == found["prompt_tokens"] + found["completion_tokens"]


def test_pieces_that_say_nothing_have_no_deltas():
    """Waits and failures send no chunk of their own."""
    pieces = (Delay(0), Hold(), Error(500, "x"), Disconnect())
    found = [delta for piece in pieces for delta in wire.deltas(piece, HEADING)]

    assert found == []


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ("hi", "hi"),
        ([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}], "hi"),
        (None, ""),
    ],
    ids=["text", "parts", "none"],
)
def test_last_user_text(content, right):
    """The newest user message is quoted, whatever comes after it."""
    messages = [{"role": "user", "content": content}, {"role": "tool", "content": "x"}]

    assert wire.last_user_text({"messages": messages}) == right


@pytest.mark.parametrize("request_", [{}, {"messages": None}, {"messages": ["x"]}])
def test_last_user_text_of_odd_requests(request_):
    """A request without user messages has an empty one."""
    assert wire.last_user_text(request_) == ""


def test_an_answer_is_cut_where_its_request_ends_it():
    """With its part of the text, the reason and the usage that real servers report."""
    said = Text("x" * 100, usage=TokenUsage(prompt_tokens=7, completion_tokens=50))
    given = wire.cut([Thinking("y" * 100), said, ToolCalls(ToolUse("a", {}))], {"max_tokens": 30})

    assert [getattr(piece, "text", None) for piece in given] == ["y" * 100, "x" * 21, ""]
    assert wire.finish_reason(given) == "length"
    assert wire.usage(given, {}) == {
        "prompt_tokens": 7,
        "completion_tokens": 30,
        "total_tokens": 37,
    }


@pytest.mark.parametrize("request_", [{}, {"max_tokens": 50}, {"max_completion_tokens": 50}])
def test_an_answer_that_fits_stays(request_):
    """With a bound and without."""
    said = Text("x" * 100, usage=TokenUsage(completion_tokens=50))

    assert wire.cut([said], request_) == (said,)


def test_calls_that_do_not_fit_are_not_made():
    """What was said before them is."""
    given = wire.cut([ToolCalls(ToolUse("a", {"b": "c" * 80}), text="so")], {"max_tokens": 2})

    assert [type(piece) for piece in given] == [Text, Text]
    assert given[0].text == "so"
