"""Guardrails in the tables: what they are asked about, and how a cycle ends in which one trips."""

import pytest
from msgspec.structs import replace

from cmdc_runtime import events
from cmdc_runtime.commands import Prompt, Steer
from cmdc_runtime.errors import AgentAborted, GuardrailTripped, aborted
from cmdc_runtime.messages import OpeningCall
from workers.core.inputs import FirstChunk, GuardrailsAnswered, Tripped
from workers.core.records import AnswerRetracted
from workers.core.state import Guarding, State
from workers.core.step import CallModel, CancelModel, CheckAnswer, CheckPrompt, RunTools

TRIPPED = Tripped("guard", "no", {"n": 1})
REASON = {"side": "input", "guardrail": "guard", "reason": "no", "info": {"n": 1}}


def test_the_first_request_of_a_cycle_is_guarded_and_no_other(session):
    """Also when it is sent again, and in a process that takes over."""
    asked = session.new(guards_input=True).prompt("go", "p-1")
    later = asked.call("read:a").begin("a").end("a")

    assert asked.of(CallModel)[0].guarded == "go"
    assert asked.crash().of(CallModel)[0].guarded == "go"
    assert later.of(CallModel)[0].guarded is None
    assert session.new().prompt().of(CallModel)[0].guarded is None


@pytest.mark.parametrize("state", [State.RUNNING, State.STREAMING])
def test_a_prompt_that_trips_ends_its_cycle(session, state):
    """The request is ended and counted, the event comes before the abort, the reason is data."""
    before = session.new(guards_input=True).prompt("go", "p-1").prompt("more", "p-2")
    before = before.report(FirstChunk) if state is State.STREAMING else before
    after = before.report(GuardrailsAnswered, TRIPPED, 9)
    published = [type(one) for one in after.events()]

    assert after.of(CancelModel)
    assert published.index(events.GuardrailTripped) < published.index(events.AgentAbort)
    assert after.events(events.AgentAbort)[0].reason == REASON
    assert after.events(events.RequestCut)
    assert after.memory.outcomes[-1].reason == REASON
    assert after.of(CallModel)[0].guarded == "more"


def test_an_answer_waits_for_its_guardrails(session):
    """It ends the cycle when they have passed."""
    waits = session.new(guards_output=True).prompt().answer("fine")
    [check] = waits.of(CheckAnswer)
    done = waits.report(GuardrailsAnswered, None, 9)

    assert (check.text, waits.memory.activity) == ("fine", Guarding())
    assert check.work == waits.memory.work == waits.taken[-1].memory.work + 1
    assert waits.events(events.AgentEnd) == []
    assert done.events(events.AgentEnd)[0].messages[-1].content == "fine"


def test_what_plugins_have_to_say_meanwhile_is_answered_first(session):
    """Notes alone are enough."""
    waits = session.new(guards_output=True).prompt().answer("fine")
    noted = waits.remembering(replace(waits.memory, notes=("mind this",)))
    asked = noted.report(GuardrailsAnswered, None, 9)

    assert "mind this" in asked.of(CallModel)[0].messages[-1].content


def test_steering_that_came_meanwhile_is_answered_first(session):
    """And that answer is looked at then."""
    waits = session.new(guards_output=True).prompt().answer("fine")
    asked = waits.give(Steer(text="left"), "s-1").report(GuardrailsAnswered, None, 9)

    assert asked.of(CallModel)[0].messages[-1].content == "left"
    assert asked.answer("left, then").of(CheckAnswer)[0].text == "left, then"


def test_an_answer_that_trips_is_withheld(session):
    """By a record: a rebuilt memory has it no more, either."""
    waits = session.new(guards_output=True).prompt().answer("secret")
    after = waits.report(GuardrailsAnswered, TRIPPED, 9)
    said = after.memory.messages[-1]

    assert after.records(AnswerRetracted) == [
        AnswerRetracted(guardrail="guard", cause=after.records(AnswerRetracted)[0].cause)
    ]
    assert (said.content, said.metadata) == ("[This answer was withheld.]", {"retracted": "guard"})
    assert after.rebuilt().messages == after.memory.messages
    assert after.events(events.GuardrailTripped)[0].retracted == said.id
    assert after.events(events.AgentAbort)[0].reason == {**REASON, "side": "output"}


def test_a_process_that_dies_meanwhile_asks_again(session):
    """The answer is there, and has not passed."""
    waits = session.new(guards_output=True).prompt().answer("fine")

    assert waits.crash().of(CheckAnswer)[0].text == "fine"


def test_a_late_verdict_changes_nothing(session):
    """Of a cycle that is over."""
    waits = session.new(guards_output=True).prompt().answer("fine")
    done = waits.report(GuardrailsAnswered, None, 9)

    late = done.post(GuardrailsAnswered(waits.memory.work, TRIPPED, 9))

    assert late.is_unchanged(done)


def opened(session):
    """Return a session that has a prompt with a call of its own."""
    call = OpeningCall(name="read", text_as="question")
    return session.new(guards_input=True).give(Prompt(text="go", call=call), "p-1")


def test_a_call_that_a_cycle_opens_with_waits_for_the_guardrails(session):
    """No request is beside them; steering that came meanwhile stands before the call."""
    waits = opened(session)
    [check] = waits.of(CheckPrompt)
    called = waits.give(Steer(text="left"), "s-1").report(GuardrailsAnswered, None, 9)

    assert (check.text, waits.memory.activity) == ("go", Guarding(is_input=True))
    assert (waits.of(RunTools), waits.memory.calls) == ([], ())
    assert [one.call.arguments for one in called.memory.calls] == [{"question": "go"}]
    assert [one.content for one in called.memory.messages] == ["go", "left", ""]
    assert waits.crash().of(CheckPrompt)[0].text == "go"


def test_what_is_asked_of_the_guardrails_has_a_number_of_its_own(session):
    """Nothing that is still to come of work before it can be its answer."""
    waits = opened(session)

    assert waits.of(CheckPrompt)[0].work == session.new(guards_input=True).memory.work + 1


def test_a_prompt_with_a_call_that_trips_ends_its_cycle(session):
    """The call is never made."""
    after = opened(session).report(GuardrailsAnswered, TRIPPED, 9)

    assert after.events(events.GuardrailTripped)[0].side == "input"
    assert after.events(events.AgentAbort)[0].reason == REASON
    assert [one.content for one in after.memory.messages] == ["go"]
    assert after.of(RunTools) == after.records(AnswerRetracted) == []


def test_the_reason_of_the_abort_is_an_error_of_its_own():
    """Any other reason is that of an abort."""
    error = aborted(REASON)

    assert isinstance(error, GuardrailTripped)
    assert (error.guardrail, error.side, error.reason, error.info) == (
        "guard", "input", "no", {"n": 1},
    )  # fmt: skip
    assert type(aborted({"side": "input"})) is type(aborted("why")) is AgentAborted
