"""The project's sockets: their options in one table, the pump that reads and writes, the dealer.

Nobody else creates a socket or sets an option. The reasons for the values: ZeroMQ drops silently at
the high-water mark unless ROUTER_MANDATORY is set; a half-open connection costs a descriptor for 30
s unless HANDSHAKE_IVL is short; a header may claim any size unless MAXMSGSIZE bounds it; a context
waits for ever at exit unless LINGER is 0.
"""

import asyncio
import os
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum, auto
from typing import Final, Protocol

import zmq

from cmdc_runtime.errors import ProtocolError, UsageError
from cmdc_runtime.ids import CommandId
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import (
    ASKED_BYTES_MAX,
    FRAME_BYTES_MAX,
    HEADER,
    MAGIC,
    TOPIC_BYTES_MAX,
    WIRE_VERSION,
    Ask,
    FromClient,
    Published,
    Send,
    ToClient,
    of_router,
)

# --- options --------------------------------------------------------------------------------------

Parts = Sequence[bytes]

MESSAGES_PER_WAKE_MAX: Final = 256
"""How many messages one wake-up takes before other tasks get their turn."""
OUTBOX_CALM: Final = 256
"""``Pump.room`` waits while more messages than this wait for a peer."""
OUTBOX_MESSAGES_MAX: Final = 10_000
"""How many messages wait for one peer that does not read."""
SUBSCRIPTIONS_AHEAD_MAX: Final = 8
"""How many words of one subscriber libzmq reads ahead. XPUB takes all that it finds in one receive,
and finds what comes meanwhile: with the default of 1,000 one receive took in 300,000."""
RETRY_SEND_S: Final = 0.002
"""How long to wait before a full pipe is tried again."""
SUBSCRIBE_BYTES: Final = 64
"""Around a topic, in the message that subscribes to it; subscribers say nothing else."""
RETRY_SEND_S_MAX: Final = 0.25
"""The same while nothing goes out and the socket's descriptor says nothing: each try doubles it."""


class Role(StrEnum):
    """What a socket is for."""

    CONTROL = auto()  # daemon: ROUTER to clients
    WORKERS = auto()  # daemon: ROUTER to workers
    EVENTS = auto()  # daemon: XPUB to subscribers
    CLIENT = auto()  # client: DEALER to the daemon
    SUBSCRIBER = auto()  # client: SUB to the daemon
    WORKER = auto()  # worker: DEALER to the daemon
    ADMISSION = auto()  # daemon: ROUTER to libzmq, which asks who may connect


TYPES: Final[Mapping[Role, int]] = {
    Role.CONTROL: zmq.ROUTER,
    Role.WORKERS: zmq.ROUTER,
    Role.EVENTS: zmq.XPUB,
    Role.CLIENT: zmq.DEALER,
    Role.SUBSCRIBER: zmq.SUB,
    Role.WORKER: zmq.DEALER,
    Role.ADMISSION: zmq.ROUTER,
}

Value = int | bytes

