"""What the hub publishes and gives again, over the real socket and a real journal."""

import asyncio
import contextlib
import tracemalloc

import pytest
import zmq

from cmdc_runtime.errors import TransientError
from cmdc_runtime.wire.codec import decode
from cmdc_runtime.wire.frames import Batch, Events, Published, Watermark, topic_of
from supervisor.adapters import hub as channel_module
from supervisor.adapters import hub as module
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import JournalFailed, SessionRow
from supervisor.adapters.journal.operations import CreateSession, FindLastIndex
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.journal.store import Health
from supervisor.core.limits import REPLAY_BYTES_MAX, WATERMARKS_AFTER

WAIT_S = 10.0


class SlowJournal:
    """A journal that answers when the test says so."""

    def __init__(self):
        self.asked = []
        self.health = Health()

    def write(self, publish):
        future = asyncio.get_running_loop().create_future()
        self.asked.append(future)
        return future

    async def read(self, replay):
        return []


@contextlib.asynccontextmanager
async def bound(tmp_path, journal=None):
    """A hub that listens."""
    with zmq.Context() as context:
        hub = Hub(context, journal)
        hub.bind(f"ipc://{tmp_path}/events")
        try:
            yield hub
        finally:
            hub.close()


@contextlib.asynccontextmanager
async def listening(tmp_path, topic):
    """A subscriber: a function that returns the next (topic, frame)."""
    with zmq.Context() as context:
        ear = context.socket(zmq.SUB)
        ear.setsockopt(zmq.LINGER, 0)
        ear.connect(f"ipc://{tmp_path}/events")
        ear.subscribe(topic)

        async def heard(wait_s=WAIT_S):
            assert await asyncio.to_thread(ear.poll, round(wait_s * 1000))
            parts = ear.recv_multipart()
            return parts[0], decode(Published, parts[2])

        try:
            yield heard
        finally:
            ear.close()


@contextlib.asynccontextmanager
async def journal_of(tmp_path):
    journal = SqliteJournal(tmp_path / "state", durability="process")
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


def take(hub, first, count=1, *, durable=False, body=b"x"):
    assert hub.take("s1", Batch(first=first, count=count, durable=durable), body)


def given(answer):
    return [(one.first, one.count) for one in answer.batches], answer.through, answer.last


async def until(condition):
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0)


@pytest.mark.parametrize(("first", "count"), [(2, 1), (3, 2), (5, 1), (100, 1), (4, 0)])
def test_batch_that_does_not_follow_is_refused(tmp_path, first, count):
    """Neither again nor behind a gap, and none without an event: indexes go on where they were."""

    async def main():
        async with bound(tmp_path) as hub:
            hub.open_channel("s1", 10, 0)
            take(hub, 1, 3)
            is_taken = hub.take("s1", Batch(first=first, count=count, durable=False), b"y")
            before = hub.taken_index("s1"), hub.last_index("s1")
            take(hub, 4)
            return is_taken, before, given(await hub.replay("s1", 0, 4))

    assert asyncio.run(main()) == (False, (3, 3), ([(1, 3), (4, 1)], 4, 4))


@pytest.mark.parametrize(
    ("events_max", "kept"),
    [(0, []), (1, [(6, 3)]), (4, [(5, 1), (6, 3)]), (100, [(1, 3), (4, 1), (5, 1), (6, 3)])],
)
def test_ring_gives_again_what_its_size_allows(tmp_path, events_max, kept):
    """Ephemeral events as far as the ring goes, durable ones from the journal."""

    async def main():
        async with journal_of(tmp_path) as journal, bound(tmp_path, journal) as hub:
            await journal.write(CreateSession(SessionRow(session_id="s1", created_ms=1, spec=b"")))
            hub.open_channel("s1", events_max, 0)
            take(hub, 1, 3)
            take(hub, 4, durable=True)
            await hub.flushed("s1")
            take(hub, 5)
            take(hub, 6, 3)
            return given(await hub.replay("s1", 0, 8))

    batches, through, last = asyncio.run(main())
    durable = [(4, 1)]

    assert batches == sorted({*kept, *durable})
    assert (through, last) == (8, 8)


