"""Many sessions, many streams, and subscribers of which one does not read."""

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.wire.sockets import OPTIONS, Role
from tests.fault.streams.ledger import Log
from tests.fault.streams.wire import Faults

pytestmark = [pytest.mark.fault, pytest.mark.slow]

WAIT_S = 60.0
OTHERS = 50
KEPT = OPTIONS[Role.EVENTS][zmq.SNDHWM]
"""Messages that the publisher's socket keeps for one who does not read."""
HEARD = 100
PAIRS = 9
GROWTH_MAX = 2.0
"""Of the latency beside a stopped subscriber, in the median pair: the machine has more to do."""
BODY_CHARS = 20_000
SLACK_BYTES = 48 * 2**20
"""For what a process needs besides: buffers of the kernel's size, the allocator's reserve."""
SUBSCRIBER = """
import sys
import cmdc_runtime as cmdc
with cmdc.Client(sys.argv[1]) as client:
    stream = client.subscribe(sys.argv[2])
    print("ready", flush=True)
    found = []
    while not found or found[-1] < int(sys.argv[3]):
        found.append(stream.get(600.0).index)
    print(found == list(range(found[0], found[-1] + 1)), found[0], flush=True)
"""


def names(count):
    return [f"s{number}" for number in range(count)]


def read_all(stream, wanted):
    """Read a stream until each session has as many events as wanted; each in order."""
    logs = {session_id: Log() for session_id in wanted}
    left = sum(wanted.values())
    while left > 0:
        envelope = stream.get(WAIT_S)
        log = logs[envelope.session_id]
        before = log.last
        log.add(envelope)
        left -= log.last - before
    return logs


@pytest.mark.stream_case("S05")
@pytest.mark.parametrize("count", [1, 999, 1_001, 10_000])
@pytest.mark.timeout(300)
def test_every_session_is_heard(station, count):
    """A stream of all misses none, however many there are."""
    sessions = names(count)
    station.add(*sessions[: count // 2])
    with cmdc.Client(station.directory) as client, client.subscribe_all() as stream:
        station.add(*sessions[count // 2 :])
        station.publish(sessions, 2)
        station.publish(sessions)
        logs = read_all(stream, dict.fromkeys(sessions, 3))

    assert {len(log.events) for log in logs.values()} == {3}


@pytest.mark.stream_case("S05")
@pytest.mark.timeout(300)
def test_every_session_is_heard_over_a_rough_wire(station, wire_of):
    """What is lost of a thousand sessions is asked for, some at a time."""
    sessions = names(1_001)
    station.add(*sessions)
    rough = Faults(lost=0.05, doubled=0.1, delayed=0.3)
    wire = wire_of(station.directory, seed=5, events=rough)
    with cmdc.Client(wire.directory) as client, client.subscribe_all() as stream:
        station.publish(sessions)
        wire.cut()
        station.publish(sessions, 2)
        logs = read_all(stream, dict.fromkeys(sessions, 3))

    assert {len(log.events) for log in logs.values()} == {3}
    assert wire.lost > 0


@pytest.mark.stream_case("S05")
@pytest.mark.timeout(300)
def test_client_has_a_thousand_streams(station, wire_of):
    """Each has its own subscription, also after the connection was cut."""
    sessions = names(1_001)
    station.add(*sessions)
    wire = wire_of(station.directory)

    async def main():
        async with cmdc.AsyncClient(wire.directory) as client:
            streams = [await client.subscribe(one) for one in sessions]
            station.publish(sessions)
            first = [(await one.get(WAIT_S)).index for one in streams]
            wire.cut()
            station.publish(sessions)
            return first, [(await one.get(WAIT_S)).index for one in streams]

    first, second = asyncio.run(main())

    assert (set(first), set(second)) == ({1}, {2})


def stalled(station, session_id, last):
    """Start a subscriber in a process of its own, and stop it when it listens."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUBSCRIBER, str(station.directory), session_id, str(last)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGSTOP)
    return process


def p99(samples):
    """Return what 99 of 100 samples are no more than."""
    return sorted(samples)[round(0.99 * (len(samples) - 1))]


class Crowd:
    """Subscribers of one session, each of whom reads every event as it comes."""

    def __init__(self, station, session_id, streams):
        self.station, self.session_id, self.streams = station, session_id, streams
        self.last = 0

    async def hear(self, count):
        """Publish events one by one; return how long each took to each subscriber, in seconds."""
        first, published_s, took_s = self.last + 1, {}, []
        self.last += count

        async def read(stream):
            for index in range(first, self.last + 1):
                assert (await stream.get(WAIT_S)).index == index
                took_s.append(time.monotonic() - published_s[index])

        reads = asyncio.gather(*map(read, self.streams))
        for index in range(first, self.last + 1):
            published_s[index] = time.monotonic()
            await asyncio.to_thread(self.station.publish, [self.session_id], text="x" * 1_000)
        await reads
        return took_s


@pytest.mark.stream_case("S03")
@pytest.mark.timeout(600)
def test_stopped_subscriber_holds_up_nobody(station):
    """Fifty others hear its session as soon as another one, and it gets all when it goes on.

    It was stopped for so long that the publisher's socket keeps no more for it.
    """
    station.add("s1", "s2", events_max=100_000)
    through = KEPT + HEARD * (PAIRS + 1)

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            clients = [cmdc.AsyncClient(station.directory) for _ in range(OTHERS)]
            clients = [await stack.enter_async_context(one) for one in clients]
            beside, alone = [
                Crowd(station, name, [await one.subscribe(name) for one in clients])
                for name in ("s1", "s2")
            ]
            process = await asyncio.to_thread(stalled, station, "s1", through)
            try:
                await beside.hear(KEPT + HEARD)
                rounds = [
                    (p99(await alone.hear(HEARD)), p99(await beside.hear(HEARD)))
                    for _ in range(PAIRS)
                ]
            finally:
                process.send_signal(signal.SIGCONT)
            out, _ = await asyncio.to_thread(process.communicate, timeout=WAIT_S)
            return rounds, out

    rounds, out = asyncio.run(main())
    growth = [beside_s / alone_s for alone_s, beside_s in rounds]
    print("p99 beside a stopped subscriber over p99 without:", *(f"{one:.2f}" for one in growth))

    assert out == "True 1\n"
    assert statistics.median(growth) < GROWTH_MAX


@pytest.mark.stream_case("S03")
@pytest.mark.timeout(300)
def test_stopped_subscribers_cost_bounded_memory(tmp_path_factory):
    """A publisher keeps no more for those that do not read than its socket's limit says."""
    script = Path(__file__).with_name("publisher.py")
    directory = tmp_path_factory.mktemp("st")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fault.streams.publisher", str(directory), str(BODY_CHARS)],
        cwd=script.parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stopped = []
    try:
        assert json.loads(process.stdout.readline()) == "ready"
        place = type("Place", (), {"directory": directory})
        stopped = [stalled(place, "s1", 10**9) for _ in range(3)]
        before = psutil.Process(process.pid).memory_info().rss
        process.stdin.write(f"{3 * KEPT}\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == 3 * KEPT
        grown = psutil.Process(process.pid).memory_info().rss - before
    finally:
        for one in (*stopped, process):
            os.kill(one.pid, signal.SIGKILL)
            one.wait()
            one.stdout.close()
        process.stdin.close()

    assert grown < KEPT * BODY_CHARS + SLACK_BYTES, f"{grown} bytes"
