"""``edit_file``: one passage of a text file, found by its text, is replaced by another.

Passages are compared byte by byte, so that everything else in the file stays as it is, whatever
its encoding. The exception is a file with line ends of CR LF: a model sees and writes LF.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from workers.builtin.tools._files import one_at_a_time, read_whole, reason_of, replace

CHARS_MAX: Final = 1_000_000
PLACES_MAX: Final = 5
"""So many places of a text that is not unique are named."""

_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")

OldString = Annotated[str, Meta(min_length=1, max_length=CHARS_MAX)]
NewString = Annotated[str, Meta(max_length=CHARS_MAX)]


def edit_file(  # noqa: D417 - the context is not the model's
    path: str, old_string: OldString, new_string: NewString, *, context: Context
) -> str:
    """Replace a passage of a text file; it must occur exactly once, so give enough around it.

    Args:
        path: The file, relative to the working directory or absolute.
        old_string: The passage as it stands in the file, with its white space.
        new_string: What stands there afterwards; empty to delete the passage.
    """
    target = Path(context.working_dir, path)
    try:
        old, new = old_string.encode(), new_string.encode()
        with one_at_a_time():
            content = read_whole(target)
            edited, line = _edited(content, old, new)
            replace(target, edited)
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot edit {path}: {reason_of(error)}") from error
    return f"Edited {path} at line {line}"


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="write", meta=_meta)(edit_file)


def _meta(args: dict[str, Any]) -> str:
    return f"Edit {args.get('path')}"


def _edited(content: bytes, old: bytes, new: bytes) -> tuple[bytes, int]:
    """Return the new content and the line, counted from 1, where it begins to differ."""
    if old == new:
        raise ValueError("old_string and new_string are the same")
    if b"\r\n" in content and old not in content:
        old, new = (_BARE_LINE_FEED.sub(b"\r\n", text) for text in (old, new))
    at = content.find(old)
    if at < 0:
        raise ValueError("old_string does not occur in it; read the file and copy the passage")
    if content.find(old, at + 1) >= 0:
        raise ValueError(
            f"old_string occurs more than once, at {_places(content, old)};"
            " give more of the text around the passage"
        )
    return content[:at] + new + content[at + len(old) :], _line(content, at)


def _places(content: bytes, old: bytes) -> str:
    lines: list[str] = []
    at = content.find(old)
    while at >= 0 and len(lines) < PLACES_MAX:
        lines.append(str(_line(content, at)))
        at = content.find(old, at + 1)
    return f"lines {', '.join(lines)}{' and others' if at >= 0 else ''}"


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1
