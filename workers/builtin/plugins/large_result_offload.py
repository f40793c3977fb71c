"""Keeps tool results that are too long in a backend, and shows the model a preview of each.

A result is kept under its call's id and a digest of it, so that neither ids that a provider uses
again nor a hook that runs again confuse two results. ``read_file`` and ``grep`` of such a path
run with that of a file on the disk: the backend's own, or a private copy that goes when the session
ends. A kept result can be read by lines: longer ones are broken, and a NUL is shown as its symbol.

Observers get ``large_result_offloaded``. Where a result cannot be kept the model gets all of it,
and observers get ``large_result_offload_failed``.

A preview has both ends of the text, and says how to read on.
"""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.beneath import named_path
from cmdc_runtime.extensions.actions import (
    Action,
    BlockTool,
    Emit,
    ReplaceToolArgs,
    ReplaceToolResult,
)
from cmdc_runtime.extensions.backend import Backend
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforeTool, SessionEnd
from cmdc_runtime.extensions.plugin import Plugin, hook
from workers.builtin.backends.composite import opened
from workers.builtin.tools._files import put, reason_of

# --- the preview ----------------------------------------------------------------------------------

HEAD_CHARS: Final = 2000
TAIL_CHARS: Final = 1000
LINE_CHARS_MAX: Final = 10_000
"""Of a kept text, so that ``read_file`` can show every line of it as a whole."""
READERS: Final = {
    "read_file": 'Read it in parts: read_file(path="{path}", offset=1, limit=200).',
    "grep": 'Search it: grep(pattern="...", path="{path}").',
}
"""What to say of each tool that can read a kept text."""
_LONG_LINE: Final = re.compile(rf"[^\n]{{{LINE_CHARS_MAX}}}(?=[^\n])")


def readable(text: str) -> str:
    """Return a text that can be read by lines: no NUL, and no line that is too long."""
    return _LONG_LINE.sub("\\g<0>\n", text.replace("\0", "\N{SYMBOL FOR NULL}"))


def preview(path: str, text: str, tools: tuple[str, ...]) -> str:
    """Return what the model sees in place of a kept text, with how ``tools`` read the rest."""
    head, tail = _head(text), _tail(text)
    how = [said.format(path=path) for tool, said in READERS.items() if tool in tools]
    lines = text.count("\n") + (not text.endswith("\n"))
    size = f"{len(text):,} characters in {lines:,} lines"
    return "\n".join(
        [
            f"The result is too long to be shown here: {size}. All of it is kept as {path}",
            *(how or ["No tool of this session reads it."]),
            "--- first part ---",
            head.removesuffix("\n"),
            f"--- {len(text) - len(head) - len(tail):,} characters left out ---",
            tail.removesuffix("\n"),
            "--- end ---",
        ]
    )


