"""Notices that wait for events: until when, in which order, and what lets them go before."""

import asyncio
import logging

import pytest

from cmdc_runtime.client import down_order as module
from cmdc_runtime.client.down_order import DownOrder
from cmdc_runtime.client.limits import DOWNS_HELD_MAX, STREAM_EVENTS_MAX
from cmdc_runtime.client.queues import ThreadQueue
from cmdc_runtime.client.selection import Selection
from cmdc_runtime.client.subscription import EventBatch, Subscription
from cmdc_runtime.errors import InvalidSession, Overloaded, UsageError
from cmdc_runtime.events import EventsLost, MessageDelta
from cmdc_runtime.reasons import Down, Normal
from cmdc_runtime.requests import FindSession, Replayed, ReplayedBatch, SessionInfo
from cmdc_runtime.wire import codec

LAST = 5
SOON_S = 0.02
WAIT_S = 10.0


class Audience:
    """Hears of the ends; ``seen`` is how many events waited at each."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.is_removed = False
        self.called = asyncio.Event()
        self.heard, self.seen = [], []
        self.error = None

    def on_down(self, down):
        self.heard.append(down.incarnation)
        self.seen.append([len(queue) for queue in self.daemon.queues])
        self.called.set()

    def on_end(self, error):
        self.error = error


class FakeDaemon:
    """A daemon that is ``last`` events far, and sends them when the test says so."""

    def __init__(self):
        self.slots = asyncio.Semaphore(8)
        self.last, self.error = LAST, None
        self.finds = 0
        self.answers, self.replays = asyncio.Event(), asyncio.Event()
        self.answers.set()
        self.queues, self.subscriptions, self.tasks = [], [], []
        self.down_order = DownOrder(self, self)
        self.audience = Audience(self)
        self.line = self.down_order.before(self.audience)

    async def ask(self, request):
        if isinstance(request, FindSession):
            self.finds += 1
            await self.answers.wait()
            if self.error is not None:
                raise self.error
            return found(self.last)
        await self.replays.wait()
        batch = ReplayedBatch(
            first=request.after + 1,
            count=request.through - request.after,
            body=deltas(request.through - request.after),
        )
        return Replayed(batches=(batch,), through=request.through, last=self.last)

    def spawn(self, work):
        self.tasks.append(asyncio.get_running_loop().create_task(work))
        return self.tasks[-1]

    def subscriptions_to(self, session_id):
        return self.subscriptions if session_id == "s" else []

    def listen(self, cursor=0):
        """Return a new stream of the session."""
        self.queues.append(ThreadQueue())
        subscription = Subscription(self, self.queues[-1], Selection(None))
        subscription.follow("s", cursor)
        self.subscriptions.append(subscription)
        return subscription

    def end(self, incarnation=1):
        """Let a notice arrive."""
        self.line.on_down(
            Down(
                ref="r",
                session_id="s",
                reason=Normal(),
                incarnation=incarnation,
                restarting=True,
            )
        )

    async def delivered(self, count=1):
        """Return when so many notices have come."""
        async with asyncio.timeout(WAIT_S):
            while len(self.audience.heard) < count:
                self.audience.called.clear()
                await self.audience.called.wait()


def found(last):
    return SessionInfo(
        session_id="s",
        phase="up",
        incarnation=1,
        restarts=0,
        pid=None,
        parent_id=None,
        group_id=None,
        last_index=last,
    )


def deltas(count):
    return codec.encode_events([(0, MessageDelta(delta="x"))] * count)


async def quiet():
    """Let the loop do what it can do now."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(scenario):
    """Run a coroutine function with a daemon, and end what it leaves behind."""

    async def whole():
        daemon = FakeDaemon()
        result = await scenario(daemon)
        for task in daemon.tasks:
            task.cancel()
        await asyncio.gather(*daemon.tasks, return_exceptions=True)
        return result

    return asyncio.run(whole())


def test_nothing_is_held_without_a_stream():
    """The notice is delivered in the call that brings it, and nobody is asked."""

    async def work(daemon):
        daemon.end()
        return daemon.audience.heard, daemon.finds

    assert run(work) == ([1], 0)


def test_a_notice_waits_for_live_events():
    """Until the last event that the daemon knows of is in the queue of every stream."""

    async def work(daemon):
        subscriptions = [daemon.listen(), daemon.listen(cursor=2)]
        daemon.end()
        await quiet()
        for subscription in subscriptions:
            subscription.on_batch("s", EventBatch(1, LAST - 1, deltas(LAST - 1)))
        await quiet()
        early = list(daemon.audience.heard)
        subscriptions[0].on_batch("s", EventBatch(LAST, 1, deltas(1)))
        await quiet()
        between = list(daemon.audience.heard)
        subscriptions[1].on_batch("s", EventBatch(LAST, 1, deltas(1)))
        await daemon.delivered()
        return early, between, daemon.audience.seen

    assert run(work) == ([], [], [[LAST, LAST - 2]])


