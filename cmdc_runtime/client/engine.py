"""The threads of a synchronous client: one with an event loop, one for callbacks.

The client's work is done in the loop. Callbacks run one after the other, and not in the thread of
the loop, so that a callback may call the client. An exception in one is logged and ends nothing.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from cmdc_runtime import foreign
from cmdc_runtime.client.address import Address
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.limits import (
    CALLBACK_THREAD_STOP_S,
    CALLBACKS_QUEUED_MAX,
    CLOSE_S,
    DEMONITOR_WAIT_S,
    INTERRUPT_S,
    THREAD_START_S,
)
from cmdc_runtime.client.link import Link
from cmdc_runtime.client.logged import ClientLog
from cmdc_runtime.client.monitors import Watch
from cmdc_runtime.errors import UsageError
from cmdc_runtime.reasons import Down

# --- callbacks ------------------------------------------------------------------------------------

_log = ClientLog(__name__)

Callback = Callable[[Down], Any]  # Any: what a callback returns is nobody's business
AsyncCallback = Callable[[Down], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class _Call:
    watch: Watch
    callback: Callback
    down: Down


class CallbackThread:
    """Runs callbacks; its thread starts with the first one."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._calls: deque[_Call] = deque()
        self._changed = threading.Condition()
        self._running: Watch | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def put(self, watch: Watch, callback: Callback, down: Down) -> None:
        """Run ``callback(down)`` soon."""
        with self._changed:
            if self._is_closed:
                return
            if len(self._calls) >= CALLBACKS_QUEUED_MAX:
                _log.error("callback.dropped", ref=watch.ref)
                return
            self._calls.append(_Call(watch, callback, down))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="cmdc-callbacks", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def await_done(self, watch: Watch) -> None:
        """Return when no callback of ``watch``, which is removed, runs; waits a bounded time."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._running is not watch, DEMONITOR_WAIT_S)

    def close(self) -> None:
        """Run no more callbacks and end the thread; waits a bounded time for a running one."""
        with self._changed:
            self._is_closed = True
            self._calls.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CALLBACK_THREAD_STOP_S)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            try:
                call.callback(call.down)
            # Of every kind: a callback that calls sys.exit must not silence all others.
            except BaseException as error:  # noqa: BLE001 - it is the application's; the log has it
                problem = foreign.summary_of(error)
                _log.error("callback.raised", cause=error, ref=call.watch.ref, problem=problem)
            with self._changed:
                self._running = None
                self._changed.notify_all()

    def _next(self) -> _Call | None:
        with self._changed:
            while not self._is_closed:
                if not self._calls:
                    self._changed.wait()
                    continue
                call = self._calls.popleft()
                if not call.watch.is_removed:
                    self._running = call.watch
                    return call
        return None


# --- the loop -------------------------------------------------------------------------------------

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Exit:
    """What would end the thread of whoever sees it raised: it is raised in the caller's."""

    error: BaseException


async def _kept(work: Coroutine[Any, Any, T]) -> T | _Exit:
    """Return what ``work`` returns: it may run code of the application, as a writer of frames."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        return _Exit(error)


def _awaited(future: "Future[T]") -> T:
    """Return the result; a signal is seen though another thread, or none yet, was woken by it."""
    while True:
        try:
            return future.result(INTERRUPT_S)
        except TimeoutError:
            if future.done():  # else nobody but this wait says so
                return future.result()


class ClientEngine:
    """Runs coroutines for threads until ``close``; belongs to the process that made it."""

    def __init__(self, address: Address | None, *, renews: bool = False) -> None:
        """Start the thread; the connection is made at the first call.

        ``renews``: the end of an embedded daemon is followed by the next one.
        """
        self.pid = os.getpid()
        self.callbacks = CallbackThread()
        self._link = Link(address, renews=renews)
        self.exchange = Exchange(self._link, has_own_loop=True)
        self._lock = threading.Lock()
        self._is_closed = False
        self._has_started = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cmdc-client", daemon=True)
        self._thread.start()
        if not self._has_started.wait(THREAD_START_S):
            raise RuntimeError(f"the client's thread did not start within {THREAD_START_S:g} s")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` returns or raises; an interrupted caller gives it up.

        Raises:
            UsageError: the client is closed.

        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise UsageError("the client is closed")
            future = asyncio.run_coroutine_threadsafe(_kept(work), self.loop)
        try:
            result = _awaited(future)
        except BaseException:
            future.cancel()
            raise
        if isinstance(result, _Exit):
            raise result.error
        return result

    def close(self) -> None:
        """Disconnect, end the threads, and release an embedded daemon; takes a bounded time."""
        if os.getpid() != self.pid:
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self.callbacks.close()
        if threading.current_thread() is self._thread:  # the garbage collector's choice
            self._stop()
            return
        future = asyncio.run_coroutine_threadsafe(self._link.disconnect(), self.loop)
        lease = None
        with contextlib.suppress(TimeoutError):
            lease = future.result(CLOSE_S)
        self.loop.call_soon_threadsafe(self._stop)
        self._thread.join(CLOSE_S)
        if lease is not None:
            lease.release()

    def _work(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._stop = stopped.set
        self._has_started.set()
        await stopped.wait()
