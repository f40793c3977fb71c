"""The plugins of a session: asked at hooks for a verdict, and notified of what is published.

``Pipeline`` asks one after the other. It is the shell around ``core.verdict``, which decides what
the answers amount to. Rules: a plugin can neither end nor stop the session. Whatever goes wrong is
a reaction with an error. One plugin runs once at a time, whoever asks; how is the business of its
``Slot``.

``Observers`` has a queue and a task for each plugin that observes what the session publishes.
Nothing waits for them. A queue that is full drops what is new, and the log says how much; a plugin
that crashes here is published like any other crash, and does not observe a crash of its own here.
"""

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import structlog

from cmdc_runtime import foreign
from cmdc_runtime.events import Event, PluginCrashed
from cmdc_runtime.extensions.context import PluginContext, PluginPort
from cmdc_runtime.extensions.hooks import AnyHook, SessionStart
from cmdc_runtime.extensions.plugin import (
    FILTER_OUTPUT,
    OBSERVE,
    Observed,
    PipelineRun,
    Plugin,
    observes,
)
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
    PluginRun,
    Slot,
    run_hook,
    short_text,
)

# --- observers ------------------------------------------------------------------------------------

log = structlog.get_logger()

QUEUE_MAX: Final = 10_000
"""Events that wait for one plugin."""
BATCH_MAX: Final = 256
"""Events that are passed in one go: a thread takes all of them at once."""
BATCH_TIMEOUT_S: Final = 30.0
"""For one batch; a thread that takes longer is left alone, and the plugin observes no more."""


PortOf: TypeAlias = Callable[[str], PluginPort | None]
"""Returns what the plugin of a name may ask its session by."""


def _no_port(_plugin: str) -> None:
    return None


