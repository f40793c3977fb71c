# Made by `make sync` of cmdc_runtime/client/stream.py: change that, not this.
"""``cmdc_runtime.client.stream`` for threads."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Self, TypeVar

from cmdc_runtime.client.arguments import checked_timeout
from cmdc_runtime.client.callers import LoopCalls
from cmdc_runtime.client.cycle import Clock, CycleReader, CycleView, OpenedCycle
from cmdc_runtime.client.edge import guarded
from cmdc_runtime.client.limits import DOWNS_QUEUED_MAX, STREAM_REFILL_EVENTS
from cmdc_runtime.client.monitors import OnDown, Watch
from cmdc_runtime.client.queues import ThreadQueue
from cmdc_runtime.client.subscription import Subscription
from cmdc_runtime.closing import Closing
from cmdc_runtime.errors import CmdcError, SessionNotAlive, UsageError
from cmdc_runtime.events import Envelope, EventsLost
from cmdc_runtime.ids import SessionId
from cmdc_runtime.reasons import Down

T = TypeVar("T")

_ENDS: Final = frozenset({SessionNotAlive, UsageError})
"""Exactly these: a subclass, such as InvalidSession, is a failure."""


class EventStream(Closing):
    """Events for threads: ``for envelope in stream``."""

    def __init__(
        self, subscription: Subscription, queue: ThreadQueue[Envelope], calls: LoopCalls
    ) -> None:
        """Read what ``subscription`` puts into ``queue``, in the loop of ``calls``."""
        self._subscription = subscription
        self._queue = queue
        self._calls = calls

    def __iter__(self) -> Self:
        """Return itself: a stream is read once."""
        return self

    def __next__(self) -> Envelope:
        """Return the next event."""
        try:
            return self.get()
        except CmdcError as error:
            if type(error) in _ENDS and self._queue.has_ended_with(error):
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
        envelope = self._queue.get(checked_timeout(timeout))
        if self._subscription.is_lagging and len(self._queue) <= STREAM_REFILL_EVENTS:
            self._calls.now(self._subscription.refill)
        return envelope

    def close(self) -> None:
        """Stop listening and discard what was not read."""
        error = UsageError("the stream is closed")
        self._queue.finish(error, drop=True)
        self._calls.now(partial(self._subscription.finish, error))

    def drop(self) -> None:
        """Close it soon, from anywhere."""
        self._calls.soon(self._drop)

    def _drop(self) -> None:
        error = UsageError("the stream is closed")
        self._queue.finish(error, drop=True)
        self._subscription.finish(error)


Opening = tuple[EventStream, OpenedCycle, Callable[[], None]]
"""What a prompt has led to: the stream of its session, and what asks for the end of its cycle."""


class CycleStream(Closing, Generic[T]):
    """What comes of one prompt, for threads: ``for piece in stream``.

    A reader follows the session, sends the prompt and ends with its cycle, whatever ends that. It
    follows nothing any more when it has ended, is closed, or is not referred to by anybody, as it
    is after a ``break``.
    """

    def __init__(
        self,
        opening: Callable[[float | None], Opening],
        view: CycleView[T],
        timeout_s: float | None,
    ) -> None:
        """Begin by ``opening`` within so many seconds, before its first piece."""
        self._opening = opening
        self._view = view
        self._timeout_s = checked_timeout(timeout_s)
        self._opened: tuple[Opening, CycleReader[T]] | None = None
        self._is_closed = False

    def begin(self) -> tuple[Opening, CycleReader[T]]:
        """Send the prompt, once, and return what is read from."""
        if self._opened is None:
            clock = Clock(self._timeout_s)
            opening = self._opening(self._timeout_s)
            self._opened = opening, CycleReader(opening[1], self._view, clock)
        return self._opened

    def __iter__(self) -> Self:
        """Return itself: a stream is read once."""
        return self

    def __next__(self) -> T:
        """Return the next piece, or event.

        Raises:
            CollectTimeout: the cycle takes longer than ``timeout`` seconds; it goes on.
            AgentAborted: it was aborted, or the prompt was dropped from the queue.
            AgentFailed: the provider or the kernel failed for good.
            SessionNotAlive: the session has ended.

        """
        if self._is_closed:
            raise StopIteration
        (stream, _, look), reader = self.begin()
        while not reader.cycle.is_over:
            try:
                envelope = stream.get(reader.clock.left_s)
            except (CmdcError, TimeoutError) as error:
                if (raised := reader.fail(error)) is not None:
                    self.close()
                    raise raised from None
                continue
            if isinstance(envelope.event, EventsLost):
                look()
            if (shown := reader.take(envelope)) is not None:
                return shown
        self.close()
        if (ended := reader.end()) is not None:
            raise ended
        raise StopIteration

    def close(self) -> None:
        """Read no more; the cycle goes on."""
        self._is_closed = True
        if self._opened is not None:
            self._opened[0][0].close()

    def __del__(self) -> None:
        """Stop following, in whatever thread the garbage collector runs."""
        with contextlib.suppress(Exception):  # it was not made whole, or the program ends
            if self._opened is not None and not self._is_closed:
                self._opened[0][0].drop()


class Monitor(Watch):
    """A monitor for threads; ``ref`` names it."""

    def __init__(
        self, session_id: SessionId, deliver: OnDown | None = None, *, persistent: bool = False
    ) -> None:
        """Wait for notices of one session."""
        self._downs: ThreadQueue[Down] = ThreadQueue(DOWNS_QUEUED_MAX)
        super().__init__(session_id, self._downs, deliver, persistent=persistent)

    @guarded
    def wait(self, timeout: float | None = None) -> Down:
        """Return the next notice; after the last one, that one again.

        Raises:
            TimeoutError: none came within ``timeout`` seconds.
            CmdcError: none will come: the monitor was removed, or the client or daemon is gone.

        """
        return self.latest() or self._downs.get(checked_timeout(timeout))
