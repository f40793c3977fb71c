"""A cycle that opens with a call: the model is not asked, and the call's result is the answer."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.commands import AwaitCycle, Prompt
from cmdc_runtime.messages import OpeningCall
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 60.0


@cmdc.tool(effects="read")
def reckon(*, question: str, weight: int = 1) -> str:
    """Reckon."""
    return f"{question} {weight}"


@cmdc.tool(effects="read")
def stumble() -> str:
    """Stumble."""
    raise cmdc.ToolError("no way")


@cmdc.tool(effects="idempotent")
async def linger(*, context: cmdc.Context) -> str:
    """Wait for the user."""
    return f"heard {await context.session.ask_user('Well?')}"


RECKON = OpeningCall(name="reckon", arguments={"weight": 3}, text_as="question")


def prompted(client, session, text, call):
    """Send a prompt with a call, and return its id."""
    command = Prompt(text=text, call=call)
    return client._run(Exchange.send, session.id, command, TURN_S).command_id


def outcome(client, session, prompt_id):
    """Return how its cycle ended."""
    return client._run(Exchange.send, session.id, AwaitCycle(prompt_id=prompt_id), TURN_S)


def only(kind, envelopes):
    return [one.event for one in envelopes if isinstance(one.event, kind)]


def test_result_of_the_call_is_the_answer(agent, client, scripted, cycle_of):
    """Observers see a call and an answer, and the model reads both with the next prompt."""
    model = scripted("I see.")
    session = agent(model, tools=[reckon])
    stream = session.subscribe()
    ended = outcome(client, session, prompted(client, session, "How much?", RECKON))
    found = cycle_of(stream)

    assert (ended.outcome, ended.text) == ("finished", "How much? 3")
    assert only(events.RequestStart, found) == []
    assert [one.args for one in only(events.ToolExecutionStart, found)] == [
        {"weight": 3, "question": "How much?"}
    ]
    assert [one.message.content for one in only(events.ResponseComplete, found)] == ["How much? 3"]
    assert session.run("And?").text == "I see."
    assert [one["role"] for one in model.requests[0]["messages"] if one["role"] != "system"] == [
        *("user", "assistant", "tool", "assistant", "user")
    ]


@pytest.mark.parametrize(
    ("name", "why"), [("stumble", "no way"), ("nowhere", "there is no tool named 'nowhere'")]
)
def test_failure_of_the_call_is_the_cycles(agent, client, scripted, name, why):
    """And the session answers the next prompt."""
    session = agent(scripted("fine"), tools=[stumble])
    prompt_id = prompted(client, session, "Go.", OpeningCall(name=name))
    ended = outcome(client, session, prompt_id)

    assert ended.outcome == "failed"
    assert why in ended.reason
    assert session.run("Well?").text == "fine"


def test_person_is_asked_before_the_call(agent, client, scripted, cycle_of):
    """What is allowed is made by the kernel: no model repeats it."""
    model = scripted()
    plan = cmdc.plugins.HumanApproval(tools=["reckon"])
    session = agent(model, tools=[reckon], plugins=[plan])
    stream = session.subscribe()
    prompted(client, session, "How much?", RECKON)
    (asked,) = only(events.ApprovalRequired, cycle_of(stream))
    resumed = session.approve(asked.id)

    assert outcome(client, session, resumed).text == "How much? 3"
    assert model.requests == []


def test_call_is_made_again_by_the_next_process(agent, client, scripted, poll):
    """Where its tool may run twice, the cycle ends as it would have."""
    session = agent(scripted(), tools=[linger])
    asked = (one for one in session.subscribe() if isinstance(one.event, events.AskUser))
    prompt_id = prompted(client, session, "Go.", OpeningCall(name="linger"))
    next(asked)
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.user_respond(next(asked).event.ref, "yes")

    assert outcome(client, session, prompt_id).text == "heard yes"
    assert session.status().incarnation == 2


def test_models_own_calls_are_as_ever(agent, client, scripted):
    """Of the same tool, in the same session: the model is asked behind them."""
    model = scripted(ToolCalls(ToolUse("reckon", {"question": "Hm", "weight": 2})), "Hm 2")
    session = agent(model, tools=[reckon])
    first = prompted(client, session, "How much?", RECKON)

    assert outcome(client, session, first).text == "How much? 3"
    assert session.run("Again.").text == "Hm 2"
    assert len(model.requests) == 2
