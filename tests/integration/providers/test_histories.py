"""Conversations as each vendor gets them: whole ones, aborted ones, and ones that were repaired."""

import pytest

from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.messages import Message, ToolCall
from workers.core.conversation import NOT_RUN_TEXT, repair

WIRES = ["openai", "anthropic", "gemini"]
READ = ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}})
CALLS = (
    ToolCall(call_id="c1", name="read", arguments={"path": "ä"}),
    ToolCall(call_id="c2", name="list", arguments={}),
)
ROUND = (
    Message.user("look"),
    Message.assistant("Looking.", CALLS, thinking="hm"),
    Message.tool_result("c1", "text"),
    Message.tool_result("c2", "no such folder", is_error=True),
)
# What an abort and a crash leave: a message that says nothing, a call without a result, a result
# without a call, a second result.
BROKEN = (
    Message.user("look"),
    Message.assistant(""),
    Message.assistant("", CALLS),
    Message.tool_result("c1", "text"),
    Message.tool_result("c1", "text again"),
    Message.tool_result("gone", "whose?"),
    Message.user("and now?"),
)


@pytest.fixture
def sent(ask, llmock):
    """Send a conversation; return the request as it came over the wire."""

    def sent_(wire, messages, **changes):
        llmock.plan({"type": "reply", "text": "fine"})
        _, failure = ask(llmock, wire, **{"messages": messages, "tools": (READ,)} | changes)
        assert failure is None
        return llmock.seen()[-1]

    return sent_


def test_openai_gets_a_round_as_it_is(sent):
    """One message per result; an error says so, since OpenAI has no mark for it."""
    request = sent("openai", ROUND, system="Be brief.")

    assert [message["role"] for message in request["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert [call["id"] for call in request["messages"][2]["tool_calls"]] == ["c1", "c2"]
    assert request["messages"][4] == {
        "role": "tool",
        "tool_call_id": "c2",
        "content": "Error: no such folder",
    }


def test_anthropic_gets_the_results_of_a_round_in_one_message(sent):
    """It refuses a round whose results are spread over several."""
    request = sent("anthropic", ROUND, system="Be brief.")
    question, calls, results = request["messages"]

    assert request["system"] == [{"type": "text", "text": "Be brief."}]
    assert question["content"] == [{"type": "text", "text": "look"}]
    assert calls["content"] == [
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "ä"}},
        {"type": "tool_use", "id": "c2", "name": "list", "input": {}},
    ]
    assert results == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "text"},
            {"type": "tool_result", "tool_use_id": "c2", "content": "Error: no such folder"},
        ],
    }


def test_google_gets_results_under_the_names_of_their_tools(sent):
    """It knows no ids, so order and names must fit."""
    request = sent("gemini", ROUND, system="Be brief.")
    question, calls, results = request["contents"]
    parts = [part["function_response"] for part in results["parts"]]

    assert request["system_instruction"] == {"parts": [{"text": "Be brief."}]}
    assert [one["role"] for one in (question, calls, results)] == ["user", "model", "user"]
    assert [part["name"] for part in parts] == ["read", "list"]
    assert parts[1]["response"] == {"content": "Error: no such folder"}


def test_a_repaired_history_alternates_for_anthropic(sent):
    """User and model take turns; each call has one result, in the turn right after it."""
    request = sent("anthropic", repair(BROKEN))
    first, calls, last = request["messages"]

    assert [first["role"], calls["role"], last["role"]] == ["user", "assistant", "user"]
    assert last["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "text"},
        {"type": "tool_result", "tool_use_id": "c2", "content": NOT_RUN_TEXT},
        {"type": "text", "text": "and now?"},
    ]


def test_a_repaired_history_has_a_response_for_each_call_for_google(sent):
    """As many as there were calls, in their order, in the turn right after them."""
    request = sent("gemini", repair(BROKEN))
    _, calls, results, last = request["contents"]
    responses = [part["function_response"] for part in results["parts"]]

    assert [part["function_call"]["name"] for part in calls["parts"]] == ["read", "list"]
    assert [one["response"]["content"] for one in responses] == ["text", NOT_RUN_TEXT]
    assert last["parts"] == [{"text": "and now?"}]


def test_a_repaired_history_answers_each_call_once_for_openai(sent):
    """OpenAI refuses a call without a result and a result without a call."""
    request = sent("openai", repair(BROKEN))
    results = [one for one in request["messages"] if one["role"] == "tool"]

    assert [(one["tool_call_id"], one["content"]) for one in results] == [
        ("c1", "text"),
        ("c2", NOT_RUN_TEXT),
    ]
    assert request["messages"][-1] == {"role": "user", "content": "and now?"}


@pytest.mark.parametrize("wire", WIRES)
def test_a_history_with_calls_may_be_sent_without_tools(sent, wire):
    """A summary offers no tools; Anthropic wants to see some where there are calls."""
    request = sent(wire, ROUND, tools=())

    assert bool(request.get("tools")) is (wire == "anthropic")


def test_arguments_that_were_no_json_go_back_as_an_object(sent):
    """Anthropic and Google parse them."""
    call = ToolCall(call_id="c1", name="read", malformed='{"path')
    history = (Message.user("go"), Message.assistant("", (call,)), Message.tool_result("c1", "no"))
    request = sent("anthropic", history)

    assert request["messages"][1]["content"][0]["input"] == {"malformed_json": '{"path'}


def test_a_system_message_in_the_middle_reaches_every_vendor(sent):
    """OpenAI gets it where it stands, Google at the top, Anthropic as a note to the model."""
    history = (Message.user("a"), Message.system("Mind the gap."), Message.user("b"))

    assert sent("openai", history)["messages"][1]["role"] == "system"
    assert sent("gemini", history)["system_instruction"]["parts"] == [{"text": "Mind the gap."}]
    assert "Mind the gap." in str(sent("anthropic", history)["messages"])


THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}


def test_claude_does_not_think_inside_a_round(sent):
    """It demands its signed thoughts back there, which a conversation does not keep."""
    before = sent("anthropic", ROUND[:1], provider_opts=THINKING)
    within = sent("anthropic", ROUND, provider_opts=THINKING)
    after = sent(
        "anthropic",
        (*ROUND, Message.assistant("Done."), Message.user("Again.")),
        provider_opts=THINKING,
    )

    assert before["thinking"] == THINKING["thinking"]
    assert "thinking" not in within
    assert after["thinking"] == THINKING["thinking"]
