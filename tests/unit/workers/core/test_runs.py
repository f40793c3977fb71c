"""A run of reasoning has one end, whatever ends the call that it is of."""

from functools import reduce

import msgspec
import pytest

from cmdc_runtime.commands import Abort, Steer
from cmdc_runtime.events import (
    AgentAbort,
    PluginEvent,
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
    SubagentEnd,
    SubagentStart,
    ToolExecutionEnd,
)
from cmdc_runtime.ids import run_of_call
from cmdc_runtime.messages import TokenUsage, ToolCall
from workers.core import runs
from workers.core.children import OpenRun
from workers.core.inputs import (
    BranchTask,
    BranchWanted,
    Stopped,
    SubagentDone,
    SubagentWanted,
    ToolReturned,
    ToolStepReported,
)
from workers.core.records import RunStep, ToolEnded
from workers.core.state import Memory, State, ToolFacts
from workers.core.step import EndSubagents

OF = {"run_id": "a@1", "strategy": "tree"}
USED = TokenUsage(prompt_tokens=3, completion_tokens=1, total_tokens=4)
TASK = BranchTask("think", None, None)
ASKED = ReasoningBranch(**OF, branch_id="b1", prompt="think")
BELOW = ReasoningBranch(**OF, branch_id="b2", parent_id="b1", prompt="think")
CAME = ReasoningThought(**OF, thought_id="b1", content="42")
DONE = ReasoningDone(**OF, status="done", answer="42")


def reported(session, *events):
    """Return a session whose call a, of a tool that may run twice, has reported these."""
    found = session.at(State.EXECUTING_TOOLS).begin("a")
    for event in events:
        found = found.report(ToolStepReported, "a", event)
    return found


def branched(session):
    """Return a session whose call's run has two branches, both of which run."""
    found = reported(session, ASKED, BELOW)
    for name in ("b1", "b2"):
        found = found.report(BranchWanted, "a", f"a:branch-{name}", TASK, "d")
    return found


def gone(found, child_id, *, ok=False, text="it was ended", is_lost=True):
    return found.post(SubagentDone(child_id, ok, text, USED, is_lost=is_lost))


def lost(branch_id, parent_id=None, usage=USED, status="aborted"):
    return ReasoningThought(
        **OF,
        thought_id=branch_id,
        parent_id=parent_id,
        content="",
        error=f"the run is over: {status}",
        usage=usage,
    )


def aborted(reason):
    return ReasoningDone(**OF, status="aborted", reason=reason)


def test_a_branch_of_a_run_begins_as_such(session):
    """By its run and its name in it; what else a call starts has neither."""
    begun = branched(session).events(SubagentStart)
    other = reported(session).report(BranchWanted, "a", "a:branch-b1", TASK, "d")
    beside = reported(session, ASKED).report(BranchWanted, "a", "a:branch-b9", TASK, "d")

    assert [(one.of_run, one.strategy, one.branch_id) for one in begun] == [("a@1", "tree", "b2")]
    for started in (*other.events(SubagentStart), *beside.events(SubagentStart)):
        assert (started.of_run, started.strategy, started.branch_id) == (None, None, None)
    assert len(beside.events(SubagentStart)) == 1


def test_an_aborted_run_ends_behind_its_branches(session):
    """Each has its end and what it used before the run has its own."""
    cut = branched(session).give(Abort(reason="enough"))
    first = gone(cut, "s.1")
    last = gone(first, "s.2")

    assert EndSubagents(("s.1", "s.2")) in cut.effects
    assert cut.events(ReasoningDone) == []
    assert first.events()[1:] == [lost("b1")]
    assert [type(one) for one in last.events()] == [SubagentEnd, ReasoningThought, ReasoningDone]
    assert last.events()[1:] == [lost("b2", "b1"), aborted("enough")]
    assert last.memory.ended_runs == ()
    for found in (cut, first, last):
        assert found.rebuilt().ended_runs == found.memory.ended_runs


def test_branches_may_be_gone_in_any_order(session):
    """Each is reported as itself."""
    cut = branched(session).give(Abort(reason="enough"))
    first = gone(cut, "s.2")
    last = gone(first, "s.1")

    assert first.events()[1:] == [lost("b2", "b1")]
    assert last.events()[1:] == [lost("b1"), aborted("enough")]


