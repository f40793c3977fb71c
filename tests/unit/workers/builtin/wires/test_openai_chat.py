"""Chat completions: what is sent, and what is made of the events that come."""

import msgspec
import pytest

from cmdc_runtime.extensions.provider import (
    FinishChunk,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
    UsageChunk,
)
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from workers.builtin.providers._failures import Heard
from workers.builtin.wires.openai_chat import OpenAIReply, body_of, headers_of

STREAM = {"stream": True, "stream_options": {"include_usage": True}}
PARAMETERS = {"type": "object", "properties": {}}
READ = ToolSpec(name="read", description="Read.", parameters=PARAMETERS)
MARK = {"cache_control": {"type": "ephemeral"}}

# --- the request ----------------------------------------------------------------------------------


def test_a_request_has_model_conversation_and_options(routed):
    """And asks for a stream with its usage; what is None is not sent."""
    body = body_of(
        *routed("openai:gpt-4o", system="Be brief.", max_tokens=7, temperature=0, seed=None)
    )

    assert body == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ],
        "max_tokens": 7,
        "temperature": 0,
        **STREAM,
    }


def test_what_says_where_and_how_to_ask_is_not_sent(routed):
    """It is in the address and in headers."""
    options = {"api_key": "k", "api_base": "http://h/v1", "timeout": 5, "organization": "o"}
    options |= {"extra_headers": {"a": "b"}, "headers": {"c": "d"}, "base_url": "http://h"}
    body = body_of(*routed("openai:gpt-4o", **options))

    assert body.keys() == {"model", "messages", *STREAM}


def test_a_round_of_tools_is_sent(routed):
    """Calls without a text have no content; results name their call."""
    calls = (ToolCall(call_id="c1", name="read", arguments={"path": "ä"}),)
    history = (Message.user("go"), Message.assistant("", calls), Message.tool_result("c1", "done"))
    body = body_of(*routed("openai:gpt-4o", *history, tools=(READ,)))

    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"ä"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "read", "description": "Read.", "parameters": PARAMETERS},
        }
    ]


def test_more_of_a_body_outranks_what_is_there(routed):
    """Whoever gives ``extra_body`` knows the server."""
    extra = {"temperature": 1, "top_k": 3}
    body = body_of(*routed("openai:gpt-4o", temperature=0, extra_body=extra))

    assert (body["temperature"], body["top_k"]) == (1, 3)
    assert "extra_body" not in body


def test_a_vendor_may_have_its_own(routed):
    """OpenRouter reports a usage only where it is asked to."""
    assert body_of(*routed("openrouter:openai/gpt-4o"))["usage"] == {"include": True}
    assert "usage" not in body_of(*routed("openai:gpt-4o"))


def test_a_mark_for_a_cache_is_one_of_the_text(routed):
    """Of the message that it was given with, where the model takes marks."""
    marked = Message(role="user", content="long", metadata=MARK)
    history = (marked, Message.assistant("so"), Message.user("hi"))
    body = body_of(*routed("openrouter:anthropic/claude-sonnet-4.5", *history))

    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "long", **MARK}]},
        {"role": "assistant", "content": "so"},
        {"role": "user", "content": "hi"},
    ]


def test_models_that_reason_bound_answers_by_another_name(routed):
    """The bound is the same; other models keep the name."""
    body = body_of(*routed("openai:gpt-5", max_tokens=7))

    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body


def test_models_without_a_system_prompt_hear_it_from_the_user(routed):
    """Of the first ones that reasoned, those that know none."""
    assert body_of(*routed("openai:o3", system="Be brief."))["messages"][0] == {
        "role": "user",
        "content": "Be brief.",
    }
    assert body_of(*routed("openai:o1", system="Be brief."))["messages"][0]["role"] == "system"


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({"api_key": "k"}, {"authorization": "Bearer k"}),
        ({}, {}),
        ({"organization": "o"}, {"openai-organization": "o"}),
        ({"organization": ""}, {}),
        ({"organization": 5}, {}),
    ],
)
def test_headers_say_who_asks(routed, options, headers):
    """A server of one's own may need no key."""
    assert headers_of(*routed("openai:gpt-4o", **options)) == headers


def test_the_environment_may_name_an_organization(routed, monkeypatch):
    """An option outranks it."""
    monkeypatch.setenv("OPENAI_ORGANIZATION", "held")

    assert headers_of(*routed("openai:gpt-4o"))["openai-organization"] == "held"
    given = headers_of(*routed("openai:gpt-4o", organization="given"))
    assert given["openai-organization"] == "given"


# --- the reply ------------------------------------------------------------------------------------


@pytest.fixture
def reply():
    return OpenAIReply(Heard(), TokenUsage.from_raw)


def taken(reply, *events):
    """Return the chunks of events."""
    sent = (one if isinstance(one, bytes) else msgspec.json.encode(one) for one in events)
    return [chunk for data in sent for chunk in reply.take(data)]


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields}]}