class Observer:
    """Passes events to one plugin."""

    def __init__(
        self,
        slot: Slot,
        context_of: Callable[[], PluginContext],
        crashed: Callable[[Slot, str], None],
        port_of: PortOf,
    ) -> None:
        """Call ``crashed`` with what the plugin ended with."""
        self.slot = slot
        self._context_of = context_of
        self._port_of = port_of
        self._crashed = crashed
        self._queue: deque[Observed] = deque()
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def notify(self, event: Observed) -> None:
        """Queue an event for the plugin."""
        if self._is_over or self.slot.is_off or _is_own_crash(event, self.slot.plugin.name):
            return
        if len(self._queue) >= QUEUE_MAX:
            self._dropped += 1
            return
        self._queue.append(event)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=OBSERVE)

    async def drained(self) -> None:
        """Return when the plugin has taken all that is queued."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def stop(self) -> None:
        """Pass no more events."""
        self._is_over = True
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MAX))]
                async with self.slot.turn:
                    await self._pass_on(batch)
        finally:
            self._task = None

    async def _pass_on(self, batch: Sequence[Observed]) -> None:
        plugin = self.slot.plugin
        context = replace(self._context_of(), session=self._port_of(plugin.name))
        if dropped := self._dropped:
            self._dropped = 0
            log.warning("plugin_observer.overrun", plugin=plugin.name, dropped=dropped)
        bound = asyncio.timeout(BATCH_TIMEOUT_S)
        try:
            async with bound:
                error = await _observed(self.slot, batch, context)
        except TimeoutError:
            self.stop()
            self._crashed(self.slot, f"it took longer than {BATCH_TIMEOUT_S:g} s")
            return
        if error is not None:
            trace = foreign.traceback_of(error)
            log.error("plugin.crashed", plugin=plugin.name, hook=OBSERVE, exception=trace)
            self._crashed(self.slot, foreign.summary_of(error))


class Observers:
    """All plugins of a session that observe what it publishes."""

    def __init__(
        self,
        context_of: Callable[[], PluginContext],
        crashed: Callable[[Slot, str], None],
        port_of: PortOf = _no_port,
    ) -> None:
        """Have none; ``port_of`` returns what the plugin of a name may ask its session by."""
        self._context_of = context_of
        self._crashed = crashed
        self._port_of = port_of
        self._observers: tuple[Observer, ...] = ()

    def watch(self, slots: Iterable[Slot]) -> None:
        """Notify these plugins from now on, as far as they observe."""
        known = {id(one.slot): one for one in self._observers}
        kept = [
            known.get(id(slot)) or Observer(slot, self._context_of, self._crashed, self._port_of)
            for slot in slots
            if observes(slot.plugin)
        ]
        for gone in {*self._observers}.difference(kept):
            gone.stop()
        self._observers = tuple(kept)

    def notify(self, event: Observed) -> None:
        """Queue an event for all of them."""
        for observer in self._observers:
            observer.notify(event)

    async def drained(self, timeout_s: float) -> None:
        """Return when they have taken everything, or the time is over."""
        waits = [asyncio.ensure_future(one.drained()) for one in self._observers]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_s)
            for one in late:
                one.cancel()


async def _observed(
    slot: Slot, batch: Sequence[Observed], context: PluginContext
) -> ForeignError | None:
    """Pass a batch; return the first error, after which the rest is passed all the same."""
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

_OFF: Final = "; the plugin is off from here on"
OBSERVED_S: Final = 0.5
"""At the end of a process, for what plugins still have to observe."""


@dataclass(frozen=True, slots=True)
class PluginServices:
    """What plugins have of their session: their ports, and what takes their crashes.

    ``port_of`` makes the port of one plugin, by its name, ``observer_port_of`` that of one that
    observes; ``crashed`` takes plugin, place and error of a crash outside of hooks;
    ``session_start_problem`` is called for each plugin before its ``session_start``, and may
    return why that has failed already.
    """

    port_of: PortOf = lambda _plugin: None
    observer_port_of: PortOf = lambda _plugin: None
    crashed: Callable[[str, str, str], None] = lambda _plugin, _where, _error: None
    session_start_problem: Callable[[str], str | None] = lambda _plugin: None


class Pipeline:
    """The plugins of one session."""

    def __init__(
        self,
        plugins: Sequence[Plugin],
        context_of: Callable[[], PluginContext],
        services: PluginServices | None = None,
    ) -> None:
        """Ask ``plugins`` by priority, equal ones in their order; each name is there once.

        ``context_of`` returns what they see of the session, once for each run; without
        ``services`` they can ask nothing of it.
        """
        self._services = services or PluginServices()
        self._context_of = context_of
        self._observers = Observers(
            context_of,
            lambda slot, why: self._publish_crash(slot, OBSERVE, why),
            self._services.observer_port_of,
        )
        self._slots = _ordered([Slot(plugin) for plugin in plugins])
        self._update_hooks()

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks that some plugin has; a run of another one decides nothing."""
        return self._hooks

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Give plugins the states of an earlier process, by name, before the first run."""
        for slot in self._slots:
            if slot.plugin.name in states:
                slot.restore(states[slot.plugin.name])

    async def run(self, hook: AnyHook) -> Verdict:
        """Ask every plugin that has ``hook`` and return their verdict.

        Runs may overlap: each plugin takes them in turn. When cancelled, nothing was decided: the
        plugin that was being asked is as it was before.
        """
        context, begun_s = self._context_of(), time.perf_counter()
        budget = _SizeBudget(self._slots, context.user_data)
        reactions: list[Reaction] = []
        for slot in self._slots:
            if not slot.has(hook):
                continue
            async with slot.turn:
                reaction = self._unstarted(slot, hook) or await self._ask(
                    slot, hook, context, budget
                )
            reactions.append(reaction)
            if stops(hook.kind, reaction):
                break
        verdict = fold(hook.kind, reactions)
        if reactions:
            seconds = time.perf_counter() - begun_s
            self._observers.notify(_report(hook.kind, reactions, verdict, seconds))
        for plugin, action in verdict.ignored:
            log.debug("plugin_action.ignored", plugin=plugin, hook=hook.kind, action=action)
        emitted = with_user_data(verdict.emitted, context.user_data)
        return replace(verdict, emitted=emitted, states=_changed_states(self._slots))

    async def start(self, plugin: Plugin) -> tuple[Slot, Verdict]:
        """Run ``session_start`` of a plugin before it is one of ours, and hold it ready.

        One that takes the place of another has the state of that one.
        """
        slot = Slot(plugin)
        old = self._slot(plugin.name)
        if old is not None:
            slot.restore(old.state)
        hook = SessionStart()
        context = self._context_of()
        budget = _SizeBudget([slot], context.user_data)
        asked = [await self._ask(slot, hook, context, budget)] if slot.has(hook) else []
        verdict = fold(hook.kind, asked)
        emitted = with_user_data(verdict.emitted, context.user_data)
        return slot, replace(verdict, emitted=emitted, states=_changed_states([slot]))

    def attach(self, slot: Slot) -> None:
        """Ask a plugin that was started, in the place of the one of its name or after the others.

        A run that is under way goes on with those there were.
        """
        old = self._slot(slot.plugin.name)
        if old is None:
            self._slots = _ordered([*self._slots, slot])
        else:
            if slot.state == slot.started_with:  # what the old one learnt meanwhile is not lost
                slot.restore(old.state)
            self._slots = _ordered([slot if one is old else one for one in self._slots])
        self._update_hooks()

    def detach(self, name: str) -> None:
        """Ask a plugin no more."""
        self._slots = [slot for slot in self._slots if slot.plugin.name != name]
        self._update_hooks()

    def hooks_by_plugin(self) -> dict[str, frozenset[str]]:
        """Return the hooks of each plugin, by its name."""
        return {slot.plugin.name: slot.hooks for slot in self._slots}

    def _slot(self, name: str) -> Slot | None:
        return next((slot for slot in self._slots if slot.plugin.name == name), None)

    def _unstarted(self, slot: Slot, hook: AnyHook) -> Reaction | None:
        """Return the failure of a plugin whose ``session_start`` is not to run."""
        why = (
            self._services.session_start_problem(slot.plugin.name)
            if isinstance(hook, SessionStart)
            else None
        )
        return None if why is None else self._failed(slot, hook.kind, FailedError(why))

    async def _ask(
        self, slot: Slot, hook: AnyHook, context: PluginContext, budget: "_SizeBudget"
    ) -> Reaction:
        name = slot.plugin.name
        if slot.is_off:  # by a run that had its turn before this one
            return Reaction(name)
        try:
            seen = replace(context, session=self._services.port_of(name))
            ran = await run_hook(slot, hook, seen)
            budget.take(slot, ran)
        except asyncio.CancelledError:  # ours: what a plugin cancels itself is an error of it
            slot.revert()
            raise
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything, only its run ends
            return self._failed(slot, hook.kind, error)
        slot.state = ran.state
        return Reaction(name, ran.actions)

    def _failed(self, slot: Slot, where: str, error: Exception) -> Reaction:
        """Return what a failure of a plugin means, which goes on as it was before."""
        name, fail = slot.plugin.name, slot.plugin.fail
        slot.revert()
        trace = foreign.traceback_of(error)
        log.error("plugin.crashed", plugin=name, hook=where, fail=fail, exception=trace)
        why = short_text(error)
        if fail == "disable":
            slot.is_off = True
        if slot.is_off:
            self._update_hooks()
            why += _OFF
        return Reaction(name, error=why, fail=fail)

    def filters(self, invited: frozenset[Tag] = ALL) -> OutputFilters | None:
        """Return the filters for one answer, None where no plugin has any.

        ``invited`` are the tags that the system prompt names.

        Raises:
            FilterFailedError: one could not be made, and its plugin fails closed.
        """
        filtering = [slot for slot in self._slots if slot.filters and not slot.is_off]
        if not filtering:
            return None
        by_name = {slot.plugin.name: slot for slot in filtering}
        return OutputFilters(
            [slot.plugin for slot in filtering],
            self._context_of(),
            lambda name, why: self._publish_crash(by_name[name], FILTER_OUTPUT, why),
            invited,
        )

    def observe(self, event: Event) -> None:
        """Pass an event that was published to the plugins that observe."""
        self._observers.notify(event)

    async def observed(self) -> None:
        """Return when observers have taken everything, or their time is over."""
        await self._observers.drained(OBSERVED_S)

    def _update_hooks(self) -> None:
        on = [slot for slot in self._slots if not slot.is_off]
        self._hooks = frozenset[str]().union(*(slot.hooks for slot in on))
        self._observers.watch(on)

    def _publish_crash(self, slot: Slot, where: str, why: str) -> None:
        """Publish a failure outside of hooks; who is to be disabled by one is off."""
        why = mended(why[:ERROR_CHARS_MAX])
        if slot.plugin.fail == "disable":
            slot.is_off = True
            self._update_hooks()
            why += _OFF
        self._services.crashed(slot.plugin.name, where, why)


class _SizeBudget:
    """What plugins may still bring into the write of one run."""

    # Any: the application's own.
    def __init__(self, slots: Iterable[Slot], user_data: Mapping[str, Any]) -> None:
        """Begin with all of it, but for the states of ``slots`` that no verdict has had yet."""
        self._slots = tuple(slots)
        self._user_data = user_data
        self._taken = 0

    def take(self, slot: Slot, ran: PluginRun) -> None:
        """Count what a run of a plugin brings.

        Raises:
            FailedError: there is no room for it; the text says how large it is and how much fits.
        """
        others = [one for one in self._slots if one is not slot and one.state != one.recorded_state]
        taken = self._taken + sum(len(one.state) for one in others)
        size = ran.size
        if ran.merges and self._user_data:
            merged = shown(dict(self._user_data))
            size += ran.merges * len(msgspec.msgpack.encode(merged))
        state = len(ran.state) if ran.state != slot.recorded_state else 0
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
    """Return the states that no verdict has had yet; a run that was cancelled gave none."""
    changed = [slot for slot in slots if slot.state != slot.recorded_state]
    for slot in changed:
        slot.recorded_state = slot.state
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
