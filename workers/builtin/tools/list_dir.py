"""``list_dir``: what is in a folder, sorted and bounded."""

import heapq
import itertools
import os
from pathlib import Path
from typing import Any, Final

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from workers.builtin.tools._files import reason_of, shown

ENTRIES_MAX: Final = 1000
BYTES_MAX: Final = 50 * 1024


def list_dir(path: str = ".", *, context: Context) -> str:  # noqa: D417
    """List a folder, one entry a line: `[dir]  name/` or `[file] name (N bytes)`.

    Args:
        path: The folder, relative to the working directory or absolute.
    """
    folder = Path(context.working_dir, path)
    try:
        entries = itertools.count()
        with os.scandir(folder) as found:
            # The counter advances once for each name, however few of them are kept.
            names = (entry.name for entry, _ in zip(found, entries, strict=False))
            first = heapq.nsmallest(ENTRIES_MAX, names)
        lines = _within_bytes([_line(folder, name) for name in first])
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot list {path}: {reason_of(error)}") from error
    left_out = next(entries) - len(lines)
    if left_out:
        lines.append(f"[{left_out} more entries are left out]")
    return "\n".join(lines) or "(empty folder)"


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="read", meta=_meta)(list_dir)


def _meta(args: dict[str, Any]) -> str:
    return f"List {args.get('path', '.')}"


def _line(folder: Path, name: str) -> str:
    path = folder / name
    if path.is_dir():
        return f"[dir]  {shown(name)}/"
    try:
        size = path.lstat().st_size
    except OSError:  # gone since it was listed
        size = 0
    return f"[file] {shown(name)} ({size} bytes)"


def _within_bytes(lines: list[str]) -> list[str]:
    sizes = itertools.accumulate(len(line.encode()) + 1 for line in lines)
    return [line for line, size in zip(lines, sizes, strict=True) if size <= BYTES_MAX]
