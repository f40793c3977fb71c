"""What the routers make of messages: frames in their order, and all of a message or nothing."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time

import pytest
import zmq
from structlog.testing import capture_logs

from cmdc_runtime.errors import AccessDenied, ProtocolError
from cmdc_runtime.events import StreamReset
from cmdc_runtime.wire.codec import decode, encode, encode_events, raw
from cmdc_runtime.wire.frames import (
    HEADER,
    MAGIC,
    Ask,
    Batch,
    FailedReply,
    FromClient,
    FromWorker,
    Started,
    ToClient,
    Write,
    of_router,
)
from cmdc_runtime.wire.sockets import Role
from supervisor.adapters.router import PARTS_MAX, Router
from supervisor.core.authority import SenderEnded

WRITE = encode(Write(records=(), completed=(), number=1))
BATCH = encode(Batch(first=1, count=1, durable=True))
BODY = encode_events([(0, StreamReset())])
OTHER = encode_events([(9, StreamReset())])
STARTED = encode(Started())
WAIT_S = 10.0
ASKING_S = 0.05
"""Much longer than a message takes to arrive."""


@contextlib.asynccontextmanager
async def routed(tmp_path, role=Role.WORKERS, base=FromWorker, **asked):
    """A bound router, a peer of it, and the frames that arrive."""
    got, arrived = [], asyncio.Event()

    def take(_peer, frame, reported):
        got.append((type(frame), *(body for _, body in reported)))
        arrived.set()

    with zmq.Context() as context:
        router = Router(context, role, base, take, **asked)
        peer = context.socket(zmq.DEALER)
        peer.setsockopt(zmq.LINGER, 0)
        try:
            router.bind(f"ipc://{tmp_path}/router")
            peer.connect(f"ipc://{tmp_path}/router")
            yield router, peer, got, arrived
        finally:
            peer.close()
            router.close()


async def heard(tmp_path, *messages):
    """Send messages and one that is surely fine; return all frames before it, and the refusals."""
    async with routed(tmp_path) as (router, peer, got, arrived):
        for message in messages:
            peer.send_multipart(message)
        peer.send_multipart([HEADER, STARTED])
        async with asyncio.timeout(WAIT_S):
            while not got or got[-1] != (Started,):
                arrived.clear()
                await arrived.wait()
        return got[:-1], router.refused


def test_events_come_with_what_they_report(tmp_path):
    """In their order, whatever is before them in the message; on their own they come too."""
    frames, refused = asyncio.run(
        heard(
            tmp_path,
            [HEADER, WRITE, BATCH, BODY, BATCH, OTHER, WRITE],
            [HEADER, BATCH, BODY, BATCH, OTHER],
            [HEADER, STARTED, BATCH, BODY],
        )
    )

    assert frames == [
        (Write, BODY, OTHER),
        (Write,),
        (Batch, BODY, OTHER),
        (Started,),
        (Batch, BODY),
    ]
    assert refused == 0


@pytest.mark.parametrize(
    "message",
    [
        [HEADER, WRITE, b"garbage"],
        [HEADER, WRITE, BATCH, BODY, b"\xc1"],
        [HEADER],
        [MAGIC + b"\x09", WRITE],
        [HEADER, *([WRITE] * PARTS_MAX)],
        [HEADER, WRITE, BATCH, OTHER[:-1]],
        [HEADER, WRITE, BATCH],
    ],
    ids=[
        *("bad second", "bad last", "no frame", "other version", "too many"),
        *("bad events", "no events"),
    ],
)
def test_one_bad_frame_spoils_the_message(tmp_path, message):
    """Nothing of it is taken, and it is counted once."""
    assert asyncio.run(heard(tmp_path, message)) == ([], 1)


def test_a_client_sends_one_frame_and_gets_an_error_otherwise(tmp_path):
    """A client that does more is answered, without an id as nobody knows which was meant."""

    async def reported():
        async with routed(tmp_path, Role.CONTROL, FromClient) as (_, peer, got, _):
            peer.send_multipart([HEADER, b"\xc1"])
            assert await asyncio.to_thread(peer.poll, round(WAIT_S * 1000))
            return got, decode(ToClient, of_router(peer.recv_multipart()))

    got, answer = asyncio.run(reported())

    assert got == []
    assert isinstance(answer, FailedReply)
    assert (answer.id, answer.code) == ("", ProtocolError.code)


def test_asking_for_a_peer_loses_no_message_of_another(tmp_path):
    """The question swallows the wake-up for what has just arrived, so the router looks again."""

    async def ask():
        async with routed(tmp_path) as (router, peer, _got, arrived), asyncio.timeout(WAIT_S):
            peer.send_multipart([HEADER, STARTED])
            await arrived.wait()
            arrived.clear()
            peer.send_multipart([HEADER, STARTED])
            due_s = time.monotonic() + ASKING_S
            while time.monotonic() < due_s:  # the loop has no turn meanwhile
                assert not router.is_connected(b"gone")
            await arrived.wait()
            return True

    assert asyncio.run(ask())


SENDER = """
import os, sys, zmq
with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
    peer.connect(sys.argv[1])
    peer.send_multipart([bytes.fromhex(one) for one in sys.argv[2:]])