def test_other_subagents_are_no_branches_of_it(session):
    """A call beside it has its own."""
    beside = branched(session).begin("b").report(SubagentWanted, "b", "b:task-1", "any", "do it")
    cut = beside.give(Abort(reason="enough"))
    last = gone(gone(gone(cut, "s.3"), "s.1"), "s.2")

    assert cut.events(ReasoningDone) == []
    assert last.events(ReasoningDone) == [aborted("enough")]


def test_the_run_of_a_later_call_ends_as_well(session):
    """The call before it has none."""
    found = session.at(State.EXECUTING_TOOLS).begin("b").report(ToolStepReported, "b", ASKED)
    found = found.report(BranchWanted, "b", "b:branch-b1", TASK, "d")
    last = gone(found.give(Abort(reason="enough")), "s.1")

    assert last.events()[1:] == [lost("b1"), aborted("enough")]


def test_what_a_lost_branch_has_said_is_no_thought(session):
    """It may be half of one."""
    cut = branched(session).give(Abort())

    assert gone(cut, "s.1", ok=True, text="4", is_lost=True).events()[1:] == [lost("b1")]


def test_what_says_nothing_of_the_tree_changes_no_run():
    """Such as an event of the tool's own."""
    run = OpenRun("a@1", "tree", (("b1", None),))

    assert runs.after(run, None) is run


def test_a_death_in_between_delays_the_end(session):
    """The next process counts the branches, and reports it once."""
    crashed = gone(branched(session).give(Abort(reason="enough")), "s.1").crash()
    last = gone(crashed, "s.2")

    assert crashed.events(ReasoningDone) == []
    assert last.events()[1:] == [lost("b2", "b1"), aborted("enough")]


def test_what_branches_used_before_a_death_is_in_their_ends(session):
    """Of one that runs again, and of one that does not any more."""
    died = branched(session).crash().begin("a")
    died = gone(gone(died, "s.1"), "s.2")
    cut = died.report(BranchWanted, "a", "a:branch-b1", TASK, "d").give(Abort(reason="enough"))
    last = gone(cut, "s.3")

    assert cut.events(ReasoningThought) == [lost("b2", "b1")]
    assert last.events()[1:] == [lost("b1", usage=USED + USED), aborted("enough")]
    assert cut.rebuilt().ended_runs == cut.memory.ended_runs


def test_a_branch_that_has_its_answer_when_it_is_ended_keeps_it(session):
    """It is paid, and a part of the tree."""
    cut = branched(session).give(Abort())
    (thought,) = gone(cut, "s.1", ok=True, text="42", is_lost=False).events(ReasoningThought)

    assert (thought.content, thought.error, thought.usage) == ("42", None, USED)


def test_an_answer_that_the_run_has_not_heard_is_counted(session):
    """Its branch was gone before the abort, and its thought was not reported."""
    cut = gone(branched(session), "s.1", ok=True, text="42", is_lost=False).give(Abort())
    (thought,) = cut.events(ReasoningThought)

    assert (thought.thought_id, thought.content, thought.usage) == ("b1", "42", USED)
    assert gone(cut, "s.2").events(ReasoningDone) == [aborted("aborted")]


def test_each_answer_that_the_run_has_not_heard_is_its_own_branchs(session):
    """However many of them are gone before the abort."""
    found = gone(branched(session), "s.1", ok=True, text="42", is_lost=False)
    cut = gone(found, "s.2", ok=True, text="43", is_lost=False).give(Abort())
    thoughts = cut.events(ReasoningThought)

    assert [(one.thought_id, one.content) for one in thoughts] == [("b1", "42"), ("b2", "43")]


