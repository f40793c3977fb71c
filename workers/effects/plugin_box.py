"""Carries out ``LoadPlugin`` and ``ChangePlugins``: a plugin that comes while the session lives.

It is opened in a thread, since foreign code runs then, and greeted as at the start of a session.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from cmdc_runtime.commands import AttachPlugin
from cmdc_runtime.extensions.plugin import Plugin, hooks_of
from cmdc_runtime.ids import CommandId
from cmdc_runtime.parcels import Packed
from workers.code import with_code
from workers.core.inputs import PluginLoaded, Result
from workers.core.state import PluginFacts
from workers.core.step import ChangePlugins
from workers.core.verdict import Verdict
from workers.effects.opener import Opener
from workers.loader import LoadError
from workers.pipeline import Pipeline
from workers.plugin_loader import load_plugins
from workers.plugin_slot import Slot

LOAD_S: Final = 30.0
"""For what a plugin's modules and its constructor do."""


class PluginBox:
    """Opens plugins of one session and puts them into its pipeline."""

    def __init__(
        self,
        plugins: Pipeline,
        post: Callable[[Result], None],
        opener: Opener | None = None,
    ) -> None:
        """Post ``PluginLoaded`` by ``post``; ``opener`` is the session's."""
        self._plugins = plugins
        self._post = post
        self._opener = opener or Opener()
        self._loaded: dict[CommandId, Slot] = {}

    async def load(self, command_id: CommandId, command: AttachPlugin) -> None:
        """Open what a command brings and post it; it is there for the ``change`` that follows."""
        async with self._opener.turn():
            with self._opener.step(command.plugin):
                opened = await self._opened(command)
                greeted = None if isinstance(opened, str) else await self._plugins.greet(opened[0])
        if isinstance(opened, str) or greeted is None:
            self._post(PluginLoaded(command_id, command, None, Verdict(), str(opened)))
            return
        (plugin, packed), (slot, verdict) = opened, greeted
        self._loaded[command_id] = slot
        facts = PluginFacts(plugin.name, hooks_of(plugin), packed)
        try:
            self._post(PluginLoaded(command_id, command, facts, verdict))
        finally:
            self._loaded.pop(command_id, None)

    def change(self, change: ChangePlugins) -> None:
        """Exchange plugins, from the next hook on."""
        for name in change.detached:
            self._plugins.detach(name)
        slot = self._loaded.pop(change.load_id, None)
        if slot is not None and change.attached:
            self._plugins.attach(slot)

    async def _opened(self, command: AttachPlugin) -> tuple[Plugin, Packed] | str:
        def work() -> tuple[Plugin, Packed] | str:
            try:
                (plugin,) = load_plugins([command.plugin])
            except LoadError as error:
                return str(error)
            return plugin, with_code(command.plugin)

        try:
            async with asyncio.timeout(LOAD_S):
                return await self._opener.run(work)
        except TimeoutError:
            return f"{command.plugin.label}: not loaded within {LOAD_S:g} s"
