"""What people decide, ask and change is kept, whoever is killed: the agent or the daemon."""

import os
import signal
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
EVENTS_OF_ALL = 30
"""Events from the first prompt to the end, when nobody dies."""


def note(log, text):
    with Path(log).open("a") as file:
        file.write(f"{text} ")


def noted(log):
    return log.read_text().split() if log.exists() else []


@cmdc.tool(effects="idempotent", needs_approval=True)
async def launch(log: str, *, context: cmdc.Context) -> str:
    """Launch it; a person must allow each launch."""
    note(log, context.call_id)
    return "launched"


@cmdc.tool(effects="read")
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def launching(log):
    return ToolCalls(ToolUse("launch", {"log": str(log)}))


def asking():
    return ToolCalls(ToolUse("ask_user", {"question": "Which?"}))


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def event_of(stream, kind):
    """Read a stream up to the first event of a kind and return it."""
    while True:
        event = stream.get(TURN_S).event
        if isinstance(event, kind):
            return event


def test_waiting_approval_outlives_the_daemon(own_daemon, scripted, poll, tmp_path):
    """A new daemon knows what waits, and its approval lets the call be made, once."""
    log = tmp_path / "log"
    model = scripted(launching(log), launching(log), "Up.")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, tools=[launch])
        session.run("Launch.", timeout=TURN_S)
        (waiting,) = session.status().pending_approvals
        own_daemon.kill()
        own_daemon.start()
        assert poll(lambda: session.status().pending_approvals == (waiting,))
        session.approve(waiting)

        assert session.collect_reply(timeout=TURN_S) == "Up."
        assert len(noted(log)) == 1


def test_an_approval_outlives_the_daemon(own_daemon, scripted, tmp_path):
    """A daemon that dies before the call is repeated leaves it to the next one, which asks none."""
    log = tmp_path / "log"
    model = scripted(launching(log), (Hold(), "never"), launching(log), "Up.")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, tools=[launch])
        session.run("Launch.", timeout=TURN_S)
        (waiting,) = session.status().pending_approvals
        session.approve(waiting)
        model.wait_held()
        own_daemon.kill()
        own_daemon.start()

        assert session.collect_reply(timeout=TURN_S) == "Up."
        assert len(noted(log)) == 1
        assert session.status().pending_approvals == ()


def test_question_and_steering_outlive_the_daemon(own_daemon, scripted):
    """The question is asked again under its reference; the model reads what steers in order."""
    questioner = scripted(asking(), "Thanks.")
    talker = scripted((Hold(), "never"), "Left it is.")
    own_daemon.start()
    with own_daemon.client() as client:
        asked = client.create_agent(model=questioner, tools=["ask_user"])
        stream = asked.subscribe()
        asked.prompt("Go.")
        first = event_of(stream, events.AskUser)
        steered = client.create_agent(model=talker)
        steered.prompt("Go.")
        talker.wait_held()
        steered.steer("Left.")
        steered.steer("Slowly.")
        own_daemon.kill()
        own_daemon.start()
        again = event_of(stream, events.AskUser)
        asked.user_respond(first.ref, "red")

        assert again == first
        assert asked.collect_reply(timeout=TURN_S) == "Thanks."
        assert results(asked) == ["red"]
        assert steered.collect_reply(timeout=TURN_S) == "Left it is."
        said = [one["content"] for one in talker.requests[-1]["messages"] if one["role"] == "user"]
        assert said == ["Go.", "Left.\n\nSlowly."]


def test_changed_tools_and_model_outlive_the_daemon(own_daemon, scripted):
    """What was attached by value is there, and the next request goes to the new model."""
    first = scripted("One.")
    second = scripted(ToolCalls(ToolUse("add", {"a": 2, "b": 3})), "Five.")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=first)
        session.run("Go.", timeout=TURN_S)
        session.attach_tool(add)
        session.switch_model(second)
        own_daemon.kill()
        own_daemon.start()

        assert session.run("Add.", timeout=TURN_S).text == "Five."
        assert results(session) == ["5"]


@pytest.fixture(scope="module")
def served(shared_daemon):
    """Lend a client of a daemon that the tests below share."""
    shared_daemon.start()
    with shared_daemon.client() as client:
        yield client


@pytest.mark.parametrize("after", range(1, EVENTS_OF_ALL, 2))
def test_kill_after_any_event_of_a_steered_cycle(served, scripted, tmp_path, after):
    """Wherever the agent is killed, each decision, answer and steering counts, and counts once."""
    log = tmp_path / "log"
    model = scripted(default=lambda request: reply_to(request["messages"], log))
    with served.create_agent(model=model, tools=[launch, "ask_user"]) as session:
        stream = session.subscribe()
        session.prompt("Go.")
        steered = 0
        is_over = False
        while not is_over:
            envelope = stream.get(TURN_S)
            if envelope.index == after:
                os.kill(session.agent_pid(), signal.SIGKILL)
            match envelope.event:
                case events.AskUser(ref=ref) if not steered:
                    session.user_respond(ref, "red")
                    steered += 1
                case events.ApprovalRequired(id=waiting):
                    session.approve(waiting)
                case events.AgentEnd(messages=said):
                    is_over = said[-1].content == "Up."
        contents = [one.content for one in session.messages() if one.role == "tool_result"]

        assert contents[0] == "red"
        assert contents[-1] == "launched"
        assert len(contents) == 3
        assert len(set(noted(log))) == 1
        assert session.status().pending_approvals == ()


def reply_to(messages, log):
    """Go by the conversation, since a kill may make a request come twice."""
    results = [one["content"] for one in messages if one["role"] == "tool"]
    if not results:
        return asking()
    return "Up." if results[-1] == "launched" else launching(log)
