"""Standing requests for notices of a session's end; each gets exactly what was asked for.

``Monitors`` keeps the books in the client's loop: for each monitor the newest end that it has had.
It follows the numbers of the notices up to the first that is missing, and compares with the newest
that the daemon gave. Where some were lost, because the connection broke, or where another daemon
took over, all are set again, each from its own place.
``Watch`` is what both kinds of monitor have in common, which the application holds.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from cmdc_runtime.client.arguments import checked_flag
from cmdc_runtime.client.limits import (
    DOWNS_QUEUED_MAX,
    EARLY_DOWNS_MAX,
    RENEW_RETRY_S,
    RENEWALS_PARALLEL_MAX,
)
from cmdc_runtime.client.logged import ClientLog
from cmdc_runtime.client.queues import Queue
from cmdc_runtime.errors import CmdcError, TransientError, UsageError
from cmdc_runtime.ids import DownSeq, MonitorRef, SessionId, new_monitor_ref
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import Demonitor, Monitored, Request
from cmdc_runtime.requests import Monitor as MonitorRequest
from cmdc_runtime.wire.frames import Notify

_log = ClientLog(__name__)


class Watcher(Protocol):
    """Who gets the notices of one monitor; called in the client's loop, must not block or raise."""

    def on_down(self, down: Down) -> None:
        """Take one notice."""

    def on_end(self, error: CmdcError) -> None:
        """End: no notice will follow."""


class Daemon(Protocol):
    """A connection to the daemon, as its parts need it."""

    monitors: "Monitors"
    slots: asyncio.Semaphore
    """So many questions of all streams are open at a time."""

    async def ask(self, request: Request) -> Any:
        """Return the daemon's answer (Any: what the request's ``answer`` says)."""

    def notify(self, request: Request) -> None:
        """Send a request whose answer nobody waits for."""

    # Any: nothing is sent to such a coroutine.
    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run ``work`` until it is done or the connection fails."""


@dataclass(slots=True)
class _Entry:
    """One monitor; ``since`` is the newest recorded end that it has had or that is not for it.

    It is None until the first answer. ``early`` is what came before that, or behind a loss.
    """

    request: MonitorRequest
    watcher: Watcher
    since: DownSeq | None = None
    is_over: bool = False
    last: Notify | None = None
    early: list[Notify] = field(default_factory=list)

    def has_had(self, notice: Notify, since: DownSeq) -> bool:
        """Say whether the end of this notice was delivered already."""
        if notice.seq is not None and notice.seq <= since:
            return True
        if self.last is None or not notice.down.restarting:
            return False
        if notice.seq is not None and self.last.seq is not None:
            return False
        # One of them could not be recorded, and the other may be of the same end.
        return notice.down.incarnation <= self.last.down.incarnation


class Monitors:
    """The monitors of one connection."""

    def __init__(self, daemon: Daemon) -> None:
        """Start with none."""
        self._daemon = daemon
        self._entries: dict[MonitorRef, _Entry] = {}
        self._received: int | None = None
        self._stale: dict[MonitorRef, None] = {}
        self._renewing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return how many monitors wait for a notice."""
        return len(self._entries)

    async def add(
        self, session_id: SessionId, watcher: Watcher, *, ref: MonitorRef, persistent: bool
    ) -> None:
        """Watch a session; notices may come before this returns."""
        request = MonitorRequest(session_id=session_id, ref=ref, persistent=persistent)
        entry = self._entries[ref] = _Entry(request, watcher)
        try:
            answer: Monitored = await self._daemon.ask(request)
        except BaseException:
            self.drop(ref)
            raise
        entry.since = answer.since
        self._take_early(entry)
        self._renew_stale()

    def take(self, notice: Notify) -> None:
        """Hand a notice to its watcher, unless it has had it or wants no more."""
        if self._received is not None and notice.number == self._received + 1:
            self._received += 1
        entry = self._entries.get(notice.down.ref)
        if entry is not None:
            self._hand(entry, notice)
        elif notice.down.restarting:  # a persistent one that we have forgotten
            self._daemon.notify(Demonitor(ref=notice.down.ref))

    async def remove(self, ref: MonitorRef) -> None:
        """Forget a monitor, at once; returns when the daemon has forgotten it too."""
        self._entries.pop(ref, None)
        await self._daemon.ask(Demonitor(ref=ref))

    def drop(self, ref: MonitorRef) -> None:
        """Forget a monitor and let the daemon know, without waiting."""
        if self._entries.pop(ref, None) is not None:
            self._daemon.notify(Demonitor(ref=ref))

    def reconcile(self, notices: int | None, *, is_new: bool) -> None:
        """Compare numbers with the daemon, in order with its notices; set anew what may be lost.

        ``is_new``: it is another daemon, which knows none of the monitors.
        """
        if notices is None and not is_new:
            return
        has_lost = is_new or notices != self._received
        self._received = notices
        if has_lost:
            self._stale = dict.fromkeys(self._entries)
            self._renew_stale()

    def fail(self, error: CmdcError) -> None:
        """Let every watcher know that nothing more comes."""
        entries = list(self._entries.values())
        self._entries.clear()
        for entry in entries:
            entry.watcher.on_end(error)

    def _hand(self, entry: _Entry, notice: Notify) -> None:
        if entry.since is None or notice.after > entry.since:
            self._buffer(entry, notice)
            return
        has_had = entry.has_had(notice, entry.since)
        if notice.seq is not None:
            entry.since = max(entry.since, notice.seq)
        if has_had:
            return
        entry.last = notice
        if not (entry.request.persistent and notice.down.restarting):
            entry.is_over = True
            self._entries.pop(notice.down.ref, None)
        entry.watcher.on_down(notice.down)

    def _buffer(self, entry: _Entry, notice: Notify) -> None:
        """Buffer a notice until those before it have come; recorded ones come again."""
        if len(entry.early) < EARLY_DOWNS_MAX:
            entry.early.append(notice)
        if entry.since is not None:
            self._stale[notice.down.ref] = None
            self._renew_stale()

    def _take_early(self, entry: _Entry) -> None:
        early, entry.early = entry.early, []
        for notice in early:
            if not entry.is_over:
                self._hand(entry, notice)

    def _renew_stale(self) -> None:
        if self._stale and (self._renewing is None or self._renewing.done()):
            self._renewing = self._daemon.spawn(self._renew())

    async def _renew(self) -> None:
        """Set again what is stale; one whose first answer is still open waits for that."""
        while refs := self._ready():
            for ref in refs:
                del self._stale[ref]
            is_done = await asyncio.gather(*map(self._set_again, refs))
            if not all(is_done):
                await asyncio.sleep(RENEW_RETRY_S)

    def _ready(self) -> list[MonitorRef]:
        self._stale = {ref: None for ref in self._stale if ref in self._entries}
        ready = [ref for ref in self._stale if self._entries[ref].since is not None]
        return ready[:RENEWALS_PARALLEL_MAX]

    async def _set_again(self, ref: MonitorRef) -> bool:
        entry = self._entries.get(ref)
        if entry is None:
            return True
        request = msgspec.structs.replace(entry.request, since=entry.since)
        try:
            await self._daemon.ask(request)
        except TransientError as error:
            _log.warning("monitor.not_renewed", ref=ref, problem=str(error))
            self._stale[ref] = None
            return False
        except CmdcError as error:
            self._entries.pop(ref, None)
            entry.watcher.on_end(error)
            return True
        if ref in self._entries:
            self._take_early(entry)
        elif not entry.is_over:  # removed meanwhile, and perhaps set again since
            self._daemon.notify(Demonitor(ref=ref))
        return True


