# Made by `make sync` of cmdc_runtime/client/follower.py: change that, not this.
"""``cmdc_runtime.client.follower`` for threads."""

from functools import partial
from typing import TypeVar

from cmdc_runtime.client.arguments import (
    SessionLike,
    checked_content,
    checked_group,
    checked_id,
    checked_since,
)
from cmdc_runtime.client.cycle import CycleEvents, CycleView, Pieces
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.queues import ThreadQueue
from cmdc_runtime.client.selection import EventTypes, Selection
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.client.sync.control import Control
from cmdc_runtime.client.sync.stream import CycleStream, EventStream, Opening
from cmdc_runtime.commands import (
    Prompt,
)
from cmdc_runtime.content import Content
from cmdc_runtime.events import AnyEvent, Envelope
from cmdc_runtime.messages import OpeningCall

T = TypeVar("T")


class Follower(Control):
    """The calls of a client that follow a prompt, a session, a group or all of them."""

    def stream(
        self,
        session: SessionLike,
        text: Content,
        *,
        timeout: float | None = None,
    ) -> CycleStream[str]:
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
    ) -> CycleStream[AnyEvent]:
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
    ) -> CycleStream[T]:
        session_id = checked_id(session)
        asked = checked_content(text, "prompt")
        plain = Prompt(text=asked.text, call=call)

        def opening(left_s: float | None) -> Opening:
            queue: ThreadQueue[Envelope] = ThreadQueue()
            maker = partial(Subscription, queue=queue, selection=Selection(view.kinds))
            command = self._with_parts(session_id, plain, asked)
            opened = self._run(Exchange.open_cycle, session_id, command, maker, left_s)
            look = partial(self._run, Exchange.look_for_end, opened)
            return EventStream(opened.subscription, queue, self._loop_calls()), opened, look

        return self._begun(CycleStream(opening, view, timeout_s))

    def subscribe(
        self,
        session: SessionLike,
        *,
        since: int | None = None,
        types: EventTypes | None = None,
    ) -> EventStream:
        """Return the session's events after index ``since``, or from now on.

        ``types`` are event classes or names, ``plugin:NAME`` for what a plugin or a tool emits;
        others are not shown, EventsLost always is.
        """
        queue: ThreadQueue[Envelope] = ThreadQueue()
        maker = partial(Subscription, queue=queue, selection=Selection(types))
        place = checked_since(since)
        subscription = self._run(Exchange.follow, checked_id(session), maker, place)
        return EventStream(subscription, queue, self._loop_calls())

    def subscribe_all(self, *, types: EventTypes | None = None) -> EventStream:
        """Return the events of all sessions from now on, new sessions included."""
        queue: ThreadQueue[Envelope] = ThreadQueue()
        maker = partial(
            Subscription, queue=queue, selection=Selection(types), follows_strangers=True
        )
        subscription = self._run(Exchange.follow_all, maker)
        return EventStream(subscription, queue, self._loop_calls())

    def subscribe_group(
        self, group_id: str, *, since: int | None = None, types: EventTypes | None = None
    ) -> EventStream:
        """Return the events of a group's sessions, those that join later included.

        Each is followed after its own index ``since`` (0: its whole past), or from now on.
        """
        queue: ThreadQueue[Envelope] = ThreadQueue()
        maker = partial(Subscription, queue=queue, selection=Selection(types))
        place = checked_since(since)
        subscription = self._run(Exchange.follow_group, checked_group(group_id), maker, place)
        return EventStream(subscription, queue, self._loop_calls())

    def unsubscribe(self, stream: EventStream | SessionLike) -> None:
        """Close a stream, or all streams that this client has of a session."""
        if isinstance(stream, EventStream):
            stream.close()
        else:
            self._run(Exchange.unfollow, checked_id(stream))