def test_a_notice_has_what_is_missing_asked_for():
    """The daemon's word shows the gap, and the notice comes behind the replay that fills it."""

    async def work(daemon):
        daemon.listen()
        daemon.end()
        await quiet()
        early = list(daemon.audience.heard)
        daemon.replays.set()
        await daemon.delivered()
        return early, daemon.audience.seen

    assert run(work) == ([], [[LAST]])


def test_what_is_reported_as_lost_is_waited_for_no_more():
    """An EventsLost that covers the last event stands for it."""

    async def work(daemon):
        subscription = daemon.listen()

        async def lose(request):
            if isinstance(request, FindSession):
                return found(LAST)
            return Replayed(batches=(), through=LAST, last=LAST)

        daemon.ask = lose
        daemon.end()
        await daemon.delivered()
        return daemon.queues[0].get(0).event, subscription.known("s")

    assert run(work) == (EventsLost(first=1, last=LAST), LAST)


def test_notices_of_one_monitor_stay_in_order():
    """A later one waits behind an earlier one, also where its own events are there."""

    async def work(daemon):
        daemon.answers.clear()
        subscription = daemon.listen()
        daemon.end(1)
        subscription.on_batch("s", EventBatch(1, LAST, deltas(LAST)))
        daemon.subscriptions = []
        daemon.end(2)
        daemon.end(3)
        early = list(daemon.audience.heard)
        daemon.answers.set()
        await daemon.delivered(3)
        return early, daemon.audience.heard, len(daemon.tasks)

    assert run(work) == ([], [1, 2, 3], 1)


def test_a_stream_that_ends_or_is_full_holds_up_nothing():
    """Neither will put anything into its queue soon."""

    async def work(daemon):
        closed = daemon.listen()
        daemon.end(1)
        await quiet()
        closed.finish(UsageError("closed"))
        await daemon.delivered(1)
        daemon.subscriptions.clear()
        daemon.last = STREAM_EVENTS_MAX + 1
        full = daemon.listen()
        full.on_batch("s", EventBatch(1, STREAM_EVENTS_MAX, deltas(STREAM_EVENTS_MAX)))
        daemon.end(2)
        await daemon.delivered(2)
        return daemon.audience.seen

    assert run(work) == [[0], [0, STREAM_EVENTS_MAX]]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_notice_is_delivered_when_its_time_is_up(monkeypatch, caplog, is_answered):
    """Though the events have not come, or not even the daemon's word how far it is."""
    monkeypatch.setattr(module, "DOWN_HOLD_S", SOON_S)

    async def work(daemon):
        if not is_answered:
            daemon.answers.clear()
        daemon.listen()
        daemon.end(1)
        daemon.end(2)
        await daemon.delivered(2)
        return daemon.audience.heard

    with caplog.at_level(logging.WARNING):
        assert run(work) == [1, 2]
    assert [one.message.split(":")[0] for one in caplog.records] == ["down.delivered_early"] * 2


@pytest.mark.parametrize("error", [InvalidSession("never"), Overloaded("too much")])
def test_a_notice_is_delivered_when_nobody_knows_the_session(error):
    """What the daemon does not report is not waited for."""

    async def work(daemon):
        daemon.error = error
        daemon.listen()
        daemon.end()
        await daemon.delivered()
        return daemon.audience.heard

    assert run(work) == [1]


def test_a_monitor_holds_so_many_notices_and_no_more():
    """One more, and those that wait are delivered, in order."""

    async def work(daemon):
        daemon.answers.clear()
        daemon.listen()
        for incarnation in range(DOWNS_HELD_MAX + 1):
            daemon.end(incarnation)
        delivered = list(daemon.audience.heard)
        daemon.replays.set()
        daemon.answers.set()
        await daemon.delivered(DOWNS_HELD_MAX + 1)
        return delivered, daemon.audience.heard, len(daemon.tasks)

    delivered, heard, tasks = run(work)

    assert delivered == [*range(DOWNS_HELD_MAX)]
    assert heard == [*range(DOWNS_HELD_MAX + 1)]
    assert tasks == 2  # one for the notices, and one replay


def test_a_monitor_that_is_removed_hears_nothing():
    """Not of what was held either, and it keeps nobody at work."""

    async def work(daemon):
        subscription = daemon.listen()
        daemon.end(1)
        daemon.end(2)
        await quiet()
        daemon.audience.is_removed = True
        subscription.finish(UsageError("closed"))
        await quiet()
        return daemon.audience.heard[1:], daemon.tasks[0].done()

    assert run(work) == ([], True)


def test_what_is_held_is_delivered_when_the_connection_ends():
    """Before the word that nothing follows, and once."""

    async def work(daemon):
        daemon.listen()
        daemon.end(1)
        daemon.end(2)
        await quiet()
        daemon.down_order.release()
        daemon.line.on_end(UsageError("closed"))
        heard = list(daemon.audience.heard)
        daemon.subscriptions[0].finish(UsageError("closed"))
        await quiet()
        return heard, daemon.audience.heard, str(daemon.audience.error)

    assert run(work) == ([1, 2], [1, 2], "closed")
