"""What an application iterates: the events of a session, for coroutines and for threads.

Iteration ends when the session has ended for good and everything was delivered, or when the stream
or its client is closed. A daemon that is lost is no end: it is raised.
"""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from cmdc_runtime.client.edge import guarded
from cmdc_runtime.client.feed import Feed
from cmdc_runtime.client.inbox import AsyncInbox, ThreadInbox
from cmdc_runtime.client.limits import STREAM_REFILL_EVENTS
from cmdc_runtime.client.subjects import checked_timeout
from cmdc_runtime.errors import CmdcError, SessionNotAlive, UsageError
from cmdc_runtime.events import Envelope

_ENDS: Final = frozenset({SessionNotAlive, UsageError})
"""Exactly these: a subclass, such as InvalidSession, is a failure."""


class AsyncEventStream:
    """Events for coroutines: ``async for envelope in stream``."""

    def __init__(self, feed: Feed, inbox: AsyncInbox[Envelope]) -> None:
        """Read what ``feed`` puts into ``inbox``."""
        self._feed = feed
        self._inbox = inbox

    def __aiter__(self) -> "AsyncEventStream":
        """Return itself: a stream is read once."""
        return self

    async def __anext__(self) -> Envelope:
        """Return the next event."""
        try:
            return await self.get()
        except CmdcError as error:
            if type(error) in _ENDS:
                raise StopAsyncIteration from None
            raise

    @guarded
    async def get(self, timeout: float | None = None) -> Envelope:  # noqa: ASYNC109 - the contract's name
        """Return the next event.

        Raises:
            TimeoutError: none came within ``timeout`` seconds.
            SessionNotAlive: the session has ended, and this was all.
            UsageError: the stream is closed.

        """
        envelope = await self._inbox.get(checked_timeout(timeout))
        if self._feed.is_lagging and len(self._inbox) <= STREAM_REFILL_EVENTS:
            self._feed.refill()
        return envelope

    async def close(self) -> None:
        """Stop listening and discard what was not read."""
        self.drop()

    def drop(self) -> None:
        """Do so at once, in the loop of the stream."""
        error = UsageError("the stream is closed")
        self._inbox.finish(error, drop=True)
        self._feed.finish(error)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()


class EventStream:
    """Events for threads: ``for envelope in stream``."""

    def __init__(
        self,
        feed: Feed,
        inbox: ThreadInbox[Envelope],
        loop: asyncio.AbstractEventLoop,
        owner: object,
    ) -> None:
        """Read what ``feed`` puts into ``inbox`` in ``loop``; ``owner`` lives as long as this."""
        self._owner = owner
        self._feed = feed
        self._inbox = inbox
        self._loop = loop

    def __iter__(self) -> "EventStream":
        """Return itself: a stream is read once."""
        return self

    def __next__(self) -> Envelope:
        """Return the next event."""
        try:
            return self.get()
        except CmdcError as error:
            if type(error) in _ENDS:
                raise StopIteration from None
            raise

    @guarded
    def get(self, timeout: float | None = None) -> Envelope:
        """Return the next event.

        Raises:
            TimeoutError: none came within ``timeout`` seconds.
            SessionNotAlive: the session has ended, and this was all.
            UsageError: the stream is closed.

        """
        envelope = self._inbox.get(checked_timeout(timeout))
        if self._feed.is_lagging and len(self._inbox) <= STREAM_REFILL_EVENTS:
            self._in_loop(self._feed.refill)
        return envelope

    def close(self) -> None:
        """Stop listening and discard what was not read."""
        error = UsageError("the stream is closed")
        self._inbox.finish(error, drop=True)
        self._in_loop(lambda: self._feed.finish(error))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _in_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the client is closed, and its loop with it
            self._loop.call_soon_threadsafe(call)
