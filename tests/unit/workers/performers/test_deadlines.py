"""Deadlines of approvals, cycles and waits: the next one due has a timer, and none is too early."""

import asyncio

import pytest

from cmdc_runtime import clock
from cmdc_runtime.messages import TokenUsage
from workers.core.inputs import ApprovalExpired, CycleExpired, WaitExpired
from workers.core.records import Approval
from workers.core.state import Cycle, Memory, Policy, Waiter
from workers.performers import deadlines as module
from workers.performers.deadlines import Deadlines

NOW = 1_000_000


def approval(name, due_at_ms):
    return Approval(id=name, call_id="a", tool="t", args={}, requested_at_ms=1, due_at_ms=due_at_ms)


def waiting(*approvals):
    """Return the memory of a session whose cycles may take as long as they like."""
    return Memory(approvals=approvals, cycle=Cycle("p-1", 0, TokenUsage(), started_at_ms=1))


def running(name, started_at_ms, limit_s=10.0, approvals=()):
    """Return the memory of a session with a cycle that has a limit."""
    cycle = Cycle(name, 0, TokenUsage(), started_at_ms=started_at_ms)
    return Memory(policy=Policy(cycle_timeout_s=limit_s), cycle=cycle, approvals=approvals)


@pytest.fixture
def watched(run, monkeypatch):
    """Return a function that watches memories and returns what is posted, by a clock that jumps.

    ``changes`` are memories, each watched after so many seconds.
    """

    def watch(*changes, until_s=100.0):
        posted = []

        async def scenario():
            loop = asyncio.get_running_loop()
            begun = loop.time()
            monkeypatch.setattr(module, "now_ms", lambda: NOW + round((loop.time() - begun) * 1000))
            made = Deadlines(lambda result: posted.append((round(loop.time() - begun), result)))
            for at_s, memory in changes:
                await asyncio.sleep(at_s - (loop.time() - begun))  # tidy: by the clock that jumps
                made.watch(memory)
            await asyncio.sleep(until_s - (loop.time() - begun))  # tidy: by the clock that jumps
            made.stop()

        run(scenario())
        assert [NOW + at_s * 1000 for at_s, _ in posted] == [
            pytest.approx(result.at_ms, abs=500) for _, result in posted
        ]
        return [(at_s, _name(result)) for at_s, result in posted]

    return watch


def _name(result):
    if isinstance(result, WaitExpired):
        return "waits"
    return result.command_id if isinstance(result, CycleExpired) else result.approval_id


def test_the_next_one_due_is_posted(watched):
    """Then, watched again without it, the one after it."""
    soon, late = approval("soon", NOW + 10_000), approval("late", NOW + 20_000)

    assert watched((0, waiting(late, soon)), (15, waiting(late))) == [(10, "soon"), (20, "late")]


def test_what_was_decided_is_not_posted(watched):
    """Nor what has no deadline."""
    assert watched((0, waiting(approval("x", NOW + 10_000))), (5, waiting())) == []
    assert watched((0, waiting(approval("x", None)))) == []


def test_what_was_due_before_this_process_is_posted_at_once(watched):
    """It may have expired while nobody looked."""
    assert watched((0, waiting(approval("x", NOW - 5)))) == [(0, "x")]


def test_a_long_time_is_looked_at_in_between(watched, monkeypatch):
    """The wall clock may change meanwhile; a look that is early posts nothing."""
    monkeypatch.setattr(module, "_LOOK_S_MAX", 3.0)

    assert watched((0, waiting(approval("x", NOW + 10_000)))) == [(10, "x")]


def test_a_cycle_is_notified_when_its_time_is_over(watched):
    """Counted from its beginning, in whichever process that was; one that ended is not notified."""
    assert watched((0, running("p-1", NOW))) == [(10, "p-1")]
    assert watched((0, running("p-1", NOW - 7_000))) == [(3, "p-1")]
    assert watched((0, running("p-1", NOW - 70_000))) == [(0, "p-1")]
    assert watched((0, running("p-1", NOW)), (5, waiting())) == []


def test_each_cycle_has_its_own_time(watched):
    """The next one begins to count when it begins."""
    assert watched((0, running("p-1", NOW)), (6, running("p-2", NOW + 6_000))) == [(16, "p-2")]


def test_cycle_and_approvals_share_one_timer(watched):
    """Whichever comes first is posted first."""
    soon, late = approval("soon", NOW + 5_000), approval("late", NOW + 20_000)
    both = running("p-1", NOW, approvals=(soon, late))
    after = running("p-1", NOW, approvals=(late,))

    changes = ((0, both), (6, after), (11, waiting(late)))
    assert watched(*changes) == [(5, "soon"), (10, "p-1"), (20, "late")]


def test_a_deadline_keeps_a_session_awake():
    """Who has none may sleep."""

    async def scenario():
        made = Deadlines(lambda _result: None)
        far = approval("x", clock.now_ms() + 10**6)
        seen = made.watch(waiting(far)), made.watch(waiting())
        made.stop()
        return seen

    assert asyncio.run(scenario()) == (True, False)
    assert ApprovalExpired("x", 1).approval_id == "x"


def test_the_first_of_those_who_wait_is_posted(watched):
    """Then the next one; who waits for ever has no time, and so has who was answered."""
    waits = (Waiter("a"), Waiter("b", "p-1", NOW + 20_000), Waiter("c", "p-1", NOW + 10_000))
    all_wait = Memory(waiters=waits)

    assert watched((0, all_wait), (12, Memory(waiters=waits[:2]))) == [(10, "waits"), (20, "waits")]
    assert watched((0, all_wait), (5, Memory())) == []
    assert watched((0, Memory(waiters=waits[:1]))) == []
