"""Tests of the call that a cycle opens with."""

import pytest

from cmdc_runtime.commands import CALL_BYTES_MAX, Abort, Approve, Prompt, Reject, Steer
from cmdc_runtime.errors import UsageError
from cmdc_runtime.events import (
    AgentEnd,
    AgentError,
    MessageDelta,
    RequestStart,
    ResponseComplete,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.hooks import HOOKS, AfterResponse, BeforeFinish, BeforePrompt
from cmdc_runtime.messages import OpeningCall, TokenUsage
from workers.core.inputs import ApprovalRequest, PluginsAnswered, ToolBegun, ToolReturned
from workers.core.opening_call import ARGUMENT_CHARS_MAX
from workers.core.records import CycleEnded, CycleStarted, PromptQueued
from workers.core.state import State
from workers.core.step import AskPlugins, CallModel, Complete, RunTools
from workers.core.verdict import Verdict

THINK = OpeningCall(name="read", arguments={"n": 1}, text_as="question")
FILE = OpeningCall(name="write")
CALL_ID = "call-m-2"


def opened(session, call=THINK, **policy):
    """Return a session whose cycle has opened with a call."""
    return session.new(**policy).give(Prompt(text="Why?", call=call), "p-1")


def returned(begun, text="so it is", *, ok=True):
    return begun.report(ToolReturned, CALL_ID, ok, text, 10)


def shape(memory):
    return [(one.role, one.content) for one in memory.messages]


def outcome(found):
    return [(one.outcome, one.reason) for one in found.memory.outcomes]


# --- how it is made -------------------------------------------------------------------------------


def test_the_call_is_made_in_place_of_a_request(session):
    """The model is not asked; the prompt's text is an argument where the call says so."""
    found = opened(session)
    (run,) = found.of(RunTools)

    assert found.state is State.EXECUTING_TOOLS
    assert found.of(CallModel) == found.events(RequestStart) == []
    assert [(one.name, one.arguments) for one in run.calls] == [
        ("read", {"n": 1, "question": "Why?"})
    ]
    assert shape(found.memory) == [("user", "Why?"), ("assistant", "")]
    assert found.records(CycleStarted)[0].call == THINK
    assert (found.memory.turns, found.memory.cycle.turns) == (0, 0)


def test_its_result_is_the_answer(session):
    """Observers hear it as an answer that took nothing, and the cycle has finished."""
    found = returned(opened(session).begin(CALL_ID))
    (said,) = found.events(ResponseComplete)
    (ended,) = found.events(AgentEnd)

    assert found.state is State.IDLE
    assert shape(found.memory)[2:] == [("tool_result", "so it is"), ("assistant", "so it is")]
    assert (said.message, said.usage) == (found.memory.messages[-1], TokenUsage())
    assert [one.delta for one in found.events(MessageDelta)] == ["so it is"]
    assert [one.id for one in ended.messages] == ["m-1", "m-2", "m-3", "m-4"]
    assert outcome(found) == [("finished", None)]


def test_a_failed_call_fails_the_cycle(session):
    """With its text as the reason; nobody says anything more."""
    found = returned(opened(session).begin(CALL_ID), "Error: no", ok=False)

    assert [one.reason for one in found.events(AgentError)] == ["Error: no"]
    assert outcome(found) == [("failed", "Error: no")]
    assert shape(found.memory)[-1] == ("tool_result", "Error: no")


def test_the_next_cycle_asks_the_model_again(session):
    """A call belongs to its own prompt."""
    found = returned(opened(session).begin(CALL_ID)).prompt("And?", "p-2")

    assert found.of(CallModel) != []
    assert found.memory.cycle.opening is None


def test_the_definitions_call_serves_prompts_without_one(session):
    """A prompt's own goes before it."""
    by_default = session.new(opening_call=THINK).prompt("Why?")
    own = opened(session, FILE, opening_call=THINK)

    assert by_default.records(CycleStarted)[0].call == THINK
    assert own.records(CycleStarted)[0].call == FILE


def test_a_queued_prompt_keeps_its_call(session):
    """Over a crash, too."""
    found = opened(session).give(Prompt(text="Then?", call=FILE), "p-2")

    assert found.records(PromptQueued)[0].call == FILE
    assert found.rebuilt().queue == found.memory.queue
    after = returned(found.begin(CALL_ID))
    assert [one.name for one in after.of(RunTools)[0].calls] == ["write"]
    assert after.rebuilt().cycle == after.memory.cycle


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (OpeningCall(name=""), "call: name: expected 1 to 64"),
        (OpeningCall(name="no spaces"), "call: name: expected 1 to 64"),
        (OpeningCall(name="read", arguments={"n": float("nan")}), "call: arguments: ['n']"),
        (OpeningCall(name="read", arguments={"n": b"x" * CALL_BYTES_MAX}), "at most 1,048,576"),
        (OpeningCall(name="read", text_as="x" * (ARGUMENT_CHARS_MAX + 1)), "call: text_as: "),
    ],
)
@pytest.mark.parametrize("state", [State.IDLE, State.RUNNING])
def test_a_call_that_cannot_be_kept_is_refused(session, state, call, message):
    """In words that name the field; nothing is recorded of it."""
    found = session.at(state).give(Prompt(text="Why?", call=call), "p-2")
    (settled,) = found.of(Complete)

    assert type(settled.outcome) is UsageError
    assert message in str(settled.outcome)
    assert found.records() == []


# --- plugins --------------------------------------------------------------------------------------


def answered(found, verdict=None):
    return found.report(PluginsAnswered, verdict or Verdict(), 9)


