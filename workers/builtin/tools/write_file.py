"""``write_file``: a whole file at once, replaced in one piece."""

from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, tool
from workers.builtin.sandboxes.local import sandbox_of

CHARS_MAX: Final = 4_000_000
"""Far beyond the output of any model, and well within what one call may hold in memory."""

Content = Annotated[str, Meta(max_length=CHARS_MAX)]


def write_file(path: str, content: Content, *, context: Context) -> str:  # noqa: D417
    """Write a text file: create it, with the folders it needs, or replace all that it holds.

    Args:
        path: The file, relative to the working directory or absolute.
        content: The whole new content.
    """
    written = sandbox_of(context).write_file(path, content)
    lines = content.count("\n") + (not content.endswith("\n")) if content else 0
    done = "Created" if written.is_new else "Replaced"
    return f"{done} {path}: {lines} lines, {written.size_bytes} bytes"


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="write", meta=_meta)(write_file)


def _meta(args: dict[str, Any]) -> str:
    return f"Write {args.get('path')}"
