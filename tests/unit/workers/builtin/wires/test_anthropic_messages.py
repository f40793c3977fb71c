"""Messages of Anthropic: what is sent, and what is made of the events that come."""

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
from workers.builtin.wires import anthropic_messages as wire
from workers.builtin.wires.anthropic_messages import AnthropicReply, address_of, body_of
from workers.builtin.wires.claude_schemas import BETA

SONNET = "anthropic:claude-sonnet-4-5"
UNKNOWN = "anthropic:nobody-3"
MARK = {"cache_control": {"type": "ephemeral"}}
READ = ToolSpec(
    name="read",
    description="Read.",
    parameters={"$schema": "https://json-schema.org/x", "type": "object", "properties": {}},
)

# --- the request ----------------------------------------------------------------------------------


def text(words, **marks):
    return {"type": "text", "text": words, **marks}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def test_a_request_has_system_and_messages_apart(routed):
    """And demands a bound, which the request or the table gives."""
    route, request = routed(SONNET, system="Be brief.", max_tokens=7)

    assert body_of(route, request) == {
        "model": "claude-sonnet-4-5",
        "system": [text("Be brief.")],
        "messages": [user(text("hi"))],
        "max_tokens": 7,
        "stream": True,
    }
    assert "system" not in body_of(*routed(SONNET))


BOUNDS = {
    "table": (SONNET, {}, 64_000),
    "none": (UNKNOWN, {}, wire.TOKENS_MAX),
    "option": (SONNET, {"max_tokens": 9}, 9),
    "other name": (SONNET, {"max_completion_tokens": 8, "max_tokens": None}, 8),
    "thoughts": (
        SONNET,
        {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
        2_000 + wire.THINKING_ROOM,
    ),
    "thoughts and option": (
        SONNET,
        {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "max_tokens": 3_000},
        3_000,
    ),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_an_answer_has_a_bound(routed, case):
    """The nearest that is known; thoughts have room for an answer beside them."""
    model, options, bound = BOUNDS[case]

    assert body_of(*routed(model, **options))["max_tokens"] == bound


def test_options_are_sent_under_the_names_of_the_wire(routed):
    """What says where and how to ask is not sent, and what is None is not."""
    options = {"temperature": 0, "top_p": 0.5, "top_k": 3, "stop": "END", "api_key": "k"}
    options |= {"timeout": 5, "extra_headers": {"a": "b"}, "api_base": "http://h"}
    body = body_of(*routed(SONNET, **options, parallel_tool_calls=False))

    assert body.keys() == {
        *("model", "messages", "max_tokens", "stream", "temperature", "top_p", "top_k"),
        *("stop_sequences", "tool_choice"),
    }
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0, 0.5, 3)
    assert body["stop_sequences"] == ["END"]
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_several_stops_are_sent_as_they_are(routed):
    """And calls at once may be asked for."""
    body = body_of(*routed(SONNET, stop=["a", "b"], parallel_tool_calls=True, top_p=None))

    assert body["stop_sequences"] == ["a", "b"]
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": False}
    assert "top_p" not in body


def test_thoughts_are_asked_for(routed):
    """As they were given."""
    thinking = {"type": "enabled", "budget_tokens": 2_000}

    assert body_of(*routed(SONNET, thinking=thinking))["thinking"] == thinking


def test_a_tool_has_the_schema_without_its_dialect(routed):
    """Anthropic knows one only."""
    assert body_of(*routed(SONNET, tools=(READ,)))["tools"] == [
        {
            "name": "read",
            "input_schema": {"type": "object", "properties": {}},
            "type": "custom",
            "description": "Read.",
        }
    ]


CALLS = (
    ToolCall(call_id="c1", name="read", arguments={"path": "ä"}),
    ToolCall(call_id="c2", name="read", malformed='{"pa'),
)
ROUND = (
    Message.user("go"),
    Message.assistant("Looking.", CALLS, thinking="hm"),
    Message.tool_result("c1", "done"),
    Message.tool_result("c2", "no JSON", is_error=True),
    Message.user("and now?"),
)


def test_a_round_of_tools_is_turns_of_two(routed):
    """Results and what the user says next are one turn; thoughts without a signature stay here."""
    assert body_of(*routed(SONNET, *ROUND, tools=(READ,)))["messages"] == [
        user(text("go")),
        {
            "role": "assistant",
            "content": [
                text("Looking."),
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "ä"}},
                {
                    "type": "tool_use",
                    "id": "c2",
                    "name": "read",
                    "input": {"malformed_json": '{"pa'},
                },
            ],
        },
        user(
            {"type": "tool_result", "tool_use_id": "c1", "content": "done"},
            {"type": "tool_result", "tool_use_id": "c2", "content": "Error: no JSON"},
            text("and now?"),
        ),
    ]


