"""What waits for room in a pipe: when it is tried again, what is taken back, who is notified."""

import asyncio
import os

import pytest
import zmq

from cmdc_runtime.wire.sockets import (
    OUTBOX_CALM,
    RETRY_SEND_S,
    RETRY_SEND_S_MAX,
    Pump,
    Role,
    pid_of_address,
)
from tests.integration.test_sockets import (
    PATIENCE_S,
    PIPE,
    End,
    come,
    connected,
    fill,
    opened,
    retries,
)

LONG_S = 3_600.0
TRIES = 5


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


@pytest.fixture
def address(tmp_path):
    return f"ipc://{tmp_path}/socket"


def played(work):
    """Return what a coroutine function returns, in time."""

    async def main():
        async with asyncio.timeout(PATIENCE_S):
            return await work()

    return asyncio.run(main())


def in_vain(pump):
    """Have what waits tried again; return the least and the most time until the next try."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    pump._flush()
    (timer,) = retries(pump)
    return timer.when() - loop.time(), timer.when() - before


def test_a_try_in_vain_doubles_the_pause(context):
    """Up to a bound: hundreds who wait for a daemon must leave it the processors."""

    async def main():
        pump = Pump(opened(context, Role.WORKER), lambda _message: None)
        pump.start()
        try:
            pump.send([b"to whoever comes"])
            return [in_vain(pump) for _ in range(9)]
        finally:
            pump.stop()

    pauses = [min(RETRY_SEND_S * 2**number, RETRY_SEND_S_MAX) for number in range(1, 10)]

    assert all(
        least <= pause <= most for (least, most), pause in zip(played(main), pauses, strict=True)
    )


@pytest.mark.parametrize("event", ["sent", "sent in vain", "refused", "received", "woken"])
def test_whatever_moves_brings_the_next_try_forward(context, address, event):
    """It may have swallowed the word that there is room; a try that is due anyway stays."""

    async def main():
        async with connected(context, address, b"stuck", b"other", pipe=PIPE) as ends:
            router, _, other = ends
            fill(router.pump, b"stuck")
            found = []
            for due_s in (LONG_S, 0.0):
                router.pump._retry_in(due_s)
                (timer,) = retries(router.pump)
                if event == "sent":
                    router.pump.send([b"x"], peer=b"other")
                elif event == "sent in vain":
                    while not router.pump.waiting(b"other"):
                        router.pump._retry_in(due_s)
                        (timer,) = retries(router.pump)
                        router.pump.send([b"x" * 10_000], peer=b"other")
                elif event == "refused":
                    router.pump.send([b"x"], peer=b"nobody")
                elif event == "received":
                    other.socket.send(b"x")
                    assert router.socket.poll(PATIENCE_S * 1_000)  # no turn of the loop
                    router.pump.drain()
                else:
                    router.pump._wake()
                now_s = asyncio.get_running_loop().time()
                found.append((timer.cancelled(), router.pump._retry.when() <= now_s + RETRY_SEND_S))
                router.pump._outboxes.pop(b"other", None)
            return found

    assert played(main) == [(True, True), (False, True)]


def test_nothing_is_tried_again_where_nothing_waits(context, address):
    """Neither before nor after: an idle process does not wake."""
    problems = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda *given: problems.append(given))
        async with connected(context, address, b"w-1", pipe=PIPE) as (router, dealer):
            dealer.pump.start()
            router.pump.send([b"x"], peer=b"w-1")
            await dealer.until(1)
            before = retries(router.pump)
            fill(router.pump, b"w-1")
            await come(lambda: not router.pump.waiting(b"w-1"))
            router.pump._flush()  # a timer that is just going off is in no list
            return before + retries(router.pump)

    assert played(main) == problems == []


def test_one_look_follows_however_many_sends(context, address):
    """Each may have swallowed the word that there is something to read; one look reads it all."""

    async def main():
        async with connected(context, address, b"w-1") as (router, _):
            await asyncio.sleep(0)
            for _ in range(10):
                router.pump.send([b"x"], peer=b"w-1")
            ready = asyncio.get_running_loop()._ready
            return [one._callback for one in ready].count(router.pump._look)

    assert played(main) == 1


def test_what_is_taken_back_is_never_sent(context, address):
    """A worker that has no daemon keeps its words, and some of them are old when there is one."""

    async def main():
        dealer, router = opened(context, Role.WORKER, b"w"), End(opened(context, Role.WORKERS))
        pump = Pump(dealer, lambda _message: None)
        pump.start()
        try:
            pump.withdraw(lambda _parts: True)
            kept = [pump.send([b"%d" % number]) for number in range(6)]
            pump.withdraw(lambda parts: int(parts[0]) % 2 == 1)
            waiting = pump.waiting()
            router.socket.bind(address)
            router.pump.start()
            dealer.connect(address)
            await router.until(3)
            return kept, waiting, [message[-1] for message in router.got]
        finally:
            pump.stop()
            router.pump.stop()

    assert played(main) == ([True] * 6, 3, [b"0", b"2", b"4"])


def test_a_producer_goes_on_at_the_bound_itself(context):
    """So many may wait; one more, and it waits until one has gone, whoever that is from."""

    async def main():
        pump = Pump(opened(context, Role.WORKER), lambda _message: None)
        pump.start()
        try:
            for number in range(OUTBOX_CALM + 1):
                calm = pump._is_calm.is_set()
                pump.send([b"%d" % number])
            found = [calm, pump._is_calm.is_set()]
            pump._flush()
            found.append(pump._is_calm.is_set())
            pump.withdraw(lambda parts: parts[0] == b"0")
            pump._flush()
            return [*found, pump._is_calm.is_set()]
        finally:
            pump.stop()

    assert played(main) == [True, False, False, True]


def test_a_producer_waits_for_the_slowest(context, address):
    """One peer that is far behind is enough."""

    async def main():
        async with connected(context, address, b"far", b"near", pipe=PIPE) as (router, *_):
            fill(router.pump, b"far", 2 * OUTBOX_CALM)
            fill(router.pump, b"near")
            router.pump._flush()
            return router.pump._is_calm.is_set()

    assert played(main) is False


def test_what_cannot_be_sent_ends_no_tries(context, address):
    """A bug of one sender is reported again and again, and what waits for others is not lost."""
    reported = []

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
        async with connected(context, address, b"w-1", pipe=PIPE) as (router, dealer):
            fill(router.pump, b"w-1", 1)
            router.pump.send(["no bytes"], peer=b"w-1")
            dealer.pump.start()
            await come(lambda: len(reported) == TRIES)

    played(main)

    assert [type(one) for one in reported] == [TypeError] * TRIES


@pytest.mark.parametrize(("asks", "scheme"), [(True, "ipc"), (True, "inproc"), (False, "ipc")])
def test_a_message_has_the_process_of_its_sender(context, tmp_path, asks, scheme):
    """Where that was asked for, and the kernel knows it; the message is whole all the same."""
    address = f"{scheme}://{tmp_path}/socket"

    async def main():
        got = asyncio.get_running_loop().create_future()
        options = {"asks_pid": True} if asks else {}
        router, dealer = opened(context, Role.CONTROL), opened(context, Role.CLIENT, b"c")
        pump = Pump(router, lambda message: got.set_result((message, pump.sender_pid)), **options)
        try:
            router.bind(address)
            pump.start()
            dealer.connect(address)
            assert await asyncio.to_thread(dealer.poll, PATIENCE_S * 1_000, zmq.POLLOUT)
            dealer.send_multipart([b"one", b"two"])
            return await got
        finally:
            pump.stop()
            dealer.close()

    pid = os.getpid() if asks and scheme == "ipc" else None

    assert played(main) == ([b"c", b"one", b"two"], pid)


@pytest.mark.parametrize(
    ("address", "pid"),
    [
        ("localhost:0:1000:4711", 4711),
        ("localhost:0:1000:x", None),
        ("localhost", None),
        ("127.0.0.1:4711", None),
        ("", None),
    ],
)
def test_a_process_is_known_by_the_kernels_word_alone(address, pid):
    """A port of another machine is no process."""
    assert pid_of_address(address) == pid


def test_a_pump_that_stopped_is_asked_nothing_more(context):
    """The descriptor may be that of another socket by then, and no timer holds it."""

    async def main():
        pump = Pump(opened(context, Role.WORKER), lambda _message: None)
        pump.start()
        pump.send([b"to nobody"])
        descriptor, (timer,) = pump._fd, retries(pump)
        pump.stop()
        return asyncio.get_running_loop().remove_reader(descriptor), timer.cancelled()

    assert played(main) == (False, True)
