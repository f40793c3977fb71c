"""How a chat request becomes one that a very small model can follow."""

import json

import pytest

from cmdc_runtime.local_model.answers import ANSWER_TOKENS, ANSWER_TOKENS_MAX, call_of, plan

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
PING = {"type": "function", "function": {"name": "ping"}}
ASK = {"role": "user", "content": "What is 1 + 2?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "3"}


def schemas(planned):
    """Return the alternatives that the grammar allows."""
    return planned.body["response_format"]["json_schema"]["schema"]["anyOf"]


def test_tools_become_a_schema():
    """A request with tools asks for a call of one of them, arguments under the tool's schema."""
    planned = plan({"messages": [ASK], "tools": [ADD, PING]})

    assert planned.is_call
    assert [schema["properties"]["name"] for schema in schemas(planned)] == [
        {"const": "add"},
        {"const": "ping"},
    ]
    assert schemas(planned)[0]["properties"]["arguments"] == ADD["function"]["parameters"]


@pytest.mark.parametrize(
    ("choice", "last", "right"),
    [
        (None, ASK, ["add", "ping"]),
        ("auto", RESULT, []),
        ("none", ASK, []),
        ("required", RESULT, ["add", "ping"]),
        ({"type": "function", "function": {"name": "ping"}}, RESULT, ["ping"]),
    ],
    ids=["default", "after a result", "none", "required", "named"],
)
def test_tool_choice(choice, last, right):
    """Tools are called as ``tool_choice`` says; left to itself, the answer to a result is text."""
    request = {"messages": [ASK, CALL, last], "tools": [ADD, PING], "tool_choice": choice}
    planned = plan(request)
    found = [schema["properties"]["name"]["const"] for schema in schemas(planned)] if right else []

    assert planned.is_call == bool(right)
    assert found == right


def test_results_become_plain_talk():
    """No role and no field is left that the chat template does not know."""
    planned = plan({"messages": [ASK, CALL, RESULT, RESULT], "tools": [ADD]})
    messages = planned.body["messages"]

    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert all(set(message) == {"role", "content"} for message in messages)
    assert messages[-1]["content"].count("The tool add returned: 3") == 2


def test_system_messages_become_one():
    """All system text stands in one message in front, the tools' lines behind it."""
    messages = [{"role": "system", "content": "Be kind."}, ASK, {"role": "system", "content": "B"}]
    found = plan({"messages": messages, "tools": [ADD]}).body["messages"][0]["content"]

    assert found.startswith("Be kind.\n\nB\n\n")
    assert json.dumps({"name": "add", "arguments": {"a": "..."}}) in found


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        ({}, ANSWER_TOKENS),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 10**6}, ANSWER_TOKENS_MAX),
    ],
    ids=["default", "given", "bounded"],
)
def test_answers_are_bounded(asked, right):
    """However long an answer was asked for, it ends."""
    assert plan({"messages": [ASK], **asked}).body["max_tokens"] == right


def test_only_known_fields_are_passed_on():
    """The engine gets the sampling options and nothing that it might trip over."""
    body = plan({"messages": [ASK], "temperature": 0.5, "stream": True, "user": "x"}).body

    assert body["temperature"] == 0.5
    assert {"stream", "user", "tools"} & set(body) == set()


@pytest.mark.parametrize("messages", [None, [], "hi"])
def test_messages_are_needed(messages):
    """A request without messages is refused in plain words."""
    with pytest.raises(ValueError, match="non-empty list"):
        plan({"messages": messages})


def test_unknown_tools_cannot_be_chosen():
    """A choice that is not among the tools is refused, not ignored."""
    choice = {"type": "function", "function": {"name": "nope"}}

    with pytest.raises(ValueError, match="'nope'"):
        plan({"messages": [ASK], "tools": [ADD], "tool_choice": choice})


def test_call_of():
    """A whole call is read, one that was cut short is none."""
    assert call_of('{"name": "add", "arguments": {"a": 1}}') == ("add", '{"a": 1}')
    assert call_of('{"name": "add", "argu') is None