def test_calls_without_a_text_have_no_block_of_it(routed):
    """Anthropic refuses an empty one."""
    history = (ROUND[0], Message.assistant("", CALLS[:1]), ROUND[2])
    body = body_of(*routed(SONNET, *history, tools=(READ,)))

    assert [one["type"] for one in body["messages"][1]["content"]] == ["tool_use"]


def test_a_history_of_calls_has_a_tool(routed):
    """Where the request has none; a history without calls needs none."""
    assert body_of(*routed(SONNET, *ROUND))["tools"] == [wire.NO_TOOL]
    assert "tools" not in body_of(*routed(SONNET))


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_user_who_says_nothing_says_so(routed, blank):
    """Anthropic refuses a text without a sign."""
    assert body_of(*routed(SONNET, Message.user(blank)))["messages"] == [user(text(wire.EMPTY))]


def test_several_texts_of_a_user_are_one_turn(routed):
    """In their order."""
    body = body_of(*routed(SONNET, Message.user("a"), Message.user("b")))

    assert body["messages"] == [user(text("a"), text("b"))]


def test_marks_for_the_cache_are_where_they_were_given(routed):
    """In the system prompt, in texts and in results."""
    marked = [msgspec.structs.replace(one, metadata=MARK) for one in (ROUND[0], ROUND[3])]
    history = (marked[0], ROUND[1], ROUND[2], marked[1])
    body = body_of(*routed(SONNET, *history, tools=(READ,), system="s", system_metadata=MARK))

    assert body["system"] == [text("s", **MARK)]
    assert body["messages"][0] == user(text("go", **MARK))
    first, second = body["messages"][2]["content"]
    assert "cache_control" not in first
    assert second["cache_control"] == MARK["cache_control"]


def test_system_messages_at_the_beginning_are_the_system(routed):
    """In blocks of their own, and without the empty ones."""
    history = (Message.system(""), Message.system("b"), Message.user("hi"))
    body = body_of(*routed(SONNET, *history, system="a"))

    assert body["system"] == [text("a"), text("b")]
    assert body["messages"] == [user(text("hi"))]


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("http://h", "http://h/v1/messages"),
        ("http://h/", "http://h/v1/messages"),
        ("http://h/x/v1/messages", "http://h/x/v1/messages"),
        ("http://h/v1", "http://h/v1/v1/messages"),
        (None, "https://api.anthropic.com/v1/messages"),
    ],
)
def test_an_address_may_end_in_the_path(routed, base, address):
    """As litellm takes it."""
    assert address_of(routed(SONNET, api_base=base)[0]) == address


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
MAP = {"type": "object", "properties": {"m": {"type": "object"}}}


def test_a_schema_binds_the_reply(routed):
    """Closed, and with a word in a header; the request has no other schema in it."""
    route, request = routed(SONNET, response_format=SCHEMA, tools=(READ,))
    body = body_of(route, request)
    closed = SCHEMA | {"additionalProperties": False}

    assert body["output_format"] == {"type": "json_schema", "schema": closed}
    assert "system" not in body
    assert "response_format" not in body
    assert wire.headers_of(route, request)["anthropic-beta"] == BETA


CALLED = {
    # tools, options -> tool_choice
    "any": ((READ,), {}, {"type": "any"}),
    "by name": ((), {}, {"type": "tool", "name": "final_answer"}),
    "one at a time": (
        (),
        {"parallel_tool_calls": False},
        {"type": "tool", "name": "final_answer", "disable_parallel_tool_use": True},
    ),
}


@pytest.mark.parametrize(("tools", "options", "choice"), CALLED.values(), ids=CALLED)
def test_a_schema_that_cannot_bind_is_that_of_a_call(routed, tools, options, choice):
    """A map would be closed by the decoder; a tool may have one among its arguments."""
    route, request = routed(SONNET, response_format=MAP, tools=tools, **options)
    body = body_of(route, request)

    assert body["tools"][-1]["input_schema"] == MAP
    assert len(body["tools"]) == len(tools) + 1
    assert body["tool_choice"] == choice
    assert not {"output_format", "system"} & body.keys()
    assert "anthropic-beta" not in wire.headers_of(route, request)


