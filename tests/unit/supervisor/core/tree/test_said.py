"""What a supervisor says: to children that it asks to end, to those who watch, and to the log."""

import pytest

from supervisor.core.tree import supervisor as module
from supervisor.core.tree.messages import ChildExited, Ending, Ignored, Ref
from supervisor.core.tree.supervisor import SIBLING_ENDED
from tests.conformance.script import KILLED, Life, child, one_for_all, one_for_one
from tests.conformance.sim_stage import SimStage

LAZY = Life(stop_s=2.0)


def started(spec):
    """Return a stage on which the tree of a specification is up."""
    return SimStage().start(spec)


def asked(sim, who):
    """Return the reason that a process was asked to end for."""
    return sim.note("ask", who).fact


@pytest.mark.parametrize(("own", "heard"), [(None, "enough"), ("bye", "bye")])
def test_a_child_hears_why_its_supervisor_ends(own, heard):
    """That is what the supervisor was given, unless it has a word of its own for it."""
    sim = started(one_for_one(child("a"), stop_reason=own))
    sim.stop("enough")

    assert asked(sim, "a1") == heard


@pytest.mark.parametrize(("own", "heard"), [(None, SIBLING_ENDED), ("bye", "bye")])
def test_a_child_hears_why_its_group_is_restarted(own, heard):
    """A sibling has ended, unless the supervisor has a word of its own for it."""
    sim = started(one_for_all(child("a"), child("b"), stop_reason=own))
    sim.crash("a")
    sim.settle()

    assert asked(sim, "b1") == heard


def test_who_was_asked_to_end_is_kept_apart_from_who_ended_first():
    """Both belong to a group that is restarted; only one of them was asked."""
    sim = started(one_for_all(child("a", LAZY), child("b"), child("c", LAZY)))
    sim.crash("b")
    sim.settle()
    sim.crash("a")  # c is asked first, a was not yet
    sim.pass_time(LAZY.stop_s)

    assert (sim.down("a1").asked, sim.down("c1").asked) == (False, True)


@pytest.mark.parametrize(
    ("news", "context"),
    [
        (Ignored(Ref((), "a", 1)), "ignore"),
        (ChildExited(Ref((), "a", 1), KILLED, Ending.CRASH), "exit"),
    ],
)
def test_news_of_a_process_that_cannot_come_is_in_the_log(news, context):
    """Of one that is up no ``ignore`` can come, and of one that is gone no exit."""
    sim = started(one_for_one(child("a")))
    if context == "exit":
        sim.ask_for("terminate_child", "a")
    mark = sim.mark()
    sim.perform(sim.tree.handle(news, sim.now()))

    assert [one.context for one in sim.reported("unexpected", mark)] == [context]


def test_calls_that_wait_are_bounded_and_exits_are_not(monkeypatch):
    """One call too many gets an error; an exit that waits with them is judged all the same."""
    monkeypatch.setattr(module, "CALLS_WAITING_MAX", 2)
    sim = started(one_for_all(child("a"), child("b", LAZY), child("c")))
    sim.crash("a")
    sim.settle()
    calls = [sim.call("delete_child", "c") for _ in range(3)]
    refused = [None if one.answer is None else str(one.answer.outcome) for one in calls]
    sim.pass_time(LAZY.stop_s)

    assert refused == [None, None, "error"]
    assert [str(sim.answer(one).outcome) for one in calls] == ["running", "running", "error"]


def test_an_exit_waits_beside_any_number_of_calls(monkeypatch):
    """It is no call, so there is always room for it."""
    monkeypatch.setattr(module, "CALLS_WAITING_MAX", 1)
    slow = child("b", Life(), Life(start_s=2.0))
    sim = started(one_for_all(child("a"), slow, child("c")))
    sim.crash("a")
    sim.settle()
    sim.call("delete_child", "c")
    sim.crash("a")  # while b is started again
    sim.pass_time(9.0)

    assert sim.states() == dict.fromkeys("abc", "up")
    assert sim.view("a").generation == 3


def test_a_back_off_hides_no_crash():
    """The time that a child was kept waiting makes its crashes no older."""
    sim = started(
        one_for_one(child("a", restart_delay=(4.0, 4.0)), max_restarts=2, max_seconds=5.0)
    )
    sim.crash("a")
    sim.settle()
    sim.crash("a")
    sim.pass_time(7.0)
    sim.crash("a")

    assert sim.has_ended()
