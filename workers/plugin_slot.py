"""One plugin of a session: its turn, its state, and how it is asked within its bound of time.

A sync method runs in a thread of its own, an async one as part of the calling task. A run that is
cancelled leaves the plugin's state as it was before; a thread that cannot be ended keeps the old
instance to itself, and a copy goes on.
"""

import asyncio
import copy
import inspect
from typing import Final

import msgspec
import structlog

from cmdc_runtime.extensions.actions import BadActionError
from cmdc_runtime.extensions.hooks import AfterTool, AnyHook, BeforeTool, OnToolError
from cmdc_runtime.extensions.plugin import (
    Answer,
    Plugin,
    filters_output,
    hooks_of,
    is_async,
    settings_of,
)
from cmdc_runtime.extensions.plugin_context import PluginContext
from workers.intake import fit
from workers.threads import Threads

log = structlog.get_logger()

HOOK_TIMEOUT_S: Final = 30.0
"""One method of one plugin, unless ``@hook`` says otherwise."""
STRAY_THREADS_MAX: Final = 8
"""Of one plugin, left alone by a timeout or an abort and still running: as long as there are so
many the plugin is not asked, and each hook counts as failed."""
STATE_BYTES_MAX: Final = 2**20
"""Of one plugin's state, as MessagePack: it is journaled at each change."""


ERROR_CHARS_MAX: Final = 1000
"""Of a plugin's error as observers are told; the log has all of it."""


class FailedError(Exception):
    """A plugin could not be asked, or its answer can't be used; the text says why."""


_OURS: Final = (FailedError, BadActionError)


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
        self.told_state = self.state
        self.greeted_with = self.state

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
            FailedError: it can't be kept.
        """
        try:
            state = msgspec.msgpack.encode(self.plugin.state)
            msgspec.msgpack.decode(state, type=self.plugin.State)
        except Exception as error:  # a state may hold anything
            raise FailedError(f"its state can't be kept: {error}") from error
        if len(state) > STATE_BYTES_MAX:
            raise FailedError(f"its state takes {len(state)} bytes, more than {STATE_BYTES_MAX}")
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
        self.state = self.greeted_with = msgspec.msgpack.encode(self.plugin.state)


async def answer_of(slot: Slot, hook: AnyHook, context: PluginContext) -> object:
    """Return what the plugin returned, within its bound of time."""
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


async def _run(slot: Slot, hook: AnyHook, context: PluginContext) -> object:
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


def cancels() -> int:
    """Return how often this task was cancelled: a plugin that cancels itself adds nothing."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def told(error: BaseException) -> str:
    """Return an error as it is told: short, and fit to be written down."""
    text = str(error) if isinstance(error, _OURS) else f"{type(error).__name__}: {error}"
    return fit(text[:ERROR_CHARS_MAX])
