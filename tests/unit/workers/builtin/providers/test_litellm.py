"""What the adapter makes of requests and deltas, without a request."""

import importlib
from types import SimpleNamespace

import pytest

from cmdc_runtime.extensions.provider import (
    ModelRequest,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
)
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.provider_options import OURS
from workers.builtin.providers import _conversation

pytestmark = [
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def adapter():
    """Import the adapter, which takes seconds."""
    return importlib.import_module("workers.builtin.providers.litellm")


def request(**changes):
    return ModelRequest(**{"model": "openai:gpt-4o", "messages": (Message.user("hi"),)} | changes)


def test_a_conversation_takes_the_openai_shape(adapter):
    """Every role and part has its place; an assistant message that says nothing has none."""
    calls = (
        ToolCall(call_id="a", name="read", arguments={"path": "ä"}),
        ToolCall(call_id="b", name="read", malformed='{"path'),
    )
    messages = (
        Message.user("look"),
        Message.assistant("", calls, thinking="hm"),
        Message.tool_result("a", "text"),
        Message.tool_result("b", "Error: no JSON", is_error=True),
        Message.assistant(""),
        Message.system("be brief"),
        Message.assistant("done"),
    )

    assert _conversation.openai_messages("sys", messages) == [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"ä"}'},
                },
                {
                    "id": "b",
                    "type": "function",
                    "function": {
                        "name": "read",
                        "arguments": '{"malformed_json":"{\\"path"}',
                    },
                },
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "text"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no JSON"},
        {"role": "system", "content": "be brief"},
        {"role": "assistant", "content": "done"},
    ]


def test_what_the_adapter_stands_on_outranks_the_options(adapter):
    """Options reach litellm, except where they would switch off streaming or our own retries."""
    asked = request(
        max_tokens=9,
        tools=(ToolSpec(name="read", description="Read.", parameters={"type": "object"}),),
        provider_opts={"temperature": 0.5, "stream": False, "num_retries": 5, "model": "x"},
    )

    assert adapter.call_arguments(asked) == {
        "model": "openai/gpt-4o",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "max_tokens": 9,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Read.",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "num_retries": 0,
        "max_retries": 0,
        "_skip_mcp_handler": True,
    }


def test_nothing_that_the_runtime_alone_sets_comes_from_the_options(adapter):
    """An older session may have it; a model would call tools that nobody has."""
    given = dict.fromkeys(OURS, "x")
    passed = adapter.call_arguments(request(provider_opts={"seed": 1, **given}))

    assert passed == adapter.call_arguments(request(provider_opts={"seed": 1}))


@pytest.mark.parametrize(
    ("opts", "sent"),
    [
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": 50}, {"max_tokens": 9}),
        ({"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
        ({"max_completion_tokens": 50}, {"max_completion_tokens": 9}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, {"max_tokens": 9}),
    ],
)
def test_the_smaller_bound_on_answers_is_sent(adapter, opts, sent):
    """Once, whichever name the options have for it; thoughts that would take all are not asked."""
    passed = adapter.call_arguments(request(max_tokens=9, provider_opts=opts))
    names = {"max_tokens", "max_completion_tokens", "thinking"}

    assert {name: passed[name] for name in names & passed.keys()} == sent


def test_absent_tools_and_bounds_are_not_sent(adapter):
    """Some providers refuse an empty list of tools or a bound of null."""
    assert not {"tools", "max_tokens"} & adapter.call_arguments(request()).keys()


def test_one_delta_may_hold_several_pieces(adapter):
    """Thinking, text and calls come out in this order; a choice that is not the first is none."""
    function = SimpleNamespace(name="read", arguments=None)
    piece = SimpleNamespace(index=1, id="c", function=function)
    first = SimpleNamespace(reasoning_content="hm", content="Hi", tool_calls=[piece])
    second = SimpleNamespace(content="other", tool_calls=None)
    delta = SimpleNamespace(
        choices=[SimpleNamespace(delta=first), SimpleNamespace(delta=second)],
    )

    assert list(adapter.chunks_of(delta)) == [
        ThinkingChunk(text="hm"),
        TextChunk(text="Hi"),
        ToolCallChunk(index=1, call_id="c", name="read"),
    ]


def test_an_error_says_so_once(adapter):
    """Whoever wrote the result, the model reads that it is an error."""
    plain = Message.tool_result("a", "no such file", is_error=True)
    said = Message.tool_result("a", "Error: no such file", is_error=True)
    fine = Message.tool_result("a", "errors: 0")
    found = [one["content"] for one in _conversation.openai_messages("", (plain, said, fine))]

    assert found == ["Error: no such file", "Error: no such file", "errors: 0"]


def test_a_schema_goes_by_parameter_by_a_call_or_in_words(adapter):
    """By parameter where the model takes it, else by what it can."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    by_parameter, by_call, in_words = (
        adapter.call_arguments(request(model=f"openai:{one}", response_format=schema))
        for one in ("gpt-4o", "gpt-4", "gpt-3.5-turbo-16k")
    )
    choice = {"type": "function", "function": {"name": "final_answer"}}

    assert by_parameter["response_format"]["json_schema"]["schema"] == schema
    assert [one["role"] for one in by_parameter["messages"]] == ["user"]
    assert not {"response_format"} & (by_call.keys() | in_words.keys())
    assert by_call["tools"][0]["function"]["parameters"] == schema
    assert by_call["tool_choice"] == choice
    assert [one["role"] for one in by_call["messages"]] == ["user"]
    assert not {"tools", "tool_choice"} & in_words.keys()
    assert in_words["messages"][0]["role"] == "system"


CALL = Message.assistant("", (ToolCall(call_id="a", name="read"),))
RESULT = Message.tool_result("a", "x")
THINKING = {"type": "enabled", "budget_tokens": 1_024}


@pytest.mark.parametrize(
    ("model", "options", "kept"),
    [
        ("anthropic:claude-sonnet-4-5", {"thinking": THINKING}, set()),
        ("anthropic:claude-sonnet-4-5", {"reasoning_effort": "low"}, set()),
        ("anthropic:claude-opus-4-6", {"reasoning_effort": "low"}, {"reasoning_effort"}),
        ("anthropic:claude-opus-4-6", {"thinking": {"type": "adaptive"}}, {"thinking"}),
        ("openai:o3", {"reasoning_effort": "low"}, {"reasoning_effort"}),
        ("gemini:gemini-2.5-flash", {"thinking": THINKING}, {"thinking"}),
    ],
)
def test_only_thoughts_that_need_a_signature_are_left_out(adapter, model, options, kept):
    """Inside a round, an older Claude refuses to think without its earlier thoughts."""
    history = (Message.user("go"), CALL, RESULT)
    found = adapter.call_arguments(request(model=model, messages=history, provider_opts=options))

    assert found.keys() & {"thinking", "reasoning_effort"} == kept


@pytest.mark.parametrize(
    ("options", "silence_s"),
    [({}, None), ({"timeout": 3}, 3), ({"timeout": 0.5}, 0.5), ({"timeout": "soon"}, None)],
    ids=["absent", "whole", "part", "no number"],
)
def test_the_timeout_option_is_the_longest_silence(adapter, options, silence_s):
    """In seconds; what is no number is litellm's affair."""
    assert adapter.silence_max_s(request(provider_opts=options)) == silence_s