_ALL: Final[dict[zmq.SocketOption, Value]] = {
    zmq.LINGER: 0,
    zmq.MAXMSGSIZE: FRAME_BYTES_MAX,
    # Whoever finds the queue of a listener full tries again a second later: hundreds come at once
    # where a daemon takes the place of another one.
    zmq.BACKLOG: 1_024,
    zmq.HANDSHAKE_IVL: 2_000,
    zmq.RECONNECT_IVL: 20,
    zmq.RECONNECT_IVL_MAX: 1_000,
}
_BEATING: Final[dict[zmq.SocketOption, Value]] = {
    zmq.HEARTBEAT_IVL: 10_000,
    zmq.HEARTBEAT_TIMEOUT: 30_000,
}
# What a DEALER gets is the header and a frame in one part.
_DEALER: Final[dict[zmq.SocketOption, Value]] = {
    zmq.IMMEDIATE: 1,
    zmq.MAXMSGSIZE: FRAME_BYTES_MAX + len(HEADER),
}
# No heartbeat between daemon and workers: the pidfd reports a death, and a stopped process that is
# continued later must find its connection as it left it.
_LINK: Final[dict[zmq.SocketOption, Value]] = {zmq.SNDHWM: 10_000, zmq.RCVHWM: 10_000}
# Where no mark stands, libzmq's 1,000 is meant.
OPTIONS: Final[Mapping[Role, Mapping[zmq.SocketOption, Value]]] = {
    # Handover: a client that was cut is back under its id before a busy loop has seen that it was
    # gone, and could never send again. Ids are random, and each message is checked by its pid.
    Role.CONTROL: _ALL | _BEATING | {zmq.ROUTER_MANDATORY: 1, zmq.ROUTER_HANDOVER: 1},
    Role.WORKERS: _ALL | _LINK | {zmq.ROUTER_MANDATORY: 1},
    # A slow subscriber loses events here and gets them back by a replay; it never holds up others,
    # so XPUB_NODROP stays off. What waits for one that has stopped is kept once for all who have,
    # until its heartbeat fails. Verbose: every subscription is seen, and welcomed.
    # A domain: libzmq asks about each connection before it takes it.
    Role.EVENTS: _ALL
    | _BEATING
    | {
        zmq.SNDHWM: 2_000,
        zmq.RCVHWM: SUBSCRIPTIONS_AHEAD_MAX,
        zmq.MAXMSGSIZE: TOPIC_BYTES_MAX + SUBSCRIBE_BYTES,
        zmq.XPUB_VERBOSE: 1,
        zmq.ZAP_DOMAIN: b"events",
    },
    Role.CLIENT: _ALL | _BEATING | _DEALER | {zmq.RCVHWM: 10_000},
    # More than 1,000 subscriptions are lost without a word at the default SNDHWM of a SUB.
    Role.SUBSCRIBER: _ALL | _BEATING | {zmq.SNDHWM: 0, zmq.RCVHWM: 50_000},
    Role.WORKER: _ALL | _LINK | _DEALER,
    Role.ADMISSION: _ALL | {zmq.ROUTER_MANDATORY: 1},
}


def open_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", role: Role, *, identity: bytes | None = None
) -> "zmq.Socket[bytes]":
    """Return a socket of ``role`` with all its options set, not yet bound or connected."""
    socket = context.socket(TYPES[role])
    for option, value in OPTIONS[role].items():
        socket.setsockopt(option, value)
    if identity is not None:
        socket.setsockopt(zmq.ROUTING_ID, identity)
    return socket


# --- the pump -------------------------------------------------------------------------------------


