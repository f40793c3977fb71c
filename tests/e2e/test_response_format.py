"""An answer in a form: asked for on the wire, checked, asked for once more, and then given up."""

import os
import signal
from typing import Annotated

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

TURN_S = 20.0
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer", "minimum": 0}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
VALID = '{"city": "Rome", "people": 2800000}'
WRONG = '{"city": "Rome", "people": "many"}'


class Town(msgspec.Struct):
    """A place with people in it."""

    city: str
    people: Annotated[int, msgspec.Meta(ge=0)]


@cmdc.tool(effects="read")
def count(city: str) -> str:
    """Count the people of a city."""
    return f"{len(city)} people"


def said(session):
    """Return who said what, the system prompt left out."""
    return [(message.role, message.content) for message in session.messages()[1:]]


def asked_for(request):
    """Return the schema that a request carries."""
    return request["response_format"]["json_schema"]["schema"]


@pytest.mark.parametrize("form", [PLACE, Town], ids=["schema", "struct"])
@pytest.mark.parametrize(
    "answer",
    [VALID, f"```json\n{VALID}\n```", f"\n{VALID}  "],
    ids=["bare", "code-block", "spaced"],
)
def test_an_answer_in_the_form_is_the_reply(agent, scripted, form, answer):
    """Nothing more is asked, and the text is what the model said."""
    model = scripted(answer)
    session = agent(model, response_format=form)
    reply = session.run("Which?", timeout=TURN_S)

    assert reply.text == answer
    assert said(session) == [("user", "Which?"), ("assistant", answer)]
    assert asked_for(model.requests[0])["properties"].keys() == {"city", "people"}
    model.assert_complete()


def test_the_schema_goes_over_the_wire_as_it_is(agent, scripted):
    """In the words of the provider, with every request."""
    model = scripted("none", VALID)
    agent(model, response_format=PLACE).run("Which?", timeout=TURN_S)
    first, second = (request["response_format"] for request in model.requests)

    assert first["type"] == "json_schema"
    assert first["json_schema"]["schema"] == PLACE
    assert first == second


def test_no_form_is_asked_for_where_none_is_wanted(agent, scripted):
    """Free text is free."""
    model = scripted("Rome.")
    agent(model).run("Which?", timeout=TURN_S)

    assert "response_format" not in model.requests[0]


def test_a_model_that_takes_no_schema_is_asked_in_words(agent, scripted):
    """The answer is checked all the same."""
    model = scripted(WRONG, VALID)
    _, opts = model.model_source()
    session = agent("openai/gpt-3.5-turbo-16k", provider_opts=opts, response_format=PLACE)
    reply = session.run("Which?", timeout=TURN_S)
    system = model.requests[0]["messages"][0]

    assert reply.text == VALID
    assert "response_format" not in model.requests[0]
    assert system["role"] == "system"
    assert '"minimum":0' in system["content"]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        pytest.param(WRONG, "at $.people", id="mismatch"),
        pytest.param("It is Rome.", "no JSON", id="no-json"),
    ],
)
def test_an_answer_in_another_form_is_asked_for_once_more(
    agent, scripted, cycle_of, wrong, problem
):
    """The model reads what is wrong; the wish is in the conversation and marked as ours."""
    model = scripted(wrong, VALID)
    session = agent(model, response_format=PLACE)
    stream = session.subscribe()
    session.prompt("Which?")
    kinds = [envelope.event.kind for envelope in cycle_of(stream)]
    _, question, first, wish, second = session.messages()
    sent = model.requests[1]["messages"][-1]

    assert session.collect_reply() == VALID
    assert (question.content, first.content, second.content) == ("Which?", wrong, VALID)
    assert (wish.role, wish.metadata) == ("user", {"repair": True})
    assert (sent["role"], sent["content"]) == ("user", wish.content)
    assert problem in wish.content
    assert kinds.count("response_complete") == 2
    assert kinds[-1] == "agent_end"
    model.assert_complete()


