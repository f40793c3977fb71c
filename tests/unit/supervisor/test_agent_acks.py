"""What is acked to an agent, and when."""

import asyncio

import pytest

from cmdc_runtime.wire.frames import Written
from supervisor.sessions.agent import Acks
from tests.conformance.clock import VirtualLoop

SESSION = "s-1"
WAIT_S = 10.0
LOOK_S = 0.01


class Stream:
    """The stream of one session, as the hub knows it: what came, and what is published."""

    def __init__(self):
        self.taken = self.published = 0

    def last_index(self, _session_id):
        return self.published

    def taken_index(self, _session_id):
        return self.taken


class FlushBarrier:
    """ZeroMQ passes on what was sent before a mark when a test says so."""

    def __init__(self):
        self.marks, self.passed, self.looks = 0, 0, 0
        self.looked = asyncio.Semaphore(0)

    def mark(self):
        self.marks += 1
        return self.marks

    def pass_on(self, mark):
        self.passed = mark

    def is_flushed(self, mark):
        self.looks += 1
        self.looked.release()
        return self.passed >= mark


class Agent:
    """A stream, and what its agent hears of it."""

    def __init__(self):
        self.stream, self.flush_barrier, self.heard = Stream(), FlushBarrier(), asyncio.Queue()
        self.acks = Acks(self.stream, self.flush_barrier, SESSION, self._hear)

    async def next(self):
        async with asyncio.timeout(WAIT_S):
            return await self.heard.get()

    async def two(self, then):
        """Return what is heard first, how much more until ``then`` is done, and what is then."""
        first = await self.next()
        await self.looks()
        meanwhile = self.heard.qsize()
        then()
        second = await self.next()
        self.acks.close()
        return first, meanwhile, second

    async def looks(self, count=10):
        """Return when the acks have asked so often whether it has passed."""
        async with asyncio.timeout(WAIT_S):
            for _ in range(count):
                await self.flush_barrier.looked.acquire()

    def _hear(self, frame):
        self.heard.put_nowait(frame)
        return True


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Look a hundred times a second."""
    monkeypatch.setattr("supervisor.sessions.agent.ACK_EVENTS_S", LOOK_S)


def test_a_write_is_acked_at_once_and_its_event_when_it_was_passed_on():
    """What was published a moment ago may be with ZeroMQ still, for however long."""

    async def work():
        agent = Agent()
        agent.stream.taken = agent.stream.published = 3
        agent.acks.store(7)
        heard = await agent.two(lambda: agent.flush_barrier.pass_on(agent.flush_barrier.marks))
        return *heard, agent

    first, meanwhile, second, agent = asyncio.run(work())

    assert (first, meanwhile) == (Written(number=7, index=0), 0)
    assert second == Written(number=7, index=3)
    assert (agent.heard.qsize(), agent.flush_barrier.marks) == (0, 1)


def test_an_event_that_waits_for_the_journal_is_not_safe():
    """It is asked after again, and nothing is acked twice."""

    async def work():
        agent = Agent()
        agent.flush_barrier.pass_on(2)
        agent.stream.taken, agent.stream.published = 5, 4
        agent.acks.publish()
        return await agent.two(lambda: setattr(agent.stream, "published", 5))

    assert asyncio.run(work()) == (Written(number=0, index=4), 0, Written(number=0, index=5))


def test_an_event_that_comes_behind_a_mark_waits_for_the_next_one():
    """A mark speaks of what was sent before it."""

    async def work():
        agent = Agent()
        agent.stream.taken = agent.stream.published = 1
        agent.acks.publish()
        await agent.looks()
        agent.stream.taken = agent.stream.published = 2
        agent.flush_barrier.pass_on(1)
        return await agent.two(lambda: agent.flush_barrier.pass_on(2))

    assert asyncio.run(work()) == (Written(number=0, index=1), 0, Written(number=0, index=2))


def in_virtual_time(work):
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(lambda: True)) as runner:
        return runner.run(work())


def test_events_that_never_cease_put_off_no_ack():
    """An agent that publishes all the time would have to keep it all."""

    async def work():
        agent = Agent()
        agent.flush_barrier.pass_on(1)
        agent.stream.taken = agent.stream.published = 1
        for _ in range(12):
            agent.acks.publish()
            await asyncio.sleep(LOOK_S / 4)  # tidy: takes no time
        return agent.heard.get_nowait()

    assert in_virtual_time(work) == Written(number=0, index=1)


def test_a_write_is_acked_in_no_time():
    """An agent keeps all that was not acked."""

    async def work():
        agent = Agent()
        begun_s = asyncio.get_running_loop().time()
        agent.acks.store(1)
        await agent.next()
        return asyncio.get_running_loop().time() - begun_s

    assert in_virtual_time(work) == 0.0


def test_an_agent_that_has_ended_hears_nothing():
    """Neither what was due at once nor what was due in a while."""

    async def work():
        agent = Agent()
        agent.acks.publish()
        agent.acks.store(1)
        agent.acks.close()
        await asyncio.sleep(10 * LOOK_S)  # tidy: takes no time
        return agent.heard.qsize(), agent.flush_barrier.looks

    assert in_virtual_time(work) == (0, 0)


def test_nobody_looks_when_all_is_acked():
    """A session at rest costs nothing."""

    async def work():
        agent = Agent()
        agent.stream.taken = agent.stream.published = 1
        agent.acks.publish()
        await agent.looks(2)
        agent.flush_barrier.pass_on(1)
        heard = await agent.next()
        looks = agent.flush_barrier.looks
        await asyncio.sleep(10 * LOOK_S)  # tidy: takes no time
        return heard, agent.flush_barrier.looks - looks

    assert in_virtual_time(work) == (Written(number=0, index=1), 0)
