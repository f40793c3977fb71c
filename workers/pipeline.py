"""Asks the plugins of a session at a hook, one after the other, and hands back their verdict.

The shell around ``core.verdict``, which decides what the answers amount to. Rules: a plugin can
neither end nor stop the session. A sync method runs in a thread of its own, an async one as part
of the calling task; both within a bound of time. Whatever goes wrong is a reaction with an error.
One plugin runs once at a time, whoever asks. A run that is cancelled leaves the plugin's state as
it was before; a thread that cannot be ended keeps the old instance to itself, and a copy goes on.
"""

import asyncio
import copy
import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import structlog

from cmdc_runtime.events import Event
from cmdc_runtime.extensions.actions import BadActionError, settled
from cmdc_runtime.extensions.hooks import AfterTool, AnyHook, BeforeTool, OnToolError
from cmdc_runtime.extensions.plugin import (
    FILTER_OUTPUT,
    OBSERVE,
    Answer,
    PipelineRun,
    Plugin,
    filters_output,
    hooks_of,
    is_async,
    settings_of,
)
from cmdc_runtime.extensions.plugin_context import PluginContext, PluginPort
from workers.core.verdict import Reaction, Verdict, fold, stops, with_user_data
from workers.intake import fit
from workers.observers import Observers
from workers.output_filters import OutputFilters
from workers.threads import Threads

log = structlog.get_logger()

HOOK_TIMEOUT_S: Final = 30.0
"""One method of one plugin, unless ``@hook`` says otherwise."""
STRAY_THREADS_MAX: Final = 8
"""Of one plugin, left alone by a timeout or an abort and still running: as long as there are so
many the plugin is not asked, and each hook counts as failed."""
STATE_BYTES_MAX: Final = 2**20
"""Of one plugin's state, as MessagePack: it is journaled at each change."""


OBSERVED_S: Final = 5.0
"""At the end of a process, for what plugins still have to hear of."""
ERROR_CHARS_MAX: Final = 1000
"""Of a plugin's error as observers are told; the log has all of it."""


class _FailedError(Exception):
    """A plugin could not be asked, or its answer can't be used; the text says why."""


_OURS: Final = (_FailedError, BadActionError)


class _Slot:
    """One plugin, its turn, and what is known of its state."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.hooks = hooks_of(plugin)
        self.filters = filters_output(plugin)
        self.settings = {kind: settings_of(plugin, kind) for kind in self.hooks}
        self.is_off = False
        self.turn = asyncio.Lock()
        self.threads = Threads(f"plugin-{plugin.name}")
        self.state = msgspec.msgpack.encode(plugin.state)
        self.told_state = self.state

    def hears(self, hook: AnyHook) -> bool:
        """Say whether the plugin wants to hear of this."""
        if self.is_off or hook.kind not in self.hooks:
            return False
        tools = self.settings[hook.kind].tools
        if tools is not None and isinstance(hook, BeforeTool | OnToolError | AfterTool):
            return hook.name in tools
        return True

    def keep_state(self) -> None:
        """Take the plugin's state as its state from here on.

        Raises:
            _FailedError: it can't be kept.
        """
        try:
            state = msgspec.msgpack.encode(self.plugin.state)
            msgspec.msgpack.decode(state, type=self.plugin.State)
        except Exception as error:  # a state may hold anything
            raise _FailedError(f"its state can't be kept: {error}") from error
        if len(state) > STATE_BYTES_MAX:
            raise _FailedError(f"its state takes {len(state)} bytes, more than {STATE_BYTES_MAX}")
        self.state = state

    def take_back(self) -> None:
        """Go on with the state of before, as a copy if a stray thread has this instance."""
        if len(self.threads):
            self.plugin = copy.copy(self.plugin)
        self.plugin.state = msgspec.msgpack.decode(self.state, type=self.plugin.State)

    def restore(self, state: bytes) -> None:
        """Go on with a state of an earlier process, a new one if it no longer fits."""
        self.told_state = state
        try:
            self.plugin.state = msgspec.msgpack.decode(state, type=self.plugin.State)
        except (msgspec.MsgspecError, ValueError) as error:
            log.warning("plugin_state.discarded", plugin=self.plugin.name, error=str(error))
            self.plugin.state = self.plugin.State()
        self.state = msgspec.msgpack.encode(self.plugin.state)


@dataclass(frozen=True, slots=True)
class Home:
    """Where plugins live: what they may ask of their session, and who is told of their crashes.

    ``port_of`` makes the port of one plugin, by its name; ``crashed`` takes plugin, place and
    error of a crash outside of hooks.
    """

    port_of: Callable[[str], PluginPort | None] = lambda _plugin: None
    crashed: Callable[[str, str, str], None] = lambda _plugin, _where, _error: None


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
        self._observers = Observers(context_of, lambda name, why: self._tell(name, OBSERVE, why))
        self._slots = [_Slot(plugin) for plugin in _ordered(plugins)]
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
        reactions: list[Reaction] = []
        for slot in self._slots:
            if not slot.hears(hook):
                continue
            async with slot.turn:
                reaction = await self._ask(slot, hook, context)
            reactions.append(reaction)
            if stops(hook.kind, reaction):
                break
        verdict = fold(hook.kind, reactions)
        if reactions:
            self._observers.tell(_report(hook.kind, reactions, time.perf_counter() - begun_s))
        for plugin, action in verdict.ignored:
            log.debug("plugin_action.ignored", plugin=plugin, hook=hook.kind, action=action)
        emitted = with_user_data(verdict.emitted, context.user_data)
        return replace(verdict, emitted=emitted, states=self._changed_states())

    async def _ask(self, slot: _Slot, hook: AnyHook, context: PluginContext) -> Reaction:
        name, fail = slot.plugin.name, slot.plugin.fail
        if slot.is_off:  # by a run that had its turn before this one
            return Reaction(name)
        cancels = _cancels()
        try:
            seen = replace(context, session=self._home.port_of(name))
            actions = settled(await _answer_of(slot, hook, seen))
            slot.keep_state()
            if _cancels() > cancels:  # the plugin kept our cancellation to itself
                raise asyncio.CancelledError  # noqa: TRY301 - goes the way of any other one
        except GeneratorExit:  # the loop is gone
            raise
        except BaseException as error:  # a plugin may raise anything, and only its run ends
            slot.take_back()
            if _cancels() > cancels:
                raise asyncio.CancelledError from error
            log.exception("plugin.crashed", plugin=name, hook=hook.kind, fail=fail)
            told = _told(error)
            if fail == "disable":
                slot.is_off = True
                self._look_at_slots()
                told = f"{told}; the plugin is off from here on"
            return Reaction(name, error=told, fail=fail)
        return Reaction(name, actions)

    def filters(self) -> OutputFilters | None:
        """Return the filters for one answer, None where no plugin has any.

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
        self._home.crashed(plugin, where, fit(why[:ERROR_CHARS_MAX]))

    def _changed_states(self) -> tuple[tuple[str, bytes], ...]:
        """Return the states that no verdict has told yet; a run that was cancelled told none."""
        changed = [slot for slot in self._slots if slot.state != slot.told_state]
        for slot in changed:
            slot.told_state = slot.state
        return tuple((slot.plugin.name, slot.state) for slot in changed)


