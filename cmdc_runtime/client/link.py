"""When a client connects, and when it lets go: at the first call, and with its event loop.

A ``Link`` belongs to one loop of one process. ``LoopLinks`` has one for each loop that asks, for
the coroutines of ``cmdc_runtime.aio``, which belong to no client object.
"""

import asyncio
import atexit
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Protocol, runtime_checkable

from cmdc_runtime.client.address import Address, offload, resolve
from cmdc_runtime.client.connection import Connection
from cmdc_runtime.client.embedded import Lease
from cmdc_runtime.client.limits import CONNECT_RETRY_S
from cmdc_runtime.client.queues import check_own, is_own
from cmdc_runtime.errors import DaemonUnavailable, UsageError
from cmdc_runtime.ids import SessionId


@runtime_checkable
class Connector(Protocol):
    """Where calls get their connection."""

    async def connected(self, session_id: SessionId | None = None) -> Connection:
        """Return the connection, made at the first call; ``session_id``: to ask about a session."""

    async def disconnect(self) -> Lease | None:
        """Close the connection and return the lease that is to be released now."""


class Link:
    """At most one connection, in the loop of the first call."""

    def __init__(
        self,
        address: Address | None = None,
        *,
        retain: Callable[[Lease], None] | None = None,
        renews: bool = False,
        patience_s: float = 0.0,
    ) -> None:
        """Connect later; at the loop's end ``retain`` gets the lease that is released otherwise.

        ``renews``: the end of an embedded daemon is followed by the next one. ``patience_s`` is how
        long the first call waits for a daemon, as later ones do for the next one.
        """
        self.is_closed = False
        self._address = address
        self._retain = retain
        self._renews = renews
        self._patience_s = patience_s
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._guard: AsyncGenerator[None] | None = None

    @property
    def is_foreign(self) -> bool:
        """Say whether it was made by the process that this one was forked from."""
        return self._connection is not None and not is_own(self._connection.pid)

    async def connected(self, session_id: SessionId | None = None) -> Connection:
        """Return the connection, made at the first call.

        Raises:
            DaemonUnavailable: there is no daemon.
            SessionNotAlive: the session was one of an embedded daemon that is gone.
            UsageError: the client is closed, or belongs to another loop or process.

        """
        connection = self._connection
        if connection is not None:
            check_own(connection.pid)
        if connection is None or (self._renews and connection.is_lost):
            if connection is not None and session_id is not None:
                connection.check_held(session_id)
            connection = await self._connect()
        if session_id is not None:
            connection.check_gone(session_id)
        if connection.loop is not asyncio.get_running_loop():
            raise UsageError("this client belongs to another event loop: make one in each")
        return connection

    async def disconnect(self) -> Lease | None:
        """Close the connection and return the lease that is to be released now."""
        self.is_closed = True
        if self.is_foreign:  # its sockets and tasks are the parent's
            return None
        connection, self._connection = self._connection, None
        if connection is None:
            return None
        guard, self._guard = self._guard, None
        await connection.close(UsageError("the client is closed"))
        if guard is not None:
            await guard.aclose()
        return connection.place.lease

    def abandon(self) -> None:
        """Give everything back after the loop was closed."""
        self.is_closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()
            if connection.place.lease is not None and self._retain is not None:
                self._retain(connection.place.lease)

    async def _connect(self) -> Connection:
        async with self._lock:
            if self.is_closed:
                raise UsageError("the client is closed")
            before = self._connection
            if before is not None and not before.is_lost:
                return before
            self._connection = await self._opened()
            if before is not None:
                self._connection.succeed(before)
                if before.place.lease is not None:
                    await offload(before.place.lease.release)
            if self._guard is None:
                self._guard = self._close_with_loop()
                await anext(self._guard)
            return self._connection

    async def _opened(self) -> Connection:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._patience_s
        while True:
            try:
                return await _opened(self._address)
            except DaemonUnavailable:
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(CONNECT_RETRY_S)

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        """Wait for the end: ``asyncio.run`` closes what generators are left, and so this client."""
        try:
            yield
        finally:
            self._guard = None
            lease = await self.disconnect()
            if lease is not None and self._retain is not None:
                self._retain(lease)
            elif lease is not None:
                await offload(lease.release)


class LoopLinks:
    """One link for each event loop and address; their private daemon stays until ``disconnect``."""

    def __init__(self) -> None:
        """Start with none."""
        self._address: Address | None = None
        self._links: dict[tuple[asyncio.AbstractEventLoop, Address | None], Link] = {}
        self._kept: list[Lease] = []
        self._is_swept_at_exit = False

    async def connected(self, session_id: SessionId | None = None) -> Connection:
        """Return the running loop's connection, made at its first call."""
        key = asyncio.get_running_loop(), self._address
        link = self._links.get(key)
        if link is None or link.is_closed or link.is_foreign:
            self._sweep_at_exit()
            self.sweep()
            link = self._links[key] = Link(self._address, retain=self._kept.append, renews=True)
        return await link.connected(session_id)

    async def disconnect(self) -> Lease | None:
        """Close the running loop's connection; the daemon ends if no other loop has one."""
        self.sweep()
        link = self._links.pop((asyncio.get_running_loop(), self._address), None)
        lease = await link.disconnect() if link is not None else None
        if self._links:
            if lease is not None:
                self._kept.append(lease)
            return None
        kept, self._kept = self._kept, []
        for one in kept:
            await offload(one.release)
        return lease

    @contextlib.contextmanager
    def redirected(self, address: Address) -> Iterator[None]:
        """Connect to the daemon at ``address`` meanwhile; other connections wait.

        One that is made meanwhile ends with its loop, as all do.
        """
        before, self._address = self._address, address
        try:
            yield
        finally:
            self._address = before

    def _sweep_at_exit(self) -> None:
        """Register once, and no earlier: what is registered before runs after it."""
        if not self._is_swept_at_exit:
            self._is_swept_at_exit = True
            atexit.register(self.sweep)

    def sweep(self) -> None:
        """Give back what belonged to loops that are closed."""
        for key, link in list(self._links.items()):
            if key[0].is_closed():
                del self._links[key]
                if not link.is_foreign:
                    link.abandon()


async def _opened(address: Address | None) -> Connection:
    place = await resolve(address, os.environ)
    connection = Connection(place)
    try:
        await connection.open()
    except BaseException:
        await connection.close(UsageError("the client could not connect"))
        if place.lease is not None:
            await offload(place.lease.release)
        raise
    return connection
