"""How a call gets into the event loop of its client: from a coroutine there, or from any thread.

``AsyncCaller`` works in the caller's own loop. ``Caller`` has a thread with a loop, where nothing
of the application's runs; callbacks have a second one, so that they may call the client. Both offer
the same, which is all that the two faces of the client differ in, beside the queues: the rest of
the sync face is made from the async one.
"""

import asyncio
import contextlib
import inspect
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from cmdc_runtime import foreign
from cmdc_runtime.client.address import Address, checked_address, offload
from cmdc_runtime.client.arguments import checked_kind
from cmdc_runtime.client.engine import AsyncCallback, Callback, ClientEngine
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.link import Connector, Link
from cmdc_runtime.client.monitors import OnDown, Watch
from cmdc_runtime.client.queues import check_own, is_own
from cmdc_runtime.closing import AsyncClosing, Closing
from cmdc_runtime.errors import UsageError
from cmdc_runtime.reasons import Down

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

_log = logging.getLogger(__name__)


class AsyncLoopCalls:
    """Runs what belongs into the loop of a stream, and nothing in a fork; for who is in it."""

    def __init__(self) -> None:
        """Take the running loop."""
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    def now(self, call: Callable[[], None]) -> None:
        """Run ``call``."""
        if is_own(self._pid):
            call()

    def soon(self, call: Callable[[], None]) -> None:
        """Have the loop run ``call``; from anywhere, as where the garbage collector runs."""
        if is_own(self._pid):
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call)