def test_a_run_without_branches_ends_before_its_call(session):
    """What was asked for and has not begun is reported as lost; the abort comes last."""
    cut = reported(session, ASKED, BELOW, CAME).give(Abort(reason="enough"))
    kinds = (ReasoningThought, ReasoningDone, ToolExecutionEnd, AgentAbort)
    found = [one for one in cut.events(kinds) if getattr(one, "call_id", "a") == "a"]

    assert found[:2] == [lost("b2", "b1", TokenUsage()), aborted("enough")]
    assert [type(one) for one in found[2:]] == [ToolExecutionEnd, AgentAbort]
    assert cut.rebuilt().ended_runs == cut.memory.ended_runs == ()


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        (lambda found: found.give(Steer(text="stop", scope="tree")), "aborted", "steered"),
        (
            lambda found: found.report(
                ToolReturned, "a", False, "Error: no answer within 5 s", 9, is_cut=True
            ),
            "aborted",
            "no answer within 5 s",
        ),
        (
            lambda found: found.report(
                ToolReturned, "a", False, "Error: the strategy did not decide", 9
            ),
            "failed",
            "the strategy did not decide",
        ),
    ],
    ids=["steered", "out of time", "did not decide"],
)
def test_whatever_ends_the_call_ends_the_run(session, end, status, reason):
    """A call that says so itself has failed; one that is cut is aborted."""
    cut = end(branched(session))
    last = gone(gone(cut, "s.1"), "s.2")

    assert last.events(ReasoningDone) == [ReasoningDone(**OF, status=status, reason=reason)]


def test_branches_that_run_on_are_not_waited_for(session):
    """Nobody ends them: the run is over when the cycle is."""
    cut = branched(session).give(Abort(children=False))

    assert len(cut.events(ReasoningDone)) == 1
    assert cut.memory.ended_runs == ()
    assert gone(cut, "s.1").events(ReasoningThought) == []


def test_a_stop_waits_for_nobody(session):
    """The process ends, and what it does not report nobody reports."""
    cut = branched(session).post(Stopped(9))

    assert cut.events(ReasoningDone) == [aborted("stopped")]
    assert cut.memory.ended_runs == ()


def test_a_run_that_has_reported_its_end_gets_no_other(session):
    """Exactly one, also where its call is aborted behind it."""
    cut = reported(session, ASKED, CAME, DONE).give(Abort())

    assert cut.events(ReasoningDone) == []
    assert [one.run_end for one in cut.records(ToolEnded)] == [None] * 2


def test_a_call_that_reports_no_run_ends_as_ever(session):
    """There is no tree to be closed."""
    cut = reported(session, PluginEvent(name="reasoning_x", payload=None)).give(Abort())

    assert cut.events(ReasoningDone) == []


@pytest.mark.parametrize(
    "event",
    [
        ASKED,
        BELOW,
        CAME,
        DONE,
        lost("b1"),
        ReasoningBranch(**OF, branch_id="b1", prompt="?", metadata={"role": "judge"}),
        ReasoningScore(**OF, thought_id="b1", score=1.0),
        ReasoningPrune(**OF, thought_ids=("b1",)),
    ],
)
def test_a_step_says_of_an_event_what_the_tree_needs(event):
    """An event made of it says the same, which is how an input is played again."""
    step = runs.step_of(event)

    assert isinstance(step, RunStep)
    assert runs.step_of(runs.event_of(step)) == step


def scored(branch_id, score):
    return ReasoningScore(**OF, thought_id=branch_id, score=score)


def came(branch_id, content):
    return ReasoningThought(**OF, thought_id=branch_id, content=content)


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        ((), "two"),
        ((came("b2", "two"), came("b1", "one")), "one"),
        ((came("b1", "one"), scored("b1", 0.5), came("b2", "two")), "one"),
        ((came("b1", "one"), came("b2", "two"), scored("b1", 0.5), scored("b2", 0.7)), "two"),
        ((came("b1", "one"), came("b2", "two"), scored("b2", 0.5), scored("b1", 0.3)), "two"),
        ((came("b1", "one"), came("b2", "two"), scored("b1", 0.5), scored("b2", 0.5)), "one"),
    ],
    ids=["unpublished", "latest", "scored", "better", "worse", "as good"],
)
def test_a_run_that_processes_die_of_has_failed_with_its_best_branch(session, steps, answer):
    """The score decides, of equal ones the first, else the latest."""
    found = gone(branched(session), "s.1", ok=True, text="one", is_lost=False)
    found = gone(found, "s.2", ok=True, text="two", is_lost=False)
    for event in steps:
        found = found.report(ToolStepReported, "a", event)
    dead = found.crash().crash()

    (done,) = dead.events(ReasoningDone)
    assert (done.status, done.answer) == ("failed", answer)
    assert done.reason == "the process died while this call ran: killed by signal 9 (SIGKILL)"


