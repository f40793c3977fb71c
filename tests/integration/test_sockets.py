"""The pump over real sockets: order kept, nothing lost, nobody held up."""

import asyncio
import contextlib
import os
import signal
import socket as plain
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import zmq

from cmdc_runtime.wire.frames import FRAME_BYTES_MAX, HEADER
from cmdc_runtime.wire.sockets import (
    MESSAGES_PER_WAKE_MAX,
    OUTBOX_CALM,
    OUTBOX_MESSAGES_MAX,
    Pump,
    Role,
    open_socket,
)

MANY = 100_000
PATIENCE_S = 60.0
PIPE = 10
"""Messages that a pipe holds at each end where a test fills it."""
END = b"end-"
CROWD = 500
"""Who comes at once to a daemon that has just begun."""
LISTENER = """
import signal, sys, zmq
from cmdc_runtime.wire.sockets import Role, open_socket
socket = open_socket(zmq.Context(), Role(sys.argv[1]))
socket.bind(sys.argv[2])
print("bound", flush=True)
signal.pause()
"""
numbers = count()


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


@pytest.fixture(params=["inproc", "ipc"])
def address(request, tmp_path):
    return f"inproc://{next(numbers)}" if request.param == "inproc" else f"ipc://{tmp_path}/socket"


class End:
    """One pump and what it was given; ``until`` waits for so many messages."""

    def __init__(self, socket, handle=None):
        self.socket = socket
        self.got = []
        self.wanted = 0
        self.enough = asyncio.Event()
        self.handle = handle
        self.pump = Pump(socket, self.take)

    def take(self, message):
        self.got.append(message)
        if len(self.got) >= self.wanted:
            self.enough.set()
        if self.handle is not None:
            self.handle(message)

    async def until(self, wanted):
        self.wanted = wanted
        if len(self.got) < wanted:
            self.enough.clear()
            await self.enough.wait()


def opened(context, role, identity=None, pipe=None):
    socket = open_socket(context, role, identity=identity)
    if pipe is not None:
        socket.set_hwm(pipe)
    return socket


@contextlib.asynccontextmanager
async def connected(context, address, *identities, pipe=None, handle=None):
    """Yield a started ROUTER that knows its DEALERs, which are not started yet."""
    router = End(opened(context, Role.WORKERS, pipe=pipe), handle)
    router.socket.bind(address)
    router.pump.start()
    dealers = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            for identity in identities:
                dealers.append(End(opened(context, Role.WORKER, identity, pipe)))
                dealers[-1].socket.connect(address)
                # IMMEDIATE refuses a message before the handshake.
                await come(lambda: dealers[-1].socket.poll(0, zmq.POLLOUT))
                dealers[-1].socket.send(b"hello")
            await router.until(len(identities))
            router.got.clear()
            yield router, *dealers
    finally:
        for end in (router, *dealers):
            end.pump.stop()


async def come(condition):
    """Return when the condition holds."""
    while not condition():  # noqa: ASYNC110 - of a socket, which notifies nobody
        await asyncio.sleep(0)


def fill(pump, peer, waiting=100):
    """Send to a peer that does not read until the pipe is full, and the kernel's buffer too."""
    while pump.waiting(peer) < waiting:
        assert pump.send([b"x" * 10_000], peer=peer)


def retries(pump):
    """Return the timers that retry: those to come, and one that is due and about to be called."""
    loop = asyncio.get_running_loop()
    timers = [
        one for one in (*loop._scheduled, *loop._ready) if isinstance(one, asyncio.TimerHandle)
    ]
    return [timer for timer in timers if timer._callback == pump._flush]


def number(message):
    return int(message[-1])


async def send_all(pump, how_many, peer=b""):
    """Send numbers, waiting for room as a producer should."""
    for at in range(how_many):
        assert pump.send([b"%d" % at], peer=peer)
        if at % MESSAGES_PER_WAKE_MAX == 0:
            await pump.room()
            await asyncio.sleep(0)


def test_messages_arrive_in_order(context, address):
    """Both ways, with the identity of the peer in front on the router's side."""

    async def exchange():
        async with connected(context, address, b"w-1") as (router, dealer):
            dealer.pump.start()
            for at in range(1_000):
                assert router.pump.send([b"head", b"%d" % at], peer=b"w-1")
                assert dealer.pump.send([b"%d" % at])
            await router.until(1_000)
            await dealer.until(1_000)
            return router.got, dealer.got

    up, down = asyncio.run(exchange())

    assert up == [[b"w-1", b"%d" % at] for at in range(1_000)]
    assert down == [[b"head", b"%d" % at] for at in range(1_000)]


