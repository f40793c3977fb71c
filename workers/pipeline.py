"""The plugins of a session at work: asked at hooks for a verdict, and told what is published.

``Pipeline`` asks one after the other. It is the shell around ``core.verdict``, which decides what
the answers amount to. Rules: a plugin can neither end nor stop the session. Whatever goes wrong is
a reaction with an error. One plugin runs once at a time, whoever asks; how is the business of its
``Slot``.

``Observers`` has a queue and a task for each plugin that hears of what the session publishes.
Nothing waits for them. A queue that is full drops what is new, and the log says how much; a plugin
that crashes here is told of like any other crash, and hears of no crash of its own here.
"""

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import structlog

from cmdc_runtime import foreign
from cmdc_runtime.events import Event, PluginCrashed
from cmdc_runtime.extensions.hooks import AnyHook, SessionStart
from cmdc_runtime.extensions.plugin import (
    FILTER_OUTPUT,
    OBSERVE,
    Observed,
    PipelineRun,
    Plugin,
    observes,
)
from cmdc_runtime.extensions.plugin_context import PluginContext, PluginPort
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.plain import mended
from cmdc_runtime.user_values import shown
from workers.core.tags import ALL, Tag
from workers.core.verdict import Reaction, Verdict, fold, stops, with_user_data
from workers.output_filters import OutputFilters
from workers.plugin_slot import (
    ERROR_CHARS_MAX,
    STEP_BYTES_MAX,
    FailedError,
    Said,
    Slot,
    said_by,
    told,
)
from workers.threads import Threads

# --- observers ------------------------------------------------------------------------------------

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
            self._crashed(plugin.name, foreign.summary_of(error))


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


# --- asked at hooks -------------------------------------------------------------------------------

OBSERVED_S: Final = 0.5
"""At the end of a process, for what plugins still have to hear of."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where plugins live: what they may ask of their session, and who is told of their crashes.

    ``port_of`` makes the port of one plugin, by its name, ``observer_port_of`` that of one that
    hears of events; ``crashed`` takes plugin, place and
    error of a crash outside of hooks; ``greeting`` is told of each plugin that is about to hear of
    the session's start, and may say why that has failed already.
    """

    port_of: PortOf = lambda _plugin: None
    observer_port_of: PortOf = lambda _plugin: None
    crashed: Callable[[str, str, str], None] = lambda _plugin, _where, _error: None
    greeting: Callable[[str], str | None] = lambda _plugin: None