def test_what_the_agent_has_still_to_publish_is_not_called_lost(tmp_path):
    """A new daemon that counts less far than who asks says nothing beyond its own count."""

    async def main():
        async with bound(tmp_path, SlowJournal()) as hub:
            hub.open_channel("s1", 10, 49)
            before = given(await hub.replay("s1", 52, 55))
            for index in range(50, 56):
                take(hub, index)
            return before, given(await hub.replay("s1", 52, 55))

    before, after = asyncio.run(main())

    assert before == ([], 49, 49)
    assert after == ([(53, 1), (54, 1), (55, 1)], 55, 55)


def test_what_names_lost_records_is_reported_as_lost(tmp_path):
    """A subscriber must not know of a step that the journal has not; what follows is published."""

    async def main():
        async with bound(tmp_path, SlowJournal()) as hub, listening(tmp_path, b"s1") as heard:
            hub.open_channel("s1", 10, 0)
            await heard()  # the welcome
            stored = asyncio.get_running_loop().create_future()
            batch = Batch(first=1, count=2, durable=True)
            assert hub.take("s1", batch, b"void", stored)
            take(hub, 3)
            stored.set_exception(JournalFailed("no room"))
            frames = [(await heard())[1]]
            while not isinstance(frames[-1], Events):
                frames.append((await heard())[1])
            return frames[-1], given(await hub.replay("s1", 0, 3))

    reported, replayed = asyncio.run(main())

    assert (reported.first, reported.count) == (3, 1)
    assert replayed == ([(3, 1)], 3, 3)


@pytest.mark.parametrize("waits", [False, True])
def test_indexes_of_which_nobody_knows_are_gone_behind_what_was_taken(tmp_path, waits):
    """What was taken is published before them, and kept; what comes then has none of them."""

    async def main():
        async with bound(tmp_path, journal := SlowJournal()) as hub:
            hub.open_channel("s1", 100, 0)
            take(hub, 1, 2)
            take(hub, 3, durable=True)
            if not waits:
                journal.asked[0].set_result(None)
                await until(lambda: hub.last_index("s1") == 3)
            hub.skip("s1", 1_000)
            before = hub.last_index("s1"), hub.taken_index("s1")
            took = hub.take("s1", Batch(first=4, count=1, durable=False), b"x")
            take(hub, 1_004)
            if waits:
                journal.asked[0].set_result(None)
            await until(lambda: hub.last_index("s1") == 1_004)
            hub.skip("another", 1_000)
            return before, took, given(await hub.replay("s1", 0, 2_000))

    before, took, found = asyncio.run(main())

    assert before == ((2, 1_003) if waits else (1_003, 1_003))
    assert not took
    assert found == ([(1, 2), (3, 1), (1_004, 1)], 1_004, 1_004)


def test_wait_for_a_journal_that_hangs_is_bounded(tmp_path, monkeypatch):
    """Who asks for events gets an error and asks again; who reports an end reports it."""
    monkeypatch.setattr(channel_module, "PUBLISH_WAIT_S", 0.02)

    async def main():
        journal = SlowJournal()
        async with bound(tmp_path, journal) as hub:
            hub.open_channel("s1", 10, 0)
            take(hub, 1, durable=True)
            with pytest.raises(TransientError, match="session s1"):
                await hub.replay("s1", 0, 1)
            await hub.flushed("s1")
            journal.asked[0].set_result(None)
            await hub.flushed("s1")
            return given(await hub.replay("s1", 0, 1))

    assert asyncio.run(main()) == ([(1, 1)], 1, 1)


def test_events_behind_a_journal_that_hangs_are_reported_as_lost(tmp_path, monkeypatch):
    """What is let go has indexes: whoever follows learns that they are gone."""
    monkeypatch.setattr(channel_module, "EVENTS_WAITING_BYTES_MAX", 0)

    async def main():
        journal = SlowJournal()
        async with bound(tmp_path, journal) as hub, listening(tmp_path, topic_of("s1")) as heard:
            hub.open_channel("s1", 10, 0)
            take(hub, 1, durable=True)
            take(hub, 2, 3)
            take(hub, 5)
            journal.asked[0].set_result(None)
            await hub.flushed("s1")
            found = [(await heard())[1]]
            while found[-1] != Watermark(last=5):
                found.append((await heard())[1])
            return found, given(await hub.replay("s1", 0, 5))

    found, again = asyncio.run(main())

    assert [one for one in found if isinstance(one, Events)] in ([], [Events(first=1, count=1)])
    assert again == ([(1, 1)], 5, 5)


