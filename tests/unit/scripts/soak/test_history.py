"""A conversation that a provider refuses is found out, one that it takes is not."""

import json

import pytest

from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import Message, ToolCall
from scripts.soak.history import entries_heard, entries_of, problems_of


def calling(*ids, name="look"):
    calls = tuple(ToolCall(call_id=CallId(id_), name=name) for id_ in ids)
    return Message.assistant("", calls)


def asked(*messages):
    return problems_of(entries_heard(messages), is_request=True)


GOOD = (
    Message.system("Be good."),
    Message.user("Look."),
    Message.user("Quickly."),
    calling("a", "b"),
    Message.tool_result("b", "seen"),
    Message.tool_result("a", ""),
    Message.assistant("There it is."),
    Message.user("Again."),
    calling("a"),
    Message.tool_result("a", "seen"),
)


def test_a_good_conversation_has_no_problem():
    """Results stand in any order, ids come again later, and two of the user's words may follow."""
    assert asked(*GOOD) == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (GOOD[:4], "the end: no result of a, b"),
        ((*GOOD[:5], GOOD[6]), "message 5: no result of a before it"),
        ((*GOOD[:5], GOOD[4]), "message 5: a result of b, which is not asked for"),
        ((GOOD[0], GOOD[4]), "message 1: a result of b, which is not asked for"),
        ((GOOD[1], calling("a", "a"), *[GOOD[5]] * 2), "message 1: one id for two calls"),
        (GOOD[:1] + GOOD[3:6], "the first word is the assistant's"),
        ((*GOOD[:7], GOOD[6]), "message 7: the model speaks twice in a row"),
        ((*GOOD, GOOD[0]), "message 10: a system message in the middle"),
        ((Message.user(" "),), "message 0: the user's text is blank"),
        ((GOOD[1], calling("a", name="a b"), GOOD[5]), "message 1: 'a b' is no name of a tool"),
        (GOOD[:7], "the last word is the assistant's"),
    ],
)
def test_a_bad_conversation_has_its_problem(messages, problem):
    """Each rule is named by the place where it is broken."""
    assert problem in asked(*messages)


def test_an_answer_of_nothing_is_not_sent():
    """A model that only thought leaves one in the conversation, and none in a request."""
    sent = [GOOD[1], Message.assistant("", thinking="Hm."), GOOD[7]]

    assert asked(*sent) == []


@pytest.mark.parametrize("arguments", ['{"a": ', "[]", ""])
def test_arguments_are_an_object(arguments):
    """A request carries them as text, and that text is a JSON object."""
    function = {"name": "look", "arguments": arguments}
    request = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
    ]
    found = problems_of(entries_of(request), is_request=True)
    function["arguments"] = json.dumps({"key": 1})

    assert found == ["message 1: arguments of a are no JSON object"]
    assert problems_of(entries_of(request), is_request=True) == []
