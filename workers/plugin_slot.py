"""One plugin of a session: its turn, its state, and how it is asked within its bound of time.

A sync method runs in a thread of its own, an async one in a task of its own. What it answers and
the state that it leaves are read within its run, in a thread of the plugin's, since that may run
code of classes of its own: what comes out of a run is plain. A run that is cancelled leaves the
plugin's state as it was before; a thread that cannot be ended keeps the old instance to itself, and
a copy goes on.
"""

import asyncio
import copy
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from cmdc_runtime import foreign
from cmdc_runtime.extensions.actions import (
    Action,
    BadActionError,
    ReplaceMessages,
    checked_actions,
    stops_something,
)
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, AnyHook, BeforeTool, OnToolError
from cmdc_runtime.extensions.plugin import (
    Plugin,
    declares_fail,
    filters_output,
    hooks_of,
    is_async,
    settings_of,
)
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.plain import is_a
from workers.callbacks import owned
from workers.core.verdict import merges_of
from workers.threads import Threads

log = structlog.get_logger()

HOOK_TIMEOUT_S: Final = 30.0
"""One method of one plugin, unless ``@hook`` says otherwise."""
STRAY_THREADS_MAX: Final = 8
"""Of one plugin, left alone by a timeout or an abort and still running: as long as there are so
many the plugin is not asked, and each hook counts as failed."""
STATE_BYTES_MAX: Final = 2**20
"""Of one plugin's state, as MessagePack: it is journaled at each change."""
STEP_BYTES_MAX: Final = 6 * 2**20
"""Of what all plugins together answer at one hook, and of the states that are to be written with
it: all that is one write, which a frame has to hold beside a model's whole reply (8 MB)."""

ERROR_CHARS_MAX: Final = 1000
"""Of a plugin's error as it is published; the log has all of it."""


class FailedError(Exception):
    """A plugin could not be asked, or its answer can't be used; the text says why."""


_OURS: Final = (FailedError, BadActionError)


@dataclass(frozen=True, slots=True)
class PluginRun:
    """What one run of a plugin came to; nothing in it is of a class of the plugin's."""

    actions: tuple[Action, ...]
    """Sealed."""
    state: bytes
    """The plugin's from here on, if the run counts."""
    size: int
    """What the actions take, in bytes, without the ``user_data`` that ``merges`` of their events
    are merged with. The messages of one request are not recorded."""
    merges: int


@dataclass(frozen=True, slots=True)
class _Awaited:
    """What a sync method handed on."""

    answer: Awaitable[object]


class Slot:
    """One plugin, its turn, and what is known of its state."""

    def __init__(self, plugin: Plugin) -> None:
        """Begin with the state that the plugin has."""
        self.plugin = plugin
        self.hooks = hooks_of(plugin)
        self.filters = filters_output(plugin)
        self.settings = {kind: settings_of(plugin, kind) for kind in self.hooks}
        self.is_off = False
        self.turn = asyncio.Lock()
        self.threads = Threads(f"plugin-{plugin.name}")
        self.state = msgspec.msgpack.encode(plugin.state)
        self.recorded_state = self.state
        self.started_with = self.state

    def has(self, hook: AnyHook) -> bool:
        """Say whether the plugin has this hook, for this tool where it is about one."""
        if self.is_off or hook.kind not in self.hooks:
            return False
        tools = self.settings[hook.kind].tools
        if tools is not None and isinstance(hook, BeforeTool | OnToolError | AfterTool):
            return hook.name in tools
        return True

    def revert(self) -> None:
        """Go on with the state of before, as a copy if a stray thread has this instance.

        A plugin that can't be put back is off: what it knows is not what was written down.
        """
        try:
            if len(self.threads):
                self.plugin = foreign.call(lambda: copy.copy(self.plugin))
            self.plugin.state = _opened(self.plugin, self.state)
        except ForeignError as failed:
            self.is_off = True
            log.error("plugin.not_put_back", plugin=self.plugin.name, error=str(failed))

    def restore(self, state: bytes) -> None:
        """Go on with a state of an earlier process, a new one if it no longer fits."""
        self.recorded_state = state
        try:
            self.plugin.state = _opened(self.plugin, state)
        except ForeignError as failed:
            log.warning("plugin_state.discarded", plugin=self.plugin.name, error=str(failed))
            self.plugin.state = self.plugin.State()
        self.state = self.started_with = msgspec.msgpack.encode(self.plugin.state)