@pytest.mark.slow
def test_a_flood_both_ways_past_a_slow_reader_loses_nothing(context, tmp_path):
    """100,000 each way, more than all pipes hold; one side reads late and in small bites."""

    async def flood():
        async with connected(context, f"ipc://{tmp_path}/s", b"w-1") as (router, dealer):
            sending = asyncio.create_task(send_all(router.pump, MANY, b"w-1"))
            await come(lambda: router.pump.waiting(b"w-1") > OUTBOX_CALM)
            assert not sending.done()
            dealer.pump.start()
            await send_all(dealer.pump, MANY)
            await sending
            await router.until(MANY)
            await dealer.until(MANY)
            return [*map(number, router.got)], [*map(number, dealer.got)]

    up, down = asyncio.run(flood())

    assert up == down == [*range(MANY)]


def test_what_waits_at_the_high_water_mark_arrives(context, address):
    """The pipes are full, the outbox fills, and a reader that comes back gets all in order."""

    async def fill():
        async with connected(context, address, b"w-1", pipe=PIPE) as (router, dealer):
            sent = 0
            while router.pump.waiting(b"w-1") < 500:
                assert router.pump.send([b"%d" % sent, b"x" * 10_000], peer=b"w-1")
                sent += 1
            dealer.pump.start()
            await dealer.until(sent)
            return sent, [int(message[0]) for message in dealer.got], router.pump.waiting(b"w-1")

    sent, got, left = asyncio.run(fill())

    assert got == [*range(sent)]
    assert left == 0


def test_an_outbox_is_bounded(context, address):
    """The message that would be one too many is refused, and none before it is lost."""

    async def fill():
        async with connected(context, address, b"w-1", pipe=1_000) as (router, dealer):
            sent = 0
            while router.pump.send([b"%d" % sent], peer=b"w-1"):
                sent += 1
            full = router.pump.waiting(b"w-1")
            dealer.pump.start()
            await dealer.until(sent)
            return sent, full, [*map(number, dealer.got)]

    sent, full, got = asyncio.run(fill())

    assert full == OUTBOX_MESSAGES_MAX
    assert got == [*range(sent)]


def test_a_producer_waits_for_room(context, address):
    """Beyond ``OUTBOX_CALM`` messages it waits; when the peer reads again it goes on."""

    async def produce():
        async with connected(context, address, b"w-1", pipe=PIPE) as (router, dealer):
            await asyncio.wait_for(router.pump.room(), 1)
            fill(router.pump, b"w-1", OUTBOX_CALM + 100)
            waiting = asyncio.create_task(router.pump.room())
            await asyncio.sleep(0)
            was_done = waiting.done()
            dealer.pump.start()
            await waiting
            return was_done, router.pump.waiting(b"w-1")

    was_done, left = asyncio.run(produce())

    assert (was_done, left <= OUTBOX_CALM) == (False, True)


def test_a_stuck_peer_holds_up_no_other(context, address):
    """While one pipe is full, another peer's messages pass at once."""

    async def exchange():
        async with connected(context, address, b"stuck", b"fine", pipe=PIPE) as ends:
            router, _, fine = ends
            fill(router.pump, b"stuck")
            fine.pump.start()
            await send_all(router.pump, 1_000, b"fine")
            await fine.until(1_000)
            return [*map(number, fine.got)], router.pump.waiting(b"stuck")

    got, stuck = asyncio.run(exchange())

    assert got == [*range(1_000)]
    assert stuck > 0


def test_full_pipes_share_one_timer(context, address):
    """However often a peer falls behind while another is stuck, one retry is under way."""

    async def exchange():
        async with connected(context, address, b"stuck", b"slow", pipe=PIPE) as ends:
            router, _, slow = ends
            fill(router.pump, b"stuck")
            slow.pump.start()
            for _ in range(20):
                fill(router.pump, b"slow", 1)
                await come(lambda: not router.pump.waiting(b"slow"))
            return len(retries(router.pump))

    assert asyncio.run(exchange()) == 1


def test_an_unknown_peer_is_reported(context, address):
    """A router knows who is connected, and says so of everybody else."""

    async def ask():
        async with connected(context, address, b"w-1") as (router, dealer):
            dealer.pump.start()
            known = [router.pump.knows(peer, [b"probe"]) for peer in (b"w-1", b"w-2")]
            sent = [router.pump.send([b"x"], peer=peer) for peer in (b"w-1", b"w-2")]
            await dealer.until(2)
            return known, sent, dealer.got

    known, sent, got = asyncio.run(ask())

    assert known == sent == [True, False]
    assert got == [[b"probe"], [b"x"]]


