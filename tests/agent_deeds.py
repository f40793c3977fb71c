"""What the agent's own process does with files of a working folder, one deed at a time.

``python -m tests.agent_deeds DEED FOLDER`` does one, as an agent does it that nothing confines, and
prints what a model would be shown. Commands have prepared the folder: ``tests/escaping.py``.
"""

import asyncio
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from cmdc_runtime import backends, skills, stores
from cmdc_runtime.events import PromptReceived
from cmdc_runtime.extensions.context import Completion, PluginContext
from cmdc_runtime.extensions.hooks import (
    AfterTool,
    BeforeCompact,
    BeforeTool,
    SessionEnd,
    SessionStart,
)
from cmdc_runtime.messages import Message
from workers.builtin.plugins.event_logger import EventLogger
from workers.builtin.plugins.large_result_offload import LargeResultOffload
from workers.builtin.plugins.memory_flush import MemoryFlush
from workers.builtin.plugins.memory_loader import MemoryLoader
from workers.performers.model import Summarizer

SESSION: Final = "s-escapes"
MESSAGES: Final = (Message.user("echo pwned"),)
LARGE: Final = "echo pwned\n" * 10_000


def history(context: PluginContext) -> object:
    """Keep what a compaction takes out of a conversation."""
    kept = SimpleNamespace(working_dir=context.working_dir, session_id=SESSION)
    return Summarizer(None, print, **vars(kept))._keep(MESSAGES)


def memory(context: PluginContext) -> object:
    """Show memory files, those of folders too."""
    files = ("AGENTS.md", "notes/secret", f"{context.working_dir}/TEAM.md")
    plugin = MemoryLoader(memory_files=files, nested=True)
    shown = plugin.session_start(SessionStart(), context)
    call = BeforeTool("read_file", "c-1", {"path": "nested/x.py"})
    return shown, plugin.before_tool(call, context)


def flush(context: PluginContext) -> object:
    """Keep facts in a memory file."""

    async def complete(*_: Any, **__: Any) -> Completion:
        return Completion(text="- echo pwned\n")

    asked = PluginContext(
        session_id=SESSION,
        working_dir=context.working_dir,
        session=SimpleNamespace(complete=complete),
    )
    plugin = MemoryFlush(file="notes/MEMORY.md")
    return asyncio.run(plugin.before_compact(BeforeCompact(MESSAGES), asked))


def offload(context: PluginContext) -> object:
    """Keep a long result in files."""
    return LargeResultOffload().after_tool(_result(), context)


def copies(context: PluginContext) -> object:
    """Show a long result that is kept in memory, and remove it."""
    plugin = LargeResultOffload(backend=backends.State())
    path = plugin.after_tool(_result(), context)[1].payload["path"]
    shown = plugin.before_tool(BeforeTool("read_file", "c-2", {"path": path}), context)
    plugin.session_end(SessionEnd(), context)
    return shown


def log(context: PluginContext) -> object:
    """Log an event."""
    plugin = EventLogger()
    plugin.observe(PromptReceived(text="echo pwned", queued=False, command_id="c-1"), context)
    return None


def skill(context: PluginContext) -> object:
    """Look for skills."""
    return skills.discover(["skills"], context.working_dir).skills


def store(context: PluginContext) -> object:
    """Keep something in a store, and look for it."""
    opened = stores.Sqlite(path="notes.db").open(context.working_dir)
    opened.store("one", {"content": "echo pwned"}, namespace="n")
    return opened.search("4711", namespace="n")


def _result() -> AfterTool:
    return AfterTool("fetch", "c-1", LARGE, is_error=False)


DEEDS: Final[dict[str, Callable[[PluginContext], object]]] = {
    one.__name__: one for one in (history, memory, flush, offload, copies, log, skill, store)
}


def main(name: str, folder: str) -> None:
    """Do a deed, and print what comes of it; a refusal is nothing."""
    context = PluginContext(session_id=SESSION, working_dir=folder, tools=("read_file",))
    try:
        sys.stdout.write(repr(DEEDS[name](context)))
    except Exception as error:  # noqa: BLE001 - a hook that fails is refused
        sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
