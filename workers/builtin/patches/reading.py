"""A patch in any form, as the changes that it says, bounded."""

import posixpath
import re
from itertools import pairwise
from typing import Final

from workers.builtin.patches.hunks import FileChange, PatchError
from workers.builtin.patches.marked import BEGIN, marked
from workers.builtin.patches.unified import unified

FILES_MAX: Final = 200
HUNKS_MAX: Final = 2000
"""Of one patch: each is looked for in a whole file."""

_BARE_LINE_FEED: Final = re.compile(r"(?<!\r)\n")
_NAMED: Final = re.compile(
    r"^(?:--- |\+\+\+ |rename (?:from|to) |copy (?:from|to) |diff --git "
    r"|\*\*\* (?:Add|Update|Delete) File: |\*\*\* Move to: )(.*)$",
    re.MULTILINE,
)


def changes_of(text: str, folder: str = "") -> list[FileChange]:
    """Return what a patch says, a change for each file; relative paths begin in ``folder``.

    Raises:
        PatchError: it can't be read, is larger than is done at once, or its paths exclude each
            other.
    """
    if "\r\n" in text and not _BARE_LINE_FEED.search(text):  # the way here has made them so
        text = text.replace("\r\n", "\n")
    changes = marked(text) if text.lstrip().startswith(BEGIN) else unified(text)
    if not changes:
        raise PatchError(f'it changes no file; it begins with "{BEGIN}", or is a unified diff')
    hunks = sum(len(change.hunks) for change in changes)
    if len(changes) > FILES_MAX or hunks > HUNKS_MAX:
        raise PatchError(
            f"it has {len(changes)} files and {hunks} hunks, at most {FILES_MAX} and {HUNKS_MAX}"
            " are taken at once"
        )
    _refuse_conflicts(changes, folder)
    return changes


def _refuse_conflicts(changes: list[FileChange], folder: str) -> None:
    """Refuse a path that stands twice, or is a file and the folder of another one."""
    paths = [path for change in changes for path in (change.path, change.to) if path is not None]
    named = sorted(((_names(path, folder), path) for path in paths), key=lambda one: one[0])
    # What begins as a path does stands right behind it.
    for (names, path), (next_names, next_path) in pairwise(named):
        if names == next_names:
            raise PatchError(f"it changes {next_path} twice; put all hunks of a file together")
        if names == next_names[: len(names)]:
            raise PatchError(
                f"{path} is a file in it, and the folder of {next_path}; only one of them can be:"
                " make another patch of the other one"
            )


def _names(path: str, folder: str) -> tuple[str, ...]:
    plain = posixpath.normpath(posixpath.join(folder, path))
    return tuple(name for name in plain.split("/") if name not in {"", "."})


def paths_of(text: str) -> list[str]:
    """Return the paths that a patch names; of what is none, what would name one in a patch."""
    try:
        changes = changes_of(text)
    except PatchError:
        return [found.strip().strip('"') for found in _NAMED.findall(text)]
    return [path for change in changes for path in (change.path, change.to) if path is not None]