class LoopCalls:
    """Runs what belongs into the loop of a stream, and nothing in a fork; from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: object) -> None:
        """Run in ``loop``; ``owner`` lives as long as this."""
        self._loop = loop
        self._owner = owner
        self._pid = os.getpid()

    def now(self, call: Callable[[], None]) -> None:
        """Have the loop run ``call``."""
        if is_own(self._pid):
            with contextlib.suppress(RuntimeError):  # the client is closed, and its loop with it
                self._loop.call_soon_threadsafe(call)

    soon = now


class AsyncCaller(AsyncClosing):
    """What every call of a client for coroutines stands on: the connection's life."""

    def __init__(
        self, address: Address | None = None, *, connector: Connector | None = None
    ) -> None:
        """Connect at the first call, to the daemon at ``address``, a runtime directory.

        Without one: ``CMDC_ADDRESS``, a running daemon in a default place, or a private one.
        """
        checked_address(address)
        if connector is not None:
            checked_kind(connector, Connector, "connector")
        self._connector = Link(address) if connector is None else connector
        self._exchange = Exchange(self._connector)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Connect."""
        try:
            await self._exchange.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the connection with its streams and monitors.

        A private daemon ends with its last client; the sessions of another one go on.
        """
        lease = await self._connector.disconnect()
        if lease is not None:
            await offload(lease.release)

    async def _run(
        self,
        method: Callable[Concatenate[Exchange, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await method(self._exchange, *args, **kwargs)

    def _loop_calls(self) -> AsyncLoopCalls:
        return AsyncLoopCalls()

    def _begun(self, stream: T) -> T:
        """Return a stream whose prompt is sent when its first piece is asked for."""
        return stream

    def _deliver(self, callback: AsyncCallback | None) -> OnDown | None:
        """Return what runs a monitor's ``callback`` for each notice, as a task of this loop."""
        return None if callback is None else partial(self._call_back, callback)

    def _call_back(self, callback: AsyncCallback, watch: Watch, down: Down) -> None:
        task = asyncio.get_running_loop().create_task(_called_back(callback, watch, down))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await_callbacks(self, watch: Watch) -> None:
        """Do nothing: a task that has not begun looks whether ``watch`` was removed."""


class _Begins(Protocol):
    """A stream that can be begun before it is read."""

    def begin(self) -> object:
        """Send its prompt."""


B = TypeVar("B", bound=_Begins)


class Caller(Closing):
    """What every call of a client for threads stands on: the connection's life."""

    _is_shared: ClassVar[bool] = False
    """Whether it is always open, made anew in every fork, and after an embedded daemon's death."""

    def __init__(self, address: Address | None = None) -> None:
        """Connect at the first call, to the daemon at ``address``, a runtime directory.

        Without one: ``CMDC_ADDRESS``, a running daemon in a default place, or a private one.
        """
        self._address = checked_address(address)
        self._lock = threading.Lock()
        self._engine: ClientEngine | None = None
        self._is_closed = False
        if self._is_shared:
            os.register_at_fork(after_in_child=self._renew_lock)

    def __enter__(self) -> Self:
        """Connect."""
        try:
            self._run(Exchange.connect)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the connection with its streams and monitors.

        A private daemon ends with its last client; the sessions of another one go on.
        """
        with self._lock:
            self._is_closed = not self._is_shared
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _run(
        self,
        method: Callable[Concatenate[Exchange, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        engine = self._started()
        return engine.call(method(engine.exchange, *args, **kwargs))

    def _started(self) -> ClientEngine:
        engine = self._engine
        if engine is not None and not self._is_shared:
            check_own(engine.pid)
        if engine is not None and is_own(engine.pid):
            return engine
        with self._lock:
            if self._engine is not None and not is_own(self._engine.pid):
                _inherited.append(self._engine)
                self._engine = None
            if self._is_closed:
                raise UsageError("the client is closed")
            if self._engine is None:
                self._engine = ClientEngine(self._address, renews=self._is_shared)
                weakref.finalize(self, self._engine.close)
            return self._engine

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()  # whoever held it is not in this process

    def _loop_calls(self) -> LoopCalls:
        return LoopCalls(self._started().loop, self)

    def _begun(self, stream: B) -> B:
        """Return a stream whose prompt is sent."""
        stream.begin()
        return stream

    def _deliver(self, callback: Callback | None) -> OnDown:
        """Return what runs a monitor's ``callback`` for each notice; it keeps this client alive."""
        callbacks = self._started().callbacks

        def deliver(watch: Watch, down: Down, _keeps: object = self) -> None:
            if callback is not None:
                callbacks.put(watch, callback, down)

        return deliver

    def _await_callbacks(self, watch: Watch) -> None:
        """Return when no callback of ``watch``, which is removed, runs."""
        self._started().callbacks.await_done(watch)


class AsyncPool:
    """Runs what the application gives, and so many coroutines at a time."""

    @staticmethod
    async def call(function: Callable[[Item], Any], item: Item) -> None:
        """Call a function of the application's; what it returns is awaited where it can be."""
        answer = function(item)
        if inspect.isawaitable(answer):
            await answer

    @staticmethod
    async def map(
        call: Callable[[Item], Awaitable[T]], items: Sequence[Item], parallel_max: int
    ) -> list[T]:
        """Return what ``call`` returns for each item, in their order."""
        gate = asyncio.Semaphore(parallel_max)

        async def gated(item: Item) -> T:
            async with gate:
                return await call(item)

        return list(await asyncio.gather(*map(gated, items)))


class Pool:
    """Runs what the application gives, and a function in so many threads at a time."""

    @staticmethod
    def call(function: Callable[[Item], Any], item: Item) -> None:
        """Call a function of the application's; what it returns is of no interest."""
        function(item)

    @staticmethod
    def map(call: Callable[[Item], T], items: Sequence[Item], parallel_max: int) -> list[T]:
        """Return what ``call`` returns for each item, in their order."""
        with ThreadPoolExecutor(max_workers=parallel_max, thread_name_prefix="parallel") as pool:
            return list(pool.map(call, items))


async def _called_back(callback: AsyncCallback, watch: Watch, down: Down) -> None:
    if watch.is_removed:
        return
    try:
        await foreign.wait(lambda: callback(down))
    except foreign.ForeignError as failed:  # it is the application's, and the log has it
        _log.error("callback.raised", extra={"ref": watch.ref}, exc_info=failed.error)


_inherited: Final[list[ClientEngine]] = []
"""What forks left behind: kept, so that nothing of the parent's is touched by its destruction."""
