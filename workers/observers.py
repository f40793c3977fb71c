"""Plugins that hear of what the session publishes: each has a queue and a task of its own.

Nothing waits for them. A queue that is full drops what is new, and the log says how much; a plugin
that crashes here is told of like any other crash, and hears of no crash of its own here.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeAlias

import structlog

from cmdc_runtime import foreign
from cmdc_runtime.events import PluginCrashed
from cmdc_runtime.extensions.plugin import OBSERVE, Observed, Plugin, observes
from cmdc_runtime.extensions.plugin_context import PluginContext, PluginPort
from cmdc_runtime.foreign import ForeignError
from workers.threads import Threads

log = structlog.get_logger()

QUEUE_MAX: Final = 10_000
"""Events that wait for one plugin."""
BATCH_MAX: Final = 256
"""Events that are told in one go: a thread is handed over to once for all of them."""
BATCH_TIMEOUT_S: Final = 30.0
"""For one batch; a thread that takes longer is left alone, and the plugin hears of no more."""


PortOf: TypeAlias = Callable[[str], PluginPort | None]
"""Returns what the plugin of a name may ask its session by."""


def _no_port(_plugin: str) -> None:
    return None


class Watched(Protocol):
    """One plugin of the pipeline: its turn, its threads, and whether it is still asked."""

    plugin: Plugin
    is_off: bool
    turn: asyncio.Lock
    threads: Threads


class Observer:
    """Tells one plugin."""

    def __init__(
        self,
        slot: Watched,
        context_of: Callable[[], PluginContext],
        crashed: Callable[[str, str], None],
        port_of: PortOf,
    ) -> None:
        """Say by ``crashed`` what the plugin ended with."""
        self.slot = slot
        self._context_of = context_of
        self._port_of = port_of
        self._crashed = crashed
        self._queue: deque[Observed] = deque()
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def tell(self, event: Observed) -> None:
        """Keep an event for the plugin."""
        if self._is_over or self.slot.is_off or _is_own_crash(event, self.slot.plugin.name):
            return
        if len(self._queue) >= QUEUE_MAX:
            self._dropped += 1
            return
        self._queue.append(event)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=OBSERVE)

    async def settled(self) -> None:
        """Return when the plugin has heard all that it was told so far."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def stop(self) -> None:
        """Tell no more."""
        self._is_over = True
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MAX))]
                async with self.slot.turn:
                    await self._tell(batch)
        finally:
            self._task = None

    async def _tell(self, batch: Sequence[Observed]) -> None:
        plugin = self.slot.plugin
        context = replace(self._context_of(), session=self._port_of(plugin.name))
        if dropped := self._dropped:
            self._dropped = 0
            log.warning("plugin_observer.overrun", plugin=plugin.name, dropped=dropped)
        bound = asyncio.timeout(BATCH_TIMEOUT_S)
        try:
            async with bound:
                error = await _told(self.slot, batch, context)
        except TimeoutError:
            self.stop()
            self._crashed(plugin.name, f"it took longer than {BATCH_TIMEOUT_S:g} s")
            return
        if error is not None:
            trace = foreign.traceback_of(error)
            log.error("plugin.crashed", plugin=plugin.name, hook=OBSERVE, exception=trace)
            self._crashed(plugin.name, foreign.told(error))


class Observers:
    """All plugins of a session that hear of what it publishes."""

    def __init__(
        self,
        context_of: Callable[[], PluginContext],
        crashed: Callable[[str, str], None],
        port_of: PortOf = _no_port,
    ) -> None:
        """Have none; ``port_of`` says by what the plugin of a name may ask its session."""
        self._context_of = context_of
        self._crashed = crashed
        self._port_of = port_of
        self._observers: tuple[Observer, ...] = ()

    def watch(self, slots: Iterable[Watched]) -> None:
        """Tell these plugins from now on, as far as they listen."""
        known = {id(one.slot): one for one in self._observers}
        kept = [
            known.get(id(slot)) or Observer(slot, self._context_of, self._crashed, self._port_of)
            for slot in slots
            if observes(slot.plugin)
        ]
        for gone in {*self._observers}.difference(kept):
            gone.stop()
        self._observers = tuple(kept)

    def tell(self, event: Observed) -> None:
        """Tell an event to all of them."""
        for observer in self._observers:
            observer.tell(event)

    async def settled(self, timeout_s: float) -> None:
        """Return when they have heard everything, or the time is over."""
        waits = [asyncio.ensure_future(one.settled()) for one in self._observers]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_s)
            for one in late:
                one.cancel()


async def _told(
    slot: Watched, batch: Sequence[Observed], context: PluginContext
) -> ForeignError | None:
    """Tell a batch; return the first error, after which the rest is told all the same."""
    plugin = slot.plugin
    if inspect.iscoroutinefunction(plugin.observe):
        return await _awaited(plugin, batch, context)

    def work() -> ForeignError | None:
        first = None
        for event in batch:
            try:
                foreign.call(partial(plugin.observe, event, context))
            except ForeignError as failed:
                first = first or failed
        return first

    return await slot.threads.call(work)


async def _awaited(
    plugin: Plugin, batch: Sequence[Observed], context: PluginContext
) -> ForeignError | None:
    first: ForeignError | None = None
    for event in batch:
        try:
            await foreign.wait(partial(plugin.observe, event, context))
        except ForeignError as failed:
            first = first or failed
    return first


def _is_own_crash(event: Observed, plugin: str) -> bool:
    return isinstance(event, PluginCrashed) and event.plugin == plugin and event.hook == OBSERVE
