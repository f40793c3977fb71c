"""A subscription and its consumer: whoever makes room learns that there is more to ask for."""

import asyncio

from cmdc_runtime.client.limits import STREAM_EVENTS_MAX, STREAM_REFILL_EVENTS
from cmdc_runtime.client.queues import ThreadQueue
from cmdc_runtime.client.selection import Selection
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.events import MessageDelta
from cmdc_runtime.requests import Replayed, ReplayedBatch
from cmdc_runtime.wire import codec

PAGE_EVENTS = 3_000
"""Of an answer: with two the queue is beyond the mark again, and not full."""


class Answers:
    """A daemon that knows of very many events and answers a page at a time."""

    def __init__(self):
        self.slots = asyncio.Semaphore(1)
        self.asked = 0
        self.tasks = []

    async def ask(self, request):
        self.asked += 1
        first, last = request.after + 1, min(request.through, request.after + PAGE_EVENTS)
        body = codec.encode_events([(0, MessageDelta(delta="x"))] * (last + 1 - first))
        batch = ReplayedBatch(first=first, count=last + 1 - first, body=body)
        return Replayed(batches=(batch,), through=last, last=request.through)

    def spawn(self, work):
        self.tasks.append(asyncio.get_running_loop().create_task(work))
        return self.tasks[-1]


def test_a_consumer_that_lags_learns_to_ask_again():
    """An answer that leaves no room for the next question puts the flag up that is read."""

    async def flow():
        daemon, queue = Answers(), ThreadQueue()
        subscription = Subscription(daemon, queue, Selection(None))
        subscription.follow("s1", 0)
        subscription.on_watermark("s1", 3 * STREAM_EVENTS_MAX)
        while any(not task.done() for task in daemon.tasks):
            await asyncio.gather(*daemon.tasks)
        filled, was_lagging, asked = len(queue), subscription.is_lagging, daemon.asked
        while len(queue) > STREAM_REFILL_EVENTS:
            queue.get(0)
        subscription.refill()
        await asyncio.gather(*daemon.tasks)
        return filled, was_lagging, daemon.asked > asked

    filled, was_lagging, is_asked_again = asyncio.run(flow())

    assert STREAM_REFILL_EVENTS < filled <= STREAM_EVENTS_MAX
    assert was_lagging
    assert is_asked_again