def asked(found):
    return [type(one.hook) for one in found.of(AskPlugins)]


def test_plugins_hear_of_the_prompt_and_the_answer_but_of_no_response_before(session):
    """What they have to say at the prompt is given before the call, not behind the answer."""
    found = opened(session, hooks=frozenset(HOOKS))

    assert asked(found) == [BeforePrompt]
    found = answered(found, Verdict(interventions=("Be brief.",)))
    assert [len(one.calls) for one in found.of(RunTools)] == [1]
    assert shape(found.memory) == [("user", "Why?"), ("user", "Be brief."), ("assistant", "")]
    assert found.of(RunTools)[0].calls[0].arguments["question"] == "Why?"
    call_id = found.memory.calls[0].call.call_id
    found = answered(found.begin(call_id).report(ToolReturned, call_id, True, "so it is", 10))
    assert asked(found) == [AfterResponse]
    assert asked(answered(found)) == [BeforeFinish]
    assert outcome(answered(answered(found))) == [("finished", None)]


def test_a_result_in_the_wrong_form_is_asked_for_once_more(session):
    """The model reads what is wrong with it, as of an answer of its own."""
    found = returned(opened(session, response_format={"type": "integer"}).begin(CALL_ID))

    assert len(found.of(CallModel)) == 1
    assert found.memory.cycle.repairs == 1


# --- people ---------------------------------------------------------------------------------------


def held_back(session, **policy):
    begun = opened(session, FILE, **policy)
    return begun.report(ApprovalRequest, CALL_ID, RequireApproval(hint="sure?"), 9)


def test_an_allowed_call_is_made_again_by_the_kernel(session):
    """No model has to repeat what no model said; and it is allowed once."""
    blocked = held_back(session)
    approval = blocked.memory.approvals[0].id
    found = blocked.give(Approve(approval_id=approval), "a-1")
    (run,) = found.of(RunTools)

    assert outcome(blocked) == [("finished", None)]
    assert [one.name for one in run.calls] == ["write"]
    assert run.approved == {run.calls[0].call_id}


def test_a_refused_call_is_left_to_the_model(session):
    """Also where each prompt opens with a call: this is no prompt."""
    blocked = held_back(session, opening_call=FILE)
    approval = blocked.memory.approvals[0].id
    found = blocked.give(Reject(approval_id=approval, auto_resume=True), "a-1")

    assert found.of(RunTools) == []
    assert len(found.of(CallModel)) == 1


def test_an_approval_of_a_models_call_is_left_to_the_model(session):
    """As ever: it is asked to make the very same call now."""
    begun = session.at(State.EXECUTING_TOOLS).report(
        ApprovalRequest, "b", RequireApproval(hint="sure?"), 9
    )
    blocked = begun.begin("a").end("a")
    found = blocked.give(Approve(approval_id=blocked.memory.approvals[0].id), "a-1")

    assert found.of(RunTools) == []
    assert len(found.of(CallModel)) == 1


def test_steering_that_ends_the_call_is_answered_by_the_model(session):
    """The call has no result that could be the answer."""
    found = opened(session).begin(CALL_ID).give(Steer(text="Rather this."), "s-1")

    assert len(found.of(CallModel)) == 1
    assert shape(found.memory)[-1] == ("user", "Rather this.")


def test_steering_that_waits_is_answered_behind_the_answer(session):
    """A tool that is left alone ends as it would."""
    begun = opened(session, immune=frozenset({"read"})).begin(CALL_ID)
    found = returned(begun.give(Steer(text="Rather this."), "s-1"))

    assert len(found.of(CallModel)) == 1
    assert shape(found.memory)[-2:] == [("assistant", "so it is"), ("user", "Rather this.")]


def test_an_abort_ends_it(session):
    """Like any call."""
    found = opened(session).begin(CALL_ID).give(Abort(reason="enough"), "a-1")

    assert outcome(found) == [("aborted", "enough")]
    assert [one.outcome for one in found.records(CycleEnded)] == ["aborted"]


# --- crashes --------------------------------------------------------------------------------------


def test_a_crash_before_the_call_is_said_makes_it_then(session):
    """Plugins are asked about the prompt again, and the model is not asked."""
    found = opened(session, hooks=frozenset({"before_prompt"})).crash()

    assert asked(found) == [BeforePrompt]
    assert [one.name for one in answered(found).of(RunTools)[0].calls] == ["read"]


def test_a_crash_after_the_call_is_said_makes_the_same(session):
    """Under its id; plugins are not asked about a response that there was not."""
    found = opened(session, hooks=frozenset({"after_response"})).crash()

    assert asked(found) == []
    assert [one.call_id for one in found.of(RunTools)[0].calls] == [CALL_ID]


def test_a_crash_while_it_runs_makes_it_again_if_its_effects_say_so(session):
    """Observers hear once that it starts; what may have acted is uncertain, and the cycle fails."""
    again = opened(session).report(ToolBegun, CALL_ID, 9).crash().begin(CALL_ID)
    unknown = opened(session, FILE).begin(CALL_ID).crash()

    assert again.events(ToolExecutionStart) == []
    assert outcome(returned(again)) == [("finished", None)]
    assert [one.uncertain for one in unknown.events(ToolExecutionEnd)] == [True]
    assert unknown.memory.outcomes[-1].outcome == "failed"


def test_a_crash_behind_the_answer_concludes_it(session):
    """It is not said twice."""
    hooks = frozenset({"before_finish"})
    found = returned(opened(session, hooks=hooks).begin(CALL_ID)).crash()

    assert asked(found) == [BeforeFinish]
    assert [one.role for one in found.memory.messages].count("assistant") == 2
