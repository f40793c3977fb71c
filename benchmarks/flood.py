"""A tool that makes its agent publish, as fast as it can or at a steady pace.

It travels to the agent by value. Nothing public emits 200,000 events a second, so it takes the
agent's own publisher, found by its type, and from there on everything is as in production: the
publisher's batches, the link, the daemon's router, the hub. What is left out is the model.
"""

import asyncio
import gc
import threading
import time
from typing import Final

import cmdc_runtime as cmdc
from cmdc_runtime.events import MessageDelta
from workers.effects.publish import BATCH_EVENTS_MAX, Publisher
from workers.link import Link

MARK: Final = "~flood~"
"""Begins the text of every event that counts."""
TEXT: Final = MARK + "0123456789abcdefghijk"[: 27 - len(MARK)]
"""As long as a mark with a time stamp; a model's delta is shorter than a stamp, or about it."""
TIMEOUT_S: Final = 120.0


@cmdc.tool(effects="read", timeout=TIMEOUT_S)
async def flood(events: int) -> str:
    """Publish ``events`` deltas as fast as the daemon takes them."""
    publisher, link = _publisher()
    left = events
    while left > 0:
        burst = min(left, BATCH_EVENTS_MAX)
        for _ in range(burst):
            publisher.publish(MessageDelta(delta=TEXT))
        left -= burst
        await asyncio.sleep(0)  # the batch leaves
        await link.room()
    return "done"


@cmdc.tool(effects="read", timeout=TIMEOUT_S)
async def drip(events: int, interval_us: int) -> str:
    """Publish ``events`` deltas, one every ``interval_us``, each with its time in it."""
    publisher, _link = _publisher()
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def publish() -> None:
        publisher.publish(MessageDelta(delta=f"{MARK}{time.monotonic_ns():020d}"))

    def pace() -> None:
        due = time.monotonic()
        for _ in range(events):
            due += interval_us / 1e6
            time.sleep(max(0.0, due - time.monotonic()))
            loop.call_soon_threadsafe(publish)
        loop.call_soon_threadsafe(done.set)

    # A thread paces, because the loop's own timers are whole milliseconds.
    thread = threading.Thread(target=pace, name="drip", daemon=True)
    thread.start()
    await done.wait()
    thread.join()
    return "done"


def _publisher() -> tuple[Publisher, Link]:
    """Return the publisher of the agent that this runs in, and its link."""
    publisher = next(one for one in gc.get_objects() if isinstance(one, Publisher))
    link = publisher._send.__self__  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    assert isinstance(link, Link)
    return publisher, link