print(os.getpid())
"""
"""A process that sends one message and says its pid."""


def test_a_message_shows_whose_process_made_the_connection(tmp_path):
    """As the kernel says, whatever the peer calls itself: own process and another, one by one."""

    async def ask():
        asked = []

        def check(_peer, pid, frame):
            asked.append((pid, type(frame)))

        routing = routed(tmp_path, check=check)
        async with routing as (_, peer, _, arrived), asyncio.timeout(WAIT_S):
            peer.send_multipart([HEADER, STARTED, WRITE])
            await arrived.wait()
            arrived.clear()
            address = f"ipc://{tmp_path}/router"
            command = [sys.executable, "-c", SENDER, address, HEADER.hex(), STARTED.hex()]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True)
            await arrived.wait()
            return asked, [
                (os.getpid(), Started),
                (os.getpid(), Write),
                (int(done.stdout), Started),
            ]

    asked, right = asyncio.run(ask())

    assert asked == right


def test_a_message_with_one_frame_that_may_not_be_is_refused_whole(tmp_path):
    """Nothing of it is taken, and it is counted once; the next one passes."""

    def check(_peer, _pid, frame):
        if isinstance(frame, Write):
            raise AccessDenied("not from you")

    async def ask():
        routing = routed(tmp_path, check=check)
        async with routing as (router, peer, got, arrived), asyncio.timeout(WAIT_S):
            peer.send_multipart([HEADER, STARTED, WRITE])
            peer.send_multipart([HEADER, STARTED])
            await arrived.wait()
            return got, router.refused

    assert asyncio.run(ask()) == ([(Started,)], 1)


def test_who_was_refused_is_reported_to_the_owner(tmp_path):
    """By connection and process, for what is malformed and for what may not be."""

    async def ask():
        reported = []

        def on_refused(_peer, pid, error):
            reported.append((pid, type(error)))

        routing = routed(tmp_path, on_refused=on_refused)
        async with routing as (_, peer, _, arrived), asyncio.timeout(WAIT_S):
            peer.send_multipart([HEADER, b"\xc1"])
            peer.send_multipart([HEADER, STARTED])
            await arrived.wait()
            return reported

    assert asyncio.run(ask()) == [(os.getpid(), ProtocolError)]


@pytest.mark.parametrize(
    ("error", "event", "refused"),
    [
        (AccessDenied("not from you"), "frame.refused", 1),
        (SenderEnded("it has ended"), "frame.late", 0),
    ],
)
def test_frame_of_a_process_that_has_ended_is_kept_apart(tmp_path, error, event, refused):
    """It is not done, as the others are not, and is no sign of somebody who asks too much."""

    def check(_peer, _pid, _frame):
        raise error

    async def reported():
        async with routed(tmp_path, Role.CONTROL, FromClient, check=check) as (
            router,
            peer,
            got,
            _,
        ):
            peer.send_multipart([HEADER, encode(Ask(id="a-1", body=raw(None)))])
            assert await asyncio.to_thread(peer.poll, round(WAIT_S * 1000))
            return got, decode(ToClient, of_router(peer.recv_multipart())), router.refused

    with capture_logs() as logs:
        got, answer, counted = asyncio.run(reported())

    assert (got, answer.code, counted) == ([], AccessDenied.code, refused)
    assert [(one["event"], one["log_level"]) for one in logs] == [
        (event, "warning" if refused else "info")
    ]


def test_a_client_that_may_not_is_answered_by_its_request(tmp_path):
    """The caller gets the error that the check has raised, under the id of what it asked."""

    def check(_peer, _pid, _frame):
        raise AccessDenied("not from you")

    async def reported():
        async with routed(tmp_path, Role.CONTROL, FromClient, check=check) as (_, peer, got, _):
            peer.send_multipart([HEADER, encode(Ask(id="a-1", body=raw(None)))])
            assert await asyncio.to_thread(peer.poll, round(WAIT_S * 1000))
            return got, decode(ToClient, of_router(peer.recv_multipart()))

    got, answer = asyncio.run(reported())

    assert got == []
    assert (answer.id, answer.code) == ("a-1", AccessDenied.code)
