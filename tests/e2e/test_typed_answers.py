"""run(result=T): an answer as a value of a type, asked for again where it is none."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

TURN_S = 20.0


class Town(msgspec.Struct):
    """A place with people in it."""

    city: str
    people: int


class Even(pydantic.BaseModel):
    """A number that no schema can describe."""

    number: int

    @pydantic.field_validator("number")
    @classmethod
    def even(cls, number):
        """Refuse odd ones."""
        if number % 2:
            raise ValueError("odd")
        return number


@dataclass
class Line:
    """A line."""

    text: str


class Row(TypedDict):
    """A row."""

    size: int


class Pair(NamedTuple):
    """Two."""

    left: int
    right: str


ROME = '{"city": "Rome", "people": 3}'


def wanted(request):
    """Return the schema that a request carries, None where it carries none."""
    form = request.get("response_format")
    return None if form is None else form["json_schema"]["schema"]


@pytest.mark.parametrize(
    ("kind", "answer", "output"),
    [
        (Town, ROME, Town("Rome", 3)),
        (Even, '{"number": 4}', Even(number=4)),
        (Line, '{"text": "a"}', Line("a")),
        (Row, '{"size": 1}', {"size": 1}),
        (Pair, '{"result": [1, "a"]}', Pair(1, "a")),
        (int, '{"result": 5}', 5),
        (list[Town], f'{{"result": [{ROME}]}}', [Town("Rome", 3)]),
        (Literal["yes", "no"], '{"result": "no"}', "no"),
        (Town | None, '{"result": null}', None),
    ],
    ids=lambda one: str(one)[:30],
)
def test_an_answer_is_a_value_of_the_type(agent, scripted, kind, answer, output):
    """The schema goes over the wire, with an object at its root; the text is what was said."""
    model = scripted(answer)
    reply = agent(model).run("Which?", result=kind, timeout=TURN_S)

    assert reply.output == output
    assert type(reply.output) is type(output)
    assert reply.text == answer
    assert wanted(model.requests[0])["type"] == "object"


def test_a_session_has_a_type_for_all_its_answers(agent, scripted):
    """One call may want another, and ``collect_reply`` returns the text."""
    model = scripted(ROME, '{"result": 5}', ROME)
    session = agent(model, result=Town)
    first, second = (
        session.run("Which?", timeout=TURN_S),
        session.run("How many?", result=int, timeout=TURN_S),
    )
    session.prompt("Again?")

    assert (first.output, second.output) == (Town("Rome", 3), 5)
    assert session.collect_reply(timeout=TURN_S) == ROME
    assert [set(wanted(one)["properties"]) for one in model.requests] == [
        *({"city", "people"}, {"result"}, {"city", "people"})
    ]


def test_without_a_type_the_output_is_the_text(agent, scripted):
    """And the next prompt of a session is free again after one with a type."""
    model = scripted(ROME, "Rome.")
    session = agent(model)
    session.run("Which?", result=Town, timeout=TURN_S)
    reply = session.run("Which?", timeout=TURN_S)

    assert reply.output == reply.text == "Rome."
    assert wanted(model.requests[1]) is None


@pytest.mark.parametrize(
    ("output", "wrong", "problem"),
    [
        (Town("Rome", 3), "It is Rome.", "no JSON"),
        (Town("Rome", 3), '{"city": "Rome", "people": "many"}', "at $.people"),
        (Even(number=4), '{"number": 3}', "number: Value error, odd"),
    ],
    ids=["no JSON", "against the schema", "against a validator"],
)
def test_a_wrong_answer_is_reported_and_asked_for_again(agent, scripted, output, wrong, problem):
    """The model reads what is wrong with it; messages and usage are those of both."""
    model = scripted(wrong, ROME if isinstance(output, Town) else '{"number": 4}')
    session = agent(model)
    reply = session.run("Which?", result=type(output), timeout=TURN_S)
    roles = [message.role for message in reply.messages]

    assert reply.output == output
    assert problem in model.requests[1]["messages"][-1]["content"]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert wanted(model.requests[0]) == wanted(model.requests[1])
    assert reply.usage == session.status().token_usage
    model.assert_complete()


@pytest.mark.parametrize(
    ("kind", "answers", "problem"),
    [
        (Town, ("It is Rome.", '{"city": "Rome"}'), "'people' is a required property"),
        (Even, ('{"number": 3}', '{"number": 5}'), "number: Value error, odd"),
    ],
    ids=["against the schema", "against a validator"],
)
def test_a_second_wrong_answer_is_an_error_with_its_text(agent, scripted, kind, answers, problem):
    """Nobody asks a third time, and the session goes on; it is an ``AgentFailed``, too."""
    model = scripted(*answers, "Rome.")
    session = agent(model)
    with pytest.raises(cmdc.ResultInvalid) as caught:
        session.run("Which?", result=kind, timeout=TURN_S)

    assert isinstance(caught.value, cmdc.AgentFailed)
    assert caught.value.text == answers[-1]
    assert problem in caught.value.problems[0]
    assert session.run("Which?", timeout=TURN_S).output == "Rome."
    model.assert_complete()


@cmdc.tool(effects="read")
def count(city: str) -> str:
    """Count the people of a city."""
    return f"{len(city)} people"


def test_tools_come_before_the_typed_answer(agent, scripted):
    """The schema goes with every request of the cycle, and with no other."""
    model = scripted(ToolCalls(ToolUse("count", {"city": "Rome"})), ROME)
    reply = agent(model, tools=[count]).run("Which?", result=Town, timeout=TURN_S)

    assert reply.output == Town("Rome", 3)
    assert all(set(wanted(one)["properties"]) == {"city", "people"} for one in model.requests)


def test_a_prompt_that_waits_keeps_its_type(agent, scripted, poll):
    """Also where the process dies meanwhile: the type is in the journal with the prompt."""
    model = scripted((Hold(), "never"), "Rome.", "It is Rome.", ROME)
    session = agent(model)
    session.prompt("First?")
    model.wait_held()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(session.run, "Which?", result=Town, timeout=TURN_S)
        assert poll(lambda: session.status().queued_prompts)
        os.kill(session.agent_pid(), signal.SIGKILL)
        reply = waiting.result(TURN_S)

    assert reply.output == Town("Rome", 3)
    model.assert_complete()


def test_a_model_that_takes_no_schema_is_asked_in_words(agent, scripted):
    """The answer is checked all the same."""
    model = scripted("It is Rome.", ROME)
    _, opts = model.model_source()
    session = agent("openai/gpt-3.5-turbo-16k", provider_opts=opts)
    reply = session.run("Which?", result=Town, timeout=TURN_S)

    assert reply.output == Town("Rome", 3)
    assert wanted(model.requests[0]) is None
    assert "tools" not in model.requests[0]
    assert '"people"' in model.requests[0]["messages"][0]["content"]


def test_what_is_no_type_is_refused_before_anything_is_sent(agent, scripted):
    """By name, in both calls."""
    model = scripted()
    session = agent(model)
    with pytest.raises(cmdc.InvalidOptions, match="result: expected a type, got 5"):
        session.run("Which?", result=5)
    with pytest.raises(cmdc.InvalidOptions, match="give one of the two"):
        agent(model, result=Town, response_format=Town)
    assert model.requests == []
