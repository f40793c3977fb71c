"""Baseline of the hub: C ``zmq_proxy`` between XSUB and XPUB, one frame per event.

``python -m benchmarks.proxy relay FRONT BACK`` is the proxy, ``… publish FRONT TOPIC`` its one
publisher. No high-water mark anywhere, so nothing is dropped: what is measured is how fast the
frames arrive, not how many are lost. The publisher encodes nothing; its frames are ready made.
"""

import os
import sys
import threading
import time
from typing import Final

import zmq

from benchmarks.flood import stamped
from benchmarks.pacer import ticks
from benchmarks.processes import serve
from cmdc_runtime.clock import now_ms
from cmdc_runtime.events import MessageDelta
from cmdc_runtime.wire.codec import encode_events

GREETING_S: Final = 0.01


class Publisher:
    """One PUB socket before the proxy."""

    def __init__(self, front: str, topic: str) -> None:
        """Connect."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(front)
        self._topic = topic.encode() + b"\0"

    def greet(self, times: int) -> bool:
        """Send frames that do not count, until the subscriptions must have arrived."""
        for _ in range(times):
            self._socket.send(self._topic)
            time.sleep(GREETING_S)
        return True

    def flood(self, events: int) -> bool:
        """Send ``events`` frames as fast as they go; all say when it began."""
        frame = self._topic + _entry()
        send = self._socket.send
        for _ in range(events):
            send(frame)
        return True

    def drip(self, events: int, interval_us: int) -> bool:
        """Send one frame every ``interval_us``; each says when it was made."""
        sample = stamped()
        before, _, after = _entry(sample).partition(sample.encode())
        for _ in ticks(events, interval_us):
            self._socket.send(self._topic + before + stamped().encode() + after)
        return True


def _entry(text: str = "") -> bytes:
    """Return one event as it stands in a batch."""
    event = MessageDelta(delta=text or stamped())
    return encode_events([(now_ms(), event)])[1:]


def relay(front: str, back: str) -> None:
    """Be the proxy until stdin ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    xsub, xpub = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
    xsub.setsockopt(zmq.RCVHWM, 0)
    xpub.setsockopt(zmq.SNDHWM, 0)
    xsub.bind(front)
    xpub.bind(back)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    zmq.proxy(xsub, xpub)


def end_with_stdin() -> None:
    """End this process when the benchmark closes its stdin, or is gone."""
    while os.read(0, 1):
        continue
    os._exit(0)


def main() -> None:
    """Be what the arguments say."""
    role, front, other = sys.argv[1:4]
    if role == "relay":
        relay(front, other)
        return
    publisher = Publisher(front, other)
    orders = (publisher.greet, publisher.flood, publisher.drip)
    serve({order.__name__: order for order in orders})


if __name__ == "__main__":
    main()