class Pipeline:
    """The plugins of one session."""

    def __init__(
        self,
        plugins: Sequence[Plugin],
        context_of: Callable[[], PluginContext],
        home: Home | None = None,
    ) -> None:
        """Ask ``plugins`` by priority, equal ones in their order; each name is there once.

        ``context_of`` returns what they see of the session, once for each run; without a ``home``
        they can ask nothing of it.
        """
        self._home = home or Home()
        self._context_of = context_of
        self._observers = Observers(
            context_of,
            lambda name, why: self._tell(name, OBSERVE, why),
            self._home.observer_port_of,
        )
        self._slots = _ordered([Slot(plugin) for plugin in plugins])
        self._look_at_slots()

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks that some plugin hears; a run of another one says nothing."""
        return self._hooks

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Give plugins the states of an earlier process, by name, before the first run."""
        for slot in self._slots:
            if slot.plugin.name in states:
                slot.restore(states[slot.plugin.name])

    async def run(self, hook: AnyHook) -> Verdict:
        """Ask every plugin that hears ``hook`` and return what they say together.

        Runs may overlap: each plugin takes them in turn. When cancelled, nothing was said: the
        plugin that was being asked is as it was before.
        """
        context, begun_s = self._context_of(), time.perf_counter()
        room = _Room(self._slots, context.user_data)
        reactions: list[Reaction] = []
        for slot in self._slots:
            if not slot.hears(hook):
                continue
            async with slot.turn:
                reaction = self._ungreeted(slot, hook) or await self._ask(slot, hook, context, room)
            reactions.append(reaction)
            if stops(hook.kind, reaction):
                break
        verdict = fold(hook.kind, reactions)
        if reactions:
            seconds = time.perf_counter() - begun_s
            self._observers.tell(_report(hook.kind, reactions, verdict, seconds))
        for plugin, action in verdict.ignored:
            log.debug("plugin_action.ignored", plugin=plugin, hook=hook.kind, action=action)
        emitted = with_user_data(verdict.emitted, context.user_data)
        return replace(verdict, emitted=emitted, states=_changed_states(self._slots))

    async def greet(self, plugin: Plugin) -> tuple[Slot, Verdict]:
        """Let a plugin hear ``session_start`` before it is one of ours, and hold it ready.

        One that takes the place of another knows what that one knew.
        """
        slot = Slot(plugin)
        old = self._slot(plugin.name)
        if old is not None:
            slot.restore(old.state)
        hook = SessionStart()
        context = self._context_of()
        room = _Room([slot], context.user_data)
        asked = [await self._ask(slot, hook, context, room)] if slot.hears(hook) else []
        verdict = fold(hook.kind, asked)
        emitted = with_user_data(verdict.emitted, context.user_data)
        return slot, replace(verdict, emitted=emitted, states=_changed_states([slot]))

    def attach(self, slot: Slot) -> None:
        """Ask a plugin that was greeted, in the place of the one of its name or after the others.

        A run that is under way goes on with those there were.
        """
        old = self._slot(slot.plugin.name)
        if old is None:
            self._slots = _ordered([*self._slots, slot])
        else:
            if slot.state == slot.greeted_with:  # what the old one learnt meanwhile is not lost
                slot.restore(old.state)
            self._slots = _ordered([slot if one is old else one for one in self._slots])
        self._look_at_slots()

    def detach(self, name: str) -> None:
        """Ask a plugin no more."""
        self._slots = [slot for slot in self._slots if slot.plugin.name != name]
        self._look_at_slots()

    def hooks_by_plugin(self) -> dict[str, frozenset[str]]:
        """Return what each plugin hears, by its name."""
        return {slot.plugin.name: slot.hooks for slot in self._slots}

    def _slot(self, name: str) -> Slot | None:
        return next((slot for slot in self._slots if slot.plugin.name == name), None)

    def _ungreeted(self, slot: Slot, hook: AnyHook) -> Reaction | None:
        """Return the failure of a plugin that is not to hear of the session's start."""
        why = self._home.greeting(slot.plugin.name) if isinstance(hook, SessionStart) else None
        return None if why is None else self._failed(slot, hook.kind, FailedError(why))

    async def _ask(
        self, slot: Slot, hook: AnyHook, context: PluginContext, room: "_Room"
    ) -> Reaction:
        name = slot.plugin.name
        if slot.is_off:  # by a run that had its turn before this one
            return Reaction(name)
        try:
            seen = replace(context, session=self._home.port_of(name))
            said = await said_by(slot, hook, seen)
            room.take(slot, said)
        except asyncio.CancelledError:  # ours: what a plugin cancels itself is an error of it
            slot.take_back()
            raise
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything, only its run ends
            return self._failed(slot, hook.kind, error)
        slot.state = said.state
        return Reaction(name, said.actions)

    def _failed(self, slot: Slot, where: str, error: Exception) -> Reaction:
        """Return what a failure of a plugin means, which goes on as it was before."""
        name, fail = slot.plugin.name, slot.plugin.fail
        slot.take_back()
        trace = foreign.traceback_of(error)
        log.error("plugin.crashed", plugin=name, hook=where, fail=fail, exception=trace)
        why = told(error)
        if fail == "disable":
            slot.is_off = True
        if slot.is_off:
            self._look_at_slots()
            why = f"{why}; the plugin is off from here on"
        return Reaction(name, error=why, fail=fail)

    def filters(self, invited: frozenset[Tag] = ALL) -> OutputFilters | None:
        """Return the filters for one answer, None where no plugin has any.

        ``invited`` are the tags that the model was told of.

        Raises:
            FilterFailedError: one could not be made, and its plugin fails closed.
        """
        filtering = [slot.plugin for slot in self._slots if slot.filters and not slot.is_off]
        if not filtering:
            return None
        return OutputFilters(
            filtering,
            self._context_of(),
            lambda name, why: self._tell(name, FILTER_OUTPUT, why),
            invited,
        )

    def observe(self, event: Event) -> None:
        """Tell plugins that listen of an event that was published."""
        self._observers.tell(event)

    async def observed(self) -> None:
        """Return when plugins that listen have heard of everything, or have had time enough."""
        await self._observers.settled(OBSERVED_S)

    def _look_at_slots(self) -> None:
        on = [slot for slot in self._slots if not slot.is_off]
        self._hooks = frozenset[str]().union(*(slot.hooks for slot in on))
        self._observers.watch(on)

    def _tell(self, plugin: str, where: str, why: str) -> None:
        self._home.crashed(plugin, where, mended(why[:ERROR_CHARS_MAX]))


class _Room:
    """What plugins may still bring into the write of one run."""

    # Any: the application's own.
    def __init__(self, slots: Iterable[Slot], user_data: Mapping[str, Any]) -> None:
        """Begin with all of it, but for the states of ``slots`` that no verdict has told yet."""
        self._slots = tuple(slots)
        self._user_data = user_data
        self._taken = 0

    def take(self, slot: Slot, said: Said) -> None:
        """Count what a plugin has said.

        Raises:
            FailedError: there is no room for it; the text says how large it is and how much fits.
        """
        others = [one for one in self._slots if one is not slot and one.state != one.told_state]
        taken = self._taken + sum(len(one.state) for one in others)
        size = said.size
        if said.merges and self._user_data:
            told = shown(dict(self._user_data))
            size += said.merges * len(msgspec.msgpack.encode(told))
        state = len(said.state) if said.state != slot.told_state else 0
        if taken + size + state > STEP_BYTES_MAX:
            raise FailedError(
                f"its answer takes {size:,} bytes with user_data, and its new state {state:,}; "
                f"the plugins before it have taken {taken:,} of the {STEP_BYTES_MAX:,} that all of "
                "them together may have at one hook"
            )
        self._taken += size


def _ordered(slots: Iterable[Slot]) -> list[Slot]:
    return sorted(slots, key=lambda slot: slot.plugin.priority)


def _changed_states(slots: Iterable[Slot]) -> tuple[tuple[str, bytes], ...]:
    """Return the states that no verdict has told yet; a run that was cancelled told none."""
    changed = [slot for slot in slots if slot.state != slot.told_state]
    for slot in changed:
        slot.told_state = slot.state
    return tuple((slot.plugin.name, slot.state) for slot in changed)


def _report(
    hook: str, reactions: Sequence[Reaction], verdict: Verdict, seconds: float
) -> PipelineRun:
    last = reactions[-1]
    return PipelineRun(
        hook=hook,
        duration_ms=seconds * 1000,
        plugins=len(reactions),
        halted_by=last.plugin if stops(hook, last) else None,
        crashed=tuple(plugin for plugin, _hook, _error in verdict.crashed),
        ignored=verdict.ignored,
    )
