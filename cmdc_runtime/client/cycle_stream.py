"""One prompt and what comes of it, to be iterated: what ``stream`` and ``stream_events`` return.

A reader follows the session, sends the prompt and ends with its cycle, whatever ends that. It
follows nothing any more when it has ended, is closed, or is not referred to by anybody, as it is
after a ``break``.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from cmdc_runtime.client.calls import OpenedCycle
from cmdc_runtime.client.cycle import Cycle, View, ending
from cmdc_runtime.client.stream import AsyncEventStream, EventStream
from cmdc_runtime.client.subjects import checked_timeout
from cmdc_runtime.errors import CmdcError, CollectTimeout
from cmdc_runtime.events import Envelope, EventsLost

T = TypeVar("T")


class Clock:
    """How much time is left of ``timeout_s``, from when it is made; None: as long as it takes."""

    def __init__(self, timeout_s: float | None) -> None:
        """Begin to count."""
        self.timeout_s = checked_timeout(timeout_s)
        self._due_s = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def left_s(self) -> float | None:
        """Seconds, 0 or more."""
        return None if self._due_s is None else max(0.0, self._due_s - time.monotonic())

    def too_late(self, opened: OpenedCycle) -> CollectTimeout:
        """Return the error that says that the time is up."""
        return CollectTimeout(
            f"the cycle of session {opened.session_id} did not end within {self.timeout_s:g} s;"
            " it goes on"
        )


class _Reader(Generic[T]):
    """What of a cycle's events is shown, and how it ends."""

    def __init__(self, opened: OpenedCycle, view: View[T], clock: Clock) -> None:
        self.opened = opened
        self.clock = clock
        self.cycle = Cycle(opened.command_id)
        self._view = view
        self._is_shown = True
        """Whether events told the end."""

    def take(self, envelope: Envelope) -> T | None:
        event = self.cycle.take(envelope.event)
        return None if event is None else self._view.show(event)

    def fail(self, error: Exception) -> Exception | None:
        """Take an error in place of an event, and return what the consumer gets for it."""
        if self.opened.result is not None:  # its events were lost, and the session has told of it
            self.cycle.close(ending(self.opened.result))
            self._is_shown = False
            return None
        self.cycle.close(None)
        if isinstance(error, CmdcError):
            return error
        return self.clock.too_late(self.opened)

    def end(self) -> CmdcError | None:
        """Return what is raised for the end; at the first time only."""
        error, self.cycle.error = self.cycle.error, None
        return error if self._view.raises or not self._is_shown else None


class CycleStream(Generic[T]):
    """What comes of one prompt, for threads: ``for piece in stream``."""

    def __init__(
        self,
        stream: EventStream,
        opened: OpenedCycle,
        view: View[T],
        clock: Clock,
        look: Callable[[], None],
    ) -> None:
        """Read ``stream``; ``look`` has the cycle's end told where events of it are lost."""
        self._stream = stream
        self._reader = _Reader(opened, view, clock)
        self._look = look

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
        reader = self._reader
        while not reader.cycle.is_over:
            try:
                envelope = self._stream.get(reader.clock.left_s)
            except (CmdcError, TimeoutError) as error:
                if (told := reader.fail(error)) is not None:
                    self.close()
                    raise told from None
                continue
            if isinstance(envelope.event, EventsLost):
                self._look()
            if (shown := reader.take(envelope)) is not None:
                return shown
        self.close()
        if (ended := reader.end()) is not None:
            raise ended
        raise StopIteration

    def close(self) -> None:
        """Read no more; the cycle goes on."""
        self._reader.cycle.is_over = True
        self._stream.close()

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

    def __del__(self) -> None:
        """Close it."""
        with contextlib.suppress(Exception):  # it was not made whole, or the program ends
            self.close()


Opening = tuple[AsyncEventStream, OpenedCycle, Callable[[], Awaitable[None]]]


class AsyncCycleStream(Generic[T]):
    """What comes of one prompt, for coroutines: ``async for piece in stream``.

    The prompt is sent when the first piece is asked for.
    """

    def __init__(
        self,
        opening: Callable[[float | None], Awaitable[Opening]],
        view: View[T],
        timeout_s: float | None,
    ) -> None:
        """Begin later, by ``opening`` within so many seconds."""
        self._opening = opening
        self._view = view
        self._timeout_s = checked_timeout(timeout_s)
        self._opened: tuple[AsyncEventStream, _Reader[T], Callable[[], Awaitable[None]]] | None
        self._opened = None
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> Self:
        """Return itself: a stream is read once."""
        return self

    async def __anext__(self) -> T:
        """Return the next piece, or event; raises as ``CycleStream`` does."""
        if self._is_closed:
            raise StopAsyncIteration
        stream, reader, look = self._opened or await self._open()
        while not reader.cycle.is_over:
            try:
                envelope = await stream.get(reader.clock.left_s)
            except (CmdcError, TimeoutError) as error:
                if (told := reader.fail(error)) is not None:
                    await self.close()
                    raise told from None
                continue
            if isinstance(envelope.event, EventsLost):
                await look()
            if (shown := reader.take(envelope)) is not None:
                return shown
        await self.close()
        if (ended := reader.end()) is not None:
            raise ended
        raise StopAsyncIteration

    async def close(self) -> None:
        """Read no more; the cycle goes on."""
        self._is_closed = True
        if self._opened is not None:
            await self._opened[0].close()

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

    def __del__(self) -> None:
        """Follow nothing any more, wherever the garbage collector runs."""
        with contextlib.suppress(Exception):  # it was not made whole, or its loop is closed
            if self._opened is not None and self._loop is not None and not self._is_closed:
                self._loop.call_soon_threadsafe(self._opened[0].drop)

    async def _open(self) -> "tuple[AsyncEventStream, _Reader[T], Callable[[], Awaitable[None]]]":
        clock = Clock(self._timeout_s)
        self._loop = asyncio.get_running_loop()
        stream, opened, look = await self._opening(self._timeout_s)
        self._opened = stream, _Reader(opened, self._view, clock), look
        return self._opened
