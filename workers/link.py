"""A worker's one connection to its daemon: frames out, frames in, and the change of daemons.

Records and events are held until the daemon acknowledges them. When it is gone the connection
is given up, and another one waits for the next daemon, under a name of its own: nothing of the
first can come late. What ``Outbox`` holds is sent to that daemon again; then everything goes on.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
import zmq

from cmdc_runtime import plain
from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.ids import EventIndex, new_worker_id
from cmdc_runtime.wire.codec import decode, encode
from cmdc_runtime.wire.frames import (
    FRAME_BYTES_MAX,
    HEADER,
    Batch,
    Completed,
    Contained,
    FromWorker,
    JournalRecord,
    ToWorker,
    Write,
    Written,
    of_router,
)
from cmdc_runtime.wire.sockets import Pump, Role, open_socket

# --- what is not yet safe -------------------------------------------------------------------------

CALM_BYTES: Final = 8 * 2**20
"""With more than this a producer of many events waits; it is about a minute of streamed text."""
HELD_BYTES_MAX: Final = 64 * 2**20
"""A worker that must keep more than this can't go on: nobody has stored its work for too long."""

MessageParts: TypeAlias = Sequence[bytes]


@dataclass(frozen=True, slots=True)
class _Held:
    """One message; ``number`` is 0 without records, ``first`` and ``last`` without events."""

    number: int
    first: int
    last: int
    parts: MessageParts
    size: int


@dataclass(slots=True)
class Outbox:
    """The messages of one incarnation that are not safe yet.

    Messages are kept as they were sent, in their order, and leave from the front. One with records
    is safe when the journal has it, one with events when they are out. Pure.
    """

    number: int = 0
    """Of the newest message with records."""
    written: int = 0
    """Of the newest one that the journal has."""
    size: int = 0
    """Of all messages, in bytes."""
    _held: deque[_Held] = field(default_factory=deque)

    def hold(self, parts: MessageParts, batches: Sequence[Batch], *, number: int = 0) -> None:
        """Keep a message that is about to be sent."""
        first = batches[0].first if batches else 0
        last = batches[-1].first + batches[-1].count - 1 if batches else 0
        size = sum(map(len, parts))
        self._held.append(_Held(number, first, last, parts, size))
        self.number = max(self.number, number)
        self.size += size

    def ack(self, number: int, index: int) -> None:
        """Drop what is safe: records up to ``number``, events up to ``index``."""
        self.written = max(self.written, number)
        while self._held:
            oldest = self._held[0]
            if oldest.number > self.written or oldest.last > index:
                return
            self.size -= self._held.popleft().size

    def first_event(self, next_index: EventIndex) -> EventIndex:
        """Return the oldest event that is kept, ``next_index`` where there is none."""
        found = (held.first for held in self._held if held.first)
        return EventIndex(next(found, next_index))

    def __iter__(self) -> Iterator[MessageParts]:
        """Yield the messages, oldest first."""
        return (held.parts for held in self._held)


# --- the connection -------------------------------------------------------------------------------

log = structlog.get_logger()

CONTAINED_S: Final = 2.0
"""For the daemon to put this process into its cgroup; the kernel takes 25 ms where it was idle."""
FLUSH_S: Final = 1.0
"""How long the last frames may take to leave the process at its end."""
WHY_CHARS_MAX: Final = 500
"""Of why a frame cannot be read."""
_PARTS_SHOWN_MAX: Final = 8
"""Of a message that is none of the protocol."""
_HEAD_BYTES: Final = {0xDC: 3, 0xDD: 5}
"""Before a frame's tag, by the first byte; for arrays of less than 16 items it is the only one.
From https://github.com/msgpack/msgpack/blob/master/spec.md"""
_TAGS: Final = {
    kind.__name__: encode(str(kind.__struct_config__.tag)) for kind in ToWorker.__subclasses__()
}
_VALUE: Final = re.compile(r"(Invalid (?:enum )?value) '.*'", re.DOTALL)
"""Where msgspec shows what it was given."""


class PartTooLargeError(Exception):
    """A part of a message is larger than any socket takes."""


