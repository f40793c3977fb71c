"""Numbers the session's events and sends them in adaptive batches.

A batch holds what one turn of the loop produced: a lone event leaves at once, a burst leaves
together. Durable and ephemeral events never share a batch, so the journal keeps whole batches.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from cmdc_runtime.clock import now_ms
from cmdc_runtime.events import Event
from cmdc_runtime.ids import EventIndex
from cmdc_runtime.wire.codec import encode_events
from cmdc_runtime.wire.frames import BATCH_EVENTS_MAX, Batch

BATCH_BYTES_MAX: Final = 2**20
"""Of one batch of several events: a frame that is too large would cost the connection."""


class Publisher:
    """The only place that gives an event its index."""

    def __init__(
        self,
        next_index: EventIndex,
        send: Callable[[Batch, bytes], None],
    ) -> None:
        """Begin with ``next_index``."""
        self._next = int(next_index)
        self._send = send
        self._gathered: list[tuple[int, Event]] = []
        self.last_at_ms = 0
        """When the newest event was published, wall time; 0 before the first one."""
        self._is_scheduled = False

    @property
    def last_index(self) -> EventIndex:
        """The index of the newest event."""
        return EventIndex(self._next + len(self._gathered) - 1)

    def publish(self, event: Event) -> None:
        """Give ``event`` its number; it leaves when the loop gets its next turn."""
        self.last_at_ms = now_ms()
        self._gathered.append((self.last_at_ms, event))
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send what was gathered."""
        self._is_scheduled = False
        for batch, body in self.take():
            self._send(batch, body)

    def take(self) -> Iterator[tuple[Batch, bytes]]:
        """Yield what was gathered, for the caller to send now; it counts as sent."""
        gathered, self._gathered = self._gathered, []
        while gathered:
            count = _run_length(gathered)
            yield from self._batches(gathered[:count])
            del gathered[:count]

    def _batches(self, run: list[tuple[int, Event]]) -> Iterator[tuple[Batch, bytes]]:
        body, count = encode_events(run), len(run)
        if count > 1 and len(body) > BATCH_BYTES_MAX:
            yield from self._batches(run[: count // 2])
            yield from self._batches(run[count // 2 :])
            return
        batch = Batch(first=EventIndex(self._next), count=count, durable=run[0][1].durable)
        self._next += count
        yield batch, body


def _run_length(entries: list[tuple[int, Event]]) -> int:
    durable = entries[0][1].durable
    for count, (_, event) in enumerate(entries[:BATCH_EVENTS_MAX]):
        if event.durable != durable:
            return count
    return min(len(entries), BATCH_EVENTS_MAX)
