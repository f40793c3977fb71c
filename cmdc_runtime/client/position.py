"""The place of one subscriber in one session's events: nothing twice, nothing skipped in silence.

Pure: batches, watermarks and replays go in, envelopes to deliver come out, and ``missing`` says
what to ask for next. The cursor is the index of the last event that was delivered; it grows. Live
batches that come before a gap is filled are kept aside, up to a bound; beyond it they are dropped,
since whatever is known to exist and was not delivered is asked for sooner or later.

``room`` is how many events the consumer still takes. What does not fit counts as not seen.

Where the daemon counts less far than the cursor, because its journal is an older copy, the
position goes back and says so: an EventsLost whose own index lies below what it names.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cmdc_runtime import codec
from cmdc_runtime.client.limits import AHEAD_EVENTS_MAX
from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.events import Envelope, Event, EventsLost
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.requests import Replayed


@dataclass(frozen=True, slots=True)
class Range:
    """The events after ``after``, up to and including ``through``."""

    after: EventIndex
    through: EventIndex


class EventBatch:
    """Events ``first`` to ``last``; decoded once, when somebody needs them."""

    __slots__ = ("_entries", "body", "first", "last")

    def __init__(self, first: int, count: int, body: bytes) -> None:
        """Keep the events as they came."""
        self.first = first
        self.last = first + count - 1
        self.body = body
        self._entries: Sequence[tuple[int, Event]] | None = None

    def entries(self) -> Sequence[tuple[int, Event]]:
        """Return ``(at_ms, event)`` in order, nothing at all when the body is not what it says."""
        if self._entries is None:
            try:
                found = codec.decode_events(self.body)
            except ProtocolError:
                found = []
            self._entries = found if len(found) == self.last - self.first + 1 else []
        return self._entries


class Position:
    """Follows one session from ``cursor`` on; None means from the first event that comes."""

    def __init__(self, session_id: SessionId, cursor: int | None, created_ms: int = 0) -> None:
        """Start with nothing known but the place to start from."""
        self.session_id = session_id
        self.created_ms = created_ms
        """When this session began, by which it differs from another one of its id; 0: not known."""
        self.cursor = cursor
        self.known = cursor or 0
        """The newest index that is known of."""
        self._ahead: dict[int, EventBatch] = {}
        self._ahead_events = 0
        self._end: int | None = None

    @property
    def is_finished(self) -> bool:
        """Say whether the session has ended and its last event was delivered."""
        return self._end is not None and self.cursor is not None and self.cursor >= self._end

    def extend(self, last: int) -> None:
        """Know that events up to ``last`` exist."""
        if self.cursor is None:
            self.cursor = last
        self.known = max(self.known, last)

    def is_ahead_of(self, last: int) -> bool:
        """Say whether more is known of than the events up to ``last``."""
        return self.known > last

    def go_back(self, last: int, now_ms: int) -> list[Envelope]:
        """Go on behind ``last``, which is as far as the daemon counts; the rest is lost."""
        if not self.is_ahead_of(last):
            return []
        gone = EventsLost(first=EventIndex(last + 1), last=EventIndex(self.known))
        self.cursor = last if self.cursor is None else min(self.cursor, last)
        self.known = last
        self._ahead.clear()
        self._ahead_events = 0
        return [self._enveloped(self.cursor, gone, now_ms)]

    def begin_again(self, created_ms: int) -> None:
        """Follow another session of this id from its beginning."""
        self.created_ms = created_ms
        self.cursor = self.known = 0
        self._ahead.clear()
        self._ahead_events = 0

    def end_at(self, last: int) -> None:
        """Know that no event will follow ``last``."""
        self.extend(last)
        self._end = last

    def live(self, batch: EventBatch, room: int, now_ms: int) -> list[Envelope]:
        """Take a batch as it was published and return what can be delivered."""
        if self.cursor is None:
            self.cursor = batch.first - 1
        self.known = max(self.known, batch.last)
        if batch.last <= self.cursor or room <= 0:
            return []
        if batch.first > self.cursor + 1:
            self._keep(batch)
            return []
        envelopes = self._take(batch, self.cursor, room, now_ms)
        return envelopes + self.drain(room - len(envelopes), now_ms)

    def replayed(self, asked: Range, answer: Replayed, room: int, now_ms: int) -> list[Envelope]:
        """Take the answer to ``asked``; what it leaves out comes as one EventsLost for each hole.

        An answer that reaches no further than the question's start, from a daemon that knows of
        these events, means that they are lost as well. Of those that it does not know, or not yet,
        nothing is said: ``go_back`` does if it stays like that.
        """
        envelopes: list[Envelope] = []
        cursor = asked.after if self.cursor is None else self.cursor
        for one in answer.batches:
            batch = EventBatch(one.first, one.count, one.body)
            if batch.last <= cursor:
                continue
            if len(envelopes) >= room:
                return envelopes
            envelopes += self._lose(cursor, batch.first - 1, now_ms)
            cursor = max(cursor, batch.first - 1)
            envelopes += self._take(batch, cursor, max(1, room - len(envelopes)), now_ms)
            cursor = self.cursor or 0
            if cursor < batch.last:
                return envelopes
        reach = answer.through
        if reach <= asked.after and answer.last >= asked.through:
            reach = asked.through
        envelopes += self._lose(cursor, reach, now_ms)
        return envelopes + self.drain(room - len(envelopes), now_ms)

    def drain(self, room: int, now_ms: int) -> list[Envelope]:
        """Return what was kept aside and follows the cursor now."""
        envelopes: list[Envelope] = []
        while self._ahead and self.cursor is not None and len(envelopes) < room:
            first = min(self._ahead)
            if first > self.cursor + 1:
                break
            batch = self._ahead.pop(first)
            self._ahead_events -= batch.last - batch.first + 1
            if batch.last > self.cursor:
                envelopes += self._take(batch, self.cursor, room - len(envelopes), now_ms)
        return envelopes

    def missing(self, room: int) -> Range | None:
        """Return what to ask for now, no more than there is room for; None when nothing is."""
        if self.cursor is None:
            return None
        known = min(self._ahead) - 1 if self._ahead else self.known
        through = min(known, self.cursor + room)
        if through <= self.cursor:
            return None
        return Range(EventIndex(self.cursor), EventIndex(through))

    def _keep(self, batch: EventBatch) -> None:
        count = batch.last - batch.first + 1
        if batch.first not in self._ahead and self._ahead_events + count <= AHEAD_EVENTS_MAX:
            self._ahead[batch.first] = batch
            self._ahead_events += count

    def _take(self, batch: EventBatch, cursor: int, room: int, now_ms: int) -> list[Envelope]:
        entries = batch.entries()
        if not entries:
            return self._lose(cursor, batch.last, now_ms)
        start = cursor + 1 - batch.first
        chosen = entries[start : start + room]
        self.cursor = cursor + len(chosen)
        self.known = max(self.known, self.cursor)
        return [
            self._enveloped(index, event, at_ms)
            for index, (at_ms, event) in enumerate(chosen, cursor + 1)
        ]

    def _lose(self, cursor: int, last: int, now_ms: int) -> list[Envelope]:
        if last <= cursor:
            return []
        self.cursor = last
        self.known = max(self.known, last)
        event = EventsLost(first=EventIndex(cursor + 1), last=EventIndex(last))
        return [self._enveloped(last, event, now_ms)]

    def _enveloped(self, index: int, event: Event, at_ms: int) -> Envelope:
        return Envelope(
            session_id=self.session_id, index=EventIndex(index), at_ms=at_ms, event=event
        )
