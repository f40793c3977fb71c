"""Shows memory files in the system prompt, and shows them anew when a tool has changed one.

The files are read when the session's process starts, and after each ``write_file``,
``edit_file``, and ``apply_patch``: they are few and short, so that reading them costs less than
finding out which file a call was about. Nothing is said where they are as they were.

With ``nested`` a folder in the working folder has a memory of its own, which is shown from the
first call on that works there, behind those of the folders above: the nearest one wins.

Observers get ``memory_loaded`` with the sizes of the files that are shown, the names of those that
are cut, and why others could not be read. Of a file that a link leads to out of the working folder
nothing is shown, unless the application names it there: ``cmdc_runtime.beneath``.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Emit, MemoryContents
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforeTool, SessionStart
from cmdc_runtime.extensions.plugin import Plugin, hook
from cmdc_runtime.option_checks import MEMORY_FILES_MAX
from workers.builtin.plugins._memory_files import memory_path, read_memory, shown_name
from workers.builtin.tools._files import reason_of

CHANGING_TOOLS = ("apply_patch", "edit_file", "write_file")
FILE_TOOLS = ("edit_file", "glob", "grep", "list_dir", "read_file", "write_file")
NESTED_NAMES: Final = ("AGENTS.md", "CLAUDE.md")
"""Of a folder the first that is there is its memory."""
FOLDERS_MAX: Final = 64
"""Folders that are remembered as worked in."""


log = structlog.get_logger()


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

    class State(msgspec.Struct):
        """The folders that were worked in, below the working folder, the latest last."""

        folders: list[str] = []

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Check the options; nothing is read yet."""
        super().__init__(**config)
        self._reported: dict[str, str] = {}

    def session_start(
        self,
        event: SessionStart,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> list[Emit]:
        """Show the files as they are now."""
        loaded = self._loaded(context.working_dir)
        shown = _shown(loaded, context)
        return [*shown, loaded.event()] if shown or loaded.contents or loaded.unread else []

    @hook(tools=FILE_TOOLS)
    def before_tool(self, event: BeforeTool, context: PluginContext) -> list[Emit]:
        """Show the memory of a folder that a call is about to work in."""
        folder = _folder_of(event.args, context.working_dir) if self.config.nested else None
        if folder is None or self.state.folders[-1:] == [folder]:
            return []
        others = [one for one in self.state.folders if one != folder]
        self.state.folders = [*others, folder][-FOLDERS_MAX:]
        loaded = self._loaded(context.working_dir)
        shown = _shown(loaded, context)
        return [*shown, loaded.event()] if shown else []

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
        if self.config.nested:
            self._add_nested(loaded, working_dir)
        for name, why in loaded.unread.items():
            if self._reported.get(name) != why:
                log.warning("memory.unread", file=name, problem=why)
        self._reported = loaded.unread
        return loaded

    def _add_nested(self, loaded: _Loaded, working_dir: str) -> None:
        """Add the memories of folders, those of outer ones first."""
        named = {os.path.realpath(one) for one in _wholes(self.config.memory_files, working_dir)}
        wanted = dict.fromkeys(
            one for folder in reversed(self.state.folders) for one in _above(folder)
        )
        room = MEMORY_FILES_MAX - len(self.config.memory_files)
        found: dict[str, str] = {}
        for folder in (".", *wanted):
            name = _memory_of(folder, working_dir)
            if name is None or len(found) >= room:
                continue
            file = memory_path(name, working_dir)
            if os.path.realpath(file.whole) in named:
                continue
            try:
                memory = read_memory(file)
            except (OSError, ValueError) as error:
                loaded.unread[shown_name(name)] = reason_of(error)
                continue
            if memory is not None:
                found[name] = memory.text
        for name in sorted(found, key=lambda one: (one.count("/"), one)):
            folder = os.path.dirname(name)  # noqa: PTH120 - of a name
            head = (
                f"For files below {folder}; it outranks what is said above.\n\n" if folder else ""
            )
            loaded.contents[shown_name(name)] = head + found[name]


# Any: whatever the tool takes.
def _folder_of(args: dict[str, Any], working_dir: str) -> str | None:
    """Return the folder that a call works in, below the working folder; None if it is elsewhere."""
    given = args.get("path", ".")
    if not isinstance(given, str) or "\0" in given:
        return None
    home, path = os.path.realpath(working_dir), os.path.realpath(Path(working_dir, given))
    if not Path(path).is_relative_to(home):
        return None
    folder = path if Path(path).is_dir() else os.path.dirname(path)  # noqa: PTH120 - as it is named
    return os.path.relpath(folder, home) if Path(folder).is_relative_to(home) else None


def _above(folder: str) -> Iterator[str]:
    """Yield a folder and those above it, without the working folder, the inmost first."""
    for one in (Path(folder), *Path(folder).parents):
        if str(one) != ".":
            yield str(one)


def _memory_of(folder: str, working_dir: str) -> str | None:
    """Return the name of the memory file of a folder, None where it has none of its own."""
    names = (os.path.normpath(f"{folder}/{name}") for name in NESTED_NAMES)
    # A link counts, wherever it leads: what it is worth is for who reads it.
    return next((name for name in names if _may_be_file(Path(working_dir, name))), None)


def _may_be_file(path: Path) -> bool:
    return path.is_file() or path.is_symlink()


def _wholes(names: Iterable[str], working_dir: str) -> Iterator[str]:
    for name in names:
        with contextlib.suppress(ValueError):  # nothing can have that name
            yield memory_path(name, working_dir).whole


def _shown(loaded: _Loaded, context: PluginContext) -> list[Emit]:
    """Return the order to show the files, none where they are shown."""
    if loaded.contents == context.memory_contents:
        return []
    return [Emit(MemoryContents(contents=loaded.contents))]


create = MemoryLoader
