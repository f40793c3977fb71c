"""A cycle that has run for as long as it may: aborted in each state, and not gone on with."""

import pytest

from cmdc_runtime.commands import AwaitCycle, Steer
from cmdc_runtime.events import AgentAbort, AgentRecovered, PromptDropped, ToolKilled
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.hooks import AfterTurn, BeforePrompt, kind_of
from cmdc_runtime.extensions.provider import FailureKind
from workers.core.conversation import repair
from workers.core.inputs import (
    ANY_WORK,
    ApprovalRequest,
    CycleExpired,
    QuestionAsked,
    StreamFailed,
    SubagentWanted,
)
from workers.core.records import CycleEnded, CycleStarted, MessageAdded
from workers.core.state import State
from workers.core.step import (
    Answer,
    AskPlugins,
    CallModel,
    CancelCalls,
    CancelModel,
    Complete,
    EndSubagents,
    RunTools,
)

BUSY = [state for state in State if state is not State.IDLE]
LIMIT = {"cycle_timeout_s": 1.0}
BEGUN = 7  # when ``session.prompt`` begins a cycle
DUE = BEGUN + 1000
every_busy_state = pytest.mark.parametrize("state", BUSY)


def expire(session, at_ms=DUE, command_id="p-1"):
    return session.post(CycleExpired(command_id, at_ms))


def killed(session):
    return [event.call_id for event in session.events(ToolKilled)]


@every_busy_state
def test_it_is_aborted_in_each_state(session, state):
    """Published first, recorded, and over; what was under way is ended, and its number is past."""
    before = session.at(state, **LIMIT)
    after = expire(before)

    assert after.is_announced()
    assert after.events(AgentAbort) == [AgentAbort(reason="cycle_timeout", command_id="p-1")]
    assert after.of(CancelModel) == [CancelModel()]
    assert after.records()[-1] == CycleEnded(
        command_id="p-1", outcome="aborted", reason="cycle_timeout"
    )
    assert (after.state, after.memory.cycle, after.memory.calls) == (State.IDLE, None, ())
    assert after.memory.work > before.memory.work
    assert repair(after.memory.messages) == after.memory.messages
    assert after.of(Complete) == []
    assert after.rebuilt().messages == after.memory.messages


@every_busy_state
def test_only_the_cycle_that_is_meant_is_aborted_and_not_too_early(session, state):
    """A look that comes early, or one that was meant for the cycle before, changes nothing."""
    before = session.at(state, **LIMIT)
    unlimited = session.at(state)

    assert expire(before, DUE - 1).is_unchanged(before)
    assert expire(before, DUE, "p-0").is_unchanged(before)
    assert expire(unlimited, 10**12).is_unchanged(unlimited)


def test_an_idle_session_has_no_time_limit(session):
    """Its cycle ended in the moment in which its time was over."""
    idle = session.at(State.RUNNING, **LIMIT).answer()

    assert expire(idle).is_unchanged(idle)
    assert idle.memory.cycle_due_ms is None
    assert CycleExpired("p-1", 1).work == ANY_WORK


def test_the_time_counts_from_the_beginning(session):
    """Turns and calls do not move it; without a limit there is none."""
    running = session.at(State.RUNNING, **LIMIT)
    later = running.call("read:a").begin("a").end("a")

    assert [one.memory.cycle_due_ms for one in (running, later)] == [DUE, DUE]
    assert session.at(State.RUNNING).memory.cycle_due_ms is None


@every_busy_state
def test_what_waits_has_its_turn_with_a_time_of_its_own(session, state):
    """No prompt is dropped; the next cycle begins in the same step."""
    after = expire(session.at(state, **LIMIT).prompt("next", "p-2"))

    assert after.state is State.RUNNING
    assert after.events(PromptDropped) == []
    (begun,) = after.records(CycleStarted)
    assert (begun.command_id, begun.at_ms) == ("p-2", DUE)
    assert after.memory.cycle_due_ms == DUE + 1000
    kinds = [type(effect) for effect in after.effects]
    assert kinds.index(CancelModel) < kinds.index(CallModel)


def test_steering_that_waits_opens_the_next_cycle(session):
    """It came too late for this one, and outranks the prompts."""
    busy = session.at(State.RUNNING, **LIMIT).prompt("next", "p-2").give(Steer(text="left"), "s-1")
    after = expire(busy)

    assert after.memory.cycle.command_id == "s-1"
    assert [queued.command_id for queued in after.memory.queue] == ["p-2"]


