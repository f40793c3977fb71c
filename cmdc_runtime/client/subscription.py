"""From what is published to what one stream gets: gaps are filled, and a slow consumer waited for.

A subscription puts into its queue no more than the queue may hold. What does not fit is dropped
here and replayed when the consumer has made room, so a stream costs bounded memory and loses
nothing.

Where the daemon seems to count less far than is known, it is asked until the session is up, and
then believed: one that has just taken over may not have the agent's word yet.

``Position`` is the place of one subscriber in one session's events: nothing twice, nothing skipped
in silence.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmdc_runtime.client.limits import (
    AHEAD_EVENTS_MAX,
    HEAD_LOOK_S,
    REPLAY_RETRY_S,
    REPLAYS_PARALLEL_MAX,
    SESSIONS_FOLLOWED_MAX,
    STREAM_EVENTS_MAX,
    STREAM_REFILL_EVENTS,
)
from cmdc_runtime.client.monitors import Daemon
from cmdc_runtime.client.queues import Queue
from cmdc_runtime.client.selection import Selection
from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import CmdcError, ProtocolError, TransientError
from cmdc_runtime.events import AnyEvent, Envelope, EventsLost
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.requests import FindSession, Replay, Replayed, SessionInfo
from cmdc_runtime.wire import codec

# --- the place in the events ----------------------------------------------------------------------


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
        self._entries: Sequence[tuple[int, AnyEvent]] | None = None

    def entries(self) -> Sequence[tuple[int, AnyEvent]]:
        """Return ``(at_ms, event)`` in order, nothing at all when the body is not what it says."""
        if self._entries is None:
            try:
                found = codec.decode_events(self.body)
            except ProtocolError:
                found = []
            self._entries = found if len(found) == self.last - self.first + 1 else []
        return self._entries


class Position:
    """Follows one session from ``cursor`` on; None means from the first event that comes.

    Pure: batches, watermarks and replays go in, envelopes to deliver come out, and ``missing`` says
    what to ask for next. The cursor is the index of the last event that was delivered; it grows.
    Live batches that come before a gap is filled are buffered, up to a bound; beyond it they are
    dropped, since whatever is known to exist and was not delivered is asked for sooner or later.

    ``room`` is how many events the consumer still takes. What does not fit counts as not seen.

    Where the daemon counts less far than the cursor, because its journal is an older copy, the
    position goes back and says so: an EventsLost whose own index lies below what it names.
    """

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
            self._buffer(batch)
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
        """Return what was buffered and follows the cursor now."""
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

    def _buffer(self, batch: EventBatch) -> None:
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

    def _enveloped(self, index: int, event: AnyEvent, at_ms: int) -> Envelope:
        return Envelope(
            session_id=self.session_id, index=EventIndex(index), at_ms=at_ms, event=event
        )


# --- the subscription -----------------------------------------------------------------------------

_UNSETTLED: Final = frozenset({"starting", "restarting", "stopping"})
"""Phases of a session whose process may still have to say how far it is."""

_Look = Callable[[], Coroutine[Any, Any, None]]  # Any: nothing is sent to it


class Subscription:
    """Fills one stream's queue with the events of the sessions that it follows."""

    def __init__(
        self,
        daemon: Daemon,
        queue: Queue[Envelope],
        selection: Selection,
        *,
        follows_strangers: bool = False,
    ) -> None:
        """Follow nothing yet; ``follows_strangers``: also sessions that appear later."""
        self.is_lagging = False
        """Whether the consumer is to call ``refill`` when it has made room."""
        self.spans_sessions = follows_strangers
        """Whether it goes on when one of its sessions is gone."""
        self._finishers: list[Callable[[Subscription], object]] = []
        self._daemon = daemon
        self._queue = queue
        self._selection = selection
        self._follows_strangers = follows_strangers
        self._positions: dict[SessionId, Position] = {}
        self._has_forgotten = False
        self._behind: dict[SessionId, None] = {}
        """Those that miss something; who was served last comes last."""
        self._replays: dict[SessionId, asyncio.Task[None]] = {}
        self._looks: dict[SessionId, asyncio.Task[None]] = {}
        self._end: CmdcError | None = None
        self._is_finished = False
        self._moved = asyncio.Event()

    def follow(self, session_id: SessionId, cursor: int | None, created_ms: int = 0) -> None:
        """Follow a session from behind ``cursor``; None means from what comes first."""
        if len(self._positions) >= SESSIONS_FOLLOWED_MAX:
            del self._positions[next(iter(self._positions))]
            self._has_forgotten = True
        self._positions[session_id] = Position(session_id, cursor, created_ms)

    def known(self, session_id: SessionId) -> int:
        """Return the newest index that is known of."""
        position = self._positions.get(session_id)
        return position.known if position is not None else 0

    def on_batch(self, session_id: SessionId, batch: EventBatch) -> None:
        """Take events as they were published."""
        if session_id not in self._positions and self._follows_strangers:
            # It began after this stream did: what is lost of its beginning is asked for.
            self.follow(session_id, None if self._has_forgotten else 0)
            self._spawn_look(session_id, lambda: self._follow_new(session_id))
        position = self._positions.get(session_id)
        if position is None or self._is_finished:
            return
        if self._follows_strangers and batch.last <= (position.cursor or 0):
            self._check_later(position)  # no monitor says to a stream of all that an id began anew
        self._put(position.live(batch, self._room(), now_ms()))
        self._advance(position)

    def on_watermark(self, session_id: SessionId, last: int) -> None:
        """Know that events up to ``last`` exist."""
        position = self._positions.get(session_id)
        if position is not None:
            position.extend(last)
            self._advance(position)
        elif self._follows_strangers and not self._is_finished:
            self._spawn_look(session_id, lambda: self._follow_new(session_id))

    def on_start(self, found: SessionInfo) -> None:
        """Take the daemon's word on how far a session is that is followed right after."""
        position = self._positions.get(found.session_id)
        if position is not None and not self._is_finished:
            if not self._is_compared(position, position.known, found):
                self._check_later(position)
            self._advance(position)

    def on_head(self, found: SessionInfo) -> None:
        """Take the daemon's word on how far a session is; we may know of more since it came."""
        position = self._positions.get(found.session_id)
        if position is None or not position.is_ahead_of(found.last_index):
            self.on_watermark(found.session_id, found.last_index)
        elif not self._is_finished:
            self._check_later(position)

    def expect(self, found: SessionInfo) -> None:
        """Take the daemon's word on how far a session is; newer events may have overtaken it."""
        if found.phase != "ended" or found.session_id in self._positions:
            self.on_watermark(found.session_id, found.last_index)

    async def reached(self, session_id: SessionId, last: int) -> None:
        """Return when the session's events up to ``last`` are queued, or reported as lost.

        Also when that can't be: the session is not followed, the subscription is finished, or its
        consumer has to make room first.
        """
        while self._lacks(session_id, last):
            self._moved.clear()
            await self._moved.wait()

    def on_end(self, session_id: SessionId, last: int, error: CmdcError | None) -> None:
        """Finish with ``error`` once everything up to ``last`` is delivered.

        Without an error only this session is done then, and followed no more.
        """
        position = self._positions.get(session_id)
        if position is not None and not self._is_finished:
            self._put(position.go_back(last, now_ms()))
            self._end = error
            position.end_at(last)
            self._advance(position)

    def refill(self) -> None:
        """Ask for what was dropped, now that there is room."""
        # The flag comes first: the consumer empties the queue in its own thread meanwhile.
        self.is_lagging = bool(self._behind)
        if not self._may_ask():
            return  # the next answer, or the consumer, leads back here
        self.is_lagging = False
        for session_id in list(self._behind):
            if not self._may_ask():
                self.is_lagging = True
                return
            position = self._positions.get(session_id)
            if position is None:
                self._behind.pop(session_id, None)
            else:
                self._advance(position)

    def when_finished(self, call: Callable[["Subscription"], object]) -> None:
        """Call ``call`` once, when it is finished."""
        self._finishers.append(call)

    def finish(self, error: CmdcError) -> None:
        """Put nothing more into the queue; only the first call counts."""
        if self._is_finished:
            return
        self._is_finished = True
        for task in [*self._replays.values(), *self._looks.values()]:
            task.cancel()
        self._queue.finish(error)
        self._moved.set()
        for call in self._finishers:
            call(self)

    def _lacks(self, session_id: SessionId, last: int) -> bool:
        is_full = self.is_lagging and len(self._queue) > STREAM_REFILL_EVENTS
        if self._is_finished or is_full:
            return False
        position = self._positions.get(session_id)
        if position is None:
            return session_id in self._looks
        return position.cursor is None or position.cursor < last

    def _room(self) -> int:
        return STREAM_EVENTS_MAX - len(self._queue)

    def _may_ask(self) -> bool:
        is_full = len(self._queue) > STREAM_REFILL_EVENTS
        return not is_full and len(self._replays) < REPLAYS_PARALLEL_MAX

    def _put(self, envelopes: list[Envelope]) -> None:
        shown = self._selection.of(envelopes)
        if shown:
            self._queue.put(shown)
        self._moved.set()

    def _advance(self, position: Position) -> None:
        """Ask for what is missing, if anything is and there is room for it."""
        session_id = position.session_id
        if self._is_finished or session_id in self._replays or session_id in self._looks:
            return
        self._put(position.drain(self._room(), now_ms()))
        if position.cursor is None or position.cursor >= position.known:
            self._behind.pop(session_id, None)
            if position.is_finished:
                self._conclude(session_id)
            return
        self._behind.setdefault(session_id)
        # The flag comes first: the consumer empties the queue in its own thread meanwhile.
        self.is_lagging = True
        if not self._may_ask():
            return
        self.is_lagging = False
        asked = position.missing(self._room())
        if asked is not None:
            self._behind[session_id] = self._behind.pop(session_id)
            self._replays[session_id] = self._daemon.spawn(self._replay(position, asked))

    async def _replay(self, position: Position, asked: Range) -> None:
        session_id = position.session_id
        request = Replay(session_id=session_id, after=asked.after, through=asked.through)
        try:
            async with self._daemon.slots:
                answer: Replayed = await self._daemon.ask(request)
            self._put(position.replayed(asked, answer, self._room(), now_ms()))
            if answer.last < asked.through:
                self._check_later(position)
        except TransientError:
            await asyncio.sleep(REPLAY_RETRY_S)
        except CmdcError as error:
            self._give_up(session_id, error)
        finally:
            self._replays.pop(session_id, None)
        self.refill()

    def _check_later(self, position: Position) -> None:
        """Find out whether the daemon counts less far than is known; replays wait for it."""
        self._spawn_look(position.session_id, lambda: self._look(position))

    def _spawn_look(self, session_id: SessionId, look: _Look) -> None:
        if session_id not in self._looks:
            self._looks[session_id] = self._daemon.spawn(self._looked(session_id, look))

    async def _looked(self, session_id: SessionId, look: _Look) -> None:
        try:
            await look()
        except CmdcError as error:
            self._give_up(session_id, error)
        finally:
            self._looks.pop(session_id, None)
        position = self._positions.get(session_id)
        if position is not None:
            self._advance(position)

    async def _look(self, position: Position) -> None:
        is_compared = False
        while not is_compared:
            known = position.known  # before the question: more may come before its answer does
            is_compared = self._is_compared(position, known, await self._find(position.session_id))
            if not is_compared:
                await asyncio.sleep(HEAD_LOOK_S)

    def _is_compared(self, position: Position, known: int, found: SessionInfo) -> bool:
        """Compare what is known of with the daemon's word; False: it may not know yet."""
        if found.created_ms != position.created_ms != 0:
            self._begin_again(position, found)
        elif found.last_index >= known:
            position.extend(found.last_index)
        elif found.phase in _UNSETTLED:
            return False
        else:
            self._put(position.go_back(found.last_index, now_ms()))
        return True

    def _begin_again(self, position: Position, found: SessionInfo) -> None:
        """Follow another session of this id: who follows all expects it, others get EventsLost."""
        if not self._follows_strangers:
            self._put(position.go_back(0, now_ms()))
        position.begin_again(found.created_ms)
        position.extend(found.last_index)

    async def _follow_new(self, session_id: SessionId) -> None:
        """Follow a session that was not there before, from its beginning; not one that is over."""
        found = await self._find(session_id)
        if session_id not in self._positions:
            is_new = found.phase != "ended" and not self._has_forgotten
            self.follow(session_id, 0 if is_new else found.last_index)
        position = self._positions[session_id]
        position.created_ms = found.created_ms
        position.extend(found.last_index)

    async def _find(self, session_id: SessionId) -> SessionInfo:
        while True:
            try:
                async with self._daemon.slots:
                    found: SessionInfo = await self._daemon.ask(FindSession(session_id=session_id))
            except TransientError:
                await asyncio.sleep(REPLAY_RETRY_S)
            else:
                return found

    def _give_up(self, session_id: SessionId, error: CmdcError) -> None:
        if self.spans_sessions:
            self._behind.pop(session_id, None)
            self._positions.pop(session_id, None)
            self._moved.set()
        else:
            self.finish(error)

    def _conclude(self, session_id: SessionId) -> None:
        if self._end is not None:
            self.finish(self._end)
        else:
            self._positions.pop(session_id, None)
            self._moved.set()
