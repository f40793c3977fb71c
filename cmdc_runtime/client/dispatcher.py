"""Which sessions this client follows: one topic for all streams of a session.

A topic is subscribed to when its first stream opens and given back when its last one closes. While
it is open, a monitor of the client's own ends every stream of the session with it. A
group has a topic too, and its streams enter and quit those of its sessions.
"""

import asyncio
import logging
from typing import Final

from cmdc_runtime.client.groups import Daemon, Group, GroupFollower
from cmdc_runtime.client.limits import REPLAY_RETRY_S, WELCOME_ALL_S, WELCOME_S
from cmdc_runtime.client.position import EventBatch
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.dealer import Dealer
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


class _Topic:
    """One session that at least one stream follows."""

    def __init__(self) -> None:
        self.subscriptions: set[Subscription] = set()
        self.welcomed = asyncio.Event()


class _Follower:
    """One stream of one session, and the monitor that ends it with the session."""

    def __init__(self, daemon: Daemon, session_id: SessionId, subscription: Subscription) -> None:
        self.session_id = session_id
        self.subscription = subscription
        self.ref = new_monitor_ref()
        self._daemon = daemon

    def on_down(self, down: Down) -> None:
        if not down.restarting:
            self._daemon.spawn(self._finish(down.reason))

    def on_end(self, error: CmdcError) -> None:
        """Do nothing: whoever ends the monitors ends the streams as well."""

    async def _finish(self, reason: AnyReason) -> None:
        last = self.subscription.known(self.session_id)
        try:
            found: SessionInfo = await self._daemon.ask(FindSession(session_id=self.session_id))
        except InvalidSession:  # nobody remembers it: what is known of is what there is
            pass
        except CmdcError as error:
            self.subscription.finish(error)
            return
        else:
            last = max(last, found.last_index)
        self.subscription.on_end(self.session_id, last, SessionNotAlive(reason))


