"""Guardrails: a prompt is looked at beside its request, an answer before it counts."""

import os
import signal
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.errors import GuardrailTripped, InvalidOptions
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
SHOWN = events.MessageDelta | events.ResponseComplete | events.ToolExecutionStart


def no_secrets(text, context):
    """Trip where a text has a secret."""
    if "secret" in text:
        return cmdc.Tripwire("it has a secret", {"session": context.session_id})
    return None


async def in_words(text, _context):
    """Trip by a word alone."""
    return "too short" if len(text) < 3 else None


def broken(text, _context):
    """Fail."""
    raise ValueError(text)


def odd(_text, _context):
    """Return what is no verdict."""
    return 5


def patient(folder):
    """Return a guardrail that waits for a file, and one more that says when it has begun."""

    def waits(text, _context):
        (Path(folder) / "begun").touch()
        never = threading.Event()
        while not (Path(folder) / "go").exists():
            never.wait(0.02)
        return "no" if "secret" in text else None

    return waits


@cmdc.tool(effects="write")
def note(log: str) -> str:
    """Leave a trace."""
    Path(log).touch()
    return "noted"


def only(kind, found):
    return [envelope.event for envelope in found if isinstance(envelope.event, kind)]


def test_a_prompt_that_trips_is_not_answered(agent, scripted, cycle_of, tmp_path):
    """Nothing is shown of what the model has said meanwhile, and no call of it is made."""
    calls = (Text("Well, "), ToolCalls(ToolUse("note", {"log": str(tmp_path / "log")})))
    model = scripted(calls, "Sure.")
    session = agent(model, tools=[note], input_guardrails=[no_secrets, in_words])
    stream = session.subscribe()
    with pytest.raises(GuardrailTripped, match="the input guardrail no_secrets tripped") as found:
        session.run("My secret is 7.", timeout=TURN_S)
    heard = cycle_of(stream)
    error = found.value

    [event] = only(events.GuardrailTripped, heard)
    assert (event.guardrail, event.side, event.retracted) == ("no_secrets", "input", None)
    assert (error.guardrail, error.side, error.reason) == ("no_secrets", "input", "it has a secret")
    assert error.info == event.info == {"session": session.id}
    assert isinstance(error, cmdc.AgentAborted)
    assert only(SHOWN, heard) == []
    assert not (tmp_path / "log").exists()
    assert [message.role for message in session.messages()] == ["system", "user"]


def test_what_is_said_meanwhile_is_held_back_and_then_shown(agent, scripted, poll, tmp_path):
    """The request is under way beside the guardrail; its answer comes in order, once."""
    model = scripted((Text("One, "), Text("two.")))
    session = agent(model, input_guardrails=[patient(tmp_path)])
    stream = session.subscribe(types=["message_delta", "request_start", "agent_end"])
    session.prompt("Go on.")
    model.wait_request()
    assert poll((tmp_path / "begun").exists)
    first = stream.get(TURN_S).event
    text_before = session.status().state
    (tmp_path / "go").touch()
    heard = [first]
    while not isinstance(heard[-1], events.AgentEnd):
        heard.append(stream.get(TURN_S).event)
    said = "".join(one.delta for one in heard if isinstance(one, events.MessageDelta))

    assert text_before in {"running", "streaming"}
    assert (said, len(model.requests)) == ("One, two.", 1)


def test_a_guarded_prompt_can_be_aborted(agent, scripted, poll, tmp_path):
    """What the guardrail says then counts for nothing, and the next prompt is looked at anew."""
    model = scripted("One.", "Two.")
    session = agent(model, input_guardrails=[patient(tmp_path)])
    session.prompt("Go on.")
    assert poll((tmp_path / "begun").exists)
    session.abort(reason="enough")
    (tmp_path / "go").touch()
    text = session.run("Again.", timeout=TURN_S).text
    with pytest.raises(GuardrailTripped):
        session.run("My secret.", timeout=TURN_S)

    assert text in {"One.", "Two."}


@pytest.mark.parametrize(
    ("guardrail", "reason"),
    [(broken, "it failed: ValueError: Go."), (odd, "it returned 5; expected None")],
)
@pytest.mark.parametrize("side", ["input", "output"])
def test_one_that_cannot_decide_has_tripped(agent, scripted, guardrail, reason, side):
    """It is named, with what was wrong."""
    session = agent(scripted("Go."), **{f"{side}_guardrails": [guardrail]})
    with pytest.raises(GuardrailTripped) as found:
        session.run("Go.", timeout=TURN_S)

    assert (found.value.guardrail, found.value.side) == (guardrail.__name__, side)
    assert found.value.reason.startswith(reason)


def test_an_answer_that_trips_is_taken_back(agent, scripted, cycle_of):
    """It was shown, so that is said aloud; neither the caller nor the model has it any more."""
    model = scripted("The secret is 7.", "Nothing.")
    session = agent(model, output_guardrails=["tests.e2e.test_guardrails:no_secrets"])
    stream = session.subscribe()
    with pytest.raises(GuardrailTripped) as found:
        list(session.stream("Tell me.", timeout=TURN_S))
    heard = cycle_of(stream)
    kept = session.messages()[-1]
    after = session.run("And now?", timeout=TURN_S).text

    [event] = only(events.GuardrailTripped, heard)
    assert (event.side, event.retracted) == ("output", kept.id)
    assert found.value.guardrail == "tests.e2e.test_guardrails:no_secrets"
    assert (kept.role, kept.content) == ("assistant", "[This answer was withheld.]")
    assert "secret" not in str(model.requests[1]["messages"])
    assert after == "Nothing."


