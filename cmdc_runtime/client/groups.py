"""All sessions of one group in one stream: those that are there, and each one that joins.

The daemon announces on the group's topic whoever starts, under numbers that step by 1, and sends
the newest number to a new subscription and for a while after each announcement. Where a number is
missing (one was lost, or another daemon took over) the list of the group's sessions is looked
through again. Each member is followed as a session by itself is, and left at its end.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from cmdc_runtime.client.limits import LIST_PARALLEL_MAX, SESSIONS_FOLLOWED_MAX, WELCOME_S
from cmdc_runtime.client.monitors import Asker, Monitors
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.errors import CmdcError, InvalidSession, Overloaded
from cmdc_runtime.frames import Joined, Published, Watermark
from cmdc_runtime.ids import MonitorRef, SessionId, new_monitor_ref
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import FindSession, ListSessions, SessionInfo


class Daemon(Asker, Protocol):
    """What dispatcher and groups need of a connection."""

    monitors: Monitors


class SessionTopics(Protocol):
    """Where a session's events are handed to the subscriptions that follow it."""

    def enter(self, session_id: SessionId, subscription: Subscription) -> object:
        """Hand the session's events to ``subscription``."""

    def quit(self, session_id: SessionId, subscription: Subscription) -> None:
        """Do it no more."""


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
        """Let nobody wait any more."""
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
    """One stream of one group."""

    def __init__(
        self, daemon: Daemon, topics: SessionTopics, group_id: str, subscription: Subscription
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
        """Follow nobody any more."""
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
