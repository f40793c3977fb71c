"""Deadlines of approvals: the next one due has a timer, and none is too early."""

import asyncio

import pytest

from cmdc_runtime import clock
from workers.core.inputs import ApprovalExpired
from workers.core.state import Approval
from workers.effects import deadlines as module
from workers.effects.deadlines import Deadlines

NOW = 1_000_000


def approval(name, due_ms):
    return Approval(name, "a", "t", {}, 1, due_ms=due_ms)


@pytest.fixture
def watched(run, monkeypatch):
    """Return a function that watches approvals and returns what is posted, by a clock that jumps.

    ``changes`` are lists of approvals, each watched after so many seconds.
    """

    def watch(*changes, until_s=100.0):
        posted = []

        async def scenario():
            loop = asyncio.get_running_loop()
            begun = loop.time()
            monkeypatch.setattr(module, "now_ms", lambda: NOW + round((loop.time() - begun) * 1000))
            made = Deadlines(lambda result: posted.append((round(loop.time() - begun), result)))
            for at_s, approvals in changes:
                await asyncio.sleep(at_s - (loop.time() - begun))  # tidy: by the clock that jumps
                made.watch(approvals)
            await asyncio.sleep(until_s - (loop.time() - begun))  # tidy: by the clock that jumps
            made.stop()

        run(scenario())
        return [(at_s, result.approval_id) for at_s, result in posted]

    return watch


def test_the_next_one_due_is_posted(watched):
    """Then, watched again without it, the one after it."""
    soon, late = approval("soon", NOW + 10_000), approval("late", NOW + 20_000)

    assert watched((0, [late, soon]), (15, [late])) == [(10, "soon"), (20, "late")]


def test_what_was_decided_is_not_posted(watched):
    """Nor what has no deadline."""
    assert watched((0, [approval("x", NOW + 10_000)]), (5, [])) == []
    assert watched((0, [approval("x", None)])) == []


def test_what_was_due_before_this_process_is_posted_at_once(watched):
    """It may have expired while nobody looked."""
    assert watched((0, [approval("x", NOW - 5)])) == [(0, "x")]


def test_a_long_time_is_looked_at_in_between(watched, monkeypatch):
    """The wall clock may change meanwhile; a look that is early posts nothing."""
    monkeypatch.setattr(module, "_LOOK_S_MAX", 3.0)

    assert watched((0, [approval("x", NOW + 10_000)])) == [(10, "x")]


def test_a_deadline_keeps_a_session_awake():
    """Who has none may sleep."""

    async def scenario():
        made = Deadlines(lambda _result: None)
        seen = made.watch([approval("x", clock.now_ms() + 10**6)]), made.watch([])
        made.stop()
        return seen

    assert asyncio.run(scenario()) == (True, False)
    assert ApprovalExpired("x", 1).approval_id == "x"
