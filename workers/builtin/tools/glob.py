"""``glob``: the files of a folder whose paths match a pattern, sorted folder by folder and bounded.

The walk begins below the plain part of the pattern and goes no deeper than the pattern can match.
"""

from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, tool
from workers.builtin.sandboxes.local import sandbox_of
from workers.builtin.tools._files import PATTERN_CHARS_MAX, SEARCH_TIMEOUT_S

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
    result = sandbox_of(context).glob(pattern, path, RESULTS_MAX)
    lines = _within_bounds([match.path for match in result.matches], result.left_out)
    return "\n".join([*lines, *result.notes])


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(effects="read", meta=_meta, timeout=SEARCH_TIMEOUT_S)(glob)


def _meta(args: dict[str, Any]) -> str:
    return f"Find {args.get('pattern')}"


def _within_bounds(found: list[str], left_out: int) -> list[str]:
    if not found:
        return ["(nothing matches)"]
    lines: list[str] = []
    size = 0
    for line in found:
        size += len(line.encode()) + 1
        if size > BYTES_MAX:
            break
        lines.append(line)
    left_out += len(found) - len(lines)
    if left_out:
        lines.append(f"[{left_out} more are left out: narrow the pattern]")
    return lines
