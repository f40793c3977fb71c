"""``edit_file``: one passage of a text file, found by its text, is replaced by another."""

from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, tool
from workers.builtin.sandboxes.local import sandbox_of

CHARS_MAX: Final = 1_000_000

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
    edited = sandbox_of(context).edit_file(path, old_string, new_string)
    return f"Edited {path} at line {edited.line}"


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="write", meta=_meta)(edit_file)


def _meta(args: dict[str, Any]) -> str:
    return f"Edit {args.get('path')}"
