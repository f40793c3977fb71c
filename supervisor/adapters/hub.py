"""The XPUB socket: checks that events are contiguous, keeps the rings, publishes.

A batch passes as it came: opaque bytes between (session, first index, count), so the cost is per
batch and not per event. A durable batch is in the journal before anybody sees it; what follows it
waits, so the order of a session's events never changes (``Channel``). No wait for the journal is
without bound: when it takes too long, who asks for events gets a ``TransientError``, and what need
not be kept is let go, counted, and reported as lost.

Subscribers may lose anything on its way, the last event too. So the newest index follows each event
a few times, greets each new subscription, and is repeated as long as somebody listens.

A session of a group is announced on the group's topic, where whoever follows the group hears of it.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog
import zmq

from cmdc_runtime.errors import CmdcError, TransientError
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.requests import Replayed, ReplayedBatch
from cmdc_runtime.wire.codec import encode
from cmdc_runtime.wire.frames import (
    GROUP_TOPIC,
    HEADER,
    Batch,
    Events,
    Joined,
    Watermark,
    group_topic_of,
    topic_of,
)
from cmdc_runtime.wire.sockets import Pump, Role, open_socket
from supervisor.adapters.endpoint import private_umask
from supervisor.adapters.journal.operations import PublishEvents, ReplayEvents
from supervisor.adapters.journal.store import Journal
from supervisor.core.authority import Refusals
from supervisor.core.limits import (
    CHANNELS_ENDED_MAX,
    EVENTS_WAITING_BYTES_MAX,
    GROUPS_KNOWN_MAX,
    PUBLISH_WAIT_S,
    REPLAY_BATCHES_MAX,
    REPLAY_BYTES_MAX,
    RING_BYTES_MAX,
    WATERMARK_IDLE_S,
    WATERMARK_S,
    WATERMARKS_AFTER,
    WATERMARKS_AT_ONCE_MAX,
)
from supervisor.core.peer_memory import BARRED_S, TOPICS_MAX, Barred, Heard, Subscriptions
from supervisor.core.ring import KeptBatch, Ring, filling

# --- one session's events -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnwrittenBatch:
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
    is_heard: bool
    """Whether somebody has subscribed to this session by its own topic."""
    waiting: deque[UnwrittenBatch] = field(default_factory=deque)
    waiting_bytes: int = 0
    waiters: list[tuple[EventIndex, asyncio.Future[None]]] = field(default_factory=list)
    watermarks_left: int = 0
    ticks: int = 0
    """Since the newest index was last published."""

    def queue(self, new: UnwrittenBatch) -> None:
        """Have a batch wait; an ephemeral one is let go where too much waits already."""
        if not new.durable and self.waiting_bytes > EVENTS_WAITING_BYTES_MAX:
            first, count = new.kept.first, new.kept.count
            if self.waiting[-1].is_dropped:
                before = self.waiting.pop().kept
                first, count = before.first, before.count + count
            new = UnwrittenBatch(KeptBatch(first, count, b""), is_dropped=True)
        self.waiting.append(new)
        self.waiting_bytes += len(new.kept.body)

    def written(self, durable: KeptBatch) -> list[UnwrittenBatch]:
        """Return what can go now that the journal has answered for ``durable``, in order."""
        due: list[UnwrittenBatch] = []
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
        """Wake those who wait for an index that is published now."""
        for index, reached in self.waiters:
            if index <= self.ring.last and not reached.done():
                reached.set_result(None)


# --- the hub --------------------------------------------------------------------------------------

log = structlog.get_logger()

_SUBSCRIBED: Final = b"\x01"
_ALL_TOPICS: Final = b""
_IDLE_TICKS: Final = round(WATERMARK_IDLE_S / WATERMARK_S)


@dataclass(slots=True)
class Group:
    """The announcements on one group's topic: the newest number, and how it is watched."""

    number: int
    watermarks_left: int = WATERMARKS_AFTER


def _nobody(_pid: int) -> int:
    """Cut nobody."""
    return 0


