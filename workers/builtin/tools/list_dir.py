"""``list_dir``: what is in a folder, sorted and bounded."""

import itertools
from typing import Any, Final

from cmdc_runtime.extensions import Context, Tool, tool
from cmdc_runtime.extensions.sandbox import DirEntry
from workers.builtin.sandboxes.local import sandbox_of
from workers.builtin.tools._files import shown

BYTES_MAX: Final = 50 * 1024


def list_dir(path: str = ".", *, context: Context) -> str:  # noqa: D417
    """List a folder, one entry a line: `[dir]  name/` or `[file] name (N bytes)`.

    Args:
        path: The folder, relative to the working directory or absolute.
    """
    listing = sandbox_of(context).list_dir(path)
    lines = _within_bytes([_line(entry) for entry in listing.entries])
    left_out = listing.left_out + len(listing.entries) - len(lines)
    if left_out:
        lines.append(f"[{left_out} more entries are left out]")
    return "\n".join(lines) or "(empty folder)"


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="read", meta=_meta)(list_dir)


def _meta(args: dict[str, Any]) -> str:
    return f"List {args.get('path', '.')}"


def _line(entry: DirEntry) -> str:
    if entry.type == "directory":
        return f"[dir]  {shown(entry.name)}/"
    return f"[file] {shown(entry.name)} ({entry.size_bytes} bytes)"


def _within_bytes(lines: list[str]) -> list[str]:
    sizes = itertools.accumulate(len(line.encode()) + 1 for line in lines)
    return [line for line, size in zip(lines, sizes, strict=True) if size <= BYTES_MAX]
