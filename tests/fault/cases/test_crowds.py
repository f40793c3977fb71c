"""Clients by the hundred that come, wait and go: the daemon stays as it was, and nothing is lost.

``FAULT_FULL=1`` plays the crowds in full; what a build machine plays is smaller and no different.
"""

import asyncio
import contextlib
import functools
import itertools
import os
import random
import subprocess
import sys

import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.pages import ANSWER_KEPT_S
from cmdc_runtime.testing import Text
from cmdc_runtime.wire.frames import topic_of
from supervisor.api.request_router import FORGET_S
from tests.fault.audit import SETTLE_S
from tests.fault.cases.test_hoarders import Peak, cut_by
from tests.fault.cases.test_long import long_session
from tests.fault.test_leaks import at_rest, settled

IS_FULL = "FAULT_FULL" in os.environ
LONG_S = 7_200.0 if IS_FULL else 300.0
pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(LONG_S),
]

SUBSCRIBERS = 10_000 if IS_FULL else 500
AT_ONCE = 50
WARM = 100
WAITS = 100_000 if IS_FULL else 4_000
WAITS_AT_ONCE = 100
WAITING_MAX = 500
"""For one answer: a session refuses more than 1,000 callers that wait, given up or not."""
SHORT_S = 0.002
"""A wait that is over before anything has come, or just then."""
ANSWERS = 20 if IS_FULL else 5
"""Of 7.2 MiB each: a stream of 144 MiB, or of 36 MiB. Each has a batch of its own."""
READERS = 4
REPLAYS_GROWTH_MAX = 160 * 2**20
"""Of the daemon while so many read all of it: each has a batch, its bytes and a page at a time."""
READ_MIN = 3
"""Replays of each reader before it is killed: it is amid the next one."""
TURN_S = 120.0
READER = """
import sys
import cmdc_runtime as cmdc
with cmdc.Client(sys.argv[1]) as client:
    while True:
        with client.subscribe(sys.argv[2], since=0) as stream:
            while stream.get(timeout=120.0).index < int(sys.argv[3]):
                pass
        print("read", flush=True)
"""


# --- subscribers ----------------------------------------------------------------------------------


def come_and_go(place, session, count):
    """Have so many subscribers connect, hear that they are welcome, and go."""
    left = count
    while left > 0:
        with contextlib.ExitStack() as stack:
            context = stack.enter_context(zmq.Context())
            for _ in range(min(AT_ONCE, left)):
                one = stack.enter_context(context.socket(zmq.SUB))
                one.linger, one.rcvtimeo = 0, round(TURN_S * 1000)
                one.subscribe(topic_of(session.id))
                one.connect(f"ipc://{place.address / 'events.sock'}")
                one.recv_multipart()
        left -= AT_ONCE


@pytest.mark.fault_case("F45")
def test_subscribers_that_come_and_go_leave_nothing(place, bystander, poll):
    """Memory, descriptors and threads of an idle daemon are as they were, and nobody was cut."""
    come_and_go(place, bystander, WARM)
    before, cut = at_rest(place, poll, 1), cut_by(place)
    come_and_go(place, bystander, SUBSCRIBERS)

    assert settled(place, poll, before) == []
    assert cut_by(place) == cut


# --- waits that are given up ----------------------------------------------------------------------