class Dispatcher:
    """Hands on what is published to one connection."""

    def __init__(self, daemon: Daemon, dealer: Dealer) -> None:
        """Start with no topic."""
        self._daemon = daemon
        self._dealer = dealer
        self._topics: dict[SessionId, _Topic] = {}
        self._followers: dict[Subscription, _Follower] = {}
        self._groups: dict[bytes, Group] = {}
        self._group_followers: dict[Subscription, GroupFollower] = {}
        self._all: set[Subscription] = set()
        self._all_welcomed = asyncio.Event()

    def __len__(self) -> int:
        """Return how many streams are filled."""
        return len(self._followers) + len(self._group_followers) + len(self._all)

    async def follow(
        self, session_id: SessionId, subscription: Subscription, since: int | None
    ) -> None:
        """Fill ``subscription`` with the session's events after ``since``, or from now on.

        Raises:
            InvalidSession: it was never seen.
            SessionNotAlive: it has ended, and its past was not asked for.

        """
        found: SessionInfo = await self._daemon.ask(FindSession(session_id=session_id))
        reason = found.reason or Other(detail="its reason is not known")
        if found.phase == "ended" and since is None:
            raise SessionNotAlive(reason)
        follower = self._followers[subscription] = _Follower(self._daemon, session_id, subscription)
        subscription.on_finish = self.leave
        cursor = found.last_index if since is None else since
        subscription.follow(session_id, cursor, found.created_ms)
        if found.phase == "ended":
            subscription.on_end(session_id, found.last_index, SessionNotAlive(reason))
            return
        topic = self.enter(session_id, subscription)
        try:
            subscription.on_start(found)
            await self._daemon.monitors.add(session_id, follower, ref=follower.ref, persistent=True)
            if not await _bounded(topic.welcomed, WELCOME_S):
                found = await self._daemon.ask(FindSession(session_id=session_id))
                subscription.on_head(found)
        except BaseException:
            self.leave(subscription)
            raise

    async def follow_group(
        self, group_id: str, subscription: Subscription, since: int | None = None
    ) -> None:
        """Fill ``subscription`` with the events of a group's sessions until it is finished.

        Those that are there are followed after their own index ``since`` (0: their whole past), or
        from now on; one that starts after this has returned is followed from its first event on.
        """
        follower = self._group_followers[subscription] = GroupFollower(
            self._daemon, self, group_id, subscription
        )
        subscription.spans_sessions = True
        subscription.on_finish = self.leave
        group = self._group(group_topic_of(group_id))
        group.followers.add(follower)
        try:
            await group.welcomed()
            await follower.begin(since)
        except BaseException:
            self.leave(subscription)
            raise

    async def follow_all(self, subscription: Subscription) -> None:
        """Fill ``subscription`` with the events of all sessions from now on, new ones included."""
        found: tuple[SessionInfo, ...] = await self._daemon.ask(ListSessions())
        subscription.on_finish = self.leave
        for one in found:
            subscription.follow(one.session_id, one.last_index, one.created_ms)
        if not self._all:
            self._all_welcomed.clear()
            self._dealer.listen(ALL_TOPICS)
        self._all.add(subscription)
        try:
            await _bounded(self._all_welcomed, WELCOME_ALL_S)
        except BaseException:
            self.leave(subscription)
            raise

    def look_again(self) -> None:
        """Compare with a daemon that has just taken over: what was lost may have no successor.

        It may also count less far than is known, when its journal is an older copy.
        """
        if self._topics or self._all:
            self._daemon.spawn(self._look())

    async def _look(self) -> None:
        found: tuple[SessionInfo, ...] | None = None
        while found is None:
            try:
                found = await self._daemon.ask(ListSessions())
            except TransientError:
                await asyncio.sleep(REPLAY_RETRY_S)
            except CmdcError as error:
                _log.warning("stream.not_compared", extra={"error": str(error)})
                return
        for one in found:
            for subscription in self.subscriptions_to(one.session_id):
                subscription.on_head(one)

    def leave(self, subscription: Subscription) -> None:
        """Fill ``subscription`` no more."""
        if subscription in self._all:
            self._all.discard(subscription)
            if not self._all:
                self._dealer.ignore(ALL_TOPICS)
        grouped = self._group_followers.pop(subscription, None)
        if grouped is not None:
            self._leave_group(grouped)
        follower = self._followers.pop(subscription, None)
        if follower is not None:
            self._daemon.monitors.drop(follower.ref)
            self.quit(follower.session_id, subscription)

    def enter(self, session_id: SessionId, subscription: Subscription) -> _Topic:
        """Hand the session's events to ``subscription``."""
        topic = self._topics.get(session_id)
        if topic is None:
            topic = self._topics[session_id] = _Topic()
            self._dealer.listen(topic_of(session_id))
        topic.subscriptions.add(subscription)
        return topic

    def quit(self, session_id: SessionId, subscription: Subscription) -> None:
        """Do it no more."""
        topic = self._topics.get(session_id)
        if topic is not None and subscription in topic.subscriptions:
            topic.subscriptions.discard(subscription)
            if not topic.subscriptions:
                del self._topics[session_id]
                self._dealer.ignore(topic_of(session_id))

    def subscriptions_of(self, session_id: SessionId) -> list[Subscription]:
        """Return what is filled with this session's events alone."""
        return [
            one.subscription for one in self._followers.values() if one.session_id == session_id
        ]

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
        subscriptions = self.subscriptions_to(session_id)
        if isinstance(frame, Events):
            batch = EventBatch(frame.first, frame.count, body)
            for subscription in subscriptions:
                subscription.on_batch(session_id, batch)
        elif isinstance(frame, Watermark):
            for subscription in subscriptions:
                subscription.on_watermark(session_id, frame.last)

    def subscriptions_to(self, session_id: SessionId) -> list[Subscription]:
        """Return what is filled with this session's events, among others or alone."""
        known = self._topics.get(session_id)
        subscriptions = [] if session_id == SUPERVISOR else list(self._all)  # it is no session
        return subscriptions + ([] if known is None else list(known.subscriptions))

    def fail(self, error: CmdcError) -> None:
        """End every stream."""
        for topic in self._topics.values():
            topic.welcomed.set()
        self._all_welcomed.set()
        for group in self._groups.values():
            group.fail()
        for subscription in [*self._followers, *self._group_followers, *self._all]:
            subscription.finish(error)

    def _group(self, topic: bytes) -> Group:
        group = self._groups.get(topic)
        if group is None:
            group = self._groups[topic] = Group()
            self._dealer.listen(topic)
        return group

    def _leave_group(self, follower: GroupFollower) -> None:
        follower.close()
        topic = group_topic_of(follower.group_id)
        group = self._groups[topic]
        group.followers.discard(follower)
        if not group.followers:
            del self._groups[topic]
            self._dealer.ignore(topic)


async def _bounded(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
