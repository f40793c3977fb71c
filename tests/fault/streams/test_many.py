"""Many sessions, many streams, and subscribers of which one does not read."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.sockets import OPTIONS, Role
from tests.fault.streams.ledger import Log
from tests.fault.streams.wire import Faults

pytestmark = [pytest.mark.fault, pytest.mark.slow]

WAIT_S = 60.0
OTHERS = 50
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
        found.append(stream.get(60.0).index)
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


@pytest.mark.stream_case("S03")
def test_stopped_subscriber_holds_up_nobody(station):
    """Fifty others get every event as it comes; the stopped one gets all when it goes on."""
    station.add("s1", events_max=100_000)
    count = 400

    async def main():
        clients = [cmdc.AsyncClient(station.directory) for _ in range(OTHERS)]
        streams = [await client.subscribe("s1") for client in clients]

        async def read(stream):
            return [(await stream.get(WAIT_S)).index for _ in range(count)]

        async def play():
            started_s = time.monotonic()
            reads = asyncio.gather(*map(read, streams))
            for _ in range(count):
                await asyncio.to_thread(station.publish, ["s1"], text="x" * 1_000)
            return await reads, time.monotonic() - started_s

        alone, alone_s = await play()
        process = await asyncio.to_thread(stalled, station, "s1", 2 * count)
        try:
            beside, beside_s = await play()
        finally:
            process.send_signal(signal.SIGCONT)
        out, _ = await asyncio.to_thread(process.communicate, timeout=WAIT_S)
        for client in clients:
            await client.close()
        return alone, alone_s, beside, beside_s, out

    alone, alone_s, beside, beside_s, out = asyncio.run(main())

    assert alone == [[*range(1, count + 1)]] * OTHERS
    assert beside == [[*range(count + 1, 2 * count + 1)]] * OTHERS
    assert beside_s < 2 * alone_s + 1.0
    assert out == f"True {count + 1}\n"


@pytest.mark.stream_case("S03")
@pytest.mark.timeout(300)
def test_stopped_subscribers_cost_bounded_memory(tmp_path_factory):
    """A publisher keeps no more for those that do not read than its socket's limit says."""
    kept = OPTIONS[Role.EVENTS][zmq.SNDHWM]
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
        process.stdin.write(f"{3 * kept}\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == 3 * kept
        grown = psutil.Process(process.pid).memory_info().rss - before
    finally:
        for one in (*stopped, process):
            os.kill(one.pid, signal.SIGKILL)
            one.wait()
            one.stdout.close()
        process.stdin.close()

    assert grown < kept * BODY_CHARS + SLACK_BYTES, f"{grown} bytes"
