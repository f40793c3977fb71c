"""``read_file``: a part of a text file, never more than a model can use."""

import shlex
from typing import Annotated, Any

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, tool
from cmdc_runtime.extensions.sandbox import LINES_MAX, READ_BYTES_MAX, FilePart
from workers.builtin.sandboxes.local import sandbox_of

FirstLine = Annotated[int, Meta(ge=1)]
LineCount = Annotated[int, Meta(ge=1, le=LINES_MAX)]


def read_file(  # noqa: D417 - the context is not the model's
    path: str, offset: FirstLine = 1, limit: LineCount = LINES_MAX, *, context: Context
) -> str:
    """Read a text file: at most 2,000 lines or 50 KB at once, with a hint how to go on.

    Of a line over 50 KB it shows the first 50 KB; a shell command such as `cut` has the rest.

    Args:
        path: The file, relative to the working directory or absolute.
        offset: The first line to read, counted from 1.
        limit: The number of lines to read.
    """
    part = sandbox_of(context).read_file(path, offset, limit)
    if not part.text:
        return "(empty file)" if offset == 1 else "(no more lines)"
    return part.text + _hint(part, path)


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="read", meta=_meta)(read_file)


def _meta(args: dict[str, Any]) -> str:
    return f"Read {args.get('path')}"


def _hint(part: FilePart, path: str) -> str:
    at = part.next_line
    if at is None:
        return ""
    if not part.is_cut:
        return f"\n[more lines follow: go on with offset={at}]"
    rest = f"sed -n {at - 1}p -- {shlex.quote(path)} | cut -b {READ_BYTES_MAX + 1}-"
    return (
        f"\n[line {at - 1} is longer than {READ_BYTES_MAX} bytes, and only they are shown: a shell"
        f" command has its rest, as `{rest}`, and grep the part around a match; lines after it, if"
        f" there are any, begin at offset={at}]"
    )
