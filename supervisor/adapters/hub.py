"""The XPUB socket: checks that events are contiguous, keeps the rings, publishes.

A batch passes as it came: opaque bytes between (session, first index, count), so the cost is per
batch and not per event. A durable batch is in the journal before anybody sees it; what follows it
waits, so the order of a session's events never changes.

A session of a group is announced on the group's topic, where whoever follows the group hears of it.
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

import structlog
import zmq

from cmdc_runtime.codec import encode
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.frames import (
    GROUP_TOPIC,
    HEADER,
    Batch,
    Events,
    Joined,
    Watermark,
    group_topic_of,
    topic_of,
)
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.requests import Replayed, ReplayedBatch
from cmdc_runtime.sockets import Pump, Role, open_socket
from supervisor.adapters.endpoint import private_umask
from supervisor.adapters.journal.base import Journal
from supervisor.core.limits import (
    CHANNELS_ENDED_MAX,
    GROUPS_KNOWN_MAX,
    REPLAY_BATCHES_MAX,
    REPLAY_BYTES_MAX,
    RING_BYTES_MAX,
    WATERMARK_S,
    WATERMARKS_AFTER,
)
from supervisor.core.ring import KeptBatch, Ring

log = structlog.get_logger()

_SUBSCRIBED: Final = b"\x01"


@dataclass(slots=True)
class Channel:
    """One session's stream: its ring, what waits for the journal, and how it is watched."""

    session_id: SessionId
    ring: Ring
    taken: EventIndex
    """The newest index that came from the worker; the ring's is the newest that was published."""
    waiting: deque[tuple[KeptBatch, bool]] = field(default_factory=deque)
    is_writing: bool = False
    waiters: list[tuple[EventIndex, asyncio.Future[None]]] = field(default_factory=list)
    watermarks_left: int = 0


@dataclass(slots=True)
class Group:
    """The announcements on one group's topic: the newest number, and how it is watched."""

    number: int
    watermarks_left: int = WATERMARKS_AFTER


