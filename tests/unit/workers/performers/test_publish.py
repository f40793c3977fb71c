"""Events get their numbers here, and leave in batches."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.events import MessageDelta, StreamReset, TitleGenerated
from cmdc_runtime.wire.codec import decode_events
from workers.performers.publish import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Publisher


class Sink:
    """What a publisher sends to; it keeps each batch with its events."""

    def __init__(self):
        self.batches = []

    def send(self, batch, body):
        self.batches.append((batch, [event for _, event in decode_events(body)], len(body)))

    @property
    def events(self):
        return [event for _, events, _ in self.batches for event in events]


def published(events, *, first=1, turns=()):
    """Publish events, with a turn of the loop after those at ``turns``; return what was sent."""
    sink = Sink()

    async def publish():
        publisher = Publisher(first, sink.send)
        for at, event in enumerate(events):
            publisher.publish(event)
            assert publisher.last_index == first + at
            if at in turns:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert publisher.last_index == first + len(events) - 1

    asyncio.run(publish())
    return sink


def delta(text="x"):
    return MessageDelta(delta=text)


kinds = st.lists(st.sampled_from([StreamReset(), delta(), TitleGenerated(title="t")]), max_size=30)


@given(kinds, st.integers(1, 10**9), st.sets(st.integers(0, 30)))
def test_numbers_have_no_gap_and_no_repeat(events, first, turns):
    """All events leave in order, numbered one by one from the first, however the loop turns."""
    sink = published(events, first=first, turns=turns)

    assert sink.events == events
    assert [batch.first for batch, _, _ in sink.batches] == [
        first + sum(batch.count for batch, _, _ in sink.batches[:at])
        for at in range(len(sink.batches))
    ]
    assert all(batch.count == len(inside) > 0 for batch, inside, _ in sink.batches)


@given(kinds)
def test_durable_and_ephemeral_events_share_no_batch(events):
    """The journal keeps whole batches, and a batch says truly which kind it is."""
    for batch, inside, _ in published(events).batches:
        assert {event.durable for event in inside} == {batch.durable}


def test_a_lone_event_leaves_at_once():
    """In the next turn of the loop, with nothing to wait for."""
    assert [inside for _, inside, _ in published([delta("1"), delta("2")], turns={0}).batches] == [
        [delta("1")],
        [delta("2")],
    ]


def test_a_burst_leaves_together():
    """Up to the bound of a batch."""
    sink = published([delta()] * (BATCH_EVENTS_MAX + 1))

    assert [batch.count for batch, _, _ in sink.batches] == [BATCH_EVENTS_MAX, 1]


def test_large_events_do_not_make_a_large_batch():
    """A burst of them is split until each batch is in bounds, or is one event."""
    events = [delta("x" * (BATCH_BYTES_MAX // 3)) for _ in range(10)]
    huge = delta("y" * 2 * BATCH_BYTES_MAX)
    sink = published([*events, huge, *events])

    assert sink.events == [*events, huge, *events]
    assert [inside for _, inside, size in sink.batches if size > BATCH_BYTES_MAX] == [[huge]]
    assert max(batch.count for batch, _, _ in sink.batches) > 1


def test_a_flush_sends_what_is_there():
    """At the end of a process nothing waits for another turn of the loop."""
    sink = Sink()

    async def publish():
        publisher = Publisher(1, sink.send)
        publisher.flush()
        publisher.publish(delta())
        publisher.flush()
        publisher.publish(delta())
        sent = len(sink.batches)
        await asyncio.sleep(0)
        return sent

    assert asyncio.run(publish()) == 1
    assert [batch.first for batch, _, _ in sink.batches] == [1, 2]


def test_what_is_taken_is_not_sent_again():
    """Who takes what was gathered sends it; the numbers go on behind it."""
    sink = Sink()

    async def publish():
        publisher = Publisher(1, sink.send)
        publisher.publish(MessageDelta(delta="a"))
        publisher.publish(StreamReset())
        taken = [(batch.first, batch.durable) for batch, _ in publisher.take()]
        publisher.publish(StreamReset())
        await asyncio.sleep(0)
        return taken

    assert asyncio.run(publish()) == [(1, False), (2, True)]
    assert [batch.first for batch, _, _ in sink.batches] == [3]
