"""``glob``: the files of a folder whose paths match a pattern, sorted folder by folder and bounded.

The walk begins below the plain part of the pattern and goes no deeper than the pattern can match.
"""

from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from workers.builtin.tools._files import (
    DEPTH_MAX,
    PATTERN_CHARS_MAX,
    SEARCH_TIMEOUT_S,
    Walk,
    compiled,
    reason_of,
    shown,
    split,
)

RESULTS_MAX: Final = 1000
BYTES_MAX: Final = 50 * 1024

Pattern = Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)]


def glob(pattern: Pattern, path: str = ".", *, context: Context) -> str:  # noqa: D417
    """Find files by a pattern of their path, such as `src/**/*.{py,pyi}`.

    Args:
        pattern: `*` and `?` match within a name, `**` across folders, `{a,b}` either of the two;
            with a `/` at the end it finds folders instead. Folders such as node_modules are
            searched only where the pattern begins with their name.
        path: The folder that the pattern begins in, relative to the working directory or absolute.
    """
    folder, rest = split(pattern.rstrip("/"))
    base = Path(path, folder)
    try:
        matches = compiled(rest).fullmatch
        is_deep = "**" in rest or "{" in rest
        walk = Walk(Path(context.working_dir, base), DEPTH_MAX if is_deep else rest.count("/"))
        end = "/" if pattern.endswith("/") else ""
        found = [
            shown(str(base / entry)) + end
            for entry in walk
            if entry.endswith("/") == bool(end) and matches(entry.rstrip("/"))
        ]
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot search {base}: {reason_of(error)}") from error
    return "\n".join([*_within_bounds(found), *walk.notes()])


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(effects="read", meta=_meta, timeout=SEARCH_TIMEOUT_S)(glob)


def _meta(args: dict[str, Any]) -> str:
    return f"Find {args.get('pattern')}"


def _within_bounds(found: list[str]) -> list[str]:
    if not found:
        return ["(nothing matches)"]
    lines: list[str] = []
    size = 0
    for line in found[:RESULTS_MAX]:
        size += len(line.encode()) + 1
        if size > BYTES_MAX:
            break
        lines.append(line)
    if len(lines) < len(found):
        lines.append(f"[{len(found) - len(lines)} more are left out: narrow the pattern]")
    return lines