class Hub:
    """All channels of the daemon and the socket that they go out by."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", journal: Journal) -> None:
        """Make the socket; ``bind`` opens it."""
        self._socket = open_socket(context, Role.EVENTS)
        self._pump = Pump(self._socket, self._on_subscription)
        self._journal = journal
        self._channels: dict[SessionId, Channel] = {}
        self._ended: deque[SessionId] = deque()
        self._groups: OrderedDict[bytes, Group] = OrderedDict()
        self._announced = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = False

    def bind(self, address: str) -> None:
        """Listen at ``address``, in the running loop."""
        with private_umask():
            self._socket.bind(address)
        self._pump.start()
        self._is_open = True
        self._beat()

    def close(self) -> None:
        """Stop and close."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self._pump.stop()

    def open_channel(self, session_id: SessionId, events_max: int, last: EventIndex) -> None:
        """Begin a session's stream after index ``last``."""
        ring = Ring(events_max, RING_BYTES_MAX, last=last)
        if session_id in self._ended:  # the id starts anew
            self._ended.remove(session_id)
        channel = Channel(session_id, ring, taken=last)
        self._channels[session_id] = channel

    def close_channel(self, session_id: SessionId) -> None:
        """Let a session's ring go, after ``CHANNELS_ENDED_MAX`` others ended too.

        Late readers still get its last events; later on the journal has the durable ones.
        """
        self._ended.append(session_id)
        if len(self._ended) > CHANNELS_ENDED_MAX:
            self._channels.pop(self._ended.popleft(), None)

    def announce(self, group_id: str, session_id: SessionId) -> None:
        """Tell the followers of a group that a session of it starts.

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

    def take(self, session_id: SessionId, batch: Batch, body: bytes) -> bool:
        """Publish a batch; False means that it is not the next one, and it is refused."""
        channel = self._channels.get(session_id)
        if channel is None or batch.first != channel.taken + 1 or batch.count < 1:
            return False
        kept = KeptBatch(batch.first, batch.count, body)
        channel.taken = kept.last
        if batch.durable or channel.waiting:
            channel.waiting.append((kept, batch.durable))
            if batch.durable:
                self._write(channel, kept)
        else:
            self._publish(channel, kept)
        return True

    async def flushed(self, session_id: SessionId) -> None:
        """Return when everything that was taken is published."""
        channel = self._channels.get(session_id)
        if channel is not None:
            await self._published(channel, channel.taken)

    async def replay(
        self, session_id: SessionId, after: EventIndex, through: EventIndex
    ) -> Replayed:
        """Return events after ``after`` up to ``through``: from the ring, else the journal."""
        channel = self._channels.get(session_id)
        if channel is not None:  # what was taken is not lost, only on its way to the journal
            await self._published(channel, EventIndex(min(through, channel.taken)))
        kept = [] if channel is None else channel.ring.between(after, through)
        edge = channel.ring.first if channel is not None else through + 1
        if after + 1 < edge:
            rows = await self._journal.replay(
                session_id, after, EventIndex(min(through, edge - 1)), REPLAY_BATCHES_MAX
            )
            older = [KeptBatch(row.first, row.count, row.body) for row in rows]
            if len(rows) == REPLAY_BATCHES_MAX:
                kept = []  # the rest comes with the next answer
                through = older[-1].last
            kept = [*older, *(batch for batch in kept if not older or batch.first > older[-1].last)]
        if (kept[-1].last if kept else after) < through < edge - 1:
            through = await self._end_of_hole(session_id, through, EventIndex(edge))
        last = max(self.last_index(session_id), kept[-1].last if kept else 0)
        return _replayed(kept, through, EventIndex(last))

    async def _end_of_hole(
        self, session_id: SessionId, inside: EventIndex, edge: EventIndex
    ) -> EventIndex:
        """Return the last index of a hole, so that all of a jump is told lost by one answer."""
        rows = await self._journal.replay(session_id, inside, EventIndex(edge - 1), 1)
        return EventIndex((rows[0].first if rows else edge) - 1)

    def _write(self, channel: Channel, kept: KeptBatch) -> None:
        try:
            written: asyncio.Future[None] = asyncio.ensure_future(
                self._journal.publish(channel.session_id, kept.first, kept.count, kept.body)
            )
        except CmdcError as error:  # the journal's queue is full
            written = asyncio.get_running_loop().create_future()
            written.set_exception(error)
        written.add_done_callback(lambda done: self._written(channel, kept, done))

    def _written(self, channel: Channel, kept: KeptBatch, done: "asyncio.Future[None]") -> None:
        if done.cancelled() or not self._is_open:
            return
        error = done.exception()
        if error is not None:
            # It is published all the same: a subscriber may know more than the journal, and the
            # state of the session is in its records, not in its events.
            log.error("event.not_journaled", session_id=channel.session_id, problem=str(error))
        while channel.waiting:
            batch, durable = channel.waiting[0]
            if durable and batch.first > kept.first:
                return
            channel.waiting.popleft()
            self._publish(channel, batch)

    @staticmethod
    async def _published(channel: Channel, index: EventIndex) -> None:
        """Return when the event of this index is published; one that was taken soon is."""
        if channel.ring.last < index:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            channel.waiters.append((index, reached))
            await reached

    def _publish(self, channel: Channel, kept: KeptBatch) -> None:
        channel.ring.add(kept)
        if channel.waiters:
            due = [reached for index, reached in channel.waiters if index <= kept.last]
            channel.waiters = [one for one in channel.waiters if one[0] > kept.last]
            for reached in due:
                if not reached.done():
                    reached.set_result(None)
        channel.watermarks_left = WATERMARKS_AFTER
        frame = encode(Events(first=kept.first, count=kept.count))
        self._pump.send((topic_of(channel.session_id), HEADER, frame, kept.body))

    def _on_subscription(self, parts: list[bytes]) -> None:
        """Welcome a new subscription: its client learns that it is live, and from which index.

        One to all topics is welcomed under the empty topic, which no session has, and one to a
        group with the newest number there.
        """
        kind, topic = parts[0][:1], parts[0][1:]
        if kind != _SUBSCRIBED:
            return
        channel = self._channels.get(SessionId(topic.rstrip(b"\0").decode(errors="replace")))
        if channel is not None:
            self._mark(channel)
        elif not topic or topic.startswith(GROUP_TOPIC):
            group = self._groups.get(topic)
            self._mark_topic(topic, 0 if group is None else group.number)

    def _mark(self, channel: Channel) -> None:
        frame = encode(Watermark(last=channel.ring.last))
        self._pump.send((topic_of(channel.session_id), HEADER, frame))

    def _mark_topic(self, topic: bytes, newest: int) -> None:
        self._pump.send((topic, HEADER, encode(Watermark(last=EventIndex(newest)))))

    def _beat(self) -> None:
        """Publish the newest index of every session, and number of every group, with news."""
        for channel in self._channels.values():
            if channel.watermarks_left > 0:
                channel.watermarks_left -= 1
                self._mark(channel)
        for topic, group in self._groups.items():
            if group.watermarks_left > 0:
                group.watermarks_left -= 1
                self._mark_topic(topic, group.number)
        self._timer = asyncio.get_running_loop().call_later(WATERMARK_S, self._beat)


def _replayed(kept: list[KeptBatch], through: EventIndex, last: EventIndex) -> Replayed:
    batches: list[ReplayedBatch] = []
    size = 0
    for batch in kept:
        size += len(batch.body)
        if batches and size > REPLAY_BYTES_MAX:
            through = EventIndex(batch.first - 1)
            break
        batches.append(ReplayedBatch(first=batch.first, count=batch.count, body=batch.body))
    return Replayed(batches=tuple(batches), through=through, last=last)