class Watch:
    """What both kinds of monitor share."""

    def __init__(
        self,
        session_id: SessionId,
        queue: Queue[Down],
        deliver: "OnDown | None",
        *,
        persistent: bool,
    ) -> None:
        """Fill ``queue``; ``deliver`` gets each notice in the client's loop as well."""
        checked_flag(persistent, "persistent")
        self.ref = new_monitor_ref()
        self.session_id = session_id
        self.persistent = persistent
        self.is_removed = False
        self._filled = queue
        self._deliver = deliver
        self._final: Down | None = None
        self._has_overflowed = False
        self._lock = threading.Lock()  # a thread may remove it while the loop fills it

    def on_down(self, down: Down) -> None:
        """Take one notice."""
        with self._lock:
            if self.is_removed:
                return
            if len(self._filled) == DOWNS_QUEUED_MAX and not self._has_overflowed:
                self._has_overflowed = True
                _log.warning("down.dropped", ref=self.ref, queued=DOWNS_QUEUED_MAX)
            if not (self.persistent and down.restarting):
                self._final = down
            self._filled.put([down])
        if self._deliver is not None:
            self._deliver(self, down)

    def on_end(self, error: CmdcError) -> None:
        """End: no notice will follow."""
        self._filled.finish(error)

    def mark_removed(self) -> None:
        """Discard what was not fetched or delivered yet."""
        with self._lock:
            self.is_removed = True
            self._final = None
            self._filled.finish(UsageError("the monitor was removed"), drop=True)

    def latest(self) -> Down | None:
        """Return the last notice there is of it, when it was fetched and nothing else waits."""
        if self.is_removed:  # whatever its queue was finished with before
            raise UsageError("the monitor was removed")
        return None if len(self._filled) else self._final


OnDown = Callable[[Watch, Down], None]
