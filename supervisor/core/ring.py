"""The newest batches of one session's events: what a lagging subscriber gets back at once."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cmdc_runtime.ids import EventIndex


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """Events ``first`` to ``first + count - 1``, encoded."""

    first: EventIndex
    count: int
    body: bytes

    @property
    def last(self) -> EventIndex:
        """The index of its last event."""
        return EventIndex(self.first + self.count - 1)


@dataclass(slots=True)
class Ring:
    """At most ``events_max`` events in ``bytes_max`` bytes; whole batches leave, oldest first.

    The newest batch always stays when ``events_max`` is more than 0, however large it is.
    """

    events_max: int
    bytes_max: int
    last: EventIndex = EventIndex(0)
    _batches: deque[KeptBatch] = field(default_factory=deque)
    _events: int = 0
    _bytes: int = 0

    def add(self, batch: KeptBatch) -> None:
        """Keep the next batch."""
        self.last = batch.last
        if self.events_max == 0:
            return
        self._batches.append(batch)
        self._events += batch.count
        self._bytes += len(batch.body)
        self._shrink(1)

    def resize(self, events_max: int) -> None:
        """Keep so many events from now on, of those that are kept the newest."""
        self.events_max = events_max
        self._shrink(min(events_max, 1))

    def _shrink(self, least: int) -> None:
        """Let the oldest batches go while there are too many, and more than ``least``."""
        while len(self._batches) > least and self._is_over():
            oldest = self._batches.popleft()
            self._events -= oldest.count
            self._bytes -= len(oldest.body)

    def skip(self, last: EventIndex) -> None:
        """Count on to ``last``: the events up to there are gone."""
        self.last = last

    def between(self, after: EventIndex, through: EventIndex) -> list[KeptBatch]:
        """Return the kept batches with events after ``after``, up to ``through``."""
        return [
            batch
            for batch in self._batches
            if max(batch.first, after + 1) <= min(batch.last, through)
        ]

    @property
    def first(self) -> EventIndex:
        """The oldest index that is kept, or the next one when nothing is."""
        return self._batches[0].first if self._batches else EventIndex(self.last + 1)

    def _is_over(self) -> bool:
        return self._events > self.events_max or self._bytes > self.bytes_max


def filling(sizes: Iterable[int], bytes_max: int) -> int:
    """Return how many of these, in their order, fill ``bytes_max``: all where they are fewer."""
    count = 0
    for count, size in enumerate(sizes, 1):  # noqa: B007 - the last one is what is asked for
        bytes_max -= size
        if bytes_max <= 0:
            break
    return count
