"""Which sessions and groups this client follows: one topic for all streams of each.

A topic is subscribed to when its first stream opens and given back when its last one closes. While
it is open, a monitor of the client's own ends every stream of the session with it. A group has a
topic too, and its streams enter and quit those of its sessions: those that are there, and each one
that joins.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from cmdc_runtime.client.limits import (
    LIST_PARALLEL_MAX,
    REPLAY_RETRY_S,
    SESSIONS_FOLLOWED_MAX,
    WELCOME_ALL_S,
    WELCOME_S,
)
from cmdc_runtime.client.logged import ClientLog
from cmdc_runtime.client.monitors import Daemon
from cmdc_runtime.client.subscription import EventBatch, Subscription
from cmdc_runtime.errors import (
    CmdcError,
    InvalidSession,
    Overloaded,
    SessionNotAlive,
    TransientError,
)
from cmdc_runtime.ids import SUPERVISOR, MonitorRef, SessionId, new_monitor_ref
from cmdc_runtime.reasons import AnyReason, Down, Other
from cmdc_runtime.requests import FindSession, ListSessions, SessionInfo
from cmdc_runtime.wire.frames import (
    GROUP_TOPIC,
    Events,
    Joined,
    Published,
    Watermark,
    group_topic_of,
    topic_of,
)
from cmdc_runtime.wire.sockets import Dealer

# --- groups ---------------------------------------------------------------------------------------


class Group:
    """One group's topic, for all streams of this client that follow it."""

    def __init__(self) -> None:
        """Start before the first number."""
        self.followers: set[GroupFollower] = set()
        self._number: int | None = None
        self._welcomed = asyncio.Event()

    async def welcomed(self) -> None:
        """Return when the subscription has arrived, or when it was waited for long enough."""
        try:
            async with asyncio.timeout(WELCOME_S):
                await self._welcomed.wait()
        except TimeoutError:
            self._number = -1  # whatever comes first shows a gap

    def fail(self) -> None:
        """Release whoever waits: the connection is lost."""
        self._welcomed.set()

    def take(self, frame: Published) -> None:
        """Take what was published on the group's topic."""
        if isinstance(frame, Joined):
            expected = self._advance(frame.number)
            for follower in list(self.followers):
                follower.on_joined(frame.session_id)
            is_gap = expected is not None and frame.number != expected + 1
        elif isinstance(frame, Watermark):
            expected = self._advance(frame.last)
            is_gap = expected is not None and frame.last != expected
            self._welcomed.set()
        else:
            return
        if is_gap:
            for follower in list(self.followers):
                follower.look_again()

    def _advance(self, number: int) -> int | None:
        before, self._number = self._number, number
        return before


class _Member:
    """Reports the end of one session to its follower."""

    def __init__(self, on_end: Callable[[], object]) -> None:
        self._on_end = on_end

    def on_down(self, down: Down) -> None:
        if not down.restarting:
            self._on_end()

    def on_end(self, error: CmdcError) -> None:
        """Do nothing: whoever ends the monitors ends the streams as well."""


class GroupFollower:
    """One stream of one group.

    The daemon announces on the group's topic whoever starts, under numbers that step by 1, and
    sends the newest number to a new subscription and for a while after each announcement. Where a
    number is missing (one was lost, or another daemon took over) the list of the group's sessions
    is looked through again. Each member is followed as a session by itself is, and left at its end.
    """

    def __init__(
        self, daemon: Daemon, topics: "Dispatcher", group_id: str, subscription: Subscription
    ) -> None:
        """Follow nobody yet."""
        self.group_id = group_id
        self._daemon = daemon
        self._topics = topics
        self._subscription = subscription
        self._members: dict[SessionId, MonitorRef] = {}
        self._is_looking = False
        self._is_stale = False
        self._is_closed = False

    async def begin(self, since: int | None) -> None:
        """Follow the members that are there after their index ``since``; None: from now on."""
        parallel = asyncio.Semaphore(LIST_PARALLEL_MAX)

        async def follow(one: SessionInfo) -> None:
            async with parallel:
                cursor = one.last_index if since is None else min(since, one.last_index)
                await self._follow(one.session_id, cursor, one.last_index)

        await asyncio.gather(*map(follow, await self._listed()))

    def on_joined(self, session_id: SessionId) -> None:
        """Follow a new member from its first event on."""
        self._daemon.spawn(self._follow(session_id, 0, 0))

    def look_again(self) -> None:
        """Find members whose announcement was lost."""
        self._is_stale = True
        if not self._is_looking:
            self._is_looking = True
            self._daemon.spawn(self._look())

    def close(self) -> None:
        """Stop following all members."""
        self._is_closed = True
        for session_id in list(self._members):
            self._drop(session_id)

    async def _look(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                for one in await self._listed():
                    await self._follow(one.session_id, 0, one.last_index)
        except CmdcError as error:
            self._subscription.finish(error)
        finally:
            self._is_looking = False

    async def _listed(self) -> tuple[SessionInfo, ...]:
        found: tuple[SessionInfo, ...] = await self._daemon.ask(
            ListSessions(group_id=self.group_id)
        )
        return found

    async def _follow(self, session_id: SessionId, cursor: int, known: int) -> None:
        if self._is_closed or session_id in self._members:
            return
        if len(self._members) >= SESSIONS_FOLLOWED_MAX:
            full = f"a stream follows at most {SESSIONS_FOLLOWED_MAX} sessions of a group"
            self._subscription.finish(Overloaded(full))
            return
        ref = self._members[session_id] = new_monitor_ref()
        member = _Member(lambda: self._daemon.spawn(self._retire(session_id)))
        self._subscription.follow(session_id, cursor)
        self._topics.enter(session_id, self._subscription)
        self._subscription.on_watermark(session_id, known)
        try:
            await self._daemon.monitors.add(session_id, member, ref=ref, persistent=True)
        except CmdcError as error:
            self._subscription.finish(error)

    async def _retire(self, session_id: SessionId) -> None:
        """Leave a session that has ended; one that began anew meanwhile is followed anew."""
        last = self._subscription.known(session_id)
        found: SessionInfo | None = None
        try:
            found = await self._daemon.ask(FindSession(session_id=session_id))
        except InvalidSession:  # nobody remembers it: what is known of is what there is
            pass
        except CmdcError as error:
            self._subscription.finish(error)
            return
        self._drop(session_id)
        if found is None or found.phase == "ended":
            self._subscription.on_end(session_id, max(last, found.last_index if found else 0), None)
        else:
            await self._follow(session_id, 0, found.last_index)

    def _drop(self, session_id: SessionId) -> None:
        ref = self._members.pop(session_id, None)
        if ref is not None:
            self._daemon.monitors.drop(ref)
            self._topics.quit(session_id, self._subscription)


# --- topics ---------------------------------------------------------------------------------------

_log = ClientLog(__name__)

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
        subscription.when_finished(self.leave)
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
        subscription.when_finished(self.leave)
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
        subscription.when_finished(self.leave)
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
                _log.warning("stream.not_compared", problem=str(error))
                return
        for one in found:
            for subscription in self.subscriptions_to(one.session_id):
                subscription.on_head(one)

    def leave(self, subscription: Subscription) -> None:
        """Stop filling ``subscription``."""
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
        """Stop handing the session's events to ``subscription``."""
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
