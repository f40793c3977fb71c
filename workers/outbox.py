"""What a worker has sent and was not told to be safe: to be sent again to the next daemon. Pure.

Messages are kept as they were sent, in their order, and leave from the front. One with records is
safe when the journal has it, one with events when they are out.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cmdc_runtime.frames import Batch
from cmdc_runtime.ids import EventIndex

CALM_BYTES: Final = 8 * 2**20
"""With more than this a producer of many events waits; it is about a minute of streamed text."""
HELD_BYTES_MAX: Final = 64 * 2**20
"""A worker that must keep more than this can't go on: nobody has stored its work for too long."""

Parts: TypeAlias = Sequence[bytes]


@dataclass(frozen=True, slots=True)
class _Held:
    """One message; ``number`` is 0 without records, ``first`` and ``last`` without events."""

    number: int
    first: int
    last: int
    parts: Parts
    size: int


@dataclass(slots=True)
class Outbox:
    """The messages of one incarnation that are not safe yet."""

    number: int = 0
    """Of the newest message with records."""
    written: int = 0
    """Of the newest one that the journal has."""
    size: int = 0
    """Of all messages, in bytes."""
    _held: deque[_Held] = field(default_factory=deque)

    def hold(self, parts: Parts, batches: Sequence[Batch], *, number: int = 0) -> None:
        """Keep a message that is about to be sent."""
        first = batches[0].first if batches else 0
        last = batches[-1].first + batches[-1].count - 1 if batches else 0
        size = sum(map(len, parts))
        self._held.append(_Held(number, first, last, parts, size))
        self.number = max(self.number, number)
        self.size += size

    def settle(self, number: int, index: int) -> None:
        """Let go of what is safe: records up to ``number``, events up to ``index``."""
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

    def __iter__(self) -> Iterator[Parts]:
        """Yield the messages, oldest first."""
        return (held.parts for held in self._held)
