"""Subagents of plugins: started while a cycle runs, ended with it or when nobody waits."""

import pytest

from cmdc_runtime.commands import Abort
from cmdc_runtime.events import SubagentEnd, SubagentStart
from cmdc_runtime.messages import TokenUsage
from workers.core.budget import Budget, Grant
from workers.core.inputs import DelegationDropped, PluginDelegated, SubagentDone, SubagentWanted
from workers.core.state import State
from workers.core.step import AnswerTool, EndSubagents, RunSubagent

REF = "plugin:judge-1"
WANTED = PluginDelegated("judge", REF, "any", "Check it.")
USED = TokenUsage(total_tokens=4)


def waiting(session, state=State.RUNNING):
    """Return a session whose plugin waits for a subagent."""
    return session.at(state).post(WANTED)


def test_a_plugin_gets_the_answer_of_its_subagent(session):
    """It is started, counted and answered like one of a call."""
    started = waiting(session)
    (run,) = started.of(RunSubagent)
    assert (run.subagent_type, run.description) == ("any", "Check it.")
    assert [event.call_id for event in started.events(SubagentStart)] == ["plugin:judge"]

    done = started.post(SubagentDone(run.child_id, True, "fine", USED))
    assert done.of(AnswerTool) == [AnswerTool(REF, "fine")]
    assert [event.text for event in done.events(SubagentEnd)] == ["fine"]
    assert done.memory.usage.total_tokens == started.memory.usage.total_tokens + 4
    assert done.memory.children == ()


def test_without_a_cycle_there_is_no_subagent(session):
    """Nothing would end it."""
    idle = session.at(State.IDLE).post(WANTED)

    assert idle.effects == (AnswerTool(REF, error="no subagent was started: no cycle runs"),)


def test_limits_hold_for_plugins_too(session):
    """So does the list of what may be started."""
    other = PluginDelegated("judge", REF, "nobody", "x")
    (answer,) = session.at(State.RUNNING).post(other).effects
    assert "there is no subagent_type 'nobody', only any" in answer.error

    full = session.at(State.RUNNING, max_children=1).post(WANTED)
    (answer,) = full.post(PluginDelegated("judge", "plugin:judge-2", "any", "x")).effects
    assert "max_children" in answer.error


def test_a_subagent_ends_with_the_wait_for_it(session):
    """What it used is counted all the same; its answer has a reference that nobody waits by."""
    started = waiting(session)
    (run,) = started.of(RunSubagent)
    dropped = started.post(DelegationDropped(REF))

    assert dropped.effects == (EndSubagents((run.child_id,)),)
    assert dropped.memory == started.memory
    done = dropped.post(SubagentDone(run.child_id, False, "ended", USED))
    assert done.of(AnswerTool) == [AnswerTool(REF, error="ended")]
    assert done.post(DelegationDropped(REF)).effects == ()
    assert done.memory.usage.total_tokens == started.memory.usage.total_tokens + 4


def test_a_wait_that_is_over_ends_its_own_subagent_alone(session):
    """Another one of the plugin goes on, and one that nobody has asked for ends nothing."""
    one = waiting(session)
    both = one.post(PluginDelegated("judge", "plugin:judge-2", "any", "And this."))
    (other,) = both.of(RunSubagent)

    assert both.post(DelegationDropped("plugin:judge-2")).effects == (
        EndSubagents((other.child_id,)),
    )
    assert both.post(DelegationDropped("plugin:judge-3")).effects == ()


def test_a_subagent_ends_with_the_cycle(session):
    """An abort, or the end of the answer."""
    started = waiting(session)
    (run,) = started.of(RunSubagent)

    for over in (started.give(Abort()), started.answer()):
        assert EndSubagents((run.child_id,)) in over.effects
        assert [child.ref for child in over.memory.children] == [None]


def test_calls_share_what_is_left_with_those_that_are_still_to_ask(session):
    """Of the same tool and without a result; who asks last has no less than who asks first."""
    batch = session.at(State.RUNNING, budget=Budget(max_total_tokens=1_003))
    batch = batch.call("task:a", "task:b", "task:c", "read:d").end("c")
    first = batch.report(SubagentWanted, "a", "a:sub-1", "any", "x")
    second = first.report(SubagentWanted, "b", "b:sub-1", "any", "x")
    other = batch.report(SubagentWanted, "d", "d:sub-1", "any", "x")

    assert [run.grant.tokens for run in first.of(RunSubagent) + second.of(RunSubagent)] == [333] * 2
    assert [run.grant.tokens for run in other.of(RunSubagent)] == [500]


def test_a_call_that_has_one_may_have_another(session):
    """It is counted with what the first was granted."""
    batch = session.at(State.EXECUTING_TOOLS, budget=Budget(max_total_tokens=1_003))
    first = batch.report(SubagentWanted, "a", "a:sub-1", "any", "x")
    second = first.report(SubagentWanted, "a", "a:sub-2", "any", "x")

    assert [run.grant.tokens for run in first.of(RunSubagent) + second.of(RunSubagent)] == [
        500,
        250,
    ]


@pytest.mark.parametrize("call_id", ["a", "z"], ids=["over", "unknown"])
def test_a_call_that_is_over_starts_no_subagent(session, call_id):
    """Nobody would read what came of it; nor is one counted that nobody has started."""
    before = session.at(State.EXECUTING_TOOLS).end("a")
    after = before.report(SubagentWanted, call_id, f"{call_id}:sub-1", "any", "x")

    assert after.is_unchanged(before)
    assert before.post(SubagentDone("s.9", True, "fine", USED)).is_unchanged(before)


def test_after_a_crash_the_plugin_asks_anew(session):
    """The old one is counted and answers nobody."""
    crashed = waiting(session).crash()

    assert [child.ref for child in crashed.memory.children] == [None]


def test_a_plugin_shares_the_budget_with_its_session_alone(session):
    """It asks for one subagent at a time: half of what is left."""
    started = session.at(State.RUNNING, budget=Budget(max_total_tokens=1_000)).post(WANTED)
    (run,) = started.of(RunSubagent)

    assert run.grant == Grant(tokens=500)