def test_who_waits_for_the_cycle_is_answered(session):
    """With the reason, which a client raises."""
    (answer,) = expire(session.at(State.STREAMING, **LIMIT).give(AwaitCycle(), "w")).of(Answer)

    assert (answer.id, answer.value.outcome) == ("w", "aborted")
    assert answer.value.reason == "cycle_timeout"


def test_what_was_said_is_kept(session):
    """Marked as interrupted, as by any abort."""
    (said,) = expire(session.at(State.STREAMING, **LIMIT)).records(MessageAdded)

    assert (said.message.content, said.message.metadata) == ("part", {"interrupted": True})


def test_calls_are_ended_but_for_immune_ones(session):
    """What an abort spares is spared here too: half of a write would be worse."""
    batch = session.at(State.EXECUTING_TOOLS, immune=frozenset({"write"}), **LIMIT)
    after = expire(batch.begin("a", "b"))

    assert after.of(CancelCalls) == [CancelCalls(("a",))]
    assert killed(after) == ["a"]
    assert [event.reason for event in after.events(ToolKilled)] == ["cycle_timeout"]
    assert all(said.is_error for said in after.memory.messages[-2:])


def test_subagents_that_are_waited_for_are_ended(session):
    """They would work for a cycle that is over."""
    batch = session.at(State.EXECUTING_TOOLS, **LIMIT)
    after = expire(batch.report(SubagentWanted, "a", "a:sub-1", "any", "do it"))

    assert after.of(EndSubagents) == [EndSubagents(("s.1",))]
    assert "a" in killed(after)


def test_the_time_of_people_counts(session):
    """A call that asks, or is held for its approval, ends: nothing waits for a person any more."""
    batch = session.at(State.EXECUTING_TOOLS, immune=frozenset({"read", "write"}), **LIMIT)
    held = RequireApproval(hint="sure?", hold=True)
    waiting = batch.report(QuestionAsked, "a", "a:ask-1", "which?", ())
    waiting = waiting.report(ApprovalRequest, "b", held, 9, None, "b:approval")
    after = expire(waiting)

    assert killed(after) == ["a", "b"]
    assert (after.memory.asks, after.memory.approvals) == ((), ())


def test_a_delay_before_a_retry_is_ended(session):
    """The state is running though no request is under way."""
    delayed = session.at(State.RUNNING, **LIMIT)
    delayed = delayed.report(StreamFailed, FailureKind.TRANSIENT, "busy", 9)

    assert (delayed.state, expire(delayed).state) == (State.RUNNING, State.IDLE)


def test_plugins_that_are_being_asked_are_not_waited_for(session):
    """Those who listen hear of the end."""
    hooks = frozenset({kind_of(BeforePrompt), kind_of(AfterTurn)})
    asked = session.at(State.RUNNING, hooks=hooks, **LIMIT)
    after = expire(asked)
    (heard,) = after.of(AskPlugins)

    assert asked.memory.point is not None
    assert (after.memory.point, after.step.work[0]) == (None, CancelModel())
    assert (heard.hook.outcome, heard.hook.abort_reason) == ("aborted", "cycle_timeout")
    assert heard.hook.duration_ms == 1000


# --- after a crash ------------------------------------------------------------------------------

CRASHED = 11  # when ``session.crash`` has the next process begin


@every_busy_state
def test_a_crash_gives_no_time_anew(session, state):
    """What is left of it counts in the next process."""
    crashed = session.at(state, **LIMIT).crash()

    assert crashed.memory.cycle_due_ms == DUE
    assert expire(crashed).events(AgentAbort) == [
        AgentAbort(reason="cycle_timeout", command_id="p-1")
    ]


@every_busy_state
def test_a_cycle_whose_time_is_over_is_not_gone_on_with(session, state):
    """The time in which no process ran counts; nothing is asked or run for it any more."""
    limit_s = (CRASHED - BEGUN) / 1000
    after = session.at(state, cycle_timeout_s=limit_s).prompt("next", "p-2").crash()

    assert [event.resumed for event in after.events(AgentRecovered)] == ["idle"]
    assert [event.reason for event in after.events(AgentAbort)] == ["cycle_timeout"]
    assert after.of(RunTools) == []
    assert len(after.of(CallModel)) == 1
    assert after.memory.cycle.command_id == "p-2"
    assert repair(after.memory.messages) == after.memory.messages


def test_what_kills_its_process_is_reported_before_its_time(session):
    """Where both are so, the crash is the news."""
    limits = {"cycle_timeout_s": (CRASHED - BEGUN) / 1000, "max_cycle_crashes": 1}
    (heard,) = session.at(State.RUNNING, **limits).crash().events(AgentAbort)

    assert heard.reason.startswith("crashed(")