def test_a_second_answer_in_another_form_fails_the_cycle(agent, scripted, cycle_of):
    """Nobody asks a third time; the error says what is wrong, and the session goes on."""
    model = scripted("It is Rome.", WRONG, VALID)
    session = agent(model, response_format=PLACE)
    stream = session.subscribe()
    session.prompt("Which?")
    ended = cycle_of(stream)[-1].event

    assert (ended.kind, ended.retryable) == ("agent_error", False)
    with pytest.raises(cmdc.AgentFailed, match=r"response_format: .*at \$\.people"):
        session.collect_reply()
    assert len(model.requests) == 2
    assert session.run("Once more.", timeout=TURN_S).text == VALID
    model.assert_complete()


def test_each_prompt_has_a_wish_of_its_own(agent, scripted):
    """What was asked for once more for the prompt before does not count."""
    model = scripted(WRONG, VALID, WRONG, VALID)
    session = agent(model, response_format=PLACE)

    assert session.run("One?", timeout=TURN_S).text == VALID
    assert session.run("Two?", timeout=TURN_S).text == VALID
    model.assert_complete()


def test_tools_come_before_the_form(agent, scripted):
    """Only the final answer is checked, and both go over the wire together."""
    use = ToolUse("count", {"city": "Rome"})
    model = scripted(ToolCalls(use, text="Let me count."), WRONG, ToolCalls(use), VALID)
    session = agent(model, tools=[count], response_format=Town)
    reply = session.run("Which?", timeout=TURN_S)
    roles = [role for role, _ in said(session)]

    assert reply.text == VALID
    assert roles[:4] == ["user", "assistant", "tool_result", "assistant"]
    assert roles[4:] == ["user", "assistant", "tool_result", "assistant"]
    for request in model.requests:
        assert request["tools"][0]["function"]["name"] == "count"
        assert asked_for(request)["properties"].keys() == {"city", "people"}
    model.assert_complete()


def test_a_wish_outlives_the_process(agent, scripted):
    """After a kill the answer is still asked for once, and the wish is counted."""
    model = scripted(WRONG, (Hold(), "never"), "It is Rome.")
    session = agent(model, response_format=PLACE)
    session.prompt("Which?")
    model.wait_held()
    os.kill(session.agent_pid(), signal.SIGKILL)

    with pytest.raises(cmdc.AgentFailed, match="response_format"):
        session.collect_reply(timeout=TURN_S)
    assert [role for role, _ in said(session)] == ["user", "assistant", "user", "assistant"]
    model.assert_complete()


def test_a_wish_is_a_turn(agent, scripted, cycle_of):
    """The limit of turns holds for it, too."""
    model = scripted(WRONG, default=VALID)
    session = agent(model, response_format=PLACE, max_turns=1)
    stream = session.subscribe()
    session.prompt("Which?")
    ended = cycle_of(stream)[-1].event

    assert (ended.kind, ended.reason) == ("agent_abort", "max_turns_exceeded")
    assert len(model.requests) == 1


@cmdc.tool(effects="read")
def greet(name: Annotated[str, msgspec.Meta(pattern="^(a+)+$")]) -> str:
    """Greet somebody, whose name takes years to be matched."""
    return name


def test_a_pattern_that_takes_for_ever_costs_no_process(agent, scripted):
    """The model reads that its text cannot be checked, and the session goes on as it is."""
    endless = "a" * 40 + "b"
    model = scripted(ToolCalls(ToolUse("greet", {"name": endless})), f'"{endless}"', '"aa"')
    form = {"type": "string", "pattern": "^(a+)+$"}
    session = agent(model, tools=[greet], response_format=form)
    reply = session.run("Who?", timeout=3 * TURN_S)  # it takes 2 s of a CPU
    [result] = [text for role, text in said(session) if role == "tool_result"]
    asked = [text for role, text in said(session) if role == "user"][-1]

    assert reply.text == '"aa"'
    assert "cannot be checked: it took more than 1 s of CPU time" in result
    assert "cannot be checked: it took more than 1 s of CPU time" in asked
    assert session.status().incarnation == 1
