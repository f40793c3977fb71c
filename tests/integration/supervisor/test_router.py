"""What the routers make of messages: frames in their order, and all of a message or nothing."""

import asyncio
import contextlib
import time

import pytest
import zmq

from cmdc_runtime.codec import decode, encode, encode_events
from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.events import StreamReset
from cmdc_runtime.frames import (
    HEADER,
    MAGIC,
    Batch,
    Failed,
    FromClient,
    FromWorker,
    Started,
    ToClient,
    Write,
)
from cmdc_runtime.sockets import Role
from supervisor.adapters.router import PARTS_MAX, Router

WRITE = encode(Write(records=(), settled=(), number=1))
BATCH = encode(Batch(first=1, count=1, durable=True))
BODY = encode_events([(0, StreamReset())])
STARTED = encode(Started())
WAIT_S = 10.0
ASKING_S = 0.05
"""Much longer than a message takes to arrive."""


@contextlib.asynccontextmanager
async def routed(tmp_path, role=Role.WORKERS, base=FromWorker):
    """A bound router, a peer of it, and the frames that arrive."""
    got, arrived = [], asyncio.Event()

    def take(_peer, frame, told):
        got.append((type(frame), *(body for _, body in told)))
        arrived.set()

    with zmq.Context() as context:
        router = Router(context, role, base, take)
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


def test_events_come_with_what_they_tell_of(tmp_path):
    """In their order, whatever is before them in the message; on their own they come too."""
    frames, refused = asyncio.run(
        heard(
            tmp_path,
            [HEADER, WRITE, BATCH, BODY, BATCH, b"two", WRITE],
            [HEADER, BATCH, BODY, BATCH, b"two"],
            [HEADER, STARTED, BATCH, BODY],
        )
    )

    assert frames == [
        (Write, BODY, b"two"),
        (Write,),
        (Batch, BODY, b"two"),
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
    ],
    ids=["bad second", "bad last", "no frame", "other version", "too many"],
)
def test_one_bad_frame_spoils_the_message(tmp_path, message):
    """Nothing of it is taken, and it is counted once."""
    assert asyncio.run(heard(tmp_path, message)) == ([], 1)


def test_a_client_sends_one_frame_and_is_told_otherwise(tmp_path):
    """A client that does more is answered, without an id as nobody knows which was meant."""

    async def told():
        async with routed(tmp_path, Role.CONTROL, FromClient) as (_, peer, got, _):
            peer.send_multipart([HEADER, b"\xc1"])
            assert await asyncio.to_thread(peer.poll, round(WAIT_S * 1000))
            return got, decode(ToClient, peer.recv_multipart()[1])

    got, answer = asyncio.run(told())

    assert got == []
    assert isinstance(answer, Failed)
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