class Hub:
    """All channels of the daemon and the socket that they go out by."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        journal: Journal,
        on_excess: Callable[[int], int] = _nobody,
    ) -> None:
        """Make the socket; ``bind`` opens it.

        ``on_excess`` cuts the connections of a process, which follows too much, and says how many.
        """
        self._socket = open_socket(context, Role.EVENTS)
        self._pump = Pump(self._socket, self._on_subscription, asks_pid=True)
        self._journal = journal
        self._channels: dict[SessionId, Channel] = {}
        self._ended: deque[SessionId] = deque()
        self._groups: OrderedDict[bytes, Group] = OrderedDict()
        self._announced = 0
        self._subscriptions = Subscriptions()
        self._excesses = Refusals()
        self.cut = 0
        """How many connections were cut, of processes that follow too much."""
        self._barred = Barred()
        self.heard = Heard()
        """Which processes have subscribed."""
        self._on_excess = on_excess
        self._is_all_heard = False
        self._due: deque[Channel] = deque()
        """Whose newest index is still to be published in this tick."""
        self._timer: asyncio.TimerHandle | None = None
        """The next tick, from ``bind`` to ``close``."""

    def bind(self, address: str) -> None:
        """Listen at ``address``, in the running loop."""
        self.listen(address)
        self._pump.start()
        self._tick()

    def listen(self, address: str) -> None:
        """Listen at ``address``, where nobody listens any more; who is connected stays so."""
        with private_umask():
            self._socket.bind(address)

    def close(self) -> None:
        """Stop and close."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pump.stop()

    def open_channel(self, session_id: SessionId, events_max: int, last: EventIndex) -> None:
        """Begin a session's stream after index ``last``."""
        ring = Ring(events_max, RING_BYTES_MAX, last=last)
        if session_id in self._ended:  # the id starts anew
            self._ended.remove(session_id)
        before = self._channels.get(session_id)
        is_heard = before is not None and before.is_heard
        self._channels[session_id] = Channel(session_id, ring, taken=last, is_heard=is_heard)

    def resize(self, session_id: SessionId, events_max: int) -> None:
        """Keep so many of a session's newest events from now on."""
        if (channel := self._channels.get(session_id)) is not None:
            channel.ring.resize(events_max)

    def close_channel(self, session_id: SessionId) -> None:
        """Let a session's ring go, after ``CHANNELS_ENDED_MAX`` others ended too.

        Late readers still get its last events; later on the journal has the durable ones.
        """
        self._ended.append(session_id)
        if len(self._ended) > CHANNELS_ENDED_MAX:
            self._channels.pop(self._ended.popleft(), None)

    def announce(self, group_id: str, session_id: SessionId) -> None:
        """Publish to the followers of a group that a session of it starts.

        A number that was lost on its way shows by the next one or by a watermark. Those of a group
        that is forgotten go on from the count of all, which none of its own has exceeded.
        """
        topic = group_topic_of(group_id)
        group = self._groups.pop(topic, None) or Group(self._announced)
        self._announced += 1
        self._groups[topic] = Group(group.number + 1)
        if len(self._groups) > GROUPS_KNOWN_MAX:
            self._groups.popitem(last=False)
        frame = encode(Joined(session_id=session_id, number=group.number + 1))
        self._pump.send((topic, HEADER, frame))

    def last_index(self, session_id: SessionId) -> EventIndex:
        """Return the newest index that was published."""
        channel = self._channels.get(session_id)
        return EventIndex(0) if channel is None else channel.ring.last

    def taken_index(self, session_id: SessionId) -> EventIndex:
        """Return the newest index that came from the worker, published or about to be."""
        channel = self._channels.get(session_id)
        return EventIndex(0) if channel is None else channel.taken

    def take(
        self,
        session_id: SessionId,
        batch: Batch,
        body: bytes,
        written: "asyncio.Future[None] | None" = None,
    ) -> bool:
        """Publish a batch; False means that it is not the next one, and it is refused.

        A durable one is published when it is in the journal: by ``written``, or by its own write.
        """
        channel = self._channels.get(session_id)
        if channel is None or batch.first != channel.taken + 1 or batch.count < 1:
            return False
        kept = KeptBatch(batch.first, batch.count, body)
        channel.taken = kept.last
        if batch.durable:
            channel.queue(UnwrittenBatch(kept, durable=True))
            is_alone = written is None
            stored = self._write(channel, kept) if written is None else written
            stored.add_done_callback(
                lambda done: self._written(channel, kept, done, is_alone=is_alone)
            )
        elif channel.waiting:
            channel.queue(UnwrittenBatch(kept))
        else:
            self._publish(channel, kept)
        return True

    def skip(self, session_id: SessionId, count: int) -> None:
        """Count so many indexes as taken and gone, behind all that was taken.

        Nobody knows which of them were used, so no event may have one of them again.
        """
        channel = self._channels.get(session_id)
        if channel is None:
            return
        gone = KeptBatch(EventIndex(channel.taken + 1), count, b"")
        channel.taken = gone.last
        if channel.waiting:
            channel.queue(UnwrittenBatch(gone, is_dropped=True))
        else:
            self._pass_over(channel, gone)

    async def flushed(self, session_id: SessionId) -> None:
        """Return when everything that was taken is published, or ``PUBLISH_WAIT_S`` later.

        Then it comes after what the caller reports: an end that nobody hears of would be worse.
        """
        channel = self._channels.get(session_id)
        if channel is not None and not await channel.published(channel.taken):
            log.warning("event.delayed", session_id=session_id, waiting=len(channel.waiting))

    async def replay(
        self, session_id: SessionId, after: EventIndex, through: EventIndex
    ) -> Replayed:
        """Return events after ``after`` up to ``through``: from the ring, else the journal.

        Of what did not come from the worker so far nothing is said: the answer ends before it. It
        ends before what is on its way to the journal, too, where there is something to give before.

        Raises:
            TransientError: all of it has been on its way to the journal for ``PUBLISH_WAIT_S``.
        """
        channel = self._channels.get(session_id)
        if channel is not None:  # what was taken is not lost, only on its way to the journal
            through = EventIndex(min(through, channel.taken))
            if channel.ring.last > after:
                through = EventIndex(min(through, channel.ring.last))
            if not await channel.published(through):
                raise TransientError(
                    f"events of session {session_id} have waited {PUBLISH_WAIT_S:g} s for the "
                    "journal; ask again later"
                )
        kept = [] if channel is None else channel.ring.between(after, through)
        edge = channel.ring.first if channel is not None else through + 1
        if after + 1 < edge:
            rows = await self._journal.read(
                ReplayEvents(
                    session_id, after, EventIndex(min(through, edge - 1)), REPLAY_BATCHES_MAX
                )
            )
            older = [KeptBatch(row.first, row.count, row.body) for row in rows]
            if len(rows) == REPLAY_BATCHES_MAX or _bytes_of(older) >= REPLAY_BYTES_MAX:
                kept = []  # the rest comes with the next answer
                through = older[-1].last
            kept = [*older, *(batch for batch in kept if not older or batch.first > older[-1].last)]
        if (kept[-1].last if kept else after) < through < edge - 1:
            through = await self._end_of_hole(session_id, through, EventIndex(edge))
        last = max(self.taken_index(session_id), kept[-1].last if kept else 0)
        return _replayed(kept, through, EventIndex(last))

    async def _end_of_hole(
        self, session_id: SessionId, inside: EventIndex, edge: EventIndex
    ) -> EventIndex:
        """Return the last index of a hole, so that one answer reports all of a jump as lost."""
        rows = await self._journal.read(ReplayEvents(session_id, inside, EventIndex(edge - 1), 1))
        return EventIndex((rows[0].first if rows else edge) - 1)

    def _write(self, channel: Channel, kept: KeptBatch) -> "asyncio.Future[None]":
        try:
            return asyncio.ensure_future(
                self._journal.write(
                    PublishEvents(channel.session_id, kept.first, kept.count, kept.body)
                )
            )
        except CmdcError as error:  # the journal's queue is full
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    def _written(
        self, channel: Channel, kept: KeptBatch, done: "asyncio.Future[None]", *, is_alone: bool
    ) -> None:
        if done.cancelled() or self._timer is None:
            return
        if self._channels.get(channel.session_id, channel) is not channel:
            return  # the id began anew, and its indexes too
        error = done.exception()
        if error is not None:
            if self._journal.health.has_failed:
                return  # the daemon ends; the agent keeps it, and sends it to the next one
            # One that was to be stored alone is published all the same: a subscriber may know more
            # than the journal. One that reports records which are not there is void.
            log.error("event.not_journaled", session_id=channel.session_id, problem=str(error))
        is_void = error is not None and not is_alone
        for one in channel.written(kept):
            if one.is_dropped or (is_void and one.kept is kept):
                log.warning("event.dropped", session_id=channel.session_id, events=one.kept.count)
                self._pass_over(channel, one.kept)
            else:
                self._publish(channel, one.kept)

    def _pass_over(self, channel: Channel, dropped: KeptBatch) -> None:
        """Count events that were let go as published: the next index shows that they are gone."""
        channel.ring.skip(dropped.last)
        channel.wake()
        self._mark(channel)
        channel.watermarks_left = WATERMARKS_AFTER

    def _publish(self, channel: Channel, kept: KeptBatch) -> None:
        channel.ring.add(kept)
        channel.wake()
        channel.watermarks_left = WATERMARKS_AFTER
        frame = encode(Events(first=kept.first, count=kept.count))
        self._pump.send((topic_of(channel.session_id), HEADER, frame, kept.body))

    def _on_subscription(self, parts: list[bytes]) -> None:
        """Welcome a new subscription: its client learns that it is live, and from which index.

        One to all topics is welcomed under the empty topic, which no session has, and hears the
        newest index of each session with the next tick: it may be one that was cut off and is back.
        One to a group is welcomed with the newest number there.
        """
        is_new, topic = parts[0][:1] == _SUBSCRIBED, parts[0][1:]
        self._count(topic, is_new=is_new)
        channel = self._channels.get(SessionId(topic.rstrip(b"\0").decode(errors="replace")))
        if channel is not None:
            channel.is_heard = is_new
        elif topic == _ALL_TOPICS:
            self._is_all_heard = is_new
        if not is_new:
            return
        if channel is not None:
            self._mark(channel)
        elif topic == _ALL_TOPICS:
            self._mark_topic(topic, 0)
            for one in self._channels.values():
                one.watermarks_left = WATERMARKS_AFTER
        elif topic.startswith(GROUP_TOPIC):
            group = self._groups.get(topic)
            self._mark_topic(topic, 0 if group is None else group.number)

    def _count(self, topic: bytes, *, is_new: bool) -> None:
        """Count who follows a topic, and cut off a process that follows too many."""
        pid = self._pump.sender_pid
        if not is_new:
            self._subscriptions.remove(topic)
        elif pid is not None:
            self.heard.note(pid, time.monotonic())
            if (excessive := self._subscriptions.add(pid, topic)) is not None:
                self._subscriptions.forget(excessive)
                self._cut_off(excessive)

    def bars(self, pid: int | None) -> bool:
        """Say whether a process that followed too much must still wait before it is let in."""
        return self._barred.holds(pid, time.monotonic())

    def _cut_off(self, pid: int) -> None:
        self._barred.add(pid, time.monotonic())
        connections = self._on_excess(pid)
        if not connections:  # what it had said before it was cut
            return
        self.cut += connections
        count = self._excesses.count(str(pid).encode(), time.monotonic())
        if count is not None:
            log.warning(
                "subscriber.cut",
                pid=pid,
                connections=connections,
                topics_max=TOPICS_MAX,
                barred_s=BARRED_S,
                of_pid=count,
            )

    def _mark(self, channel: Channel) -> None:
        channel.ticks = 0
        frame = encode(Watermark(last=channel.ring.last))
        self._pump.send((topic_of(channel.session_id), HEADER, frame))

    def _mark_topic(self, topic: bytes, newest: int) -> None:
        self._pump.send((topic, HEADER, encode(Watermark(last=EventIndex(newest)))))

    def _tick(self) -> None:
        """Publish the newest index of every session, and number of every group, with news.

        Those without news come again from time to time while somebody listens: a subscriber that
        was stopped may have lost the last event and every word of it.
        """
        for channel in self._channels.values():
            channel.ticks += 1
            if channel.watermarks_left > 0:
                channel.watermarks_left -= 1
                self._due.append(channel)
            elif channel.ticks >= _IDLE_TICKS and (channel.is_heard or self._is_all_heard):
                self._due.append(channel)
        self._mark_due()
        for topic, group in self._groups.items():
            if group.watermarks_left > 0:
                group.watermarks_left -= 1
                self._mark_topic(topic, group.number)
        self._timer = asyncio.get_running_loop().call_later(WATERMARK_S, self._tick)

    def _mark_due(self) -> None:
        """Send some of the indexes that are due, and the rest when others have had their turn."""
        for _ in range(min(len(self._due), WATERMARKS_AT_ONCE_MAX)):
            self._mark(self._due.popleft())
        if self._due:
            asyncio.get_running_loop().call_soon(self._mark_due)


def _replayed(kept: list[KeptBatch], through: EventIndex, last: EventIndex) -> Replayed:
    count = filling((len(batch.body) for batch in kept), REPLAY_BYTES_MAX)
    if count < len(kept):
        through = EventIndex(kept[count].first - 1)
    batches = (ReplayedBatch(first=one.first, count=one.count, body=one.body) for one in kept)
    return Replayed(batches=tuple(islice(batches, count)), through=through, last=last)


def _bytes_of(batches: list[KeptBatch]) -> int:
    return sum(len(batch.body) for batch in batches)
