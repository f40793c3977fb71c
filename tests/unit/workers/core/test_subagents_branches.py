"""Branches: subagents that a call starts under names of its own, and finds again after a crash."""

import msgspec
import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import Abort
from cmdc_runtime.events import SubagentEnd, SubagentStart
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.messages import TokenUsage
from workers.core.budget import Budget, Grant
from workers.core.children import Branch
from workers.core.inputs import (
    AskedOtherwise,
    BranchDropped,
    BranchTask,
    BranchWanted,
    SubagentDone,
    SubagentWanted,
    ended_ref,
)
from workers.core.records import SubagentSpawned, SubagentSpent
from workers.core.state import State
from workers.core.step import AnswerTool, CountSubagents, EndSubagents, RunSubagent

USED = TokenUsage(prompt_tokens=3, completion_tokens=1, total_tokens=4)
TASK = BranchTask("think", "y:n", {"type": "integer"})
REF = "a:branch-b1"
OTHER = "a:branch-b2"


def running(session, **policy):
    """Return a session whose call a (of a tool that may run twice) runs."""
    return session.at(State.EXECUTING_TOOLS, **policy).begin("a")


def replace_usage(**changes):
    return msgspec.structs.replace(USED, **changes)


def wanted(found, ref=REF, digest="d", **more):
    return found.report(BranchWanted, "a", ref, TASK, digest, **more)


def done(found, child_id="s.1", *, ok=True, text="42", is_lost=False):
    return found.post(SubagentDone(child_id, ok, text, USED, is_lost=is_lost))


def answers(found):
    return [(one.ref, one.value, one.error) for one in found.of(AnswerTool)]


def refusal(found):
    ((_, _, error),) = answers(found)
    return error


ANSWER = BranchAnswer(ok=True, text="42", usage=USED)


def test_a_branch_is_a_subagent_of_the_general_kind(session):
    """It gets what it is asked, and its own limit where that is below its share."""
    found = wanted(running(session), limit=Grant(tokens=7))
    (run,) = found.of(RunSubagent)

    assert run == RunSubagent("s.1", "general-purpose", "think", Grant(tokens=7), TASK)
    assert found.records(SubagentSpawned)[0].digest == "d"
    assert [one.description for one in found.events(SubagentStart)] == ["think"]
    assert found.rebuilt().children == found.memory.children


@pytest.mark.parametrize("ok", [True, False])
def test_its_answer_is_kept_as_long_as_its_call_is_open(session, ok):
    """A failed one, too: a crashed branch is an answer with its error."""
    answer = BranchAnswer(ok=ok, text="42", usage=USED)
    found = done(wanted(running(session)), ok=ok)

    assert answers(found) == [(REF, answer, None), (ended_ref(REF), answer, None)]
    assert [one.ok for one in found.events(SubagentEnd)] == [ok]
    assert found.memory.branches == (Branch(REF, "a", "d", answer),) == found.rebuilt().branches
    assert found.memory.usage.total_tokens == running(session).memory.usage.total_tokens + 4
    assert found.end("a").memory.branches == ()


def test_what_is_known_is_answered_at_once(session):
    """Nothing is started or paid a second time, in this process or the next."""
    known = done(wanted(running(session)))
    for again in (known, known.crash().begin("a")):
        found = wanted(again)
        assert answers(found) == [(REF, ANSWER, None)]
        assert (found.of(RunSubagent), found.records()) == ([], [])


def test_another_task_under_a_name_that_is_known_is_an_error(session):
    """Also while it is under way: what decides is not the same each time."""
    under_way = wanted(running(session))

    for before in (under_way, done(under_way)):
        ((ref, answered, error),) = answers(wanted(before, digest="other"))
        assert (ref, error) == (REF, None)
        assert isinstance(answered, AskedOtherwise)
        assert "asked something else before" in answered.text


def test_one_that_is_counted_after_a_death_answers_the_call_that_runs_again(session):
    """Its own journal says that its cycle has finished: it is not started anew."""
    crashed = wanted(running(session)).crash()
    asked = wanted(crashed.begin("a"))
    found = done(asked)

    assert crashed.of(CountSubagents) == [CountSubagents(("s.1",))]
    assert (asked.effects, asked.of(RunSubagent)) == ((), [])
    assert answers(found) == [(REF, ANSWER, None), (ended_ref(REF), ANSWER, None)]


def test_one_that_was_counted_before_the_call_asks_is_there(session):
    """Whichever comes first."""
    found = wanted(done(wanted(running(session)).crash()).begin("a"))

    assert answers(found) == [(REF, ANSWER, None)]


def test_one_that_was_lost_is_asked_for_again(session):
    """What it used is counted, and who waits hears that there is no answer yet."""
    crashed = wanted(running(session)).crash().begin("a")
    lost = done(wanted(crashed), ok=False, text="it ended", is_lost=True)
    again = wanted(lost)

    assert answers(lost)[0] == (REF, None, None)
    assert lost.records(SubagentSpent)[0] == SubagentSpent(child_id="s.1", usage=USED)
    assert lost.memory.branches == ()
    assert [run.child_id for run in again.of(RunSubagent)] == ["s.2"]


