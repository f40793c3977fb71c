"""``apply_patch``: several text files changed at once, added, deleted and moved, by a patch.

All files are looked at before the first one is changed, and each is changed in one piece. What goes
wrong after that, as a disk that is full, is reported with what is done already.
"""

from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from cmdc_runtime.extensions.sandbox import Sandbox
from workers.builtin.patches.hunks import FileChange, PatchError, changed
from workers.builtin.patches.reading import changes_of, paths_of
from workers.builtin.sandboxes.local import sandbox_of

CHARS_MAX: Final = 1_000_000
_META_PATHS_MAX: Final = 3

Patch = Annotated[str, Meta(min_length=1, max_length=CHARS_MAX)]


def apply_patch(patch: Patch, *, context: Context) -> str:  # noqa: D417 - the context is not the model's
    """Change text files by a patch; all of it is done, or nothing where a file is not as it says.

    Args:
        patch: Either lines from "*** Begin Patch" to "*** End Patch", with "*** Add File: path"
            (each line of it after a "+"), "*** Delete File: path", and "*** Update File: path",
            after which "*** Move to: path" and hunks may follow: "@@", or "@@ " and a line that
            comes before the place, then lines after a space (as they are), "-" (removed) or "+"
            (added), with some that stay around the change. Or a unified diff, as git has it.
    """
    try:
        changes = changes_of(patch, context.working_dir)
    except PatchError as error:
        raise ToolError(f"Cannot read the patch: {error}. Nothing is changed.") from error
    sandbox = sandbox_of(context)
    for change in changes:
        _rehearse(sandbox, change)
    done: list[str] = []
    for change in changes:
        try:
            sandbox.change_file(change.path, _Changer(change), to=change.to)
        except ToolError as error:
            raise ToolError(f"{error}. {_progress(done, len(changes))}") from error
        done.append(_line(change))
    return "\n".join(done)


def _rehearse(sandbox: Sandbox, change: FileChange) -> None:
    """See that a change can be made.

    Raises:
        ToolError: it can't.
    """
    compute = _Changer(change)

    def unchanged(content: bytes | None) -> bytes | None:
        compute(content)
        return content

    try:
        sandbox.change_file(change.path, unchanged)
        if change.to is not None:
            _rehearse_move(sandbox, change.path, change.to)
    except ToolError as error:
        raise ToolError(f"{error}. Nothing is changed.") from error


def _rehearse_move(sandbox: Sandbox, path: str, to: str) -> None:
    if sandbox.file_exists(to):
        raise ToolError(f"Cannot move {path} to {to}: something is there already")
    sandbox.change_file(to, lambda content: content)  # a file in the way, or a path that leads out


class _Changer:
    """What a change makes of a content."""

    def __init__(self, change: FileChange) -> None:
        self._change = change

    def __call__(self, content: bytes | None) -> bytes | None:
        return changed(self._change, content)


def _line(change: FileChange) -> str:
    added, removed = change.count("add"), change.count("remove")
    text = {
        "add": f"Added {change.path}: {added} lines",
        "delete": f"Deleted {change.path}",
        "update": f"Changed {change.path}: {added} lines added, {removed} removed",
        "move": f"Moved {change.path} to {change.to}: {added} lines added, {removed} removed",
    }[change.kind]
    return "; ".join([text, *change.notes])


def _progress(done: list[str], all_files: int) -> str:
    if not done:
        return "Nothing is changed."
    rest = all_files - len(done)
    return "\n".join(
        [f"Before that, this was done, and the other {rest} files are as they were:", *done]
    )


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(isolation="thread", effects="write", meta=_meta)(apply_patch)


def _meta(args: dict[str, Any]) -> str:
    patch = args.get("patch")
    paths = paths_of(patch) if isinstance(patch, str) else []
    more = "" if len(paths) <= _META_PATHS_MAX else f" and {len(paths) - _META_PATHS_MAX} more"
    return f"Patch {', '.join(paths[:_META_PATHS_MAX])}{more}"
