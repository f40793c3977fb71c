"""Copies on the writer's thread: what ends one, and what goes on."""

import asyncio
import threading
from queue import SimpleQueue

import pytest
from structlog.testing import capture_logs

from supervisor.adapters.journal import writer as module
from supervisor.adapters.journal.base import JournalFailed, JournalFull, JournalOverloaded
from supervisor.core.storage import Condition, Level
from tests.integration.supervisor.writer_stage import (
    WAIT_S,
    BrokenError,
    Guard,
    PassingError,
    Store,
    Work,
    kinds,
    outcome,
    played,
)

STEPS = 3


class Copy:
    """A copy of some steps, before each of which the test may act."""

    def __init__(self, act=None, steps=STEPS):
        self._act = act or (lambda _number: None)
        self._steps = steps
        self.done = 0
        self.is_given_up = False

    def step(self):
        self._act(self.done)
        self.done += 1
        return self.done == self._steps

    def give_up(self):
        self.is_given_up = True


class CopiedStore(Store):
    """A store that makes the copies that the test has for it."""

    def __init__(self, *copies):
        super().__init__()
        self._copies = list(copies)

    def begin_copy(self, path):
        self.asked.append(path)
        return self._copies.pop(0)


def at(number, act):
    """Return what acts before this step."""
    return lambda step: act() if step == number else None


def copied(tmp_path, *copies, guard=None, then=None):
    """Return what came of as many copies, asked for at once, and of what is asked behind them."""

    async def scenario(writer, _store):
        found = await kinds(*(writer.copy(tmp_path / str(at)) for at in range(len(copies))))
        return found if then is None else (found, await then(writer))

    return played(scenario, guard, CopiedStore(*copies))


def test_a_copy_is_made_step_by_step_without_a_wait_in_between(tmp_path, monkeypatch):
    """Only for the first of it, and for what comes behind the last, the thread waits."""
    waits = []

    class Queue(SimpleQueue):
        def get(self, **how):
            waits.append(how["timeout"])
            return super().get(**how)

    monkeypatch.setattr(module, "SimpleQueue", Queue)
    copy = Copy()

    assert copied(tmp_path, copy) == [None]
    assert copy.done == STEPS
    assert waits == [None, *[0] * (STEPS - 1), None]


def test_a_copy_takes_no_room_of_what_waits(tmp_path, monkeypatch):
    """What may wait behind it is as much as before it."""
    monkeypatch.setattr(module, "JOURNAL_QUEUED_BYTES_MAX", 10)

    async def then(writer):
        with pytest.raises(JournalOverloaded):
            writer.write(Work(lambda: 1, 11))
        return await writer.write(Work(lambda: 2, 10))

    assert copied(tmp_path, Copy(), then=then) == ([None], 2)


def test_a_copy_that_a_close_does_not_wait_for_fails(tmp_path, monkeypatch):
    """Its step takes longer than a close may."""
    monkeypatch.setattr(module, "JOURNAL_CLOSE_S", 0.01)
    is_stuck, may_end = threading.Event(), threading.Event()

    def stick(_number):
        is_stuck.set()
        may_end.wait(WAIT_S)

    async def scenario(writer, _store):
        call = writer.copy(tmp_path)
        await asyncio.to_thread(is_stuck.wait, WAIT_S)
        await writer.close()
        assert call.done()
        may_end.set()
        return await kinds(call)

    assert played(scenario, store=CopiedStore(Copy(stick))) == [JournalFailed]


def test_a_copy_that_is_under_way_at_the_end_is_given_up(tmp_path):
    """Nothing of it may stay."""
    is_stuck, may_go_on = threading.Event(), threading.Event()
    copy = Copy(at(0, lambda: (is_stuck.set(), may_go_on.wait(WAIT_S))))

    async def scenario(writer, _store):
        call = writer.copy(tmp_path)
        await asyncio.to_thread(is_stuck.wait, WAIT_S)
        asyncio.get_running_loop().call_soon(may_go_on.set)  # when the close is asked for
        await writer.close()
        return await kinds(call)

    assert played(scenario, store=CopiedStore(copy)) == [JournalFailed]
    assert copy.is_given_up
    assert copy.done == 1


def test_of_a_store_that_is_broken_nothing_is_copied(tmp_path):
    """What a write has found, a copy need not find again."""

    async def scenario(writer, store):
        found = await kinds(writer.write(Work(outcome(BrokenError("gone")), 1)))
        return found + await kinds(writer.copy(tmp_path)), store.asked

    found, asked = played(scenario, Guard(), CopiedStore(Copy()))
    assert found == [JournalFailed, JournalFailed]
    assert tmp_path not in asked


@pytest.mark.parametrize(
    ("error", "condition", "written", "events"),
    [
        (PassingError("busy"), Condition.OPEN, 2, []),
        (ZeroDivisionError("a bug"), Condition.OPEN, 2, ["journal.copy_failed"]),
        (BrokenError("gone"), Condition.FAILED, JournalFailed, ["journal.failed"]),
    ],
)
def test_what_a_copy_fails_by(tmp_path, error, condition, written, events):
    """Its own trouble ends it alone; a broken store is broken for all, the next copy too."""

    async def then(writer):
        return await kinds(writer.write(Work(lambda: 2, 1))), writer.health.condition

    copies = Copy(at(1, outcome(error))), Copy()
    with capture_logs() as logs:
        found = copied(tmp_path, *copies, guard=Guard(), then=then)

    is_broken = condition is Condition.FAILED
    assert found == ([JournalFailed, JournalFailed if is_broken else None], ([written], condition))
    assert copies[1].done == (0 if is_broken else STEPS)
    assert [one["event"] for one in logs] == events


def test_a_copy_that_is_given_up_for_want_of_room_is_not_gone_on_with(tmp_path, monkeypatch):
    """Not when there is room again, either."""
    monkeypatch.setattr(module, "JOURNAL_ROOM_LOOK_S", 0.0)  # it is looked for at each turn
    guard = Guard()
    copy = Copy(at(0, guard.spend))

    async def then(writer):
        guard.has_room = True
        return await writer.write(Work(lambda: 2, 1)), await writer.write(Work(lambda: 3, 1))

    assert copied(tmp_path, copy, guard=guard, then=then) == ([JournalFull], (2, 3))
    assert (copy.done, copy.is_given_up, guard.level) == (1, True, Level.PLENTY)