def lost_in_a_death(session, **more):
    """Return a session whose call runs again, whose branch was lost with the process before."""
    crashed = wanted(running(session), **more).crash().begin("a")
    return done(wanted(crashed, **more), ok=False, text="it ended", is_lost=True)


def test_what_it_used_before_it_was_lost_is_of_what_it_may_use(session):
    """It counts once for the session, and with its answer for who asked."""
    limit = Grant(tokens=10, cost_usd=0.5)
    again = wanted(lost_in_a_death(session, limit=limit), limit=limit)
    found = done(again, "s.2")

    assert [run.grant for run in again.of(RunSubagent)] == [Grant(tokens=6, cost_usd=0.5)]
    whole = BranchAnswer(ok=True, text="42", usage=USED + USED)
    assert answers(found) == [(REF, whole, None), (ended_ref(REF), whole, None)]
    assert found.memory.branches == (Branch(REF, "a", "d", whole),) == found.rebuilt().branches
    assert found.memory.usage.total_tokens == running(session).memory.usage.total_tokens + 8
    assert found.rebuilt().usage == found.memory.usage
    assert found.end("a").memory.lost_branches == ()


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (Grant(tokens=4), "max_total_tokens_exceeded"),
        (Grant(cost_usd=0.25), "max_cost_usd_exceeded"),
    ],
)
def test_one_that_had_used_all_when_it_was_lost_does_not_run_again(session, limit, why):
    """Its end has what it used, and names the limit."""
    used = replace_usage(cost_usd=0.25)
    crashed = wanted(running(session), limit=limit).crash().begin("a")
    lost = crashed.post(SubagentDone("s.1", False, "it ended", used, is_lost=True))
    found = wanted(lost, limit=limit)
    refused = BranchAnswer(ok=False, text=f"no subagent was started: {why}", usage=used)

    assert (found.of(RunSubagent), answers(found)) == ([], [(REF, refused, None)])


def test_one_that_was_lost_and_is_dropped_has_what_it_used(session):
    """Before it has run again, and while it does."""
    lost = lost_in_a_death(session)
    found = lost.report(BranchDropped, "a", REF)
    again = wanted(lost).report(BranchDropped, "a", REF)
    ended = done(again, "s.2", ok=False, text="ended", is_lost=True)

    assert [one[1] for one in answers(found)] == [
        BranchAnswer(ok=False, text="the branch was ended", usage=USED)
    ]
    assert [one[1] and one[1].usage for one in answers(ended)] == [None, USED + USED]


# --- ends -----------------------------------------------------------------------------------------


def test_one_that_is_cut_in_a_request_says_so(session):
    """To who waits for it, and to who dropped it."""
    found = wanted(running(session)).post(SubagentDone("s.1", False, "died", USED, is_cut=True))
    answer = BranchAnswer(ok=False, text="died", usage=USED, is_cut=True)

    assert answers(found) == [(REF, answer, None), (ended_ref(REF), answer, None)]


def test_a_branch_ends_with_the_wait_for_it(session):
    """Who dropped it hears when it is gone and counted; it has no answer then."""
    started = wanted(running(session))
    dropped = started.report(BranchDropped, "a", REF)
    found = done(dropped, ok=False, text="ended", is_lost=True)

    assert dropped.effects == (EndSubagents(("s.1",)),)
    ended = BranchAnswer(ok=False, text="ended", usage=USED)
    assert answers(found) == [(REF, None, None), (ended_ref(REF), ended, None)]
    assert found.memory.branches == ()
    assert [run.child_id for run in wanted(found).of(RunSubagent)] == ["s.2"]


@pytest.mark.parametrize(
    ("before", "known"),
    [(running, None), (lambda session: done(wanted(running(session))), ANSWER)],
)
def test_one_that_is_gone_is_answered_for_at_once(session, before, known):
    """Nobody waits for what does not come; an answer that is there is given."""
    found = before(session).report(BranchDropped, "a", REF)

    assert answers(found) == [(ended_ref(REF), known, None)]


def test_a_wait_that_ends_after_its_cycle_is_answered(session):
    """Like any late word of a call."""
    aborted = wanted(running(session)).give(Abort())
    found = aborted.post(BranchDropped(2, "a", REF))

    assert EndSubagents(("s.1",)) in aborted.effects
    assert answers(found) == [(ended_ref(REF), None, None)]
    assert [(one.ref, one.branch) for one in aborted.memory.children] == [(None, "")]


def test_a_later_call_of_the_same_id_has_branches_of_its_own(session):
    """What came of those before is forgotten with their call, and so is what is under way."""
    over = wanted(done(wanted(running(session))), OTHER).end("a")

    assert [(one.ref, one.branch) for one in over.memory.children] == [(None, "")]
    assert over.memory.branches == ()
    assert answers(done(over, "s.2")) == []


