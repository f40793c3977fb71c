"""A client's two sockets against the sockets of a daemon: what goes out, what comes in, the end."""

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec
import pytest
import zmq

from cmdc_runtime.errors import ProtocolError, UsageError
from cmdc_runtime.wire import codec, sockets
from cmdc_runtime.wire.frames import (
    HEADER,
    MAGIC,
    WIRE_VERSION,
    Ask,
    Events,
    FromClient,
    Send,
    ValueReply,
    Watermark,
    to_dealer,
)
from cmdc_runtime.wire.sockets import Dealer, Role, encode, open_socket
from tests.integration.test_sockets import come
from tests.integration.test_sockets_waiting import played

NAME = b"a client"
NOTHING = msgspec.Raw(b"\xc0")
ANSWER = codec.encode(ValueReply(id="one", body=NOTHING))
EVENTS = codec.encode(Events(first=1, count=2))
NEWER = MAGIC + bytes([WIRE_VERSION + 1])


class Heard:
    """Keeps what a dealer hands on."""

    def __init__(self):
        self.frames, self.published, self.violations = [], [], []

    def on_frame(self, frame):
        self.frames.append(frame)

    def on_published(self, topic, frame, body):
        self.published.append((topic, frame, body))

    def on_violation(self, error, *, is_foreign):
        assert isinstance(error, ProtocolError)
        self.violations.append((str(error), is_foreign))


class Daemon:
    """The sockets that a dealer connects to; those of requests are bound by ``bind``."""

    def __init__(self, context, folder):
        self.control, self.events = f"ipc://{folder}/control", f"ipc://{folder}/events"
        self.router = open_socket(context, Role.CONTROL)
        self.publisher = open_socket(context, Role.EVENTS)
        self.publisher.bind(self.events)

    def bind(self):
        self.router.bind(self.control)

    async def asked(self):
        await come(lambda: self.router.poll(0))
        name, header, frame = self.router.recv_multipart()
        assert (name, header) == (NAME, HEADER)
        return codec.decode(FromClient, frame)

    async def subscription(self):
        await come(lambda: self.publisher.poll(0))
        return self.publisher.recv()


@pytest.fixture
def daemon(tmp_path):
    with zmq.Context() as context:
        made = Daemon(context, tmp_path)
        yield made
        made.router.close()
        made.publisher.close()


def dealer_of(daemon, heard):
    return Dealer(control=daemon.control, events=daemon.events, identity=NAME, listener=heard)


@contextlib.contextmanager
def opened(daemon, heard=None):
    dealer = dealer_of(daemon, heard or Heard())
    dealer.open()
    try:
        yield dealer
    finally:
        dealer.close()


def threads():
    return len(list(Path("/proc/self/task").iterdir()))


def ask(name, *, again=False):
    return Ask(id=name, body=NOTHING, again=again)


def test_a_question_and_its_answer(daemon):
    """Both are structs at the client's end, and one part behind the header on the wire."""
    heard = Heard()

    async def work():
        daemon.bind()
        with opened(daemon, heard) as dealer:
            dealer.send(encode(ask("one")))
            asked = await daemon.asked()
            daemon.router.send_multipart([NAME, *to_dealer(ANSWER)])
            await come(lambda: heard.frames)
            return asked

    assert played(work) == ask("one")
    assert heard.frames == [ValueReply(id="one", body=NOTHING)]
    assert heard.violations == []


def test_what_has_no_connection_waits(daemon):
    """It goes out when there is one, and nothing does behind the end."""

    async def work():
        with opened(daemon) as dealer:
            reported = [dealer.has_unsent]
            dealer.send(encode(ask("one")))
            reported.append(dealer.has_unsent)
            daemon.bind()
            assert await daemon.asked() == ask("one")
            await come(lambda: not dealer.has_unsent)
        dealer.send(encode(ask("two")))
        return [*reported, dealer.has_unsent]

    assert played(work) == [False, True, False]
    assert not daemon.router.poll(0)


def test_what_waits_is_taken_back(daemon):
    """Only what is meant, and it says which of them may have been sent before."""
    command = Send(id="command", session_id="s1", durable=False, body=NOTHING)

    async def work():
        with opened(daemon) as dealer:
            early = dealer.withdraw({"new"})
            for frame in (ask("new"), ask("old", again=True), ask("other"), command):
                dealer.send(encode(frame))
            never = dealer.withdraw(set()), dealer.withdraw({"new", "old", "command", "unknown"})
            daemon.bind()
            assert await daemon.asked() == ask("other")
            dealer.send(encode(ask("last")))
            assert await daemon.asked() == ask("last")
            return early, *never, dealer.withdraw({"last"})

    assert played(work) == (set(), set(), {"new", "command"}, set())


