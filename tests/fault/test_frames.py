"""Ten thousand messages that nobody should send, to each socket: nothing ends, work goes on."""

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from cmdc_runtime.commands import Command
from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.requests import DaemonFacts, GetFacts, Request
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.testing import Hold, Text
from cmdc_runtime.wire import codec, frames
from cmdc_runtime.wire.frames import FRAME_BYTES_MAX, HEADER, MAGIC, of_router

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 60.0
MESSAGES = 10_000
MESSAGES_PER_SOCKET = 500
"""Below the bound of what the daemon reads ahead of one peer: what is still in the kernel's buffer
when the peer closes while ZeroMQ has stopped reading is lost, and would not be counted."""
PART_BYTES_MAX = 300
RAW_CONNECTIONS = 200
GROWTH_BYTES_MAX = 150 * 2**20
"""Of the daemon's memory while it is flooded: buffers are bounded, a leak of frames is not."""
SEND_S = 5.0
FIELD_VALUES = (
    None,
    True,
    -1,
    2**63,
    1.5,
    "",
    "x" * 200,
    "s-1",
    b"\0\xff",
    [],
    {},
    [[[]]],
    {"a": 1},
)


def subclasses(base):
    return base.__subclasses__()


def tag_of(kind):
    return kind.__struct_config__.tag


def wrong_frame(chance, base):
    """Make a frame of a real kind with wrong fields: too few, too many, of other types."""
    kind = chance.choice(subclasses(base))
    count = len(kind.__struct_fields__)
    wanted = max(0, count + chance.choice((-1, 0, 0, 0, 1)))
    return msgspec.msgpack.encode(
        [tag_of(kind), *(chance.choice(FIELD_VALUES) for _ in range(wanted))]
    )


def wrong_body(chance, base):
    """Make a request or a command of a real kind with wrong fields."""
    kind = chance.choice(subclasses(base))
    fields = {name: chance.choice(FIELD_VALUES) for name in kind.__struct_fields__}
    kept = {name: value for name, value in fields.items() if chance.random() < 0.8}
    return msgspec.Raw(msgspec.msgpack.encode({"type": tag_of(kind), **kept}))


def valid_envelope(chance, session_id):
    """Make a frame that is right in itself, with a body that is wrong but for some chance."""
    junk = msgspec.Raw(msgspec.msgpack.encode(chance.choice(FIELD_VALUES)))
    if chance.random() < 0.5:
        body = chance.choice((junk, wrong_body(chance, Request)))
        return codec.encode(frames.Ask(id=f"f-{chance.random()}", body=body))
    body = chance.choice((junk, wrong_body(chance, Command)))
    target = chance.choice((session_id, "nobody", "", "\0"))
    durable = chance.random() < 0.5
    return codec.encode(
        frames.Send(id=f"f-{chance.random()}", session_id=target, durable=durable, body=body)
    )


def message(chance, base, session_id):
    """Make one message that is wrong in one of many ways."""
    noise = chance.randbytes(chance.randrange(PART_BYTES_MAX))
    match chance.randrange(6):
        case 0:
            return [chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(1, 7))]
        case 1:
            return [HEADER, noise]
        case 2:
            return [MAGIC + bytes([chance.randrange(2, 256)]), codec.encode(GetFacts())]
        case 3:
            return [HEADER, wrong_frame(chance, base), *([noise] if chance.random() < 0.2 else [])]
        case 4:
            return [HEADER, valid_envelope(chance, session_id)]
        case _:
            return [HEADER, *([noise] * chance.choice((0, 2, 3)))]


def is_refused(parts, base):
    """Say whether a message is refused; a stranger's to the workers always is, to all never."""
    if base is frames.Published:
        return False
    if base is frames.FromWorker or len(parts) != 2 or parts[0] != HEADER:
        return True
    try:
        codec.decode(base, parts[1])
    except ProtocolError:
        return True
    return False


def drain(peer):
    """Read away what has been answered."""
    with contextlib.suppress(zmq.Again):
        while peer.recv_multipart(zmq.NOBLOCK):
            pass


def flood(address, kind, messages):
    """Send messages from several sockets of one kind; a peer may cut us off and is met again."""
    context = zmq.Context()
    try:
        for start in range(0, len(messages), MESSAGES_PER_SOCKET):
            peer = context.socket(kind)
            peer.setsockopt(zmq.SNDTIMEO, round(SEND_S * 1000))
            peer.setsockopt(zmq.LINGER, round(SEND_S * 1000))
            peer.connect(address)
            if address.endswith("control.sock"):  # what follows is a person's, and looked at
                peer.send_multipart([HEADER, hello(address)])
            for parts in messages[start : start + MESSAGES_PER_SOCKET]:
                peer.send_multipart(parts)
                drain(peer)
            peer.close()
    finally:
        context.term()


def hello(address):
    """Return a question that shows the token of the daemon at an address."""
    token = read_token(Path(address.removeprefix("ipc://")).parent)
    return codec.encode(frames.Ask(id="f-facts", body=codec.raw(GetFacts()), token=token))