# --- limits ---------------------------------------------------------------------------------------


def test_branches_do_not_use_up_what_the_model_may_start(session):
    """They are not counted with its subagents."""
    found = done(wanted(running(session, max_spawns=1)))
    found = found.report(SubagentWanted, "a", "a:task-1", "any", "do it")

    assert [run.child_id for run in found.of(RunSubagent)] == ["s.2"]
    assert found.rebuilt().branched == found.memory.branched == 1
    full = done(found, "s.2").report(SubagentWanted, "a", "a:task-2", "any", "do it")
    assert "max_spawns" in refusal(full)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"subagents": frozenset()}, "max_depth"),
        ({"budget": Budget(max_total_tokens=300)}, "max_total_tokens_exceeded"),
    ],
)
def test_a_branch_beyond_a_limit_that_stays_is_refused(session, policy, why):
    """In words that name the limit; nothing is recorded of it."""
    found = wanted(running(session, **policy), OTHER, shares=400)

    assert refusal(found).startswith("no subagent was started: ")
    assert why in refusal(found)
    assert found.records() == []


def test_a_branch_waits_for_room(session):
    """It is begun by its call, which asks again when one has ended: in their order."""
    full = wanted(running(session, max_children=1))
    waiting = wanted(wanted(full, OTHER), "a:branch-b3")
    free = done(waiting)
    again = wanted(free, OTHER)

    assert (waiting.effects, waiting.records()) == ((), [])
    assert answers(free)[2:] == [(OTHER, None, None)]
    assert [run.child_id for run in again.of(RunSubagent)] == ["s.2"]
    assert answers(done(again, "s.2"))[2:] == [("a:branch-b3", None, None)]


def test_a_branch_that_is_asked_for_twice_waits_once(session):
    """It would be given room twice, and who is behind it would wait for ever."""
    full = wanted(running(session, max_children=1))
    free = done(wanted(wanted(wanted(full, OTHER), OTHER), "a:branch-b3"))
    over = done(wanted(free, OTHER), "s.2")

    assert answers(free)[2:] == [(OTHER, None, None)]
    assert answers(over)[2:] == [("a:branch-b3", None, None)]
    assert over.memory.waiting_branches == ()


def test_room_for_one_is_one_branch_s(session):
    """The next in the line waits on, as long as another one runs."""
    full = wanted(wanted(running(session, max_children=2)), OTHER)
    free = done(wanted(wanted(full, "a:branch-b3"), "a:branch-b4"))

    assert answers(free)[2:] == [("a:branch-b3", None, None)]
    assert free.memory.waiting_branches == (("a", "a:branch-b4"),)


def test_nobody_is_begun_while_more_run_than_may(session):
    """The options of a resumed session may allow fewer."""
    full = wanted(wanted(wanted(running(session, max_children=3)), OTHER), "a:branch-b3")
    fewer = replace(full.memory, policy=replace(full.memory.policy, max_children=1))
    free = done(wanted(full.remembering(fewer), "a:branch-b4"))

    assert answers(free)[2:] == []
    assert free.memory.waiting_branches == (("a", "a:branch-b4"),)


def test_a_branch_waits_for_other_subagents_too(session):
    """Whatever has started them."""
    full = running(session, max_children=1).report(SubagentWanted, "a", "a:task-1", "any", "do it")
    free = done(wanted(full))

    assert answers(free) == [("a:task-1", "42", None), (REF, None, None)]


def test_a_branch_that_waits_is_dropped_at_once(session):
    """It is none yet: who waits for it and who drops it are answered, and it is not asked for."""
    waiting = wanted(wanted(running(session, max_children=1)), OTHER)
    dropped = waiting.report(BranchDropped, "a", OTHER)

    assert answers(dropped) == [(OTHER, None, None), (ended_ref(OTHER), None, None)]
    assert answers(done(dropped)) == [(REF, ANSWER, None), (ended_ref(REF), ANSWER, None)]


def test_what_waits_for_room_is_forgotten_with_its_call(session):
    """Nothing begins for a call that is over."""
    waiting = wanted(wanted(running(session, max_children=1)), OTHER)
    over = waiting.end("a")

    assert waiting.memory.waiting_branches == (("a", OTHER),)
    assert over.memory.waiting_branches == over.rebuilt().waiting_branches == ()


def test_shares_are_kept_for_those_that_are_to_follow(session):
    """And one for the session itself."""
    budget = Budget(max_total_tokens=running(session).memory.usage.total_tokens + 400)
    first = wanted(running(session, budget=budget), shares=3)
    second = wanted(first, OTHER, shares=2)

    assert [one.grant.tokens for one in second.memory.children] == [100, 100]


def test_a_call_that_is_over_branches_no_more(session):
    """Nothing would end it."""
    found = running(session).end("a")

    assert wanted(found).is_unchanged(found)
