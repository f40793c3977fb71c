"""How often the hub publishes how far it is: played tick by tick, over the real socket."""

import asyncio
import contextlib

import pytest
import zmq

from cmdc_runtime.wire.codec import decode
from cmdc_runtime.wire.frames import Batch, Events, Published, Watermark, group_topic_of, topic_of
from supervisor.adapters import hub as module
from supervisor.adapters.hub import Hub
from supervisor.core.limits import WATERMARKS_AFTER

WAIT_S = 10.0
IDLE_BEATS = 4
BEATS = 20
NEWS = [*range(1, WATERMARKS_AFTER + 1)]
"""The ticks that publish what is new."""
IDLE = [*range(WATERMARKS_AFTER + IDLE_BEATS, BEATS + 1, IDLE_BEATS)]
"""Those that publish it again, while somebody listens."""
MARK = topic_of("mark")


@pytest.fixture(autouse=True)
def by_hand(monkeypatch):
    """No tick comes by itself."""
    monkeypatch.setattr(module, "WATERMARK_S", 3_600.0)
    monkeypatch.setattr(module, "_IDLE_TICKS", IDLE_BEATS)


class Ear:
    """What a subscriber hears of a hub, from one tick to the next."""

    def __init__(self, hub, socket):
        self.hub, self.socket = hub, socket

    async def next(self):
        """Return what is heard next, as (topic, frame)."""
        assert await asyncio.to_thread(self.socket.poll, round(WAIT_S * 1000))
        topic, _header, frame, *_body = self.socket.recv_multipart()
        return topic, decode(Published, frame)

    async def follow(self, topic):
        """Follow a topic that is there, and return the welcome."""
        self.socket.subscribe(topic)
        found = await self.next()
        while found[0] != topic:
            found = await self.next()
        return found[1]

    async def heard(self):
        """Return what was heard until now, without what marks its end."""
        last = self.hub.taken_index("mark") + 1
        assert self.hub.take("mark", Batch(first=last, count=1, durable=False), b"")
        found = [await self.next()]
        while found[-1] != (MARK, Events(first=last, count=1)):
            found.append(await self.next())
        return [one for one in found if one[0] != MARK]

    async def ticks(self, count=BEATS):
        """Return the numbers of the ticks that published each topic."""
        found = {}
        for number in range(1, count + 1):
            self.hub._tick()
            while self.hub._due:  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(0)
            for topic, _ in await self.heard():
                found.setdefault(topic, []).append(number)
        return found


@contextlib.asynccontextmanager
async def listening(tmp_path, *sessions):
    """A hub with these sessions, and the ear of one who follows none of them yet."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        hub = Hub(context, journal=None)
        hub.bind(f"ipc://{tmp_path}/events")
        for session_id in (*sessions, "mark"):
            hub.open_channel(session_id, 10, 0)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"ipc://{tmp_path}/events")
        ear = Ear(hub, socket)
        try:
            await ear.follow(MARK)
            yield hub, ear
        finally:
            hub.close()


def played(work):
    """Return what a coroutine function returns, in time."""

    async def main():
        async with asyncio.timeout(3 * WAIT_S):
            return await work()

    return asyncio.run(main())


def take(hub, session_id, first):
    assert hub.take(session_id, Batch(first=first, count=1, durable=False), b"")


def test_news_are_published_a_few_times_and_then_now_and_then(tmp_path):
    """To who follows the session; nothing is published of one that nobody follows."""

    async def main():
        async with listening(tmp_path, "s", "unheard") as (hub, ear):
            await ear.follow(topic_of("s"))
            take(hub, "s", 1)
            take(hub, "unheard", 1)
            await ear.heard()
            found = await ear.ticks()
            return found, hub._channels["unheard"].ticks

    found, unheard = played(main)

    assert found == {topic_of("s"): NEWS + IDLE}
    assert unheard == BEATS - WATERMARKS_AFTER


def test_an_event_is_published_anew_as_often_as_the_one_before(tmp_path):
    """What was said of the earlier one says nothing of it."""

    async def main():
        async with listening(tmp_path, "s") as (hub, ear):
            await ear.follow(topic_of("s"))
            found = []
            for first in (1, 2):
                take(hub, "s", first)
                await ear.heard()
                found.append(await ear.ticks(WATERMARKS_AFTER + 1))
            return found

    assert played(main) == [{topic_of("s"): NEWS}] * 2


def test_who_follows_all_hears_now_and_then_of_each(tmp_path, monkeypatch):
    """A few at a time, so that a crowd of sessions holds up nobody; and no more once it leaves."""
    monkeypatch.setattr(module, "WATERMARKS_AT_ONCE_MAX", 1)
    sessions = ("a", "b", "c")

    async def main():
        async with listening(tmp_path, *sessions) as (hub, ear):
            assert await ear.follow(b"") == Watermark(last=0)
            found = await ear.ticks()
            ear.socket.unsubscribe(b"")
            while hub._is_all_heard:  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(0)
            return found, await ear.ticks()

    found, after = played(main)

    assert found == {topic_of(one): NEWS + IDLE for one in sessions}
    assert after == {}


def test_no_turn_is_taken_while_nothing_is_due(tmp_path):
    """A daemon without news costs no processor."""

    async def main():
        async with listening(tmp_path, "s") as (hub, ear):
            await ear.follow(topic_of("s"))
            take(hub, "s", 1)
            await ear.ticks(1)
            return [one for one in asyncio.get_running_loop()._ready if "Hub" in repr(one)]

    assert played(main) == []


def test_a_group_is_published_a_few_times_after_each_that_joins(tmp_path):
    """Who joins is on the list of sessions, too, so nothing is published for ever."""

    async def main():
        async with listening(tmp_path) as (hub, ear):
            await ear.follow(group_topic_of("g"))
            hub.announce("g", "s")
            await ear.heard()
            return await ear.ticks()

    assert played(main) == {group_topic_of("g"): NEWS}


def test_a_session_that_begins_anew_is_still_followed(tmp_path):
    """Who follows it need not know that it ended; nobody follows one that is new."""

    async def main():
        async with listening(tmp_path, "s") as (hub, ear):
            await ear.follow(topic_of("s"))
            hub.open_channel("s", 10, 7)
            hub.open_channel("new", 10, 7)
            return await ear.ticks(), hub._channels["new"].is_heard

    found, is_heard = played(main)

    assert found == {topic_of("s"): [*range(IDLE_BEATS, BEATS + 1, IDLE_BEATS)]}
    assert not is_heard


def test_a_hub_that_is_closed_beats_no_more(tmp_path):
    """Also one that was never bound can be closed."""

    async def main():
        async with listening(tmp_path) as (hub, _):
            pass
        with zmq.Context() as context:
            Hub(context, journal=None).close()
        timers = asyncio.get_running_loop()._scheduled
        return [one for one in timers if one._callback == hub._tick and not one.cancelled()]

    assert played(main) == []