def test_what_waits_for_a_peer_that_is_gone_is_dropped(context, tmp_path):
    """Nobody will ever read it, so it takes no memory, and a producer goes on."""

    async def leave():
        async with connected(context, f"ipc://{tmp_path}/s", b"w-1", pipe=PIPE) as ends:
            router, dealer = ends
            fill(router.pump, b"w-1", OUTBOX_CALM + 100)
            dealer.pump.start()
            dealer.pump.stop()
            await router.pump.room()
            await come(lambda: not router.pump.waiting(b"w-1"))
            return router.pump.send([b"x"], peer=b"w-1")

    assert asyncio.run(leave()) is False


def test_a_handler_that_raises_does_not_end_the_pump(context, address):
    """The loop hears of each failure, and the next message is taken."""
    reported = []

    def fail(message):
        if number(message) % 2:
            raise ValueError(message[-1].decode())

    async def exchange():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _loop, context: reported.append(str(context["exception"]))
        )
        async with connected(context, address, b"w-1") as (router, dealer):
            router.handle = fail
            dealer.pump.start()
            await send_all(dealer.pump, 10)
            await router.until(10)
            return [*map(number, router.got)]

    assert asyncio.run(exchange()) == [*range(10)]
    assert reported == ["1", "3", "5", "7", "9"]


def test_a_handler_may_stop_the_pump(context, address):
    """No message is taken after that, and what it raises then is reported like any other."""
    reported = []

    async def exchange():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
        async with connected(context, address, b"w-1") as (router, dealer):
            dealer.pump.start()
            router.handle = lambda _message: [router.pump.stop(), 1 / 0]
            await send_all(dealer.pump, 10)
            await router.until(1)
            await asyncio.sleep(0)
            return router.got, router.pump.send([b"x"], peer=b"w-1")

    got, sent = asyncio.run(exchange())

    assert [type(error) for error in reported] == [ZeroDivisionError]
    assert (len(got), sent) == (1, False)


def test_one_wake_up_takes_a_bounded_bite(context, address):
    """Other tasks have their turn between two bites of a flood."""
    turns = []

    async def exchange():
        async with connected(context, address, b"w-1") as (router, dealer):
            for at in range(4 * MESSAGES_PER_WAKE_MAX):
                router.pump.send([b"%d" % at], peer=b"w-1")
            await come(lambda: dealer.socket.poll(0, zmq.POLLIN))
            dealer.pump.start()
            while len(dealer.got) < 4 * MESSAGES_PER_WAKE_MAX:
                await asyncio.sleep(0)
                turns.append(len(dealer.got))

    asyncio.run(exchange())

    assert max(b - a for a, b in zip([0, *turns], turns, strict=False)) <= MESSAGES_PER_WAKE_MAX


def test_a_pump_that_stopped_is_quiet(context, address):
    """It sends nothing, keeps nothing, holds nobody up, and lets go of the loop."""

    async def stop():
        async with connected(context, address, b"w-1", pipe=PIPE) as (router, _):
            fill(router.pump, b"w-1", OUTBOX_CALM + 100)
            router.pump.stop()
            router.pump.drain()
            await router.pump.room()
            await come(lambda: not retries(router.pump))
            return router.pump.send([b"x"], peer=b"w-1"), router.pump.waiting(b"w-1")

    assert asyncio.run(stop()) == (False, 0)


def test_a_subscriber_gets_its_topics_in_order(context, address):
    """An XPUB's pump sees each subscription and publishes to it."""

    async def publish():
        events, reader = End(opened(context, Role.EVENTS)), End(opened(context, Role.SUBSCRIBER))
        try:
            async with asyncio.timeout(PATIENCE_S):
                events.socket.bind(address)
                reader.socket.connect(address)
                reader.socket.subscribe(b"s1\0")
                events.pump.start()
                reader.pump.start()
                await events.until(1)
                for at in range(100):
                    events.pump.send([b"s1\0", b"%d" % at])
                    events.pump.send([b"s10\0", b"no"])
                await reader.until(100)
        finally:
            events.pump.stop()
            reader.pump.stop()
        return events.got, reader.got

    seen, got = asyncio.run(publish())

    assert seen == [[b"\x01s1\0"]]
    assert got == [[b"s1\0", b"%d" % at] for at in range(100)]


def test_router_that_is_closed_knows_nobody(context, address):
    """Who still asks while the daemon ends is no bug."""

    async def main():
        pump = Pump(open_socket(context, Role.WORKERS), lambda _message: None)
        pump.start()
        pump.stop()
        return pump.knows(b"peer", (b"probe",))

    assert asyncio.run(main()) is False


async def followed(context, address, follow):
    """Return what an XPUB hears of two subscribers until ``END``, which the second follows last."""
    events = End(opened(context, Role.EVENTS))
    followers = [opened(context, Role.SUBSCRIBER) for _ in range(2)]
    try:
        async with asyncio.timeout(PATIENCE_S):
            events.socket.bind(address)
            for follower in followers:
                follower.connect(address)
            await follow(events, *followers)
            events.pump.start()
            ends = count()

            def has_ended():
                followers[1].subscribe(END + b"%d" % next(ends))
                return events.got and END in events.got[-1][0]

            await come(has_ended)
    finally:
        events.pump.stop()
        for follower in followers:
            follower.close()
    return [message[0][1:] for message in events.got if END not in message[0]]


