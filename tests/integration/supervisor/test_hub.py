"""How the hub announces the sessions of a group, over the real socket."""

import asyncio
import contextlib
import os

import pytest
import zmq
from structlog.testing import capture_logs

from cmdc_runtime.wire.codec import decode
from cmdc_runtime.wire.frames import Joined, Published, Watermark, group_topic_of
from supervisor.adapters import hub as module
from supervisor.adapters.hub import Hub
from supervisor.core import peer_memory
from supervisor.core.limits import WATERMARKS_AFTER
from supervisor.core.peer_memory import Whom

WAIT_S = 10.0


@contextlib.asynccontextmanager
async def bound(tmp_path, **more):
    """A hub that listens."""
    with zmq.Context() as context:
        hub = Hub(context, journal=None, **more)
        hub.bind(f"ipc://{tmp_path}/events")
        try:
            yield hub
        finally:
            hub.close()


@contextlib.asynccontextmanager
async def listening(tmp_path, group):
    """A follower of a group: a function that returns the next (topic, frame)."""
    with zmq.Context() as context:
        ear = context.socket(zmq.SUB)
        ear.setsockopt(zmq.LINGER, 0)
        ear.connect(f"ipc://{tmp_path}/events")
        ear.subscribe(group_topic_of(group))

        async def heard():
            assert await asyncio.to_thread(ear.poll, round(WAIT_S * 1000))
            topic, _header, frame = ear.recv_multipart()
            return topic, decode(Published, frame)

        try:
            yield heard
        finally:
            ear.close()


def test_follower_is_welcomed_and_hears_who_joins(tmp_path):
    """The welcome has the newest number, the numbers step by 1, and watermarks repeat the last."""

    async def main():
        async with bound(tmp_path) as hub, listening(tmp_path, "g") as heard:
            found = [await heard()]
            hub.announce("h", "stranger")
            hub.announce("g", "s1")
            hub.announce("g", "s2")
            return found + [await heard() for _ in range(2 + WATERMARKS_AFTER)]

    found = asyncio.run(main())
    first = found[1][1].number

    assert {topic for topic, _ in found} == {group_topic_of("g")}
    assert [frame for _, frame in found] == [
        Watermark(last=0),
        Joined(session_id="s1", number=first),
        Joined(session_id="s2", number=first + 1),
        *[Watermark(last=first + 1)] * WATERMARKS_AFTER,
    ]


def test_late_follower_is_welcomed_with_the_newest_number(tmp_path):
    """Whoever joined before is in the list of sessions by then."""

    async def main():
        async with bound(tmp_path) as hub:
            hub.announce("g", "s1")
            async with listening(tmp_path, "g") as heard:
                return await heard()

    assert asyncio.run(main()) == (group_topic_of("g"), Watermark(last=1))


def test_forgotten_group_repeats_no_number(tmp_path, monkeypatch):
    """Only so many groups are remembered; the follower of a forgotten one sees a gap at most."""
    monkeypatch.setattr(module, "GROUPS_KNOWN_MAX", 1)

    async def main():
        async with bound(tmp_path) as hub, listening(tmp_path, "g") as heard:
            await heard()
            for number in range(3):
                hub.announce("g", f"s{number}")
                hub.announce("h", "stranger")
            found = []
            while len(found) < 3:
                _, frame = await heard()
                found += [frame.number] if isinstance(frame, Joined) else []
            return found

    numbers = asyncio.run(main())

    assert numbers == sorted(set(numbers))


def test_only_so_many_groups_are_remembered(tmp_path, monkeypatch):
    """Those that were joined last."""
    monkeypatch.setattr(module, "GROUPS_KNOWN_MAX", 2)

    async def main():
        async with bound(tmp_path) as hub:
            for group in ("g", "h", "g", "i"):
                hub.announce(group, "s")
            found = []
            for group in ("g", "h", "i"):
                async with listening(tmp_path, group) as heard:
                    _, frame = await heard()
                    found.append(frame.last > 0)
            return found

    assert asyncio.run(main()) == [True, False, True]


@pytest.mark.parametrize(("cuts", "connections"), [(True, 1), (True, 0), (False, 0)])
def test_who_follows_too_many_topics_is_cut_off(tmp_path, monkeypatch, cuts, connections):
    """Once for all that it had said, and logged; it waits, and what it follows is counted anew."""
    monkeypatch.setattr(peer_memory, "TOPICS_MAX", 100)
    monkeypatch.setattr(peer_memory, "BARRED_S", 600.0)
    cut = []

    async def main():
        more = {"on_excess": lambda pid: cut.append(pid) or connections} if cuts else {}
        async with bound(tmp_path, **more) as hub:
            with zmq.Context() as context, context.socket(zmq.SUB) as ear:
                ear.setsockopt(zmq.LINGER, 0)
                for number in range(150):
                    ear.subscribe(b"s-%d" % number)
                ear.connect(f"ipc://{tmp_path}/events")
                # Behind the others: ZeroMQ puts in order what is there when it connects.
                ear.subscribe(group_topic_of("g"))
                assert await asyncio.to_thread(ear.poll, round(WAIT_S * 1000))
            return hub.cut, [hub.bars(pid) for pid in (os.getpid(), os.getpid() + 1, None)]

    with capture_logs() as logs:
        assert asyncio.run(main()) == (connections, [True, False, False])
    assert cut == [os.getpid()] * cuts
    logged = [one["of_pid"] for one in logs if one["event"] == "subscriber.cut"]
    assert logged == [1] * connections


def test_who_subscribes_is_heard_and_counted_while_it_does(tmp_path):
    """One that has left its topics may follow as many again."""

    async def main():
        async with bound(tmp_path) as hub:
            async with listening(tmp_path, "g") as heard:
                await heard()
                counted = len(hub._subscriptions)
            async with asyncio.timeout(WAIT_S):
                while len(hub._subscriptions):  # noqa: ASYNC110 - no event says so
                    await asyncio.sleep(0)
            is_stranger = hub.heard.is_meant(os.getpid(), Whom.STRANGERS, 0.0, is_sending=True)
            return counted, is_stranger

    assert asyncio.run(main()) == (1, False)