def test_event_in_the_journal_that_was_not_published_is_given_by_the_next_daemon(tmp_path):
    """The daemon ends between the commit and the publication: the event comes once, later."""

    async def main():
        async with journal_of(tmp_path) as journal:
            await journal.write(CreateSession(SessionRow(session_id="s1", created_ms=1, spec=b"")))
            async with bound(tmp_path, journal) as hub:
                hub.open_channel("s1", 10, 0)
                take(hub, 1, durable=True, body=b"one")
                before = hub.last_index("s1")
                hub.close()  # the commit is under way, and its answer finds nobody
            last = await journal.read(FindLastIndex("s1"))
            async with bound(tmp_path, journal) as hub:
                hub.open_channel("s1", 10, last)
                welcome = hub.last_index("s1")
                return before, welcome, (await hub.replay("s1", 0, last)).batches

    before, welcome, batches = asyncio.run(main())

    assert (before, welcome) == (0, 1)
    assert [(one.first, one.body) for one in batches] == [(1, b"one")]


def test_a_long_replay_has_one_answer_at_a_time_in_memory(tmp_path):
    """Of batches that fill an answer each the next one is read when it is asked for."""
    body = b"x" * REPLAY_BYTES_MAX
    count = 8

    async def main():
        async with journal_of(tmp_path) as journal, bound(tmp_path, journal) as hub:
            await journal.write(CreateSession(SessionRow(session_id="s1", created_ms=1, spec=b"")))
            hub.open_channel("s1", 2, 0)
            for first in range(1, 2 * count, 2):
                take(hub, first, durable=True, body=body)
                await hub.flushed("s1")
                take(hub, first + 1)
            found, after = [], 0
            tracemalloc.start()
            while after < 2 * count:
                batches, after, _ = given(await hub.replay("s1", after, 2 * count))
                found += batches
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return found, peak

    found, peak = asyncio.run(main())

    assert found == [*((first, 1) for first in range(1, 2 * count, 2)), (2 * count, 1)]
    assert peak < 3 * REPLAY_BYTES_MAX


@pytest.mark.slow
def test_session_without_news_is_published_while_somebody_listens(tmp_path, monkeypatch):
    """A subscriber may have lost the last event and the frame that names its index."""
    monkeypatch.setattr(module, "WATERMARK_S", 0.01)

    async def main():
        async with bound(tmp_path) as hub:
            hub.open_channel("s1", 10, 0)
            hub.open_channel("unheard", 10, 0)
            take(hub, 1)
            channels = hub._channels
            await until(lambda: channels["s1"].watermarks_left == 0)
            async with listening(tmp_path, topic_of("s1")) as heard:
                found = [await heard() for _ in range(WATERMARKS_AFTER + 2)]
                ticks = channels["unheard"].ticks
            await until(lambda: not channels["s1"].is_heard)
            return found, ticks

    found, ticks = asyncio.run(main())

    assert set(map(str, found)) == {str((topic_of("s1"), Watermark(last=1)))}
    assert ticks > module._IDLE_TICKS


@pytest.mark.slow
def test_subscriber_to_all_that_is_back_hears_how_far_each_session_is(tmp_path):
    """Its cut may have swallowed the last event of a session that is silent since."""

    async def main():
        async with bound(tmp_path) as hub:
            for number in range(3):
                hub.open_channel(f"s{number}", 10, number)
            async with listening(tmp_path, b"") as heard:
                return [await heard() for _ in range(4)]

    welcome, *marks = asyncio.run(main())

    assert welcome == (b"", Watermark(last=0))
    assert sorted(marks, key=str) == [
        (topic_of(f"s{number}"), Watermark(last=number)) for number in range(3)
    ]


def test_session_of_a_used_id_is_not_mixed_with_the_one_before(tmp_path):
    """What the journal answers late for the earlier session is published nowhere."""

    async def main():
        journal = SlowJournal()
        async with bound(tmp_path, journal) as hub, listening(tmp_path, topic_of("s1")) as heard:
            hub.open_channel("s1", 10, 0)
            take(hub, 1, durable=True)
            found = [(await heard())[1]]
            hub.open_channel("s1", 10, 0)
            journal.asked[0].set_result(None)
            await asyncio.sleep(0)  # its callbacks have their turn
            take(hub, 1, count=2)
            while not isinstance(found[-1], Events):
                found.append((await heard())[1])
            return found[-1]

    assert asyncio.run(main()) == Events(first=1, count=2)
