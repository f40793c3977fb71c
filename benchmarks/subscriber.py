"""A subscriber process: counts what arrives, or measures how long it was under way.

``python -m benchmarks.subscriber KIND ADDRESS TOPIC``: KIND ``hub`` reads the daemon's batches,
``proxy`` one frame per event. Only what carries the mark of ``flood`` counts. Times are of the
monotonic clock, which all processes share.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Final

import zmq

from benchmarks.flood import MARK
from benchmarks.processes import serve
from cmdc_runtime.events import MessageDelta
from cmdc_runtime.wire.codec import decode, decode_events
from cmdc_runtime.wire.frames import Events, Published
from cmdc_runtime.wire.sockets import Role, open_socket

SILENCE_MS: Final = 5_000
"""What has not come by then was lost."""
LOOK_BYTES: Final = 256
"""The mark is in the first event of a batch, or in none."""
STAMP_CHARS: Final = 20
_MARK: Final = MARK.encode()

Stamps = tuple[int, list[int]]
"""When a message was ready to be used, and when each of its events was sent, in ns."""


class Subscriber:
    """One SUB socket."""

    def __init__(self, kind: str, address: str, topic: str) -> None:
        """Connect and subscribe."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = open_socket(self._context, Role.SUBSCRIBER)
        self._socket.setsockopt(zmq.RCVHWM, 0)  # what is lost would look fast
        self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode() + b"\0")
        self._socket.connect(address)
        self._count_of, self._stamps_of = _READERS[kind]

    def greet(self) -> bool:
        """Wait for the first message: the subscription has arrived."""
        return bool(self._take())

    def count(self, events: int) -> dict[str, float]:
        """Receive ``events`` events; return how many came, and how many a second.

        Seconds from the moment that the producer began, so that nothing that piles up on the way
        looks fast.
        """
        got = began_ns = last_ns = 0
        while got < events and (parts := self._take()):
            found = self._count_of(parts)
            if not found:
                continue
            last_ns = time.monotonic_ns()
            began_ns = began_ns or _stamp(parts[-1])
            got += found
        took_s = (last_ns - began_ns) / 1e9
        return {"got": got, "per_s": got / took_s if took_s else 0.0}

    def latency(self, events: int) -> list[float]:
        """Receive ``events`` events; return how long each was under way, in microseconds."""
        found: list[float] = []
        while len(found) < events and (parts := self._take()):
            ready_ns, sent = self._stamps_of(parts)
            found += [(ready_ns - sent_ns) / 1e3 for sent_ns in sent]
        return found

    def _take(self) -> list[bytes]:
        if not self._socket.poll(SILENCE_MS):
            return []
        return self._socket.recv_multipart()


def _count_batch(parts: list[bytes]) -> int:
    if _MARK not in parts[-1][:LOOK_BYTES]:
        return 0
    frame = decode(Published, parts[2])
    return frame.count if isinstance(frame, Events) else 0


def _count_frame(parts: list[bytes]) -> int:
    return int(_MARK in parts[0])


def _stamps_of_batch(parts: list[bytes]) -> Stamps:
    if _MARK not in parts[-1][:LOOK_BYTES]:
        return 0, []
    events = decode_events(parts[3])
    ready_ns = time.monotonic_ns()  # an event is of use when it is decoded
    deltas = [event.delta for _, event in events if isinstance(event, MessageDelta)]
    return ready_ns, [int(delta[len(MARK) :]) for delta in deltas]


def _stamps_of_frame(parts: list[bytes]) -> Stamps:
    ready_ns = time.monotonic_ns()
    return ready_ns, [_stamp(parts[0])] if _MARK in parts[0] else []


def _stamp(data: bytes) -> int:
    """Return the first time stamp in a message."""
    return int(data.partition(_MARK)[2][:STAMP_CHARS])


_READERS: Final[dict[str, tuple[Callable[[list[bytes]], int], Callable[[list[bytes]], Stamps]]]] = {
    "hub": (_count_batch, _stamps_of_batch),
    "proxy": (_count_frame, _stamps_of_frame),
}


def main() -> None:
    """Subscribe and serve."""
    subscriber = Subscriber(*sys.argv[1:4])
    orders: tuple[Callable[..., Any], ...] = (
        subscriber.greet,
        subscriber.count,
        subscriber.latency,
    )  # Any: orders have arguments of their own
    serve({order.__name__: order for order in orders})


if __name__ == "__main__":
    main()