def test_second_follower_of_a_topic_is_seen_as_the_first_is(context, address):
    """Each is to be welcomed: nobody waits for an event to learn that its connection is there."""

    async def follow(events, first, second):
        events.pump.start()
        first.subscribe(b"s1\0")
        await events.until(1)
        second.subscribe(b"s1\0")

    assert asyncio.run(followed(context, address, follow)) == [b"s1\0"] * 2


def test_a_subscriber_of_thousands_of_topics_loses_none(context, address):
    """It follows them while the daemon has other things to do than to read."""
    topics = [b"s-%d\0" % at for at in range(5_000)]

    async def follow(_events, _first, second):
        for topic in topics:
            second.subscribe(topic)

    assert asyncio.run(followed(context, address, follow)) == topics


@pytest.mark.parametrize("role", [Role.CLIENT, Role.WORKER])
def test_nothing_is_said_to_a_daemon_that_is_not_there(context, tmp_path, role):
    """It would wait where nobody can take it back, for whoever comes."""
    with opened(context, role) as speaker:
        speaker.connect(f"ipc://{tmp_path}/s")

        assert not speaker.poll(0, zmq.POLLOUT)


@pytest.mark.parametrize(
    ("near", "far"), [(Role.CONTROL, Role.CLIENT), (Role.WORKERS, Role.WORKER)]
)
def test_the_largest_frame_passes_both_ways(context, tmp_path, near, far):
    """With its header: apart to the daemon, and as one part from it."""
    frame = bytes(FRAME_BYTES_MAX)
    with opened(context, near) as router, opened(context, far, b"d") as dealer:
        router.bind(f"ipc://{tmp_path}/s")
        dealer.connect(f"ipc://{tmp_path}/s")
        assert dealer.poll(PATIENCE_S * 1_000, zmq.POLLOUT)
        dealer.send_multipart([HEADER, frame])
        assert router.poll(PATIENCE_S * 1_000)
        assert router.recv_multipart() == [b"d", HEADER, frame]
        router.send_multipart([b"d", HEADER + frame])

        assert dealer.poll(PATIENCE_S * 1_000)
        assert dealer.recv() == HEADER + frame


def test_a_client_that_is_back_is_heard_before_its_end_was_seen(context, address):
    """Under the id that it had: the newer connection counts."""
    with opened(context, Role.CONTROL) as router:
        router.bind(address)
        with opened(context, Role.CLIENT, b"c") as cut, opened(context, Role.CLIENT, b"c") as back:
            for client in (cut, back):
                client.connect(address)
                assert client.poll(PATIENCE_S * 1_000, zmq.POLLOUT)
                client.send(b"hello")
                assert router.recv_multipart() == [b"c", b"hello"]
            router.send_multipart([b"c", b"answer"])

            assert back.poll(PATIENCE_S * 1_000)
            assert not cut.poll(0)


def test_a_subscriber_is_asked_about_before_it_is_let_in(context, tmp_path):
    """ZeroMQ asks who may connect, where the socket belongs to a domain."""
    with (
        opened(context, Role.ADMISSION) as asked,
        opened(context, Role.EVENTS) as events,
        opened(context, Role.SUBSCRIBER) as reader,
    ):
        asked.bind("inproc://zeromq.zap.01")
        events.bind(f"ipc://{tmp_path}/s")
        reader.connect(f"ipc://{tmp_path}/s")

        assert asked.poll(PATIENCE_S * 1_000)
        assert b"events" in asked.recv_multipart()


@pytest.mark.process
@pytest.mark.parametrize("role", [Role.CONTROL, Role.WORKERS, Role.EVENTS])
def test_a_crowd_finds_room_at_a_daemon_that_accepts_nobody_yet(role, tmp_path):
    """Whoever finds the queue full comes again a second later; the kernel may allow fewer."""
    room = min(CROWD, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    address = tmp_path / "s"
    command = [sys.executable, "-c", LISTENER, role, f"ipc://{address}"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as listener,
        contextlib.ExitStack() as crowd,
    ):
        assert listener.stdout.readline() == b"bound\n"
        listener.send_signal(signal.SIGSTOP)
        crowd.callback(listener.kill)
        os.waitid(os.P_PID, listener.pid, os.WSTOPPED | os.WNOWAIT)
        for _ in range(room):
            one = crowd.enter_context(plain.socket(plain.AF_UNIX, plain.SOCK_STREAM))
            one.setblocking(False)
            one.connect(str(address))  # BlockingIOError: there is no room
