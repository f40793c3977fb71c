"""Questions to the user: asked once, answered with anything, and never left hanging."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0


def note(log, text):
    with Path(log).open("a") as file:
        file.write(f"{text} ")


def noted(log):
    return log.read_text().split() if log.exists() else []


@cmdc.tool(effects="idempotent")
async def survey(log: str, *, context: cmdc.Context) -> str:
    """Ask twice, and note the answers; the first process then waits for its end."""
    first = await context.session.ask_user("Colour?", ["red", "blue"])
    second = await context.session.ask_user("Size?")
    note(log, f"{context.incarnation}:{first}:{second}")
    if context.incarnation == 1:
        await asyncio.Event().wait()
    return f"{first} and {second}"


def asking(question="Which?", **more):
    return ToolCalls(ToolUse("ask_user", {"question": question, **more}))


def event_of(stream, kind):
    """Read a stream up to the first event of a kind and return it."""
    while True:
        event = stream.get(TURN_S).event
        if isinstance(event, kind):
            return event


def only(kind, envelopes):
    return [one.event for one in envelopes if isinstance(one.event, kind)]


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def kill(session):
    os.kill(session.agent_pid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("response", "text"),
    [("red", "red"), ("", ""), (7, "7"), (None, "null"), (["a", {"b": 1.5}], '["a",{"b":1.5}]')],
    ids=["str", "empty", "int", "none", "nested"],
)
def test_any_value_is_an_answer(agent, scripted, cycle_of, response, text):
    """Observers get it as it was sent, and the model as text."""
    model = scripted(asking(options=["red", "blue"]), "Thanks.")
    session = agent(model, tools=["ask_user"])
    stream = session.subscribe()
    session.prompt("Go.")
    asked = event_of(stream, events.AskUser)
    session.user_respond(asked.ref, response)
    found = cycle_of(stream)
    (call,) = [call for one in session.messages() for call in one.tool_calls]

    assert (asked.session_id, asked.question) == (session.id, "Which?")
    assert (asked.options, asked.ref) == (("red", "blue"), f"{call.call_id}:ask-1")
    reported = events.UserResponded(session_id=session.id, ref=asked.ref, response=response)
    assert only(events.UserResponded, found) == [reported]
    assert results(session) == [text]


def test_questions_wait_side_by_side(agent, scripted):
    """Each has a reference of its own, and may be answered in any order."""
    calls = (ToolUse("ask_user", {"question": text}) for text in ("One?", "Two?"))
    session = agent(scripted(ToolCalls(*calls), "Thanks."), tools=["ask_user"])
    stream = session.subscribe()
    session.prompt("Go.")
    refs = {}
    for _ in range(2):
        asked = event_of(stream, events.AskUser)
        refs[asked.question] = asked.ref
    session.user_respond(refs["Two?"], "second")
    session.user_respond(refs["One?"], "first")

    assert session.collect_reply(timeout=TURN_S) == "Thanks."
    assert results(session) == ["first", "second"]


def test_answer_to_no_question_is_an_error(agent, scripted):
    """Never asked, or answered already; nothing changes."""
    session = agent(scripted(asking(), "Thanks."), tools=["ask_user"])
    stream = session.subscribe()
    session.prompt("Go.")
    ref = event_of(stream, events.AskUser).ref
    with pytest.raises(cmdc.AskNotFound, match="nobody"):
        session.user_respond("nobody", "x")
    session.user_respond(ref, "first")
    with pytest.raises(cmdc.AskNotFound, match=ref):
        session.user_respond(ref, "second")

    assert session.collect_reply(timeout=TURN_S) == "Thanks."
    assert results(session) == ["first"]


def test_question_that_nobody_answers_ends(agent, scripted):
    """After the tool's own timeout the model reads so, and a late answer finds no question."""
    model = scripted(asking(), "Then without.")
    session = agent(model, tools=[cmdc.tools.AskUser(timeout=0.1)])
    stream = session.subscribe()
    session.prompt("Go.")
    ref = event_of(stream, events.AskUser).ref
    ended = event_of(stream, events.ToolExecutionEnd)

    assert (ended.ok, "not answered within 0.1 s" in ended.text) == (False, True)
    assert session.collect_reply(timeout=TURN_S) == "Then without."
    with pytest.raises(cmdc.AskNotFound):
        session.user_respond(ref, "late")


