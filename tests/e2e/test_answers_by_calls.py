"""run(result=T) of a model that takes no schema and can be made to call: its answer is a call."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from tests.e2e.anthropic_model import AnthropicModel

TURN_S = 20.0
ANSWER = "final_answer"
PLACE = {"city": "Rome", "people": 3}
ROME = msgspec.json.encode(PLACE).decode()
COUNTS = {"by_city": {"Rome": 3, "Oslo": 1}}


class Town(msgspec.Struct):
    """A place with people in it."""

    city: str
    people: int


class Counts(msgspec.Struct):
    """What binds no decoder of Anthropic's: a map of names that nobody knows before."""

    by_city: dict[str, int]


@cmdc.tool(effects="read")
def count(city: str) -> str:
    """Count the people of a city."""
    return f"{len(city)} people"


def called(name, arguments, text=""):
    """Return the step of a call."""
    return ToolCalls(ToolUse(name, arguments), text=text)


def said(session):
    """Return who said what, without the system prompt."""
    written = [one for one in session.messages() if one.role != "system"]
    return [(one.role, one.content, [call.name for call in one.tool_calls]) for one in written]


@pytest.fixture
def gpt_4(agent, scripted):
    """Make a session that asks a scripted model as one that takes no schema."""

    def made(*steps, **options):
        model = scripted(*steps)
        _, opts = model.model_source()
        return model, agent("openai/gpt-4", provider_opts=opts, **options)

    return made


@pytest.fixture
def claude(agent):
    """Make a session that asks a scripted model on Anthropic's wire."""
    serving = []

    def made(*steps, **options):
        model = AnthropicModel(*steps)
        serving.append(model.serve())
        serving[-1].__enter__()
        opts = {"api_base": model.address, "api_key": "k"}
        return model, agent("anthropic:claude-sonnet-4-5", provider_opts=opts, **options)

    yield made
    for one in serving:
        one.__exit__(None, None, None)


def test_openai_the_answer_is_a_call_that_is_forced(gpt_4):
    """Alone it is forced by its name; the reply's text is what it was called with."""
    model, session = gpt_4(called(ANSWER, PLACE))
    reply = session.run("Which?", result=Town, timeout=TURN_S)
    (request,) = model.requests
    (tool,) = request["tools"]

    assert reply.output == Town("Rome", 3)
    assert reply.text == ROME
    assert tool["function"]["parameters"]["properties"].keys() == {"city", "people"}
    assert request["tool_choice"] == {"type": "function", "function": {"name": ANSWER}}
    assert "response_format" not in request
    assert said(session) == [("user", "Which?", []), ("assistant", ROME, [])]


def test_openai_the_sessions_tools_come_first(gpt_4):
    """Any call will do until the work is done; only the session's own tools are run."""
    model, session = gpt_4(called("count", {"city": "Rome"}), called(ANSWER, PLACE), tools=[count])
    with session.subscribe(types=["tool_execution_end"]) as stream:
        reply = session.run("Which?", result=Town, timeout=TURN_S)
        ran = stream.get(TURN_S).event.name
    first, second = model.requests

    assert reply.output == Town("Rome", 3)
    assert ran == "count"
    assert [first["tool_choice"], second["tool_choice"]] == ["required", "required"]
    assert [one["function"]["name"] for one in first["tools"]] == ["count", ANSWER]
    assert said(session)[1:] == [
        ("assistant", "", ["count"]),
        ("tool_result", "4 people", []),
        ("assistant", ROME, []),
    ]


def test_openai_a_wrong_answer_is_reported_and_called_again(gpt_4):
    """The history that goes with the second request has no call without a result."""
    wrong = called(ANSWER, {"city": "Rome", "people": "many"}, text="Here:")
    model, session = gpt_4(wrong, called(ANSWER, PLACE))
    reply = session.run("Which?", result=Town, timeout=TURN_S)
    _, answer, wish = model.requests[1]["messages"][-3:]

    assert reply.output == Town("Rome", 3)
    assert (answer["role"], "tool_calls" in answer) == ("assistant", False)
    assert "at $.people" in wish["content"]
    assert reply.messages[1].thinking == "Here:"
    model.assert_complete()


def test_openai_a_second_wrong_answer_fails(gpt_4):
    """With the text; and a prompt without a type is free of the tool."""
    model, session = gpt_4(called(ANSWER, {}), called(ANSWER, {"city": "Rome"}), "Rome.")
    with pytest.raises(cmdc.ResultInvalid) as caught:
        session.run("Which?", result=Town, timeout=TURN_S)

    assert caught.value.text == '{"city":"Rome"}'
    assert session.run("Which?", timeout=TURN_S).text == "Rome."
    assert not {"tools", "tool_choice"} & model.requests[-1].keys()


def test_openai_an_answer_beside_a_call_is_asked_for_again(gpt_4):
    """What the model said before it knew the result is not the answer."""
    both = ToolCalls(ToolUse(ANSWER, {"city": "?", "people": 0}), ToolUse("count", {"city": "R"}))
    model, session = gpt_4(both, called(ANSWER, PLACE), tools=[count])
    reply = session.run("Which?", result=Town, timeout=TURN_S)

    assert reply.output == Town("Rome", 3)
    assert [one.role for one in reply.messages] == ["user", "assistant", "tool_result", "assistant"]
    model.assert_complete()


def test_openai_whoever_dies_meanwhile_the_answer_comes(gpt_4):
    """The next process asks for it in the same way."""
    model, session = gpt_4((Hold(), "never"), called(ANSWER, PLACE))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(session.run, "Which?", result=Town, timeout=TURN_S)
        model.wait_held()
        os.kill(session.agent_pid(), signal.SIGKILL)
        reply = waiting.result(TURN_S)

    assert reply.output == Town("Rome", 3)
    assert model.requests[0]["tool_choice"] == model.requests[1]["tool_choice"]
    model.assert_complete()


def test_anthropic_the_answer_is_a_call_that_is_forced(claude):
    """A map binds no decoder there, and is an argument like any other."""
    model, session = claude((ANSWER, COUNTS))
    reply = session.run("How many?", result=Counts, timeout=TURN_S)
    (request,) = model.requests

    assert reply.output == Counts({"Rome": 3, "Oslo": 1})
    assert request["tool_choice"] == {"type": "tool", "name": ANSWER}
    assert [one["name"] for one in request["tools"]] == [ANSWER]
    assert not {"output_format", "output_config"} & request.keys()


def test_anthropic_tools_and_a_wrong_answer_come_before_it(claude):
    """Each call of the history has its result, and the answers are texts: the wire demands it."""
    model, session = claude(
        ["I look.", ("count", {"city": "Rome"})],
        (ANSWER, {"by_city": 3}),
        (ANSWER, COUNTS),
        "Rome and Oslo.",
        tools=[count],
    )
    reply = session.run("How many?", result=Counts, timeout=TURN_S)
    last = session.run("Which?", timeout=TURN_S)
    kinds = [
        (turn["role"], [block["type"] for block in turn["content"]])
        for turn in model.requests[-1]["messages"]
    ]

    assert reply.output == Counts({"Rome": 3, "Oslo": 1})
    assert last.text == "Rome and Oslo."
    assert [one.get("tool_choice") for one in model.requests] == [*([{"type": "any"}] * 3), None]
    assert kinds == [
        ("user", ["text"]),
        ("assistant", ["text", "tool_use"]),
        ("user", ["tool_result"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
    ]