def judged(session):
    """Return a run with a branch that has answered and a judge that has."""
    judge = ReasoningBranch(**OF, branch_id="b2", prompt="?", metadata={"role": "judge"})
    found = reported(session, ASKED, judge)
    for name in ("b1", "b2"):
        found = found.report(BranchWanted, "a", f"a:branch-{name}", TASK, "d")
    found = gone(found, "s.1", ok=True, text="one", is_lost=False)
    return gone(found, "s.2", ok=True, text="0.7", is_lost=False)


def test_a_judge_has_no_answer(session):
    """Nor has a branch that came to nothing."""
    found = judged(session)
    for event in (
        came("b1", "one"),
        came("b2", "0.7"),
        ReasoningBranch(**OF, branch_id="b3", prompt="?"),
        lost("b3"),
    ):
        found = found.report(ToolStepReported, "a", event)
    (done,) = found.crash().crash().events(ReasoningDone)

    assert done.answer == "one"


def test_a_judge_whose_thought_is_not_reported_has_none_either(session):
    """It is the latest of the run, and its branch the last that has said anything."""
    (done,) = judged(session).crash().crash().events(ReasoningDone)

    assert done.answer == "one"


REASONER = (ToolFacts("read", is_repeatable=True, run_strategy="tree"), ToolFacts("write"))


def reasoning(session, **arguments):
    """Return a session whose call a, of a tool that makes runs, has begun and reported nothing."""
    found = session.new(Memory(model="x:m", tools=REASONER)).prompt("go", "p-1")
    call = ToolCall(call_id="a", name="read", arguments=arguments)
    return found.call(call, "write:b").begin("a")


@pytest.mark.parametrize(
    ("arguments", "strategy"),
    [({}, "tree"), ({"strategy": "mine"}, "mine"), ({"strategy": 3}, "tree")],
)
def test_a_run_that_has_reported_nothing_has_its_end_too(session, arguments, strategy):
    """Of a call that has begun: a strategy may kill processes before it has asked anything."""
    dead = reasoning(session, **arguments).crash().crash()

    assert dead.events(ReasoningDone) == [
        ReasoningDone(
            run_id=run_of_call("a", dead.memory.turns),
            strategy=strategy,
            status="failed",
            reason="the process died while this call ran: killed by signal 9 (SIGKILL)",
        )
    ]


def test_so_has_one_that_is_aborted_and_one_whose_call_fails(session):
    """However little of it there was."""
    aborted = reasoning(session).give(Abort(reason="enough"))
    refused = reasoning(session).report(ToolReturned, "a", False, "Error: cannot be known", 10)

    (done,) = aborted.events(ReasoningDone)
    assert (done.status, done.reason) == ("aborted", "enough")
    (done,) = refused.events(ReasoningDone)
    assert (done.status, done.reason) == ("failed", "cannot be known")


def test_a_call_that_makes_a_run_no_more_has_no_other_end(session):
    """It has reported its end, has an answer, has not begun, or is of another tool."""
    begun = reasoning(session)
    over = begun.report(ToolStepReported, "a", DONE).give(Abort())
    answered = begun.end("a")
    unbegun = session.new(Memory(model="x:m", tools=REASONER)).prompt("go", "p-1").call("read:a")
    other = begun.end("a").begin("b")

    for found in (over, answered, unbegun.give(Abort()), other.crash().crash()):
        assert found.events(ReasoningDone) == []


def test_an_open_run_has_the_judges_that_have_not_come():
    """However many there were."""
    step = RunStep(run_id="a@1", strategy="tree")
    asked = [msgspec.structs.replace(step, asked=one, is_no_answer=True) for one in ("j1", "j2")]
    came = msgspec.structs.replace(step, come="j1", is_no_answer=True)
    run = reduce(runs.after, [*asked, came], None)

    assert run == OpenRun("a@1", "tree", branches=(("j2", None),), judges=("j2",))
