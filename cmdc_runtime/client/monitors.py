"""Standing requests to be told of a session's end, each told exactly what was asked for.

``Monitors`` keeps the books in the client's loop and asks again when another daemon took over.
``AsyncMonitor`` and ``Monitor`` are what the application holds.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cmdc_runtime.client.inbox import AsyncInbox, Filled, ThreadInbox
from cmdc_runtime.client.limits import DOWNS_QUEUED_MAX
from cmdc_runtime.errors import CmdcError, UsageError
from cmdc_runtime.ids import MonitorRef, SessionId, new_monitor_ref
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import Demonitor, Request
from cmdc_runtime.requests import Monitor as MonitorRequest

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Who hears of one monitor; called in the client's loop, must not block or raise."""

    def on_down(self, down: Down) -> None:
        """Take one notice."""

    def on_end(self, error: CmdcError) -> None:
        """Take note that no notice will follow."""


class Asker(Protocol):
    """What the books need of a connection."""

    async def ask(self, request: Request) -> object:
        """Return the daemon's answer."""

    def tell(self, request: Request) -> None:
        """Send a request whose answer nobody waits for."""


@dataclass(slots=True)
class _Entry:
    request: MonitorRequest
    watcher: Watcher
    last: Down | None = None


class Monitors:
    """The monitors of one connection."""

    def __init__(self, asker: Asker) -> None:
        """Start with none."""
        self._asker = asker
        self._entries: dict[MonitorRef, _Entry] = {}

    def __len__(self) -> int:
        """Return how many monitors wait for a notice."""
        return len(self._entries)

    async def add(
        self, session_id: SessionId, watcher: Watcher, *, ref: MonitorRef, persistent: bool
    ) -> None:
        """Watch a session; notices may come before this returns."""
        request = MonitorRequest(session_id=session_id, ref=ref, persistent=persistent)
        self._entries[ref] = _Entry(request, watcher)
        try:
            await self._asker.ask(request)
        except BaseException:
            self.drop(ref)
            raise

    def take(self, down: Down) -> None:
        """Hand a notice to its watcher, unless it has heard it or wants no more."""
        entry = self._entries.get(down.ref)
        if entry is None:
            if down.restarting:  # a persistent one that we have forgotten
                self._asker.tell(Demonitor(ref=down.ref))
            return
        if entry.last is not None and not _is_news(down, entry.last):
            return
        entry.last = down
        if not (entry.request.persistent and down.restarting):
            del self._entries[down.ref]
        entry.watcher.on_down(down)

    async def remove(self, ref: MonitorRef) -> None:
        """Forget a monitor, at once; returns when the daemon has forgotten it too."""
        self._entries.pop(ref, None)
        await self._asker.ask(Demonitor(ref=ref))

    def drop(self, ref: MonitorRef) -> None:
        """Forget a monitor and let the daemon know, without waiting."""
        if self._entries.pop(ref, None) is not None:
            self._asker.tell(Demonitor(ref=ref))

    async def renew(self) -> None:
        """Ask again for all of them: the daemon that knew them is gone."""
        requests = [entry.request for entry in self._entries.values()]
        answers = await asyncio.gather(
            *(self._asker.ask(request) for request in requests), return_exceptions=True
        )
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, CmdcError):
                _log.warning(
                    "monitor.lost", extra={"session_id": request.session_id, "error": str(answer)}
                )

    def fail(self, error: CmdcError) -> None:
        """Let every watcher know that nothing more comes."""
        entries = list(self._entries.values())
        self._entries.clear()
        for entry in entries:
            entry.watcher.on_end(error)


def _is_news(down: Down, last: Down) -> bool:
    return (down.incarnation, not down.restarting) > (last.incarnation, not last.restarting)


class Watch:
    """What both kinds of monitor share."""

    def __init__(
        self,
        session_id: SessionId,
        inbox: Filled[Down],
        deliver: "Deliver | None",
        *,
        persistent: bool,
    ) -> None:
        """Fill ``inbox``; ``deliver`` gets each notice in the client's loop as well."""
        self.ref = new_monitor_ref()
        self.session_id = session_id
        self.persistent = persistent
        self.is_removed = False
        self._filled = inbox
        self._deliver = deliver
        self._final: Down | None = None

    def on_down(self, down: Down) -> None:
        """Take one notice."""
        if not (self.persistent and down.restarting):
            self._final = down
        self._filled.put([down])
        if self._deliver is not None:
            self._deliver(self, down)

    def on_end(self, error: CmdcError) -> None:
        """Take note that no notice will follow."""
        self._filled.finish(error)

    def mark_removed(self) -> None:
        """Discard what was not fetched or delivered yet."""
        self.is_removed = True
        self._final = None
        self._filled.finish(UsageError("the monitor was removed"), drop=True)

    def _told_already(self) -> Down | None:
        return None if len(self._filled) else self._final


Deliver = Callable[[Watch, Down], None]


class AsyncMonitor(Watch):
    """A monitor for coroutines; ``ref`` names it."""

    def __init__(
        self, session_id: SessionId, deliver: Deliver | None = None, *, persistent: bool = False
    ) -> None:
        """Wait for notices of one session."""
        self._downs: AsyncInbox[Down] = AsyncInbox(DOWNS_QUEUED_MAX)
        super().__init__(session_id, self._downs, deliver, persistent=persistent)

    async def wait(self, timeout: float | None = None) -> Down:  # noqa: ASYNC109 - the contract's name
        """Return the next notice; after the last one, that one again.

        Raises:
            TimeoutError: none came within ``timeout`` seconds.
            CmdcError: none will come: the monitor was removed, or the client or daemon is gone.

        """
        return self._told_already() or await self._downs.get(timeout)


class Monitor(Watch):
    """A monitor for threads; ``ref`` names it."""

    def __init__(
        self, session_id: SessionId, deliver: Deliver | None = None, *, persistent: bool = False
    ) -> None:
        """Wait for notices of one session."""
        self._downs: ThreadInbox[Down] = ThreadInbox(DOWNS_QUEUED_MAX)
        super().__init__(session_id, self._downs, deliver, persistent=persistent)

    def wait(self, timeout: float | None = None) -> Down:
        """Return the next notice; after the last one, that one again.

        Raises:
            TimeoutError: none came within ``timeout`` seconds.
            CmdcError: none will come: the monitor was removed, or the client or daemon is gone.

        """
        return self._told_already() or self._downs.get(timeout)
