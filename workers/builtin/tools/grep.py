"""``grep``: the lines of a folder's files that match a regular expression, with lines around them.

A line is shown as ``N|content`` below the path of its file, ``--`` stands between passages that do
not touch. Binary files, links and what ``Walk`` skips are not searched.
"""

import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from workers.builtin.tools._files import (
    FILE_BYTES_MAX,
    PATTERN_CHARS_MAX,
    SEARCH_TIMEOUT_S,
    Walk,
    compiled,
    read_whole,
    reason_of,
    shown,
)

BYTES_MAX: Final = 50 * 1024
LINE_CHARS_MAX: Final = 400
"""Of a longer line the part around the match is shown."""

_MORE: Final = "[more is found: narrow the pattern, the path or include]"

Pattern = Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)]
FilePattern = Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)]
LinesAround = Annotated[int, Meta(ge=0, le=20)]
ResultCount = Annotated[int, Meta(ge=1, le=500)]


def grep(  # noqa: D417, PLR0913 - the context is not the model's, who gives names
    pattern: Pattern,
    path: str = ".",
    include: FilePattern = "*",
    context_lines: LinesAround = 2,
    max_results: ResultCount = 50,
    *,
    context: Context,
) -> str:
    """Search text files for a regular expression, line by line, and show the lines around a match.

    Args:
        pattern: A Python regular expression; put `(?i)` first to ignore case.
        path: The folder or file to search, relative to the working directory or absolute.
        include: Which files to search, such as `*.{ts,tsx}`, or `src/**/*.py` below the path.
        context_lines: The number of lines to show before and after each match.
        max_results: The number of matching lines after which the search ends.
    """
    report = _Report(context_lines, max_results)
    try:
        expression = _expression(pattern)
        place = Path(context.working_dir, path)
        if place.is_file():
            report.add(str(Path(path)), _lines(read_whole(place)), expression)
            return report.text([])
        walk = Walk(place)
        for name in _chosen(walk, include):
            lines = _lines_of(place / name, walk)
            report.add(str(Path(path, name)), lines, expression)
            if report.is_full:
                break
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot search {path}: {reason_of(error)}") from error
    return report.text(walk.notes())


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(effects="read", meta=_meta, timeout=SEARCH_TIMEOUT_S)(grep)


def _meta(args: dict[str, Any]) -> str:
    return f"Search for {args.get('pattern')}"


class _Report:
    """What the model reads, as it grows."""

    def __init__(self, context_lines: int, matches_max: int) -> None:
        self.is_full = False
        """Something more was found, and there is no room for it."""
        self._around = context_lines
        self._matches_left = matches_max
        self._bytes_left = BYTES_MAX
        self._shown: list[str] = []

    def add(self, name: str, lines: Sequence[str], expression: re.Pattern[str]) -> None:
        """Take the matches of one file."""
        found = ((at, match) for at, line in enumerate(lines) if (match := expression.search(line)))
        starts = {at: match.start() for at, match in islice(found, self._matches_left + 1)}
        self.is_full = len(starts) > self._matches_left
        if self.is_full:
            starts.popitem()
        self._matches_left -= len(starts)
        if starts:
            self._show(
                [*([""] if self._shown else []), shown(name), *self._passages(lines, starts)]
            )

    def text(self, notes: list[str]) -> str:
        """Return the whole report."""
        if self.is_full:
            notes = [_MORE, *notes]
        return "\n".join([*(self._shown or ["(nothing matches)"]), *notes])

    def _show(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._bytes_left -= len(line.encode()) + 1
            if self._bytes_left < 0:
                self.is_full = True
                return
            self._shown.append(line)

    def _passages(self, lines: Sequence[str], starts: Mapping[int, int]) -> Iterator[str]:
        """Yield the lines of each match and around it; ``starts`` has the columns by line."""
        after = 0
        for at in starts:
            first = max(at - self._around, after)
            if 0 < after < first:
                yield "--"
            after = min(at + self._around + 1, len(lines))
            for number in range(first, after):
                yield f"{number + 1}|{_clipped(lines[number], starts.get(number, 0))}"


def _expression(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern is no regular expression: {error}") from error


def _chosen(walk: Walk, include: str) -> Iterator[str]:
    matches = compiled(include).fullmatch
    is_path = "/" in include
    for entry in walk:
        if not entry.endswith("/") and matches(entry if is_path else Path(entry).name):
            yield entry


def _lines_of(path: Path, walk: Walk) -> list[str]:
    """Return the lines of a file that was found, none where it is nothing to search."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return []
        if status.st_size <= FILE_BYTES_MAX:
            return _lines(read_whole(path))
    except ValueError:  # binary
        return []
    except OSError:
        pass  # counted, as one that is too large
    walk.unread += 1
    return []


def _lines(content: bytes) -> list[str]:
    if not content:
        return []
    text = content.decode("utf-8", errors="replace").removesuffix("\n")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _clipped(line: str, start: int) -> str:
    """Return a line, of a long one the part where something was found."""
    if len(line) <= LINE_CHARS_MAX:
        return line
    first = max(0, min(start - LINE_CHARS_MAX // 4, len(line) - LINE_CHARS_MAX))
    last = first + LINE_CHARS_MAX
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"