@pytest.mark.parametrize(
    ("model", "schema", "options"),
    [
        (SONNET, MAP, {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        (UNKNOWN, SCHEMA, {}),
    ],
)
def test_a_schema_that_cannot_bind_is_asked_for_in_words(routed, model, schema, options):
    """Of a model that nobody knows, or one that thinks: then no call can be forced."""
    route, request = routed(model, response_format=schema, system="s", **options)
    body = body_of(route, request)

    assert "output_format" not in body
    assert body["system"][0]["text"].startswith("s\n\nYour final answer is one JSON value")
    assert "anthropic-beta" not in wire.headers_of(route, request)


def test_headers_say_who_asks(routed):
    """And in which version; a server of one's own may need no key."""
    version = {"anthropic-version": wire.VERSION}

    assert wire.headers_of(*routed(SONNET, api_key="k")) == {"x-api-key": "k", **version}
    assert wire.headers_of(*routed(SONNET)) == version


# --- the reply ------------------------------------------------------------------------------------


@pytest.fixture
def reply():
    return AnthropicReply(Heard(), TokenUsage.from_raw)


def taken(reply, *events):
    """Return the chunks of events."""
    return [chunk for one in events for chunk in reply.take(msgspec.json.encode(one))]


def opened(kind, index=0, **fields):
    block = {"type": kind, **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index=0, **fields):
    return {"type": "content_block_delta", "index": index, "delta": fields}


def closed(index=0):
    return {"type": "content_block_stop", "index": index}


def ended(reason="end_turn", **usage):
    sent = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}}
    return sent | ({"usage": usage} if usage else {})


def test_texts_and_thoughts_come_as_they_are(reply):
    """A block may begin with a text; signatures and hidden thoughts are nothing that is shown."""
    events = [
        opened("thinking", thinking="", signature=""),
        piece(type="thinking_delta", thinking="hm"),
        piece(type="signature_delta", signature="x"),
        closed(),
        opened("redacted_thinking", 1, data="y"),
        closed(1),
        opened("text", 2, text="He"),
        piece(2, type="text_delta", text="llo"),
        piece(2, type="citations_delta", citation={"a": 1}),
        piece(2, type="text_delta", text=""),
        closed(2),
        {"type": "ping"},
    ]

    assert taken(reply, *events) == [
        ThinkingChunk(text="hm"),
        TextChunk(text="He"),
        TextChunk(text="llo"),
    ]


def test_calls_count_by_themselves(reply):
    """Whatever the blocks around them; arguments come in pieces."""
    events = [
        opened("text", 0, text=""),
        closed(0),
        opened("tool_use", 1, id="c1", name="read", input={}),
        piece(1, type="input_json_delta", partial_json=""),
        piece(1, type="input_json_delta", partial_json='{"a'),
        piece(1, type="input_json_delta", partial_json='": 1}'),
        closed(1),
        opened("text", 2, text="so"),
        closed(2),
        opened("tool_use", 3, id="c2", name="b", input={}),
        piece(3, type="input_json_delta", partial_json="{}"),
        closed(3),
        ended("tool_use"),
    ]

    assert taken(reply, *events) == [
        ToolCallChunk(index=0, call_id="c1", name="read"),
        ToolCallChunk(index=0, arguments='{"a'),
        ToolCallChunk(index=0, arguments='": 1}'),
        TextChunk(text="so"),
        ToolCallChunk(index=1, call_id="c2", name="b"),
        ToolCallChunk(index=1, arguments="{}"),
    ]
    assert list(reply.end()) == [FinishChunk(reason="tool_calls")]


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({}, []),
        ({"input": {}}, []),
        ({"input": None}, []),
        ({"input": {"a": "ä"}}, ['{"a":"ä"}']),
    ],
    ids=["none", "empty", "null", "whole"],
)
def test_a_call_without_pieces_has_what_it_began_with(reply, fields, arguments):
    """Some servers send the arguments all at once; the call after it begins anew."""
    events = [opened("tool_use", id="c", name="n", **fields), closed()]
    again = [opened("tool_use", 1, id="d", name="n"), closed(1)]

    assert taken(reply, *events, *again) == [
        ToolCallChunk(index=0, call_id="c", name="n"),
        *(ToolCallChunk(index=0, arguments=one) for one in arguments),
        ToolCallChunk(index=1, call_id="d", name="n"),
    ]


