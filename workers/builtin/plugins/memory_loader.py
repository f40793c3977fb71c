"""Shows memory files in the system prompt, and shows them anew when a tool has changed one.

The files are read when the session's process starts, and after each ``write_file`` and
``edit_file``: they are few and short, so that reading them costs less than finding out which file a
call was about. Nothing is said where they are as they were.

Observers get ``memory_loaded`` with the sizes of the files that are shown, the names of those that
are cut, and why others could not be read.
"""

from typing import NamedTuple

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Emit, MemoryContents
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, SessionStart
from cmdc_runtime.extensions.plugin import Plugin, hook
from workers.builtin.plugins._memory_files import memory_path, read_memory, shown_name
from workers.builtin.tools._files import reason_of

CHANGING_TOOLS = ("edit_file", "write_file")


class _Loaded(NamedTuple):
    """What became of each memory file."""

    contents: dict[str, str]
    cut: list[str]
    unread: dict[str, str]
    """Why, by name."""

    def event(self) -> Emit:
        """Return the event that observers get."""
        sizes = {name: len(text.encode()) for name, text in self.contents.items()}
        return Emit("memory_loaded", {"files": sizes, "cut": self.cut, "unread": self.unread})


class MemoryLoader(Plugin):
    """Keeps the memory files in the system prompt up to date."""

    name = "memory_loader"
    priority = 30
    emits = ("memory_loaded",)
    Config = plugins.MemoryLoader

    def session_start(
        self,
        event: SessionStart,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> list[Emit]:
        """Show the files as they are now."""
        loaded = self._loaded(context.working_dir)
        shown = _shown(loaded, context)
        return [*shown, loaded.event()] if shown or loaded.contents or loaded.unread else []

    @hook(tools=CHANGING_TOOLS)
    def after_tool(
        self,
        event: AfterTool,  # noqa: ARG002 - which file it was does not matter
        context: PluginContext,
    ) -> list[Emit]:
        """Show the files again where a tool has changed one."""
        if not self.config.auto_reload:
            return []
        loaded = self._loaded(context.working_dir)
        shown = _shown(loaded, context)
        return [*shown, loaded.event()] if shown else []

    def _loaded(self, working_dir: str) -> _Loaded:
        loaded = _Loaded({}, [], {})
        for name in self.config.memory_files:
            try:
                found = read_memory(memory_path(name, working_dir))
            except (OSError, ValueError) as error:
                loaded.unread[shown_name(name)] = reason_of(error)
                continue
            if found is not None:
                loaded.contents[shown_name(name)] = found.text
            if found is not None and found.is_cut:
                loaded.cut.append(shown_name(name))
        return loaded


def _shown(loaded: _Loaded, context: PluginContext) -> list[Emit]:
    """Return the order to show the files, none where they are shown."""
    if loaded.contents == context.memory_contents:
        return []
    return [Emit(MemoryContents(contents=loaded.contents))]


create = MemoryLoader
