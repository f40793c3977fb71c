"""A patch in any form, as the changes that it says, bounded."""

import posixpath
import re
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


def changes_of(text: str) -> list[FileChange]:
    """Return what a patch says, a change for each file.

    Raises:
        PatchError: it can't be read, or is larger than is done at once.
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
    _refuse_twice(changes)
    return changes


def _refuse_twice(changes: list[FileChange]) -> None:
    seen: set[str] = set()
    for change in changes:
        for path in (change.path, change.to):
            plain = posixpath.normpath(path) if path is not None else ""
            if plain in seen:
                raise PatchError(f"it changes {path} twice; put all hunks of a file together")
            seen |= {plain} - {""}


def paths_of(text: str) -> list[str]:
    """Return the paths that a patch names; of what is none, what would name one in a patch."""
    try:
        changes = changes_of(text)
    except PatchError:
        return [found.strip().strip('"') for found in _NAMED.findall(text)]
    return [path for change in changes for path in (change.path, change.to) if path is not None]
