"""``grep``: the lines of a folder's files that match a regular expression, with lines around them.

A line is shown as ``N|content`` below the path of its file, ``--`` stands between passages that do
not touch. Binary files, links and folders without sources are not searched.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, tool
from cmdc_runtime.extensions.sandbox import FoundLines, GrepSettings, LineMatch
from workers.builtin.sandboxes.local import sandbox_of
from workers.builtin.tools._files import PATTERN_CHARS_MAX, SEARCH_TIMEOUT_S

BYTES_MAX: Final = 50 * 1024

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
    settings = GrepSettings(include=include, context_lines=context_lines, max_results=max_results)
    return _report(sandbox_of(context).grep(pattern, path, settings))


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(effects="read", meta=_meta, timeout=SEARCH_TIMEOUT_S)(grep)


def _meta(args: dict[str, Any]) -> str:
    return f"Search for {args.get('pattern')}"


def _report(result: FoundLines) -> str:
    lines: list[str] = []
    is_full, left = result.is_cut, BYTES_MAX
    for line in _lines(result.matches):
        left -= len(line.encode()) + 1
        if left < 0:
            is_full = True
            break
        lines.append(line)
    more = [_MORE] if is_full else []
    return "\n".join([*(lines or ["(nothing matches)"]), *more, *result.notes])


def _lines(matches: tuple[LineMatch, ...]) -> Iterator[str]:
    before: LineMatch | None = None
    for match in matches:
        if before is None or before.file != match.file:
            yield from ([] if before is None else [""])
            yield match.file
        elif match.line > before.line + 1:
            yield "--"
        yield f"{match.line}|{match.content}"
        before = match
