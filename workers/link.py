"""A worker's one connection to its daemon: frames out, frames in, the journal's barrier."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog
import zmq

from cmdc_runtime.codec import decode, encode
from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.frames import (
    FRAME_BYTES_MAX,
    HEADER,
    Batch,
    FromWorker,
    JournalRecord,
    Settled,
    ToWorker,
    Write,
    Written,
)
from cmdc_runtime.sockets import Pump, Role, open_socket

log = structlog.get_logger()

FLUSH_S: Final = 1.0
"""How long the last frames may take to leave the process at its end."""


class FrameTooLargeError(Exception):
    """A part of a message is larger than any socket takes."""


class Link:
    """The DEALER of one worker. All of it runs in the loop's thread."""

    def __init__(self, address: str, worker_id: str, on_frame: Callable[[ToWorker], None]) -> None:
        """Connect; ``on_frame`` gets every frame but ``Written``, once ``start`` was called."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = open_socket(self._context, Role.WORKER, identity=worker_id.encode())
        socket.connect(address)
        self._socket = socket
        self._pump = Pump(socket, self._receive)
        self._on_frame = on_frame
        self._barriers: dict[int, asyncio.Future[None]] = {}
        self._barrier = 0

    def start(self) -> None:
        """Begin to read, in the running loop."""
        self._pump.start()

    def send(self, frame: FromWorker, *more: bytes) -> None:
        """Send one frame, and the part that belongs to it.

        Raises:
            FrameTooLargeError: it would be lost, so it was not sent.
        """
        self._send((HEADER, encode(frame), *more))

    def write(
        self,
        records: Sequence[JournalRecord],
        settled: Sequence[Settled],
        batches: Iterable[tuple[Batch, bytes]],
    ) -> None:
        """Give records and outcomes to the journal, and with them the events that tell of them.

        They are one message: the daemon has all of it or nothing, whenever the process dies.
        """
        parts = [HEADER, encode(Write(records=tuple(records), settled=tuple(settled)))]
        for batch, body in batches:
            parts += (encode(batch), body)
        self._send(parts)

    async def synced(self) -> None:
        """Return when everything that was written so far is in the journal."""
        self._barrier += 1
        done = self._barriers[self._barrier] = asyncio.get_running_loop().create_future()
        self.send(Write(records=(), settled=(), barrier=self._barrier))
        await done

    def _send(self, parts: Sequence[bytes]) -> None:
        size = max(map(len, parts))
        if size > FRAME_BYTES_MAX:  # ZeroMQ would drop it, and the connection with it
            raise FrameTooLargeError(f"a part of {size} bytes; at most {FRAME_BYTES_MAX} can go")
        if not self._pump.send(parts):
            # The daemon has not read for very long: what it misses can't be made up for later.
            raise ConnectionError("the daemon does not take frames any more")

    def publish(self, batch: Batch, body: bytes) -> None:
        """Send a batch of events."""
        self.send(batch, body)

    async def room(self) -> None:
        """Return when the daemon keeps up: a producer of many events waits here."""
        await self._pump.room()

    def close(self) -> None:
        """Let the last frames out, bounded by ``FLUSH_S``, and close."""
        self._socket.setsockopt(zmq.LINGER, round(FLUSH_S * 1000))
        self._pump.stop()
        self._context.term()

    def _receive(self, parts: list[bytes]) -> None:
        try:
            frame = self._parse(parts)
        except ProtocolError as error:
            log.warning("frame.refused", error=str(error))
            return
        if isinstance(frame, Written):
            done = self._barriers.pop(frame.barrier, None)
            if done is not None and not done.done():
                done.set_result(None)
        else:
            self._on_frame(frame)

    @staticmethod
    def _parse(parts: list[bytes]) -> ToWorker:
        if len(parts) != 2 or parts[0] != HEADER:  # noqa: PLR2004 - header and frame
            raise ProtocolError(f"expected a header and a frame, got {len(parts)} parts")
        return decode(ToWorker, parts[1])
