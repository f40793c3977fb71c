"""What an input says of itself, and what one that says no more is taken for."""

import pytest

from cmdc_runtime.events import ToolCallUnknown, ToolExecutionEnd
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import TokenUsage
from workers.core.budget import Budget
from workers.core.inputs import (
    BranchDropped,
    BranchTask,
    BranchWanted,
    StreamFailed,
    SubagentDone,
    ToolReturned,
)
from workers.core.retry import Backoff
from workers.core.state import State
from workers.core.step import AnswerTool, RunSubagent, Sleep


@pytest.fixture
def batch(session):
    """A session whose calls run, with a budget for branches."""
    return session.at(State.EXECUTING_TOOLS, budget=Budget(max_total_tokens=1_003)).begin("a", "b")


@pytest.fixture
def branched(batch):
    """A session one of whose calls has a branch."""
    return batch.report(BranchWanted, "a", "a:branch-b1", BranchTask("do it"), "digest")


def test_a_failure_without_a_chance_is_waited_for_as_long_as_it_is_written(session):
    """Nothing is added to the delay by itself."""
    backoff = Backoff(base_s=2.0, cap_s=60.0, jitter=0.5)
    before = session.at(State.RUNNING, backoff=backoff)
    after = before.report(StreamFailed, FailureKind.TRANSIENT, "busy", 9)

    assert [wait.delay_s for wait in after.of(Sleep)] == [2.0]


def test_a_call_that_returns_has_come_to_its_end(batch):
    """Nothing is uncertain of one that writes, and its tool was known."""
    after = batch.report(ToolReturned, "b", False, "no", 10)

    assert after.events(ToolCallUnknown) == []
    assert [reported.uncertain for reported in after.events(ToolExecutionEnd)] == [False]


def test_a_branch_begins_with_its_task_alone(branched):
    """It has no conversation, and as much of the budget as one branch may have."""
    (run,) = branched.of(RunSubagent)

    assert (run.branch.fork, run.grant.tokens) == (False, 500)


def test_what_came_of_a_branch_is_kept(branched):
    """Unless it is said to be lost: then who waits asks again."""
    used = TokenUsage(total_tokens=1)
    done = branched.post(SubagentDone("s.1", True, "did it", used))
    lost = branched.post(SubagentDone("s.1", True, "did it", used, is_lost=True))

    assert [one.answer.text for one in done.memory.branches] == ["did it"]
    assert lost.memory.branches == ()


def test_the_end_of_a_branch_is_waited_for_apart(branched):
    """Under another reference than its answer; of one that never was it is over at once."""
    dropped = branched.report(BranchDropped, "a", "a:branch-b1")
    ended = dropped.post(SubagentDone("s.1", False, "ended", TokenUsage()))
    never = branched.report(BranchDropped, "a", "a:branch-b9")

    assert [one.ref for one in never.of(AnswerTool)] == ["a:branch-b9:end"]
    assert [one.ref for one in ended.of(AnswerTool)] == ["a:branch-b1", "a:branch-b1:end"]