class Pump:
    """Hands every message of one socket to ``on_message`` and sends without ever blocking.

    ``on_message`` runs in the loop, must not block and must not raise; what it raises ends up in
    the loop's exception handler and the next message is taken.

    A receive is never awaited and so never cancelled: the pump drains the socket without blocking
    each time its descriptor wakes. The descriptor is edge-triggered, and a send may swallow the
    edge, so the pump looks again after every send. What waits for room is tried again soon after
    the descriptor has said that something has changed, and else ever more rarely: hundreds of
    agents without a daemon, each with a word for the next one, must leave it the processors that it
    needs to start.
    """

    def __init__(
        self,
        socket: "zmq.Socket[bytes]",
        on_message: Callable[[list[bytes]], None],
        *,
        asks_pid: bool = False,
    ) -> None:
        """Keep the socket; ``start`` begins to read. ``asks_pid`` has ``sender_pid`` filled."""
        self._socket = socket
        self._on_message = on_message
        self._asks_pid = asks_pid
        self.sender_pid: int | None = None
        """Who sent the message that is handed over now: the process that made the connection.

        The kernel vouches for it. None where nobody asked, and over anything but ipc.
        """
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outboxes: dict[bytes, deque[Parts]] = {}
        self._is_scheduled = False
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = RETRY_SEND_S
        self._is_calm = asyncio.Event()
        self._is_calm.set()
        self._fd = -1

    def start(self) -> None:
        """Begin to read, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._fd = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._wake)
        self._schedule()

    def stop(self) -> None:
        """Stop reading and close the socket; what waits to be sent is dropped."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = None
        self._retry_in(None)
        self._outboxes.clear()
        self._is_calm.set()
        self._socket.close()

    def send(self, parts: Parts, *, peer: bytes = b"") -> bool:
        """Send ``parts``, or keep them until the pipe has room; False means that they are lost.

        They are lost when the peer is unknown (a ROUTER's ``peer`` that is gone) or when its
        outbox is full. ``peer`` is only needed on a ROUTER; messages to one peer keep their order.
        """
        if self._loop is None:
            return False
        waiting = self._outboxes.get(peer)
        if waiting is None:
            sent = self._try(parts, peer)
            if sent is not None:
                self._shorten_look()
                return sent
            waiting = self._outboxes[peer] = deque()
            self._shorten_look()
        if len(waiting) >= OUTBOX_MESSAGES_MAX:
            return False
        waiting.append(parts)
        if len(waiting) > OUTBOX_CALM:
            self._is_calm.clear()
        return True

    def waiting(self, peer: bytes = b"") -> int:
        """Return how many messages wait for room in the pipe to ``peer``."""
        return len(self._outboxes.get(peer, ()))

    def withdraw(self, is_meant: Callable[[Parts], bool]) -> None:
        """Drop of what waits for room in the pipe of a socket with one peer all that is meant."""
        if (waiting := self._outboxes.get(b"")) is not None:
            self._outboxes[b""] = deque(parts for parts in waiting if not is_meant(parts))

    async def room(self) -> None:
        """Return when no peer is far behind: a producer of many messages waits here."""
        await self._is_calm.wait()

    def knows(self, peer: bytes, probe: Parts) -> bool:
        """Say whether a ROUTER still has the connection of ``peer``, by sending it ``probe``.

        One that is closed has none.
        """
        return not self._socket.closed and self._try(probe, peer) is not False

    def drain(self) -> None:
        """Take what is there now."""
        for _ in range(MESSAGES_PER_WAKE_MAX):
            if self._loop is None:
                return
            try:
                message = self._take()
            except zmq.Again:
                return
            self._shorten_look()
            self._deliver(message)
        self._schedule()

    def _take(self) -> list[bytes]:
        """Return the next message, and remember its sender; raises ``zmq.Again`` for none."""
        if not self._asks_pid:
            return self._socket.recv_multipart(zmq.NOBLOCK)
        first = self._socket.recv(zmq.NOBLOCK, copy=False)
        self.sender_pid = _pid_of(first)
        rest = self._socket.recv_multipart(zmq.NOBLOCK) if first.more else []
        return [first.bytes, *rest]

    def _deliver(self, message: list[bytes]) -> None:
        try:
            self._on_message(message)
        except Exception as error:  # noqa: BLE001 - one message must not end the pump
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a message could not be handled", "exception": error}
            )

    def _try(self, parts: Parts, peer: bytes) -> bool | None:
        """Return True: sent, False: no such peer, None: no room now."""
        # Also a probe that fails: what it swallows may be all that signals another peer's message.
        self._schedule()
        try:
            self._socket.send_multipart([peer, *parts] if peer else parts, zmq.NOBLOCK)
        except zmq.Again:
            return None
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def _shorten_look(self) -> None:
        """Try soon what waits for room, however long the last try was in vain.

        Every send and receive does so, too: it may have swallowed what signals room. One timer for
        all outboxes: one for each would outlive its own while another is full.
        """
        if self._loop is None or not self._outboxes:
            return
        if self._retry is None or self._retry.when() > self._loop.time() + RETRY_SEND_S:
            self._retry_in(RETRY_SEND_S)

    def _retry_in(self, delay_s: float | None) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = None
        if delay_s is not None and self._loop is not None:
            self._retry = self._loop.call_later(delay_s, self._flush)

    def _flush(self) -> None:
        self._retry_s = min(2 * self._retry_s, RETRY_SEND_S_MAX)
        self._retry_in(self._retry_s)  # whatever a send may raise
        for peer, waiting in list(self._outboxes.items()):
            while waiting and (sent := self._try(waiting[0], peer)) is not None:
                self._retry_s = RETRY_SEND_S
                waiting.popleft()
                if not sent:
                    waiting.clear()
            if not waiting:
                del self._outboxes[peer]
        if all(len(waiting) <= OUTBOX_CALM for waiting in self._outboxes.values()):
            self._is_calm.set()
        self._retry_in(self._retry_s if self._outboxes else None)

    def _schedule(self) -> None:
        if self._loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_scheduled = False
        self.drain()

    def _wake(self) -> None:
        self._shorten_look()
        self.drain()