def test_answers_with_calls_are_not_the_answer(agent, scripted, tmp_path):
    """An output guardrail looks at the one that ends the cycle."""
    log = str(tmp_path / "log")
    model = scripted((Text("A secret: "), ToolCalls(ToolUse("note", {"log": log}))), "Done.")
    session = agent(model, tools=[note], output_guardrails=[no_secrets])

    assert session.run("Go.", timeout=TURN_S).text == "Done."


def test_a_process_that_dies_is_guarded_again(agent, scripted):
    """Its first request is sent again, and so the prompt is looked at again."""
    model = scripted((Hold(), "One."), "Two.")
    session = agent(model, input_guardrails=[no_secrets], output_guardrails=[in_words])
    session.prompt("Go.")
    model.wait_held()
    os.kill(session.agent_pid(), signal.SIGKILL)
    text = session.collect_reply(timeout=TURN_S)
    with pytest.raises(GuardrailTripped):
        session.run("My secret.", timeout=TURN_S)

    assert text == "Two."


def test_a_subagent_is_not_guarded_by_what_guards_its_parent(agent, scripted):
    """The user's prompts and the answers to them are what guardrails look at."""
    task = ToolCalls(ToolUse("task", {"description": "A secret task.", "subagent_type": "aide"}))
    aide = cmdc.SubAgent("aide", "Helps.", model=scripted("A secret."))
    session = agent(
        scripted(task, "Done."),
        subagents=[aide],
        input_guardrails=[no_secrets],
        output_guardrails=[no_secrets],
    )

    assert session.run("Go.", timeout=TURN_S).text == "Done."


def test_a_resumed_session_takes_other_guardrails(agent, client, scripted):
    """Or keeps those that it has."""
    session = agent(scripted("One."), input_guardrails=[no_secrets])
    session.run("Go.", timeout=TURN_S)
    session.stop()
    kept = client.resume_session(session.id, new_id=f"{session.id}-a")
    with kept, pytest.raises(GuardrailTripped):
        kept.run("My secret.", timeout=TURN_S)
    free = client.resume_session(
        session.id, new_id=f"{session.id}-b", model=scripted("Two."), input_guardrails=[]
    )
    with free:
        assert free.run("My secret.", timeout=TURN_S).text == "Two."


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input_guardrails": [5]}, r"input_guardrails: expected functions"),
        ({"output_guardrails": "f"}, r"output_guardrails: expected a list of functions"),
        ({"input_guardrails": [no_secrets] * 33}, r"input_guardrails: expected at most 32"),
    ],
)
def test_what_is_no_guardrail_is_refused(client, options, problem):
    """Before a session starts."""
    with pytest.raises(InvalidOptions, match=problem):
        client.create_agent(model="openai:x", **options)


# --- a run in the model's place -------------------------------------------------------------------


class Ask(cmdc.ReasoningStrategy):
    """Asks once, and that is the answer."""

    name = "ask"

    def step(self, state, context):
        return [cmdc.Branch(context.question)]

    def aggregate(self, thoughts, state):
        return cmdc.Done(thoughts[0].content)


def test_a_run_is_looked_at_before_it_begins(agent, scripted):
    """No branch is asked of a prompt that trips; the next one is thought about."""
    model = scripted("It is.")
    session = agent(model, input_guardrails=[no_secrets])
    tripped = cmdc.Runner.run(Ask, "My secret.", session=session, timeout=TURN_S)
    asked = len(model.requests)
    passed = cmdc.Runner.run(Ask, "My question.", session=session, timeout=TURN_S)

    assert (tripped.status, asked) == ("aborted", 0)
    assert "it has a secret" in tripped.reason
    assert (passed.status, passed.answer) == ("done", "It is.")


def test_a_session_that_always_reasons_is_guarded_too(agent, scripted):
    """``reasoning_strategy`` answers in the model's place, behind the guardrails."""
    model = scripted("It is.")
    session = agent(model, input_guardrails=[no_secrets], reasoning_strategy=Ask)
    with pytest.raises(GuardrailTripped, match="it has a secret"):
        session.run("My secret.", timeout=TURN_S)

    assert session.run("My question.", timeout=TURN_S).text == "It is."
    assert len(model.requests) == 1


def test_an_abort_while_a_run_is_looked_at(agent, scripted, tmp_path, poll):
    """Ends the look; nothing is asked."""
    model = scripted("Still here.")
    session = agent(model, input_guardrails=[patient(tmp_path)], reasoning_strategy=Ask)
    session.prompt("Well?")
    assert poll((tmp_path / "begun").exists)
    session.abort(reason="enough")
    with pytest.raises(cmdc.AgentAborted, match="enough"):
        session.collect_reply(timeout=TURN_S)
    (tmp_path / "go").touch()

    assert session.run("Well?", timeout=TURN_S).text == "Still here."
    assert len(model.requests) == 1
