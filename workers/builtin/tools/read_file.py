"""``read_file``: a part of a text file, never more than a model can use."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from workers.builtin.tools._files import open_text, reason_of

LINES_MAX: Final = 2000
BYTES_MAX: Final = 50 * 1024

FirstLine = Annotated[int, Meta(ge=1)]
LineCount = Annotated[int, Meta(ge=1, le=LINES_MAX)]


def read_file(  # noqa: D417 - the context is not the model's
    path: str, offset: FirstLine = 1, limit: LineCount = LINES_MAX, *, context: Context
) -> str:
    """Read a text file: at most 2,000 lines or 50 KB at once, with a hint how to go on.

    Args:
        path: The file, relative to the working directory or absolute.
        offset: The first line to read, counted from 1.
        limit: The number of lines to read.
    """
    try:
        with open_text(Path(context.working_dir, path)) as file:
            return _part(file, offset, limit)
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot read {path}: {reason_of(error)}") from error


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="read", meta=_meta)(read_file)


def _meta(args: dict[str, Any]) -> str:
    return f"Read {args.get('path')}"


def _part(file: BinaryIO, offset: int, limit: int) -> str:
    lines = _lines(file)
    skipped = sum(1 for _ in islice(lines, offset - 1))
    if skipped < offset - 1:
        raise ValueError(f"it has {skipped} lines, and none at offset {offset}")
    kept: list[bytes] = []
    hint = ""
    size = 0
    for number, (line, is_whole) in enumerate(lines, offset):
        size += len(line)
        if number == offset + limit or (size > BYTES_MAX and kept):
            hint = f"\n[more lines follow: go on with offset={number}]"
            break
        kept.append(line)
        if not is_whole:
            cut = f"\n[line {number} is longer than {BYTES_MAX} bytes, its rest is left out"
            hint = f"{cut}: go on with offset={number + 1}]"
            break
    text = b"".join(kept).decode("utf-8", errors="replace")
    if not text:
        return "(empty file)" if offset == 1 else "(no more lines)"
    return text + hint


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, the end of an endless one left out, and whether it is whole."""
    while line := file.readline(BYTES_MAX):
        is_whole = line.endswith(b"\n") or len(line) < BYTES_MAX
        yield line, is_whole
        rest = b"" if is_whole else line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(BYTES_MAX)