def raw_garbage(path, chance):
    """Write bytes that are no ZMTP at all, or begin like it and go on otherwise."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
    for number in range(RAW_CONNECTIONS):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(path))
            start = greeting if number % 2 else b""
            with contextlib.suppress(ConnectionError):
                peer.sendall(start + chance.randbytes(chance.randrange(1, 2000)))


def oversized(path):
    """Announce one part of more bytes than any socket takes; return once we are cut off."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))  # waits its turn
        peer.settimeout(SEND_S)
        with contextlib.suppress(ConnectionError):
            peer.sendall(greeting + b"\x04" + bytes([len(ready)]) + ready)
            peer.sendall(b"\x02" + struct.pack(">Q", FRAME_BYTES_MAX + 1) + bytes(1000))
            while peer.recv(4096):
                pass


def facts_of(address):
    """Ask the daemon how it stands, from a socket of our own."""
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.RCVTIMEO, round(TURN_S * 1000))
    peer.setsockopt(zmq.LINGER, 0)
    try:
        peer.connect(address)
        peer.send_multipart([HEADER, hello(address)])
        reply = of_router(peer.recv_multipart())
    finally:
        peer.close()
        context.term()
    return codec.decode_as(DaemonFacts, codec.decode(frames.ToClient, reply).body)


@pytest.fixture(scope="module")
def served(shared_daemon):
    """A daemon that is flooded, and a client of it."""
    shared_daemon.start()
    with shared_daemon.client() as client:
        yield shared_daemon, client


TARGETS = {
    "control.sock": (zmq.DEALER, frames.FromClient),
    "workers.sock": (zmq.DEALER, frames.FromWorker),
    "events.sock": (zmq.XSUB, frames.Published),
}


def wrong_messages(name, session_id):
    """Make what one socket is flooded with, the same in every run."""
    chance = random.Random(name)
    kind, base = TARGETS[name]
    made = [message(chance, base, session_id) for _ in range(MESSAGES)]
    if kind == zmq.XSUB:  # its subscriptions come by the same way: the first byte says which
        made = [[bytes([chance.randrange(3)]) + parts[0], *parts[1:]] for parts in made]
    return made


@pytest.mark.parametrize("name", TARGETS)
def test_flood_of_wrong_messages_ends_nothing(served, scripted, name, poll):
    """Sessions work before, during and after it; what cannot be a message is counted."""
    own_daemon, client = served
    path = own_daemon.address / name
    control = f"ipc://{own_daemon.address / 'control.sock'}"
    process = psutil.Process(own_daemon.process.pid)
    kind, base = TARGETS[name]
    model = scripted("before", (Text("dur"), Hold(), "ing"), default="after")
    with (
        client.create_agent(model=model) as session,
        client.create_agent(model=scripted(default="fine")) as bystander,
    ):
        stream = session.subscribe()
        assert session.run("1", timeout=TURN_S).text == "before"
        pid, memory = session.agent_pid(), process.memory_info().rss
        session.prompt("2")
        model.wait_held()
        messages = wrong_messages(name, bystander.id)
        expected = facts_of(control).refused_frames
        expected += sum(is_refused(parts, base) for parts in messages)
        flood(f"ipc://{path}", kind, messages)
        assert poll(lambda: facts_of(control).refused_frames >= expected)
        assert facts_of(control).refused_frames == expected
        raw_garbage(path, random.Random(name))
        oversized(path)
        model.release()

        assert session.collect_reply(timeout=TURN_S) == "during"
        assert session.run("3", timeout=TURN_S).text == "after"
        assert session.agent_pid() == pid
        assert bystander.run("4", timeout=TURN_S).text == "fine"
        indexes = [stream.get(TURN_S).index for _ in range(session.last_index())]

    assert indexes == [*range(1, len(indexes) + 1)]
    assert own_daemon.process.poll() is None
    assert process.memory_info().rss - memory < GROWTH_BYTES_MAX


def test_wrong_version_is_named_to_who_can_read_it(served):
    """A client of another version gets an answer that names both versions."""
    own_daemon, _ = served
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.RCVTIMEO, round(TURN_S * 1000))
    peer.setsockopt(zmq.LINGER, 0)
    try:
        peer.connect(f"ipc://{own_daemon.address / 'control.sock'}")
        peer.send_multipart([MAGIC + b"\x63", b""])
        data = of_router(peer.recv_multipart())
    finally:
        peer.close()
        context.term()
    answer = codec.decode(frames.ToClient, data)

    assert (answer.id, answer.code) == ("", "protocol")
    assert "version 99" in answer.message


def test_silent_connections_are_dropped(served):
    """A connection that never says who it is costs a descriptor for seconds, not for ever."""
    own_daemon, client = served
    process = psutil.Process(own_daemon.process.pid)
    before = process.num_fds()
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX))
            peer.connect(str(own_daemon.address / "control.sock"))
            peer.settimeout(SEND_S)
        started_s = time.monotonic()
        while peer.recv(4096):  # the greeting, then the end
            pass
        waited_s = time.monotonic() - started_s

        assert waited_s < SEND_S
        assert client.list_sessions() == []
    assert process.num_fds() <= before + 10
