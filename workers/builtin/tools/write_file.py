"""``write_file``: a whole file at once, replaced in one piece."""

from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from workers.builtin.tools._files import one_at_a_time, reason_of, replace

CHARS_MAX: Final = 4_000_000
"""Far beyond the output of any model, and well within what one call may hold in memory."""

Content = Annotated[str, Meta(max_length=CHARS_MAX)]


def write_file(path: str, content: Content, *, context: Context) -> str:  # noqa: D417
    """Write a text file: create it, with the folders it needs, or replace all that it holds.

    Args:
        path: The file, relative to the working directory or absolute.
        content: The whole new content.
    """
    try:
        encoded = content.encode()
        with one_at_a_time():
            is_new = replace(Path(context.working_dir, path), encoded)
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot write {path}: {reason_of(error)}") from error
    lines = len(encoded.split(b"\n")) - encoded.endswith(b"\n") if encoded else 0
    done = "Created" if is_new else "Replaced"
    return f"{done} {path}: {lines} lines, {len(encoded)} bytes"


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="write", meta=_meta)(write_file)


def _meta(args: dict[str, Any]) -> str:
    return f"Write {args.get('path')}"