@pytest.mark.parametrize("kill_tools", ["all", "killable", "none"])
def test_abort_ends_a_question_at_once(agent, scripted, cycle_of, kill_tools):
    """Whatever else an abort leaves running, nobody answers to a cycle that is over."""
    model = scripted(asking(), "next")
    session = agent(model, tools=["ask_user"], interrupt_immune_tools=["ask_user"])
    stream = session.subscribe()
    session.prompt("Go.")
    ref = event_of(stream, events.AskUser).ref
    session.abort(kill_tools=kill_tools)
    killed = [one.event.name for one in cycle_of(stream) if one.event.kind == "tool_killed"]

    assert killed == ["ask_user"]
    with pytest.raises(cmdc.AskNotFound):
        session.user_respond(ref, "late")
    assert session.run("Next.", timeout=TURN_S).text == "next"


def test_steering_ends_a_question(agent, scripted):
    """Who steers has something else to say: the model reads that, and the question is over."""
    model = scripted(asking(), "Left it is.")
    session = agent(model, tools=["ask_user"])
    stream = session.subscribe()
    session.prompt("Go.")
    ref = event_of(stream, events.AskUser).ref
    session.steer("Left.")

    assert session.collect_reply(timeout=TURN_S) == "Left it is."
    with pytest.raises(cmdc.AskNotFound):
        session.user_respond(ref, "late")


@pytest.mark.parametrize("answered", ["between the processes", "after it was asked again"])
def test_question_outlives_the_process(agent, scripted, answered):
    """The next process asks under the same reference, so any answer to it is good."""
    model = scripted(asking(), "Thanks.")
    session = agent(model, tools=["ask_user"])
    stream = session.subscribe()
    session.prompt("Go.")
    first = event_of(stream, events.AskUser)
    kill(session)
    if answered == "after it was asked again":
        assert event_of(stream, events.AskUser) == first
    session.user_respond(first.ref, "red")

    assert session.collect_reply(timeout=TURN_S) == "Thanks."
    assert results(session) == ["red"]
    assert len(model.requests) == 2


def test_answered_question_is_not_asked_again(agent, scripted, cycle_of, poll, tmp_path):
    """A call that runs again after a crash gets the answers that were given to it before."""
    log = tmp_path / "log"
    session = agent(
        scripted(ToolCalls(ToolUse("survey", {"log": str(log)})), "Thanks."), tools=[survey]
    )
    stream = session.subscribe()
    session.prompt("Go.")
    session.user_respond(event_of(stream, events.AskUser).ref, "red")
    session.user_respond(event_of(stream, events.AskUser).ref, "large")
    assert poll(lambda: noted(log) == ["1:red:large"])
    kill(session)
    found = cycle_of(stream)

    assert only(events.AskUser, found) == []
    assert noted(log) == ["1:red:large", "2:red:large"]
    assert results(session) == ["red and large"]


def test_only_what_is_open_is_asked_again(agent, scripted, cycle_of, tmp_path):
    """Of two questions of a call the answered one keeps its answer."""
    log = tmp_path / "log"
    session = agent(
        scripted(ToolCalls(ToolUse("survey", {"log": str(log)})), "Thanks."), tools=[survey]
    )
    stream = session.subscribe()
    session.prompt("Go.")
    session.user_respond(event_of(stream, events.AskUser).ref, "red")
    second = event_of(stream, events.AskUser)
    kill(session)
    again = event_of(stream, events.AskUser)
    session.user_respond(second.ref, "large")
    cycle_of(stream)

    assert again == second
    assert results(session) == ["red and large"]
    assert noted(log) == ["2:red:large"]