def function(name=None, arguments=None, **fields):
    return {**fields, "function": {"name": name, "arguments": arguments}}


def test_texts_and_thoughts_come_as_they_are(reply):
    """Under both names of thoughts; what is empty or null is nothing."""
    events = [
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(reasoning="so", content="He"),
        delta(content="llo", reasoning_content=None, tool_calls=None),
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{}]},
    ]

    assert taken(reply, *events) == [
        ThinkingChunk(text="hm"),
        ThinkingChunk(text="so"),
        TextChunk(text="He"),
        TextChunk(text="llo"),
    ]


def test_the_same_thought_under_both_names_is_one(reply):
    """Some servers send it twice."""
    assert taken(reply, delta(reasoning_content="hm", reasoning="hm")) == [ThinkingChunk(text="hm")]


def test_calls_come_in_pieces(reply):
    """Id and name once, arguments as they are written; several calls are kept apart."""
    events = [
        delta(tool_calls=[function("read", "", index=0, id="c1", type="function")]),
        delta(tool_calls=[function(None, '{"a', index=0)]),
        delta(tool_calls=[function("", '": 1}', index=0, id=""), function("b", index=1, id="c2")]),
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ]

    assert taken(reply, *events) == [
        ToolCallChunk(index=0, call_id="c1", name="read"),
        ToolCallChunk(index=0, arguments='{"a'),
        ToolCallChunk(index=0, arguments='": 1}'),
        ToolCallChunk(index=1, call_id="c2", name="b"),
    ]
    assert list(reply.end()) == [FinishChunk(reason="tool_calls")]


def test_a_call_without_an_index_is_the_first(reply):
    """Null is none."""
    calls = [function("a", "{}", id="c")]

    assert taken(reply, delta(tool_calls=calls), delta(tool_calls=[function(index=None)])) == [
        ToolCallChunk(index=0, call_id="c", name="a", arguments="{}"),
        ToolCallChunk(index=0),
    ]


def test_of_several_answers_the_first_is_the_reply(reply):
    """The finish of another is none, and an index that is null is the first's."""
    other = {"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}
    first = {"index": None, "delta": {"content": "yes"}, "finish_reason": "stop"}

    assert taken(reply, {"choices": [other, first]}, {"choices": [other]}) == [
        TextChunk(text="yes")
    ]
    assert list(reply.end()) == [FinishChunk(reason="stop")]


def test_the_mark_of_the_end_is_no_event(reply):
    """It is no finish either: a reply has a reason."""
    assert taken(reply, {"choices": [{"finish_reason": "length"}]}, b"[DONE]") == []
    assert list(reply.end()) == [FinishChunk(reason="length")]


def test_a_finish_that_is_empty_or_null_is_none(reply):
    """Servers write it in every event."""
    taken(
        reply,
        {"choices": [{"finish_reason": "length"}]},
        {"choices": [{"finish_reason": None}]},
        {"choices": [{"finish_reason": ""}]},
    )

    assert list(reply.end()) == [FinishChunk(reason="length")]


def test_the_last_usage_counts(reply):
    """Beside a choice as well as alone; cached tokens are reported."""
    details = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}}
    taken(
        reply,
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        {"choices": [{"finish_reason": "stop"}], "usage": {**details, "completion_tokens": 2}},
        {"choices": [], "usage": None},
    )
    counts = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "cached_tokens": 5}

    assert next(iter(reply.end())) == UsageChunk(usage=TokenUsage(**counts))


# --- what vendors do instead ----------------------------------------------------------------------

INSTEAD = {
    "content in parts": (
        delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        [TextChunk(text="ab")],
    ),
    "a thought in parts": (
        delta(content=[{"type": "thinking", "thinking": [{"text": "hm"}]}, {"text": "a"}]),
        [ThinkingChunk(text="hm"), TextChunk(text="a")],
    ),
    "a refusal": (delta(refusal="I won't."), [TextChunk(text="I won't.")]),
    "arguments that are an object": (
        delta(tool_calls=[function("a", {"b": 1}, index=0, id="c")]),
        [ToolCallChunk(index=0, call_id="c", name="a", arguments='{"b": 1}')],
    ),
    "a call in the older form": (
        delta(function_call={"name": "a", "arguments": "{}"}),
        [ToolCallChunk(index=0, name="a", arguments="{}")],
    ),
}


@pytest.mark.parametrize("case", INSTEAD)
def test_what_is_said_in_another_way_is_read(reply, case):
    """By the second reader."""
    event, chunks = INSTEAD[case]

    assert taken(reply, event) == chunks


def test_a_finish_of_the_older_form_is_one_for_calls(reply):
    """With its call."""
    taken(reply, delta(function_call={"name": "a", "arguments": "{}"}))
    taken(reply, {"choices": [{"delta": {}, "finish_reason": "function_call"}]})

    assert list(reply.end()) == [FinishChunk(reason="tool_calls")]
