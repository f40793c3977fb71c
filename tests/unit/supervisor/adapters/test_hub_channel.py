"""One session's events between its agent, the journal and those who follow it."""

import asyncio

import pytest

from supervisor.adapters import hub as module
from supervisor.adapters.hub import Channel, UnwrittenBatch
from supervisor.core.ring import KeptBatch, Ring


def batch(first, count=1, size=10):
    return KeptBatch(first, count, b"x" * size)


def channel():
    return Channel("s1", Ring(100, 10_000), taken=0, is_heard=False)


def going(found):
    return [(one.kept.first, one.kept.count, one.is_dropped) for one in found]


def test_what_stands_behind_a_durable_batch_waits_for_it():
    """The order never changes: the next durable one holds up the rest."""
    one = channel()
    for first, durable in ((1, True), (2, False), (3, True), (4, False)):
        one.queue(UnwrittenBatch(batch(first), durable=durable))

    assert going(one.written(batch(1))) == [(1, 1, False), (2, 1, False)]
    assert going(one.written(batch(3))) == [(3, 1, False), (4, 1, False)]
    assert (one.waiting_bytes, len(one.waiting)) == (0, 0)


def test_answers_of_the_journal_may_come_together():
    """The answer for a later batch lets go all before it."""
    one = channel()
    for first in (1, 2):
        one.queue(UnwrittenBatch(batch(first), durable=True))

    assert going(one.written(batch(2))) == [(1, 1, False), (2, 1, False)]
    assert one.written(batch(1)) == []


def test_waiting_events_are_bounded(monkeypatch):
    """Behind a slow journal ephemeral events are let go, and counted as one batch."""
    monkeypatch.setattr(module, "EVENTS_WAITING_BYTES_MAX", 10)
    one = channel()
    one.queue(UnwrittenBatch(batch(1), durable=True))
    one.queue(UnwrittenBatch(batch(2)))  # behind exactly the bound
    for first in (3, 5, 7):
        one.queue(UnwrittenBatch(batch(first, count=2)))
    one.queue(UnwrittenBatch(batch(9), durable=True))
    one.queue(UnwrittenBatch(batch(10)))

    assert one.waiting_bytes == 30
    assert going(one.written(batch(9))) == [
        (1, 1, False),
        (2, 1, False),
        (3, 6, True),
        (9, 1, False),
        (10, 1, True),
    ]


@pytest.mark.parametrize("is_in_time", [True, False])
def test_wait_for_an_event_is_bounded(monkeypatch, is_in_time):
    """Who waits learns whether it was published, and leaves nothing behind."""
    monkeypatch.setattr(module, "PUBLISH_WAIT_S", 10.0 if is_in_time else 0.01)
    one = channel()

    async def main():
        waits = asyncio.create_task(one.published(2))
        await asyncio.sleep(0)
        if is_in_time:
            one.ring.add(batch(1))
            one.wake()
            one.ring.add(batch(2))
            one.wake()
        return await waits

    assert asyncio.run(main()) == is_in_time
    assert one.waiters == []