def test_blocks_that_are_open_side_by_side_are_kept_apart(reply):
    """By their indexes, as some servers before a model have them."""
    events = [
        opened("tool_use", 0, id="c", name="n"),
        opened("text", 1, text=""),
        opened("tool_use", 2, id="d", name="m"),
        piece(0, type="input_json_delta", partial_json='{"a":'),
        piece(1, type="text_delta", text="Hello."),
        piece(2, type="input_json_delta", partial_json='{"b": 2}'),
        piece(0, type="input_json_delta", partial_json=" 1}"),
        closed(0),
        closed(1),
        closed(2),
    ]

    assert taken(reply, *events) == [
        ToolCallChunk(index=0, call_id="c", name="n"),
        ToolCallChunk(index=1, call_id="d", name="m"),
        ToolCallChunk(index=0, arguments='{"a":'),
        TextChunk(text="Hello."),
        ToolCallChunk(index=1, arguments='{"b": 2}'),
        ToolCallChunk(index=0, arguments=" 1}"),
    ]


def test_pieces_outrank_what_a_call_began_with(reply):
    """They are all of it."""
    events = [
        opened("tool_use", id="c", name="n", input={"a": 1}),
        piece(type="input_json_delta", partial_json='{"b": 2}'),
        closed(),
    ]

    assert taken(reply, *events)[1:] == [ToolCallChunk(index=0, arguments='{"b": 2}')]


def test_a_call_without_id_and_name_is_still_one(reply):
    """The kernel says what is wrong with it."""
    assert taken(reply, opened("tool_use", id="", name="")) == [ToolCallChunk(index=0)]


def test_pieces_of_arguments_outside_a_call_are_none(reply):
    """And an end of a block that is none says nothing."""
    events = [
        closed(),
        piece(type="input_json_delta", partial_json="{}"),
        opened("text", text=""),
        piece(type="input_json_delta", partial_json="{}"),
        closed(),
        closed(),
        opened("tool_use", id="c", name="n"),
        closed(),
        closed(),
        piece(type="input_json_delta", partial_json="{}"),
    ]

    assert taken(reply, *events) == [ToolCallChunk(index=0, call_id="c", name="n")]


def test_a_call_of_the_server_is_reported(reply):
    """As litellm reports it."""
    assert taken(reply, opened("server_tool_use", id="c", name="web_search")) == [
        ToolCallChunk(index=0, call_id="c", name="web_search")
    ]


def test_a_finish_may_come_with_null_before_it(reply):
    """Only a reason is one."""
    taken(reply, ended(), ended(None))

    assert list(reply.end()) == [FinishChunk(reason="stop")]


def began(**usage):
    return {"type": "message_start", "message": {"id": "m", "usage": usage}}


def test_the_last_usage_adds_to_the_first(reply):
    """It may leave out what the first has given; cached and written tokens are of the prompt."""
    first = {"input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 1}
    taken(reply, began(**first, cache_creation_input_tokens=30), ended(output_tokens=7))
    counts = {"prompt_tokens": 140, "completion_tokens": 7, "total_tokens": 147}

    assert list(reply.end()) == [
        UsageChunk(usage=TokenUsage(**counts, cached_tokens=100)),
        FinishChunk(reason="stop"),
    ]


def test_the_last_usage_may_have_all(reply):
    """What it says again counts once."""
    taken(reply, began(input_tokens=10, output_tokens=1), ended(input_tokens=12, output_tokens=7))

    assert next(iter(reply.end())) == UsageChunk(
        usage=TokenUsage(prompt_tokens=12, completion_tokens=7, total_tokens=19)
    )


def test_a_count_that_the_last_usage_does_not_give_is_the_firsts(reply):
    """Null gives nothing."""
    taken(reply, began(input_tokens=10), ended(input_tokens=None, output_tokens=7))

    assert next(iter(reply.end())) == UsageChunk(
        usage=TokenUsage(prompt_tokens=10, completion_tokens=7, total_tokens=17)
    )


def test_the_text_of_another_block_is_no_answer(reply):
    """A block of a kind that nobody knows may have one."""
    assert taken(reply, opened("x_result", text="no"), closed()) == []


def test_the_first_usage_alone_counts(reply):
    """Nor is a message without one a failure."""
    taken(reply, {"type": "message_start", "message": {}}, began(input_tokens=1, output_tokens=2))
    taken(reply, ended())

    assert next(iter(reply.end())) == UsageChunk(
        usage=TokenUsage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    )


def test_a_reply_without_a_usage_has_none(reply):
    """None is made up."""
    taken(reply, ended("max_tokens"))

    assert list(reply.end()) == [FinishChunk(reason="length")]