class Storm:
    """Waits of one session that are cancelled or time out while its events and answers come."""

    def __init__(self, client, session_id):
        self.client, self.session_id = client, session_id
        self.chance = random.Random(session_id)
        self.heard, self.replies, self.given_up, self.is_over = [], set(), 0, False
        self.waiting = 0

    async def wait_once(self, stream):
        """Wait for an event or an answer, and keep what has come."""
        timeout = self.chance.choice((0.0, SHORT_S, None))
        if self.chance.random() < 0.8:
            self.heard.append(await stream.get(timeout=timeout))
        else:
            self.waiting += 1
            self.replies.add(await self.client.collect_reply(self.session_id, timeout=timeout))

    async def give_up(self, stream):
        """Begin so many waits, and cancel those that are still there."""
        tasks = [asyncio.create_task(self.wait_once(stream)) for _ in range(WAITS_AT_ONCE)]
        await asyncio.sleep(self.chance.choice((0.0, SHORT_S)))  # tidy: the storm's own pace
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        wrong = [
            one
            for one in ends
            if not isinstance(
                one, asyncio.CancelledError | TimeoutError | cmdc.CollectTimeout | None
            )
        ]
        assert wrong == []
        self.given_up += sum(one is not None for one in ends)

    async def rage(self, stream):
        """Give up waits until all are given up, and answers have come to the end."""
        while self.given_up < WAITS or not self.is_over:
            if self.waiting > WAITING_MAX:
                await asyncio.sleep(SHORT_S)  # tidy: the storm's own pace
                continue
            await self.give_up(stream)

    async def ask(self):
        """Have prompts answered one after the other, and return the answers."""
        said = []
        while self.given_up < WAITS:
            said.append((await self.client.run(self.session_id, "on", timeout=TURN_S)).text)
            self.waiting = 0
        self.is_over = True
        return said

    async def play(self):
        """Return the answers in their order; ``heard`` has every event then."""
        async with await self.client.subscribe(self.session_id, since=0) as stream:
            # Before the first prompt there is no end of a cycle to wait for, which is an error.
            first = await self.client.run(self.session_id, "on", timeout=TURN_S)
            _, said = await asyncio.gather(self.rage(stream), self.ask())
            last = await self.client.last_index(self.session_id)
            while not self.heard or max(one.index for one in self.heard) < last:
                self.heard.append(await stream.get(timeout=TURN_S))
        return [first.text, *said]


def answers_of(name):
    """Yield what one session's model says, each answer once."""
    return (Text(f"{name} {number}", chunk_chars=1) for number in itertools.count())


@pytest.mark.fault_case("F48")
def test_waits_that_are_given_up_lose_no_event_and_mix_up_no_reply(place, agent, scripted):
    """Two sessions by one client: each has its own answers in order, and each event once."""
    names = ("this", "that")
    steps = [list(itertools.islice(answers_of(name), WAITS)) for name in names]
    sessions = [agent(scripted(*some)) for some in steps]

    async def play():
        async with cmdc.AsyncClient(place.address) as client:
            storms = [Storm(client, one.id) for one in sessions]
            return storms, await asyncio.gather(*(one.play() for one in storms))

    storms, said = asyncio.run(play())
    for name, storm, texts in zip(names, storms, said, strict=True):
        print(f"{name}: {storm.given_up} given up, {len(storm.heard)} events, {len(texts)} answers")
        assert texts == [f"{name} {number}" for number in range(len(texts))]
        assert storm.replies <= set(texts)
        indexes = [one.index for one in storm.heard]
        assert sorted(indexes) == list(range(1, len(indexes) + 1))
        assert "events_lost" not in {one.event.kind for one in storm.heard}


# --- a long replay --------------------------------------------------------------------------------


@contextlib.contextmanager
def readers(place, session):
    """Run processes that read all of a session's stream again and again, until they are killed."""
    command = [sys.executable, "-c", READER, str(place.address), session.id]
    command.append(str(session.last_index()))
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(READERS):
            one = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            found.append(stack.enter_context(one))
            stack.callback(one.kill)
        yield found


@pytest.mark.fault_case("F49")
def test_readers_that_die_amid_long_replays_leave_nothing(place, agent, scripted, bystander, poll):
    """The daemon has a batch or two of each in memory, however long it is; others are served."""
    session = long_session(agent, scripted, ANSWERS)
    before, cut = at_rest(place, poll, sessions=2), cut_by(place)
    with Peak(place.process.pid) as peak, readers(place, session) as found:
        for one in found:
            assert [one.stdout.readline() for _ in range(READ_MIN)] == ["read\n"] * READ_MIN
            assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    print(f"{ANSWERS} answers, {READERS} readers: {peak.grown >> 20} MiB more")
    wait = functools.partial(poll, timeout=ANSWER_KEPT_S + FORGET_S + SETTLE_S)

    assert settled(place, wait, before) == []
    assert peak.grown < REPLAYS_GROWTH_MAX
    assert cut_by(place) == cut
