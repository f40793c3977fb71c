"""Which sessions this client hears: one subscription for all streams of a session.

A topic is subscribed to when its first stream opens and given back when its last one closes. While
it is open, a monitor of the client's own tells the end of the session to every stream of it. A
group has a topic too, and its streams enter and quit those of its sessions.
"""

import asyncio
import logging
from typing import Final, Protocol

from cmdc_runtime.client.feed import Feed
from cmdc_runtime.client.groups import Group, GroupFollower, Link
from cmdc_runtime.client.limits import REPLAY_RETRY_S, WELCOME_ALL_S, WELCOME_S
from cmdc_runtime.client.subscription import Batch
from cmdc_runtime.errors import CmdcError, InvalidSession, SessionNotAlive, TransientError
from cmdc_runtime.frames import (
    GROUP_TOPIC,
    Events,
    Published,
    Watermark,
    group_topic_of,
    topic_of,
)
from cmdc_runtime.ids import SUPERVISOR, SessionId, new_monitor_ref
from cmdc_runtime.reasons import AnyReason, Down, Other
from cmdc_runtime.requests import FindSession, ListSessions, SessionInfo

_log = logging.getLogger(__name__)

ALL_TOPICS: Final = b""
_TOPIC_END: Final = b"\0"


class Ear(Protocol):
    """What the topics need of the sockets."""

    def listen(self, topic: bytes) -> None:
        """Subscribe."""

    def ignore(self, topic: bytes) -> None:
        """Take it back."""


class _Topic:
    """One session that at least one stream follows."""

    def __init__(self) -> None:
        self.feeds: set[Feed] = set()
        self.welcomed = asyncio.Event()


class _Follower:
    """One stream of one session, and the monitor that tells it of the session's end."""

    def __init__(self, link: Link, session_id: SessionId, feed: Feed) -> None:
        self.session_id = session_id
        self.feed = feed
        self.ref = new_monitor_ref()
        self._link = link

    def on_down(self, down: Down) -> None:
        if not down.restarting:
            self._link.spawn(self._finish(down.reason))

    def on_end(self, error: CmdcError) -> None:
        """Do nothing: whoever ends the monitors ends the streams as well."""

    async def _finish(self, reason: AnyReason) -> None:
        last = self.feed.known(self.session_id)
        try:
            found: SessionInfo = await self._link.ask(FindSession(session_id=self.session_id))
        except InvalidSession:  # nobody remembers it: what was heard of is what there is
            pass
        except CmdcError as error:
            self.feed.finish(error)
            return
        else:
            last = max(last, found.last_index)
        self.feed.on_end(self.session_id, last, SessionNotAlive(reason))