def _head(text: str) -> str:
    """Return the beginning, up to the end of a line if one ends in its second half."""
    at = text.rfind("\n", HEAD_CHARS // 2, HEAD_CHARS)
    return text[: at + 1 or HEAD_CHARS]


def _tail(text: str) -> str:
    """Return the end, from the beginning of a line if one begins in its first half."""
    first = len(text) - TAIL_CHARS
    at = text.find("\n", first, first + TAIL_CHARS // 2)
    return text[at + 1 or first :]


# --- the plugin -----------------------------------------------------------------------------------

FOLDER: Final = "/large_tool_results/"
CHARS_PER_TOKEN: Final = 4
COPIES_MAX: Final = 64
"""Private copies for backends without files; the oldest go, and are made again when needed."""

_KEPT: Final = re.compile(re.escape(FOLDER) + r"([A-Za-z0-9_-]{1,128})")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_ID_CHARS_MAX: Final = 64
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGEST_CHARS: Final = 16


class LargeResultOffload(Plugin):
    """Keeps long results away from the conversation."""

    name = "large_result_offload"
    priority = 300
    fail = "open"
    emits = ("large_result_offload_failed", "large_result_offloaded")
    Config = plugins.LargeResultOffload

    class State(msgspec.Struct):
        """Where the private copies are."""

        copies: str = ""

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Open the backend when it is first needed."""
        super().__init__(**config)
        self._backend: Backend | None = None

    def after_tool(self, event: AfterTool, context: PluginContext) -> list[Action]:
        """Keep a result that is too long and give the model its preview."""
        limit = self.config.tool_token_limit_before_evict * CHARS_PER_TOKEN
        if event.name in self.config.excluded_tools or len(event.result) <= limit:
            return []
        path, text = path_of(event.call_id, event.result), readable(event.result)
        payload = {"call_id": event.call_id, "tool": event.name, "path": path, "chars": len(text)}
        backend = self._opened(context)
        if error := backend.write(path, text).error:
            return [Emit("large_result_offload_failed", {**payload, "error": error})]
        payload |= {"tokens": len(text) // CHARS_PER_TOKEN, "backend": backend.id}
        return [
            ReplaceToolResult(preview(path, text, context.tools)),
            Emit("large_result_offloaded", payload),
        ]

    @hook(tools=tuple(READERS))
    def before_tool(self, event: BeforeTool, context: PluginContext) -> list[Action]:
        """Lead a call that is about a kept result to its file."""
        found = _KEPT.fullmatch(str(event.args.get("path")))
        if found is None:
            return []
        backend, path = self._opened(context), found[0]
        real = backend.local_path(path)
        if real is None:
            [download] = backend.download_files([path])
            if download.content is None:
                return [BlockTool(f"There is no result {path} any more: {download.error}")]
            try:
                real = self._copied(found[1], download.content, context.working_dir)
            except (OSError, ValueError) as error:
                return [BlockTool(f"{path} can't be shown: {reason_of(error)}")]
        return [ReplaceToolArgs({**event.args, "path": real})]

    def session_end(
        self,
        event: SessionEnd,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> None:
        """Remove the private copies."""
        if self.state.copies:
            with (
                contextlib.suppress(OSError, ValueError),
                _above(self.state.copies, context.working_dir) as (above, name),
            ):
                os.close(_ours(above, name))
                shutil.rmtree(name, ignore_errors=True, dir_fd=above)
        self.state.copies = ""

    def _opened(self, context: PluginContext) -> Backend:
        if self._backend is None:
            self._backend = opened(self.config.backend, context.working_dir)
        return self._backend

    def _copied(self, name: str, content: bytes, working_dir: str) -> str:
        """Return the path of a private copy, made anew.

        It is below the working folder: a session's tools may be kept in there.

        Raises:
            OSError: it can't be made.
            ValueError: a link leads out of the working folder.
        """
        folder = self._copies(working_dir)
        try:
            put(folder, name, content)
            _remove_oldest(folder)
        finally:
            os.close(folder)
        return os.path.join(self.state.copies, name)  # noqa: PTH118 - text

    def _copies(self, working_dir: str) -> int:
        """Return a descriptor of the private folder, of a new one where there is none of ours."""
        with contextlib.suppress(OSError, ValueError):
            if self.state.copies:
                with _above(self.state.copies, working_dir) as (above, name):
                    return _ours(above, name)
        place = named_path(f".cmdc/results-{secrets.token_hex(8)}", working_dir).whole
        with _above(place, working_dir, makes=True) as (above, name):
            os.mkdir(name, 0o700, dir_fd=above)
            self.state.copies = place
            return os.open(name, _FOLDER, dir_fd=above)


def path_of(call_id: str, result: str) -> str:
    """Return where a result is kept: a call id is a provider's, and may be anything."""
    name = _FOREIGN.sub("_", call_id)[:_ID_CHARS_MAX]
    digest = hashlib.sha256(f"{call_id}\0{result}".encode(errors="replace")).hexdigest()
    return f"{FOLDER}{name}-{digest[:_DIGEST_CHARS]}"


@contextlib.contextmanager
def _above(place: str, working_dir: str, *, makes: bool = False) -> Iterator[tuple[int, str]]:
    """Give the folder that a private one is in, and its name there, which may be a link's."""
    above, name = os.path.split(place)
    folder = named_path(above, working_dir).open_as_folder(makes=makes)
    try:
        yield folder, name
    finally:
        os.close(folder)


def _ours(above: int, name: str) -> int:
    """Return a descriptor of the folder that was made: a temporary one may have been cleared.

    Raises:
        OSError: it is not that folder any more.
    """
    folder = os.open(name, _FOLDER, dir_fd=above)
    status = os.fstat(folder)
    if status.st_mode & 0o077 or status.st_uid != os.geteuid():
        os.close(folder)
        raise PermissionError(errno.EPERM, "it is somebody else's")
    return folder


def _remove_oldest(folder: int) -> None:
    listing = os.open(".", _FOLDER, dir_fd=folder)  # one that only stands for it is not read
    try:
        with os.scandir(listing) as entries:
            found = [(one.stat(follow_symlinks=False).st_mtime_ns, one.name) for one in entries]
    finally:
        os.close(listing)
    for _, name in sorted(found)[:-COPIES_MAX]:
        os.unlink(name, dir_fd=folder)


create = LargeResultOffload