def test_who_has_no_loop_takes_nothing_back(daemon):
    """A dealer that is not open, or closed, has nothing that waits."""
    dealer = dealer_of(daemon, Heard())
    dealer.send(encode(ask("one")))
    dealer.listen(b"topic")
    dealer.close()

    assert (dealer.has_unsent, dealer.withdraw({"one"})) == (False, set())


def test_events_come_by_topic(daemon):
    """Each once, with its body, until the topic is ignored; nobody subscribes who listens not."""
    heard = Heard()
    mark = codec.encode(Watermark(last=2))

    async def work():
        with opened(daemon, heard) as dealer:
            for topic in (b"a", b"b"):
                dealer.listen(topic)
                assert await daemon.subscription() == b"\x01" + topic
            for parts in ((b"a", HEADER, EVENTS, b"body"), (b"a", HEADER, mark)):
                daemon.publisher.send_multipart(parts)
            await come(lambda: len(heard.published) == 2)
            dealer.ignore(b"a")
            assert await daemon.subscription() == b"\x00a"
            daemon.publisher.send_multipart((b"a", HEADER, mark))
            daemon.publisher.send_multipart((b"b", HEADER, mark))
            await come(lambda: len(heard.published) == 3)
            assert not daemon.publisher.poll(0)

    played(work)
    assert heard.published == [
        (b"a", Events(first=1, count=2), b"body"),
        (b"a", Watermark(last=2), b""),
        (b"b", Watermark(last=2), b""),
    ]
    assert heard.violations == []


@pytest.mark.parametrize(
    ("part", "is_foreign", "words"),
    [
        (MAGIC, True, f"no daemon of this project: its messages begin with {MAGIC!r}"),
        (b"else", False, "no daemon of this project: its messages begin with b'else'"),
        (b"other", False, "no daemon of this project: its messages begin with b'other'"),
        (NEWER, True, f"wire version {WIRE_VERSION + 1} and this client version {WIRE_VERSION}"),
        (HEADER + b"\xc1", False, ""),
        (HEADER, False, ""),
    ],
)
def test_an_answer_that_breaks_the_contract(daemon, part, is_foreign, words):
    """Is named, and those behind it are heard."""
    heard = Heard()

    async def work():
        daemon.bind()
        with opened(daemon, heard) as dealer:
            dealer.send(encode(ask("one")))
            await daemon.asked()
            daemon.router.send_multipart([NAME, part])
            daemon.router.send_multipart([NAME, *to_dealer(ANSWER)])
            await come(lambda: heard.frames)

    played(work)
    ((text, reported),) = heard.violations
    assert words in text
    assert reported is is_foreign


@pytest.mark.parametrize(
    ("parts", "is_foreign", "words"),
    [
        ((), False, "its messages begin with b''"),
        ((b"a long header",), False, "its messages begin with b'a long h'"),
        ((NEWER, EVENTS), True, f"wire version {WIRE_VERSION + 1} "),
        ((HEADER,), False, ""),
        ((HEADER, b"\xc1", b"body"), False, ""),
    ],
)
def test_events_that_break_the_contract(daemon, parts, is_foreign, words):
    """Are named, and those behind them are heard."""
    heard = Heard()

    async def work():
        with opened(daemon, heard) as dealer:
            dealer.listen(b"a")
            await daemon.subscription()
            daemon.publisher.send_multipart([b"a", *parts])
            daemon.publisher.send_multipart([b"a", HEADER, EVENTS])
            await come(lambda: heard.published)

    played(work)
    ((text, reported),) = heard.violations
    assert words in text
    assert reported is is_foreign


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_an_end_leaves_nothing(daemon, end):
    """No thread, no socket, nothing in the loop; a second end does nothing."""
    before = threads()

    async def work():
        dealer = dealer_of(daemon, Heard())
        dealer.open()
        fds = [int(pump._socket.FD) for pump in (dealer._control, dealer._events)]
        assert threads() > before
        assert not dealer._release.atexit
        if end == "abandon":
            return dealer
        dealer.close()
        loop = asyncio.get_running_loop()
        assert [loop.remove_reader(fd) for fd in fds] == [False, False]
        return dealer

    dealer = played(work)
    getattr(dealer, end)()
    dealer.close()
    assert threads() == before


def test_a_forked_copy_leaves_its_parents_sockets(daemon):
    """They are the parent's, whatever becomes of the copy."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        sockets._close(context, (socket,), os.getpid() + 1)

        assert not socket.closed


def test_a_message_has_a_bound(monkeypatch):
    """What is exactly as long goes out."""
    size = len(codec.encode(ask("one")))
    monkeypatch.setattr(sockets, "ASKED_BYTES_MAX", size)

    assert codec.decode(FromClient, encode(ask("one"))) == ask("one")
    with pytest.raises(UsageError, match=f"the message has {size + 1} bytes, and {size} is"):
        encode(ask("more"))
