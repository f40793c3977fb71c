"""Streams of what happens: the answer of a prompt in pieces, its events, those of sessions.

``AsyncFollower`` has the calls of a client that return a stream; the rules of ``session`` hold here
too.
"""

from functools import partial
from typing import TypeVar

from cmdc_runtime.client.arguments import (
    SessionLike,
    checked_content,
    checked_group,
    checked_id,
    checked_since,
)
from cmdc_runtime.client.control import AsyncControl
from cmdc_runtime.client.cycle import CycleEvents, CycleView, Pieces
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.queues import AsyncQueue
from cmdc_runtime.client.selection import EventTypes, Selection
from cmdc_runtime.client.stream import AsyncCycleStream, AsyncEventStream, Opening
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.commands import (
    Prompt,
)
from cmdc_runtime.content import Content
from cmdc_runtime.events import AnyEvent, Envelope
from cmdc_runtime.messages import OpeningCall

T = TypeVar("T")


class AsyncFollower(AsyncControl):
    """The calls of a client that follow a prompt, a session, a group or all of them."""

    def stream(
        self,
        session: SessionLike,
        text: Content,
        *,
        timeout: float | None = None,
    ) -> AsyncCycleStream[str]:
        """Send a prompt and return the pieces of its answers, as they come, to be iterated.

        The iteration ends with the prompt's own cycle, which may begin later, and raises what ended
        that as ``collect_reply`` does; ``timeout`` seconds are for all of it. A request that is
        sent again says only what was not said yet; an answer that differs is said from its
        beginning. See ``stream_events``.

        Raises:
            InvalidText: ``text`` is not a non-empty str, nor such a list as ``prompt`` takes.
            InvalidPart: an image or a file is none that the model is known to take, or too large.
            QueueFull: too many prompts wait.

        """
        return self._read(session, text, Pieces(), timeout)

    def stream_events(
        self,
        session: SessionLike,
        text: Content,
        *,
        timeout: float | None = None,
    ) -> AsyncCycleStream[AnyEvent]:
        """Send a prompt and return the events of its own cycle, from ``agent_start`` on.

        The last one says how it ended: ``agent_end``, ``agent_abort``, ``agent_error``, or
        ``prompt_dropped`` where it never began. What no event says is raised: the session's end.

        Raises:
            InvalidText: ``text`` is not a non-empty str, nor such a list as ``prompt`` takes.
            InvalidPart: an image or a file is none that the model is known to take, or too large.
            QueueFull: too many prompts wait.

        """
        return self._read(session, text, CycleEvents(), timeout)

    def _read(
        self,
        session: SessionLike,
        text: Content,
        view: CycleView[T],
        timeout_s: float | None,
        call: OpeningCall | None = None,
    ) -> AsyncCycleStream[T]:
        session_id = checked_id(session)
        asked = checked_content(text, "prompt")
        plain = Prompt(text=asked.text, call=call)

        async def opening(left_s: float | None) -> Opening:
            queue: AsyncQueue[Envelope] = AsyncQueue()
            maker = partial(Subscription, queue=queue, selection=Selection(view.kinds))
            command = await self._with_parts(session_id, plain, asked)
            opened = await self._run(Exchange.open_cycle, session_id, command, maker, left_s)
            look = partial(self._run, Exchange.look_for_end, opened)
            return AsyncEventStream(opened.subscription, queue, self._loop_calls()), opened, look

        return self._begun(AsyncCycleStream(opening, view, timeout_s))

    async def subscribe(
        self,
        session: SessionLike,
        *,
        since: int | None = None,
        types: EventTypes | None = None,
    ) -> AsyncEventStream:
        """Return the session's events after index ``since``, or from now on.

        ``types`` are event classes or names, ``plugin:NAME`` for what a plugin or a tool emits;
        others are not shown, EventsLost always is.
        """
        queue: AsyncQueue[Envelope] = AsyncQueue()
        maker = partial(Subscription, queue=queue, selection=Selection(types))
        place = checked_since(since)
        subscription = await self._run(Exchange.follow, checked_id(session), maker, place)
        return AsyncEventStream(subscription, queue, self._loop_calls())

    async def subscribe_all(self, *, types: EventTypes | None = None) -> AsyncEventStream:
        """Return the events of all sessions from now on, new sessions included."""
        queue: AsyncQueue[Envelope] = AsyncQueue()
        maker = partial(
            Subscription, queue=queue, selection=Selection(types), follows_strangers=True
        )
        subscription = await self._run(Exchange.follow_all, maker)
        return AsyncEventStream(subscription, queue, self._loop_calls())

    async def subscribe_group(
        self, group_id: str, *, since: int | None = None, types: EventTypes | None = None
    ) -> AsyncEventStream:
        """Return the events of a group's sessions, those that join later included.

        Each is followed after its own index ``since`` (0: its whole past), or from now on.
        """
        queue: AsyncQueue[Envelope] = AsyncQueue()
        maker = partial(Subscription, queue=queue, selection=Selection(types))
        place = checked_since(since)
        subscription = await self._run(Exchange.follow_group, checked_group(group_id), maker, place)
        return AsyncEventStream(subscription, queue, self._loop_calls())

    async def unsubscribe(self, stream: AsyncEventStream | SessionLike) -> None:
        """Close a stream, or all streams that this client has of a session."""
        if isinstance(stream, AsyncEventStream):
            await stream.close()
        else:
            await self._run(Exchange.unfollow, checked_id(stream))