def _pid_of(part: zmq.Frame) -> int | None:
    """Return whose message a part belongs to."""
    try:
        return pid_of_address(str(part.get("Peer-Address")))
    except zmq.ZMQError:
        return None


def pid_of_address(address: str) -> int | None:
    """Return the process of a peer; one over ipc is ``localhost:<uid>:<gid>:<pid>``."""
    host, _, pid = address.rpartition(":")
    return int(pid) if host.startswith("localhost:") and pid.isdecimal() else None


# --- the two sockets of a client ------------------------------------------------------------------

_PARTS_OF_EVENTS: Final = 4  # topic, header, frame, events

_Context = zmq.Context[zmq.Socket[bytes]]


class Listener(Protocol):
    """Who gets what arrives; nothing here may block or raise."""

    def on_frame(self, frame: ToClient) -> None:
        """Take an answer or a notice."""

    def on_published(self, topic: bytes, frame: Published, body: bytes) -> None:
        """Take events or a watermark; ``body`` is empty for the latter."""

    def on_violation(self, error: ProtocolError, *, is_foreign: bool) -> None:
        """Count a message that breaks the contract; ``is_foreign``: of another version."""


class Dealer:
    """Speaks with one daemon.

    A DEALER is for questions and answers, a SUB for events. Messages go in and out as structs;
    whoever listens never sees a byte of the wire. Everything runs in the loop that ``open`` was
    called in. Nothing here waits, retries or keeps books: that is the client's.

    The sockets are closed by ``close``, or when the dealer is collected as garbage: a program that
    forgets its client, or whose loop is gone, gets no warning and does not hang.
    """

    def __init__(self, *, control: str, events: str, identity: bytes, listener: Listener) -> None:
        """Keep the addresses; ``open`` connects. ``identity`` is used by nobody else, ever."""
        self._control_address = control
        self._events_address = events
        self._identity = identity
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Create both sockets, connect the one for answers, begin to read in the running loop.

        The one for events is connected when something is listened to: not everybody may.
        """
        self._loop = asyncio.get_running_loop()
        context: _Context = zmq.Context()
        control = open_socket(context, Role.CLIENT, identity=self._identity)
        self._events_socket = open_socket(context, Role.SUBSCRIBER)
        # An exit of the interpreter is not its business: the owner closes in the right order.
        self._release = weakref.finalize(
            self, _close, context, (control, self._events_socket), os.getpid()
        )
        self._release.atexit = False
        control.connect(self._control_address)
        self._is_listening = False
        self._control = Pump(control, self._on_control)
        self._events = Pump(self._events_socket, self._on_events)
        self._control.start()
        self._events.start()

    def close(self) -> None:
        """Stop reading and close both sockets; does nothing the second time."""
        if self._loop is None:
            return
        self._loop = None
        self._control.stop()
        self._events.stop()
        self._release()

    def abandon(self) -> None:
        """Close both sockets of a loop that is closed already."""
        self._loop = None
        self._release()

    def send(self, frame: bytes) -> None:
        """Send an encoded frame, now or as soon as the connection is up."""
        if self._loop is not None:
            self._control.send([HEADER, frame])

    @property
    def has_unsent(self) -> bool:
        """Say whether frames wait for the connection."""
        return self._loop is not None and self._control.waiting() > 0

    def withdraw(self, ids: Collection[CommandId]) -> set[CommandId]:
        """Drop what still waits for the connection of these questions.

        Returned are those of which nothing was ever sent.
        """
        never: set[CommandId] = set()

        def is_meant(parts: Parts) -> bool:
            asked = codec.decode(FromClient, parts[-1])
            if not isinstance(asked, Ask | Send) or asked.id not in ids:
                return False
            if not asked.again:
                never.add(asked.id)
            return True

        if ids and self.has_unsent:
            self._control.withdraw(is_meant)
        return never

    def listen(self, topic: bytes) -> None:
        """Subscribe to all topics that begin with ``topic``."""
        if self._loop is not None and not self._is_listening:
            self._is_listening = True
            self._events_socket.connect(self._events_address)
        self._set(zmq.SUBSCRIBE, topic)

    def ignore(self, topic: bytes) -> None:
        """Take back one ``listen``."""
        self._set(zmq.UNSUBSCRIBE, topic)

    def _set(self, option: int, topic: bytes) -> None:
        if self._loop is None:
            return
        self._events_socket.setsockopt(option, topic)
        # Any call on a socket may swallow its wake-up.
        self._loop.call_soon(self._events.drain)

    def _on_control(self, message: list[bytes]) -> None:
        if not self._is_ours(message[0][: len(HEADER)]):
            return
        try:
            frame = codec.decode(ToClient, of_router(message) or b"")
        except ProtocolError as error:
            self._listener.on_violation(error, is_foreign=False)
            return
        self._listener.on_frame(frame)

    def _on_events(self, message: list[bytes]) -> None:
        if not self._is_ours(message[1] if len(message) > 1 else b""):
            return
        try:
            frame = codec.decode(Published, message[2] if len(message) > 2 else b"")  # noqa: PLR2004 - topic and header come first
        except ProtocolError as error:
            self._listener.on_violation(error, is_foreign=False)
            return
        body = message[3] if len(message) == _PARTS_OF_EVENTS else b""
        self._listener.on_published(message[0], frame, body)

    def _is_ours(self, header: bytes) -> bool:
        if header == HEADER:
            return True
        error = ProtocolError(_complaint(header))
        self._listener.on_violation(error, is_foreign=header.startswith(MAGIC))
        return False


def encode(frame: Ask | Send) -> bytes:
    """Return the frame's wire form.

    Raises:
        UsageError: it is larger than a daemon takes.

    """
    data = codec.encode(frame)
    if len(data) > ASKED_BYTES_MAX:
        raise UsageError(
            f"the message has {len(data)} bytes, and {ASKED_BYTES_MAX} is the most that one may "
            "have: pass large content by file instead of by value"
        )
    return data


def _complaint(header: bytes) -> str:
    if not header.startswith(MAGIC) or len(header) <= len(MAGIC):
        return f"what answers is no daemon of this project: its messages begin with {header[:8]!r}"
    theirs = header[len(MAGIC)]
    return (
        f"the daemon speaks wire version {theirs} and this client version {WIRE_VERSION}: "
        "install the same release of cmdc-runtime on both sides"
    )


def _close(context: _Context, sockets: tuple["zmq.Socket[bytes]", ...], pid: int) -> None:
    if pid != os.getpid():  # a forked copy: the sockets belong to the parent
        return
    for socket in sockets:
        socket.close()
    context.term()
