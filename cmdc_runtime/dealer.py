"""A client's two sockets: a DEALER for questions and answers, a SUB for events.

Messages go in and out as structs; whoever listens never sees a byte of the wire. Everything runs in
the loop that ``open`` was called in. Nothing here waits, retries or keeps books: that is the
client's.

The sockets are closed by ``close``, or when the dealer is collected as garbage: a program that
forgets its client, or whose loop is gone, gets no warning and does not hang.
"""

import asyncio
import os
import weakref
from collections.abc import Collection
from typing import Final, Protocol

import zmq

from cmdc_runtime import codec
from cmdc_runtime.errors import ProtocolError, UsageError
from cmdc_runtime.frames import (
    ASKED_BYTES_MAX,
    HEADER,
    MAGIC,
    WIRE_VERSION,
    Ask,
    FromClient,
    Published,
    Send,
    ToClient,
    of_router,
)
from cmdc_runtime.ids import CommandId
from cmdc_runtime.sockets import Parts, Pump, Role, open_socket

_PARTS_OF_EVENTS: Final = 4  # topic, header, frame, events

Context = zmq.Context[zmq.Socket[bytes]]


class Listener(Protocol):
    """Who gets what arrives; nothing here may block or raise."""

    def on_frame(self, frame: ToClient) -> None:
        """Take an answer or a notice."""

    def on_published(self, topic: bytes, frame: Published, body: bytes) -> None:
        """Take events or a watermark; ``body`` is empty for the latter."""

    def on_violation(self, error: ProtocolError, *, is_foreign: bool) -> None:
        """Take note of a message that breaks the contract; ``is_foreign``: of another version."""


class Dealer:
    """Speaks with one daemon."""

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
        context: Context = zmq.Context()
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


def _close(context: Context, sockets: tuple["zmq.Socket[bytes]", ...], pid: int) -> None:
    if pid != os.getpid():  # a forked copy: the sockets belong to the parent
        return
    for socket in sockets:
        socket.close()
    context.term()