class Topics:
    """All that one connection hears of."""

    def __init__(self, link: Link, ear: Ear) -> None:
        """Start deaf."""
        self._link = link
        self._ear = ear
        self._topics: dict[SessionId, _Topic] = {}
        self._followers: dict[Feed, _Follower] = {}
        self._groups: dict[bytes, Group] = {}
        self._group_followers: dict[Feed, GroupFollower] = {}
        self._all: set[Feed] = set()
        self._all_welcomed = asyncio.Event()

    def __len__(self) -> int:
        """Return how many streams are filled."""
        return len(self._followers) + len(self._group_followers) + len(self._all)

    async def follow(self, session_id: SessionId, feed: Feed, since: int | None) -> None:
        """Fill ``feed`` with the session's events after ``since``, or from now on.

        Raises:
            InvalidSession: it was never seen.
            SessionNotAlive: it has ended, and its past was not asked for.

        """
        found: SessionInfo = await self._link.ask(FindSession(session_id=session_id))
        reason = found.reason or Other(detail="its reason is not known")
        if found.phase == "ended" and since is None:
            raise SessionNotAlive(reason)
        follower = self._followers[feed] = _Follower(self._link, session_id, feed)
        feed.on_finish = self.leave
        cursor = found.last_index if since is None else since
        feed.follow(session_id, cursor, found.created_ms)
        if found.phase == "ended":
            feed.on_end(session_id, found.last_index, SessionNotAlive(reason))
            return
        topic = self.enter(session_id, feed)
        try:
            feed.on_start(found)
            await self._link.monitors.add(session_id, follower, ref=follower.ref, persistent=True)
            if not await _bounded(topic.welcomed, WELCOME_S):
                found = await self._link.ask(FindSession(session_id=session_id))
                feed.on_head(found)
        except BaseException:
            self.leave(feed)
            raise

    async def follow_group(self, group_id: str, feed: Feed, since: int | None = None) -> None:
        """Fill ``feed`` with the events of a group's sessions until it is finished.

        Those that are there are heard after their own index ``since`` (0: their whole past), or
        from now on; one that starts after this has returned is heard from its first event on.
        """
        follower = self._group_followers[feed] = GroupFollower(self._link, self, group_id, feed)
        feed.spans_sessions = True
        feed.on_finish = self.leave
        group = self._group(group_topic_of(group_id))
        group.followers.add(follower)
        try:
            await group.welcomed()
            await follower.begin(since)
        except BaseException:
            self.leave(feed)
            raise

    async def follow_all(self, feed: Feed) -> None:
        """Fill ``feed`` with the events of all sessions from now on, new ones included."""
        found: tuple[SessionInfo, ...] = await self._link.ask(ListSessions())
        feed.on_finish = self.leave
        for one in found:
            feed.follow(one.session_id, one.last_index, one.created_ms)
        if not self._all:
            self._all_welcomed.clear()
            self._ear.listen(ALL_TOPICS)
        self._all.add(feed)
        try:
            await _bounded(self._all_welcomed, WELCOME_ALL_S)
        except BaseException:
            self.leave(feed)
            raise

    def look_again(self) -> None:
        """Compare with a daemon that has just taken over: what was lost may have no successor.

        It may also count less far than was heard of, when its journal is an older copy.
        """
        if self._topics or self._all:
            self._link.spawn(self._look())

    async def _look(self) -> None:
        found: tuple[SessionInfo, ...] | None = None
        while found is None:
            try:
                found = await self._link.ask(ListSessions())
            except TransientError:
                await asyncio.sleep(REPLAY_RETRY_S)
            except CmdcError as error:
                _log.warning("stream.not_compared", extra={"error": str(error)})
                return
        for one in found:
            for feed in self.hearing(one.session_id):
                feed.on_head(one)

    def leave(self, feed: Feed) -> None:
        """Fill ``feed`` no more."""
        if feed in self._all:
            self._all.discard(feed)
            if not self._all:
                self._ear.ignore(ALL_TOPICS)
        grouped = self._group_followers.pop(feed, None)
        if grouped is not None:
            self._leave_group(grouped)
        follower = self._followers.pop(feed, None)
        if follower is not None:
            self._link.monitors.drop(follower.ref)
            self.quit(follower.session_id, feed)

    def enter(self, session_id: SessionId, feed: Feed) -> _Topic:
        """Hand the session's events to ``feed``."""
        topic = self._topics.get(session_id)
        if topic is None:
            topic = self._topics[session_id] = _Topic()
            self._ear.listen(topic_of(session_id))
        topic.feeds.add(feed)
        return topic

    def quit(self, session_id: SessionId, feed: Feed) -> None:
        """Do it no more."""
        topic = self._topics.get(session_id)
        if topic is not None and feed in topic.feeds:
            topic.feeds.discard(feed)
            if not topic.feeds:
                del self._topics[session_id]
                self._ear.ignore(topic_of(session_id))

    def feeds_of(self, session_id: SessionId) -> list[Feed]:
        """Return what is filled with this session's events alone."""
        return [one.feed for one in self._followers.values() if one.session_id == session_id]

    def take(self, topic: bytes, frame: Published, body: bytes) -> None:
        """Hand on what was published under ``topic``."""
        if topic == ALL_TOPICS:
            self._all_welcomed.set()
            return
        if topic.startswith(GROUP_TOPIC):
            if topic in self._groups:
                self._groups[topic].take(frame)
            return
        name, end, _rest = topic.partition(_TOPIC_END)
        if not end:
            return
        session_id = SessionId(name.decode(errors="replace"))
        known = self._topics.get(session_id)
        if known is not None:
            known.welcomed.set()
        feeds = self.hearing(session_id)
        if isinstance(frame, Events):
            batch = Batch(frame.first, frame.count, body)
            for feed in feeds:
                feed.on_batch(session_id, batch)
        elif isinstance(frame, Watermark):
            for feed in feeds:
                feed.on_watermark(session_id, frame.last)

    def hearing(self, session_id: SessionId) -> list[Feed]:
        """Return what is filled with this session's events, among others or alone."""
        known = self._topics.get(session_id)
        feeds = [] if session_id == SUPERVISOR else list(self._all)  # it is no session
        return feeds + ([] if known is None else list(known.feeds))

    def fail(self, error: CmdcError) -> None:
        """End every stream."""
        for topic in self._topics.values():
            topic.welcomed.set()
        self._all_welcomed.set()
        for group in self._groups.values():
            group.fail()
        for feed in [*self._followers, *self._group_followers, *self._all]:
            feed.finish(error)

    def _group(self, topic: bytes) -> Group:
        group = self._groups.get(topic)
        if group is None:
            group = self._groups[topic] = Group()
            self._ear.listen(topic)
        return group

    def _leave_group(self, follower: GroupFollower) -> None:
        follower.close()
        topic = group_topic_of(follower.group_id)
        group = self._groups[topic]
        group.followers.discard(follower)
        if not group.followers:
            del self._groups[topic]
            self._ear.ignore(topic)


async def _bounded(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