def _ordered(plugins: Iterable[Plugin]) -> list[Plugin]:
    return sorted(plugins, key=lambda plugin: plugin.priority)


def _report(hook: str, reactions: Sequence[Reaction], seconds: float) -> PipelineRun:
    last = reactions[-1]
    return PipelineRun(
        hook=hook,
        duration_ms=seconds * 1000,
        plugins=len(reactions),
        halted_by=last.plugin if stops(hook, last) else None,
        crashed=tuple(one.plugin for one in reactions if one.error is not None),
    )


async def _answer_of(slot: _Slot, hook: AnyHook, context: PluginContext) -> object:
    """Return what the plugin returned, within its bound of time."""
    if len(slot.threads) >= STRAY_THREADS_MAX:
        raise _FailedError(f"{STRAY_THREADS_MAX} of its earlier runs have not returned yet")
    timeout_s = slot.settings[hook.kind].timeout_s or HOOK_TIMEOUT_S
    bound = asyncio.timeout(timeout_s)
    try:
        async with bound:
            return await _run(slot, _own_copy(hook), context)
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise _FailedError(f"it took longer than {timeout_s:g} s") from error


async def _run(slot: _Slot, hook: AnyHook, context: PluginContext) -> object:
    plugin = slot.plugin

    def work() -> tuple[Answer, BaseException | None]:
        try:
            return plugin.handle_event(hook, context), None
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            return None, error

    answer, error = work() if is_async(plugin, hook.kind) else await slot.threads.call(work)
    if error is not None:
        raise error
    return await answer if inspect.isawaitable(answer) else answer


def _own_copy(hook: AnyHook) -> AnyHook:
    """Return ``hook`` so that a plugin that writes into its arguments harms nobody else."""
    if isinstance(hook, BeforeTool):
        return msgspec.structs.replace(hook, args=copy.deepcopy(hook.args))
    return hook


def _cancels() -> int:
    """Return how often this task was cancelled: a plugin that cancels itself adds nothing."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _told(error: BaseException) -> str:
    """Return an error as it is told: short, and fit to be written down."""
    text = str(error) if isinstance(error, _OURS) else f"{type(error).__name__}: {error}"
    return fit(text[:ERROR_CHARS_MAX])