class Link:
    """The DEALER of one worker. All of it runs in the loop's thread."""

    def __init__(
        self,
        address: str,
        worker_id: str,
        on_frame: Callable[[ToWorker], None],
        on_unreadable: Callable[[str], None],
    ) -> None:
        """Connect; ``on_frame`` gets each frame but ``Written`` and ``Contained``, after ``start``.

        ``on_unreadable`` gets which message could not be read, and why: without it the worker
        would wait for what has come already.
        """
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._address, self._name = address, worker_id
        self._on_frame, self._on_unreadable = on_frame, on_unreadable
        self._outbox = Outbox()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._is_calm, self._is_attached = asyncio.Event(), asyncio.Event()
        self._is_contained = asyncio.Event()
        for event in (self._is_calm, self._is_attached, self._is_contained):
            event.set()
        self._daemons_lost = 0
        self._connect(worker_id)

    def _connect(self, identity: str) -> None:
        socket = open_socket(self._context, Role.WORKER, identity=identity.encode())
        socket.connect(self._address)
        self._socket = socket
        self._pump = Pump(socket, self._receive)

    def start(self) -> None:
        """Begin to read, in the running loop."""
        self._pump.start()

    # --- out ------------------------------------------------------------------------------------

    def send(self, frame: FromWorker, *more: bytes) -> None:
        """Send one frame, and the part that belongs to it; without a daemon it is lost.

        Raises:
            FrameTooLargeError: it would be lost, so it was not sent.
        """
        parts = (HEADER, encode(frame), *more)
        _check(parts)
        self._send(parts)

    def write(
        self,
        records: Sequence[JournalRecord],
        outcomes: Sequence[Completed],
        batches: Iterable[tuple[Batch, bytes]],
        snapshot: bytes = b"",
    ) -> None:
        """Send records and outcomes for the journal, and with them the events that go with them.

        They are one message: the daemon has all of it or nothing, whenever the process dies. A
        ``snapshot`` is the state after them.

        Raises:
            FrameTooLargeError: it would be lost, so it was not sent.
        """
        number = self._outbox.number + 1
        write = Write(
            records=tuple(records), completed=tuple(outcomes), number=number, snapshot=snapshot
        )
        parts = [HEADER, encode(write)]
        sent: list[Batch] = []
        for batch, body in batches:
            parts += (encode(batch), body)
            sent.append(batch)
        self._hold_and_send(parts, sent, number)

    def publish(self, batch: Batch, body: bytes) -> None:
        """Send a batch of events.

        Raises:
            FrameTooLargeError: it would be lost, so it was not sent.
        """
        self._hold_and_send((HEADER, encode(batch), body), (batch,))

    async def synced(self) -> None:
        """Return when everything that was written so far is in the journal."""
        number = self._outbox.number
        if number > self._outbox.written:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((number, done))
            await done

    def wait_for_cgroup(self, *, is_contained: bool) -> None:
        """Have ``contained`` wait for the daemon's word, unless the process is in its cgroup."""
        if not is_contained:
            self._is_contained.clear()

    async def contained(self) -> None:
        """Return when what this process starts is in its session's cgroup, and ends with it.

        So it is after ``CONTAINED_S``, too, and without a daemon: what is started then is found
        by its environment alone.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(CONTAINED_S):
                await self._is_contained.wait()

    async def room(self) -> None:
        """Return when the daemon keeps up: a producer of many events waits here."""
        await self._pump.room()
        await self._is_calm.wait()

    def _hold_and_send(
        self, parts: MessageParts, batches: Sequence[Batch], number: int = 0
    ) -> None:
        _check(parts)
        self._outbox.hold(parts, batches, number=number)
        if self._outbox.size > CALM_BYTES:
            self._is_calm.clear()
            if self._outbox.size > HELD_BYTES_MAX:
                raise ConnectionError(f"nobody has stored {self._outbox.size} bytes of its work")
        self._send(parts)

    def _send(self, parts: MessageParts) -> None:
        if self._is_attached.is_set() and not self._pump.send(parts):
            # The daemon has not read for very long: what it misses can't be made up for later.
            raise ConnectionError("the daemon does not take frames any more")

    # --- from one daemon to the next ------------------------------------------------------------

    def detach(self) -> None:
        """Give up a dead daemon's connection; the next one is waited for under another name.

        Nobody can guess that one, and so nobody takes it before: the worker's own is registered.
        """
        self._is_attached.clear()
        self._is_contained.set()  # the next daemon does it, and does not say so
        self._pump.stop()
        self._daemons_lost += 1
        self._connect(new_worker_id(self._daemons_lost))
        self._pump.start()

    def announce(self, frame: FromWorker) -> None:
        """Send one frame to the next daemon, which has not adopted this worker yet.

        While one still waits to be read, another would say nothing more.
        """
        if not self._pump.waiting():
            self._pump.send((HEADER, encode(frame)))

    def attach(self, written: int) -> None:
        """Go on with a daemon whose journal has the writes up to ``written``."""
        self._is_attached.set()
        self._ack(written, 0)
        for parts in self._outbox:
            self._send(parts)

    async def attached(self) -> None:
        """Return when there is a daemon."""
        await self._is_attached.wait()

    @property
    def worker_id(self) -> str:
        """What the daemon that forked this process calls it."""
        return self._name

    @property
    def daemons_lost(self) -> int:
        """How many daemons it has lost."""
        return self._daemons_lost

    def first_event(self, next_index: EventIndex) -> EventIndex:
        """Return the oldest event that can be sent again, ``next_index`` where there is none."""
        return self._outbox.first_event(next_index)

    # --- in -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let the last frames out, bounded by ``FLUSH_S``, and close."""
        linger_ms = round(FLUSH_S * 1000) if self._is_attached.is_set() else 0
        self._socket.setsockopt(zmq.LINGER, linger_ms)
        self._pump.stop()
        self._context.term()

    def _receive(self, parts: list[bytes]) -> None:
        try:
            frame = self._parse(parts)
        except ProtocolError as error:
            log.warning("frame.refused", error=str(error))
            self._on_unreadable(str(error))
            return
        if isinstance(frame, Written):
            self._ack(frame.number, frame.index)
        elif isinstance(frame, Contained):
            self._is_contained.set()
        else:
            self._on_frame(frame)

    def _ack(self, number: int, index: int) -> None:
        self._outbox.ack(number, index)
        if self._outbox.size <= CALM_BYTES:
            self._is_calm.set()
        left: list[tuple[int, asyncio.Future[None]]] = []
        for waits_for, done in self._waiters:
            if waits_for > self._outbox.written:
                left.append((waits_for, done))
            elif not done.done():
                done.set_result(None)
        self._waiters = left

    @staticmethod
    def _parse(parts: list[bytes]) -> ToWorker:
        data = of_router(parts)
        if data is None:
            sizes = ", ".join(str(len(part)) for part in parts[:_PARTS_SHOWN_MAX])
            raise ProtocolError(
                f"a message of the daemon is none of this protocol: parts of {sizes} bytes"
            )
        try:
            return decode(ToWorker, data)
        except ProtocolError as error:
            raise ProtocolError(f"{_name_of(data)} cannot be read: {_described(error)}") from error


def _name_of(data: bytes) -> str:
    """Return which frame ``data`` says it is, also where the rest of it is no MessagePack."""
    head = data[_HEAD_BYTES.get(data[0], 1) :] if data else b""
    found = (name for name, tag in _TAGS.items() if head.startswith(tag))
    return f"the daemon's frame {next(found, 'of a kind that is not known')}"


def _described(error: ProtocolError) -> str:
    """Return what is wrong with a frame, without the values in it: they may be anybody's."""
    text = _VALUE.sub(r"\1", plain.without_controls(str(error)))
    return text[:WHY_CHARS_MAX]


def _check(parts: MessageParts) -> None:
    size = max(map(len, parts))
    if size > FRAME_BYTES_MAX:  # ZeroMQ would drop it, and the connection with it
        raise PartTooLargeError(f"a part of {size} bytes; at most {FRAME_BYTES_MAX} can go")
