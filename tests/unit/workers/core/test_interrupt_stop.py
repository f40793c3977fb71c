"""What becomes of calls when their session is stopped."""

import pytest

from cmdc_runtime.commands import Abort, Steer, SteerReceipt
from cmdc_runtime.events import RequestCut, ToolKilled
from cmdc_runtime.extensions.actions import RequireApproval
from workers.core.inputs import ApprovalRequest, QuestionAsked, Stopped
from workers.core.records import CutSpent, ToolEnded
from workers.core.state import State
from workers.core.step import Complete


def texts(session):
    return {one.message.call_id: one.message.content for one in session.records(ToolEnded)}


def test_calls_of_a_session_that_is_stopped_have_an_end(session):
    """Who had begun was ended from outside; who had not was never made."""
    before = session.at(State.EXECUTING_TOOLS).begin("a")
    after = before.post(Stopped(9))
    reported = texts(after)

    assert [(one.call_id, one.reason) for one in after.events(ToolKilled)] == [("a", "stopped")]
    assert "was ended because the session was stopped" in reported["a"]
    assert "was not made: the session was stopped" in reported["b"]
    assert (after.state, after.memory.work) == (before.state, before.memory.work + 1)


def test_an_answer_that_is_stopped_is_counted_about(session):
    """It was paid as far as it came; the next process asks for it anew, and knows nothing of it."""
    before = session.at(State.STREAMING)
    after = before.post(Stopped(9))
    (reported,) = after.events(RequestCut)

    assert reported.usage.completion_tokens == 1
    assert after.records() == [CutSpent(usage=reported.usage)]
    assert after.memory.usage == before.memory.usage + reported.usage
    assert after.memory.messages == before.memory.messages


def test_so_is_one_of_which_nothing_came(session):
    """It has a prompt; at rest there is none."""
    (reported,) = session.at(State.RUNNING).post(Stopped(9)).events()

    assert (reported.usage.prompt_tokens > 0, reported.usage.completion_tokens) == (True, 0)
    assert session.at(State.IDLE).post(Stopped(9)).events() == []


def test_steering_at_rest_opens_a_cycle_and_says_so(session):
    """Who steers learns whether the text joined a cycle or opened one."""
    after = session.at(State.IDLE).give(Steer(text="left"), "s-1")

    assert after.of(Complete) == [Complete("s-1", SteerReceipt(ref="s-1", opened=True))]


def test_a_call_that_waits_for_a_person_waits_on(session):
    """What is saved of the session still asks; it has not begun."""
    held = RequireApproval(hint="sure?", hold=True)
    before = session.at(State.EXECUTING_TOOLS).report(ApprovalRequest, "b", held, 9)
    after = before.post(Stopped(9))

    assert set(texts(after)) == {"a"}
    assert after.memory.approvals == before.memory.approvals


@pytest.mark.parametrize("asks", ["a", "b"])
def test_an_abort_ends_the_call_that_waits_for_an_answer(session, asks):
    """Nobody answers to a cycle that is over; the question of one call ends no other."""
    begun = session.at(State.EXECUTING_TOOLS, immune=frozenset({"read", "write"})).begin("a", "b")
    after = begun.report(QuestionAsked, asks, "ref", "which?", ()).give(Abort(kill_tools="none"))

    assert [one.call_id for one in after.events(ToolKilled)] == [asks]