async def run_hook(slot: Slot, hook: AnyHook, context: PluginContext) -> PluginRun:
    """Return what the plugin answered and knows now, within its bound of time.

    Raises:
        FailedError: it took too long, or its earlier runs have not returned.
        ForeignError: it raised, what it answered can't be carried out, or its state can't be kept.
    """
    if len(slot.threads) >= STRAY_THREADS_MAX:
        raise FailedError(f"{STRAY_THREADS_MAX} of its earlier runs have not returned yet")
    timeout_s = slot.settings[hook.kind].timeout_s or HOOK_TIMEOUT_S
    bound = asyncio.timeout(timeout_s)
    try:
        async with bound:
            return await _run(slot, _own_copy(hook), context)
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise FailedError(f"it took longer than {timeout_s:g} s") from error


async def _run(slot: Slot, hook: AnyHook, context: PluginContext) -> PluginRun:
    plugin = slot.plugin

    def work() -> object:
        return plugin.handle_event(hook, context)

    def ran() -> PluginRun | _Awaited:
        answer = work()
        if inspect.isawaitable(answer):  # of an async method that a sync one handed on to
            return _Awaited(answer)
        return _read(plugin, answer, hook.kind)

    with owned(plugin.name):
        if is_async(plugin, hook.kind):
            answer = await foreign.wait(work)
        else:
            run = await slot.threads.run(ran)
            if isinstance(run, PluginRun):
                return run
            answer = await foreign.wait(lambda: run.answer)
        return await slot.threads.run(lambda: _read(plugin, answer, hook.kind))


def _read(plugin: Plugin, answer: object, kind: str) -> PluginRun:
    """Return what a run came to; reading it runs the plugin's own classes.

    A plugin that answers as a guard is taken for one, whatever its annotations say.

    Raises:
        BadActionError: the answer can't be carried out.
        FailedError: the state can't be kept.
    """
    if stops_something(answer) and not declares_fail(plugin):
        plugin.fail = "closed"
    actions = checked_actions(answer, kind)
    written = [action for action in actions if not isinstance(action, ReplaceMessages)]
    size = len(msgspec.msgpack.encode(written))
    return PluginRun(actions, _checked_state(plugin), size, sum(map(merges_of, written)))


def _checked_state(plugin: Plugin) -> bytes:
    """Return the plugin's state as it is written down.

    Raises:
        FailedError: it can't be kept.
    """
    try:
        state: bytes = foreign.call(lambda: msgspec.msgpack.encode(plugin.state))
        _opened(plugin, state)
    except ForeignError as failed:  # a state may hold anything
        raise FailedError(f"its state can't be kept: {failed}") from failed
    if len(state) > STATE_BYTES_MAX:
        raise FailedError(f"its state takes {len(state)} bytes, more than {STATE_BYTES_MAX}")
    return state


def _opened(plugin: Plugin, state: bytes) -> msgspec.Struct:
    """Return a state that was written down; reading it runs the plugin's own classes.

    Raises:
        ForeignError: it can't be read.
    """
    return foreign.call(lambda: msgspec.msgpack.decode(state, type=plugin.State))


def _own_copy(hook: AnyHook) -> AnyHook:
    """Return ``hook`` so that a plugin that writes into its arguments harms nobody else."""
    if isinstance(hook, BeforeTool):
        return msgspec.structs.replace(hook, args=copy.deepcopy(hook.args))
    return hook


def short_text(error: BaseException) -> str:
    """Return an error as it is published: short, and fit to be recorded."""
    origin = error.error if isinstance(error, ForeignError) else error
    text = foreign.text_of if is_a(origin, _OURS) else foreign.summary_of
    return text(error, ERROR_CHARS_MAX)
