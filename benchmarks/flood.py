"""A tool that makes its agent publish, as fast as it can or at a steady pace.

It travels to the agent by value. Nothing public emits 200,000 events a second, so it takes the
agent's own publisher, found by its type, and from there on everything is as in production: the
publisher's batches, the link, the daemon's router, the hub. What is left out is the model.
"""

import asyncio
import gc
import socket
import time
from typing import Final

import cmdc_runtime as cmdc
from cmdc_runtime.events import MessageDelta
from cmdc_runtime.wire.frames import BATCH_EVENTS_MAX
from workers.link import Link
from workers.performers.publish import Publisher

MARK: Final = "~flood~"
"""Begins the text of every event that counts; a time stamp follows it."""
TIMEOUT_S: Final = 120.0


@cmdc.tool(effects="read", timeout=TIMEOUT_S)
async def flood(events: int) -> str:
    """Publish ``events`` deltas as fast as the daemon takes them; all say when it began."""
    publisher, link = _publisher()
    delta = stamped()
    left = events
    while left > 0:
        burst = min(left, BATCH_EVENTS_MAX)
        for _ in range(burst):
            publisher.publish(MessageDelta(delta=delta))
        left -= burst
        await asyncio.sleep(0)  # the batch leaves
        await link.room()
    return "done"


@cmdc.tool(effects="read", timeout=TIMEOUT_S)
async def drip(events: int, port: int) -> str:
    """Publish one delta for each byte that comes from ``port``; each says when it was made."""
    publisher, _link = _publisher()
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    left = events

    def publish() -> None:
        nonlocal left
        count = len(connection.recv(events))
        for _ in range(count):
            publisher.publish(MessageDelta(delta=stamped()))
        left -= count
        if left <= 0 or not count:
            done.set()

    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(0)
        loop.add_reader(connection.fileno(), publish)
        try:
            await done.wait()
        finally:
            loop.remove_reader(connection.fileno())
    return "done"


def stamped() -> str:
    """Return the text of an event that is published now, by the clock that processes share."""
    return f"{MARK}{time.monotonic_ns():020d}"


def _publisher() -> tuple[Publisher, Link]:
    """Return the publisher of the agent that this runs in, and its link."""
    publisher = next(one for one in gc.get_objects() if isinstance(one, Publisher))
    link = publisher._send.__self__  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    assert isinstance(link, Link)
    return publisher, link
