"""Calls that need a person's approval: held or ended, decided, expired; across a crash too."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import Abort, Approve, Reject, Steer
from cmdc_runtime.errors import ApprovalNotFound, UsageError
from cmdc_runtime.events import (
    ApprovalRequired,
    ToolApproved,
    ToolBlocked,
    ToolExecutionEnd,
    ToolRejected,
)
from cmdc_runtime.extensions.actions import RequireApproval
from workers.core.inputs import ANY_WORK, ApprovalExpired, ApprovalRequest
from workers.core.records import (
    Approval,
    ApprovalDecided,
    ApprovalRequested,
    ToolEnded,
    approval_of,
)
from workers.core.state import State
from workers.core.step import AnswerTool, CallModel, CancelCalls, Complete

HELD = RequireApproval(hint="sure?", hold=True, timeout_s=2.0, family="git push")
ENDED = RequireApproval(hint="sure?", timeout_s=2.0)
REF = "b:approval"
ID = "approval-4"
DUE = 9 + 2000


def held(session, asked=HELD, call_id="b"):
    """Return a session with a call that waits as it is, and one that runs."""
    executing = session.at(State.EXECUTING_TOOLS).begin("a")
    return executing.report(ApprovalRequest, call_id, asked, 9, None, f"{call_id}:approval")


@pytest.mark.parametrize("asked", [HELD, ENDED], ids=["hold", "block"])
def test_what_nobody_decided_in_time_is_what_the_model_reads(session, asked):
    """In both modes: the result says that it is too late, live and rebuilt."""
    ref = "b:approval" if asked.hold else None
    waiting = (
        session.at(State.EXECUTING_TOOLS)
        .begin("a")
        .report(ApprovalRequest, "b", asked, 9, None, ref)
    )
    ended = expire(waiting)
    shown = [
        one.content
        for memory in (ended.memory, ended.rebuilt())
        for one in [*memory.messages, *(call.result for call in memory.calls if call.result)]
        if one.call_id == "b"
    ]

    assert len(shown) == 2
    assert all("in time" in one and "waits" not in one for one in shown)


def expire(session, at_ms=DUE):
    """Let the time to decide be over."""
    return session.post(ApprovalExpired(ID, at_ms))


def test_a_held_call_waits_as_it_is(session):
    """It has no result, the cycle is not blocked, and the person is shown all there is."""
    after = held(session)
    (shown,) = after.events(ApprovalRequired)

    assert (shown.hold, shown.family, shown.due_at_ms, shown.hint) == (
        True,
        "git push",
        DUE,
        "sure?",
    )
    assert [type(record) for record in after.records()] == [ApprovalRequested]
    assert after.memory.calls[1].result is None
    assert not after.memory.cycle.is_blocked


@pytest.mark.parametrize("hold", [True, False])
def test_record_memory_and_event_have_the_same_approval(session, hold):
    """Each of its fields that the event has too is the same there."""
    asked = replace(HELD, hold=hold, options=("approve_once", "reject_once"))
    ref = REF if hold else None
    after = session.at(State.EXECUTING_TOOLS).report(ApprovalRequest, "b", asked, 9, None, ref)
    (approval,) = after.memory.approvals
    (event,) = after.events(ApprovalRequired)
    shared = {*Approval.__struct_fields__} & {*ApprovalRequired.__struct_fields__}

    assert [approval_of(one) for one in after.records(ApprovalRequested)] == [approval]
    assert shared == {*Approval.__struct_fields__} - {"ref"}
    assert {name: getattr(event, name) for name in shared} == {
        name: getattr(approval, name) for name in shared
    }
    assert event.hold is approval.is_held is hold


@pytest.mark.parametrize("kind", ["approve_once", "approve_always"])
def test_an_approved_held_call_goes_on_by_itself(session, kind):
    """No cycle is opened for it; its approval is there until it begins."""
    after = held(session).give(Approve(approval_id=ID, kind=kind))

    assert after.of(AnswerTool) == [AnswerTool(REF, value=True)]
    assert after.of(Complete) == [Complete("c", None)]
    assert [event.approval_id for event in after.events(ToolApproved)] == [ID]
    assert after.memory.approvals == ()
    begun = after.begin("b").memory
    assert begun.granted == ()
    assert begun.always_approved == ({("write", "git push")} if kind == "approve_always" else set())


def test_a_rejected_held_call_ends_with_that(session):
    """The batch goes on without it; the model reads why."""
    after = held(session).give(Reject(approval_id=ID))

    assert after.of(Complete) == [Complete("c", None)]
    assert after.of(CancelCalls) == [CancelCalls(("b",))]
    assert [event.reason for event in after.events(ToolBlocked)] == ["rejected"]
    assert [event.ok for event in after.events(ToolExecutionEnd)] == [False]
    assert after.state is State.EXECUTING_TOOLS
    asked = after.end("a")
    assert asked.of(CallModel)
    assert "a person rejected it" in asked.memory.messages[-1].content


@pytest.mark.parametrize("late", [False, True], ids=["rejected", "expired"])
def test_a_batch_goes_on_when_its_last_call_is_denied(session, late):
    """Nothing else would ask the model: the session would wait for ever."""
    waiting = held(session).end("a")
    after = expire(waiting) if late else waiting.give(Reject(approval_id=ID))

    assert (after.state, len(after.of(CallModel))) == (State.RUNNING, 1)


def test_a_held_call_that_nobody_decides_is_rejected(session):
    """The event and the result say that the time was over; a timer that is early does nothing."""
    waiting = held(session)
    assert expire(waiting, DUE - 1).is_unchanged(waiting)
    after = expire(waiting)

    assert after.events(ToolRejected) == [ToolRejected(approval_id=ID, reason="timeout")]
    assert after.records(ToolEnded)[0].message.content.startswith(
        "Error: the call was not made: nobody approved it in time"
    )
    assert after.memory.approvals == ()


@pytest.mark.parametrize("state", [State.IDLE, State.RUNNING])
def test_a_call_that_has_ended_expires_too(session, state):
    """In block mode its result says already that it was not made."""
    waiting = session.at(State.EXECUTING_TOOLS).report(ApprovalRequest, "b", ENDED, 9)
    waiting = waiting.end("a")
    if state is State.RUNNING:
        waiting = waiting.prompt("on", "p-2")
    after = expire(waiting)

    assert waiting.state is state
    assert after.events(ToolRejected) == [ToolRejected(approval_id=ID, reason="timeout")]
    assert after.records(ApprovalDecided) == [ApprovalDecided(approval_id=ID, decision="reject")]
    assert after.state is state


@pytest.mark.parametrize("command", [Approve, Reject])
def test_a_decision_that_comes_too_late_is_none(session, command):
    """Even where nobody has noted yet that the time is over."""
    waiting = held(session)
    after = waiting.give(command(approval_id=ID), at_ms=DUE)
    (settled,) = after.of(Complete)

    assert isinstance(settled.outcome, ApprovalNotFound)
    assert after.memory == waiting.memory


def test_only_what_is_offered_can_be_decided(session):
    """A plugin may not want this to be allowed for good."""
    asked = RequireApproval(hint="sure?", options=("approve_once", "reject_once"))
    waiting = session.at(State.EXECUTING_TOOLS).report(ApprovalRequest, "b", asked, 9)
    after = waiting.give(Approve(approval_id=ID, kind="approve_always"))
    (settled,) = after.of(Complete)

    assert isinstance(settled.outcome, UsageError)
    assert "approve_once, reject_once" in str(settled.outcome)
    assert after.memory == waiting.memory


def test_a_call_is_held_under_the_same_approval_after_a_crash(session):
    """It asks again, and its time runs on."""
    before = held(session)
    crashed = before.crash()
    after = crashed.report(ApprovalRequest, "b", HELD, 500, None, REF)

    assert after.memory.approvals == before.memory.approvals
    assert after.events(ApprovalRequired) == []


@pytest.mark.parametrize("kind", ["approve_once", "approve_always"])
def test_an_approval_that_came_before_the_call_asks_again_counts(session, kind):
    """Who approves while the process is being replaced is not asked twice."""
    approved = held(session).crash().give(Approve(approval_id=ID, kind=kind))
    after = approved.report(ApprovalRequest, "b", HELD, 500, None, REF)

    assert after.effects == (AnswerTool(REF, value=True),)


def test_a_rejection_that_came_before_the_call_asks_again_counts(session):
    """The call is over, and asks no more."""
    rejected = held(session).crash().give(Reject(approval_id=ID))
    after = rejected.report(ApprovalRequest, "b", HELD, 500, None, REF)

    assert after.is_unchanged(rejected)


@pytest.mark.parametrize("command", [Abort(), Steer(text="left")])
def test_what_ends_the_call_ends_the_approval(session, command):
    """Nobody has to decide what cannot happen any more."""
    after = held(session).give(command)

    assert after.memory.approvals == ()
    assert after.rebuilt().approvals == ()


def test_an_abort_of_no_work_is_no_approval(session):
    """An approval that is not there expires without a trace."""
    before = session.at(State.IDLE)

    assert before.post(ApprovalExpired("approval-9", DUE)).is_unchanged(before)
    assert ApprovalExpired("x", 1).work == ANY_WORK
