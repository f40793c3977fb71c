"""A walk through a folder for a search: sorted, bounded, past what holds no sources.

What is left out is counted, and ``notes`` tells it to the model.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SKIPPED: Final = frozenset(
    {
        ".git", ".hg", ".svn", "_build", "deps", "node_modules", ".elixir_ls", ".vscode", ".idea",
        "__pycache__", ".mypy_cache", "vendor", ".bundle", "tmp",
    }
)  # fmt: skip
"""Folders of these names are passed by, except as the place where a search begins."""
DEPTH_MAX: Final = 25
ENTRIES_MAX: Final = 200_000
"""After so many files and folders a walk ends; it takes seconds."""
SEARCH_TIMEOUT_S: Final = 60.0
"""A search ends here whatever its pattern does; some regular expressions never end."""


class Walk:
    """The files and folders below one folder; links are named, and not followed."""

    def __init__(self, root: Path, depth_max: int = DEPTH_MAX) -> None:
        """Go ``depth_max`` folders down from ``root``; 0 means what is right in it.

        Raises:
            OSError: ``root`` is no folder that can be read.
        """
        os.scandir(root).close()
        self.unread = 0
        """What is there and was not searched; a search adds the files that it could not read."""
        self._root = str(root)
        self._depth_max = depth_max
        self._is_cut = False
        self._is_too_deep = False

    def __iter__(self) -> Iterator[str]:
        """Yield paths relative to the root, those of folders with "/" at the end."""
        entries = 0
        for folder, folders, files in os.walk(self._root, onerror=self._count):
            prefix = folder[len(self._root) :].lstrip("/")
            prefix = f"{prefix}/" if prefix else ""
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            entries += len(files) + len(folders)
            if entries > ENTRIES_MAX:
                self._is_cut = True
                return
            yield from (prefix + name for name in sorted(files))
            yield from (f"{prefix}{name}/" for name in folders)
            if folders and prefix.count("/") >= self._depth_max:
                self._is_too_deep = True
                folders.clear()

    def notes(self) -> list[str]:
        """Return a line for each kind of thing that was left out."""
        notes = []
        if self._is_cut:
            notes.append(f"[ended after {ENTRIES_MAX} files and folders: begin further down]")
        if self._is_too_deep and self._depth_max == DEPTH_MAX:
            notes.append(f"[folders deeper than {DEPTH_MAX} are left out]")
        if self.unread:
            notes.append(f"[{self.unread} files or folders could not be searched]")
        return notes

    def _count(self, _: OSError) -> None:
        self.unread += 1
