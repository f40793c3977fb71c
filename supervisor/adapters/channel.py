"""One session's events on their way: what waits for the journal, and who waits for what.

The order never changes. What waits is bounded: behind a journal that takes too long, events that
need not be kept are let go, and counted, so that their subscribers are told.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from cmdc_runtime.ids import EventIndex, SessionId
from supervisor.core.limits import EVENTS_WAITING_BYTES_MAX, PUBLISH_WAIT_S
from supervisor.core.ring import KeptBatch, Ring


@dataclass(frozen=True, slots=True)
class Waiting:
    """A batch that waits for the journal; one that ``is_dropped`` has no body any more."""

    kept: KeptBatch
    durable: bool = False
    is_dropped: bool = False


@dataclass(slots=True)
class Channel:
    """One session's stream: its ring, what waits for the journal, and how it is watched."""

    session_id: SessionId
    ring: Ring
    taken: EventIndex
    """The newest index that came from the worker; the ring's is the newest that was published."""
    waiting: deque[Waiting] = field(default_factory=deque)
    waiting_bytes: int = 0
    waiters: list[tuple[EventIndex, asyncio.Future[None]]] = field(default_factory=list)
    watermarks_left: int = 0
    beats: int = 0
    """Since the newest index was last told."""
    is_heard: bool = False
    """Whether somebody has subscribed to this session by its own topic."""

    def queue(self, new: Waiting) -> None:
        """Have a batch wait; an ephemeral one is let go where too much waits already."""
        if not new.durable and self.waiting_bytes > EVENTS_WAITING_BYTES_MAX:
            first, count = new.kept.first, new.kept.count
            if self.waiting[-1].is_dropped:
                before = self.waiting.pop().kept
                first, count = before.first, before.count + count
            new = Waiting(KeptBatch(first, count, b""), is_dropped=True)
        self.waiting.append(new)
        self.waiting_bytes += len(new.kept.body)

    def written(self, durable: KeptBatch) -> list[Waiting]:
        """Return what can go now that the journal has answered for ``durable``, in order."""
        due: list[Waiting] = []
        while self.waiting:
            first = self.waiting[0]
            if first.durable and first.kept.first > durable.first:
                break
            due.append(self.waiting.popleft())
            self.waiting_bytes -= len(first.kept.body)
        return due

    async def published(self, index: EventIndex) -> bool:
        """Return when the event of this index, which was taken, is published; False: not in time.

        The time is ``PUBLISH_WAIT_S``.
        """
        if self.ring.last >= index:
            return True
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append((index, reached))
        try:
            async with asyncio.timeout(PUBLISH_WAIT_S):
                await reached
        except TimeoutError:
            return False
        finally:
            self.waiters = [one for one in self.waiters if one[1] is not reached]
        return True

    def wake(self) -> None:
        """Tell those who wait for an index that is published now."""
        for index, reached in self.waiters:
            if index <= self.ring.last and not reached.done():
                reached.set_result(None)
