"""A walk through a folder: sorted, bounded, past what holds no sources.

It goes from descriptor to descriptor, so that a link that is put in the place of a folder meanwhile
leads nowhere. What is left out is counted, and ``notes`` reports it to the model.
"""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Found:
    """A file or folder on the way; ``folder`` is open for as long as the walk stands at it."""

    path: str
    """From where the walk began; that of a folder ends with "/"."""
    folder: int
    name: str

    @property
    def is_folder(self) -> bool:
        """Say whether it is a folder, or a link to one."""
        return self.path.endswith("/")


class Walk:
    """The files and folders below one folder; links are named, and not followed."""

    def __init__(
        self,
        folder: int,
        depth_max: int = DEPTH_MAX,
        leads_to_folder: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        """Go ``depth_max`` folders down from ``folder``; 0 means what is right in it.

        The descriptor stays the caller's. ``leads_to_folder`` says of a link, by its path, whether
        it leads to a folder.
        """
        self.unread = 0
        """What is there and was not searched; a search adds the files that it could not read."""
        self._top = folder
        self._depth_max = depth_max
        self._leads_to_folder = leads_to_folder
        self._entries = 0
        self._is_too_deep = False

    def __iter__(self) -> Iterator[Found]:
        """Yield a folder's files, then its folders, then what is in these."""
        yield from self._in(self._top, "", 0)

    def notes(self) -> tuple[str, ...]:
        """Return a line for each kind of thing that was left out."""
        notes = []
        if self._is_cut():
            notes.append(f"[ended after {ENTRIES_MAX} files and folders: begin further down]")
        if self._is_too_deep and self._depth_max == DEPTH_MAX:
            notes.append(f"[folders deeper than {DEPTH_MAX} are left out]")
        if self.unread:
            notes.append(f"[{self.unread} files or folders could not be searched]")
        return tuple(notes)

    def _is_cut(self) -> bool:
        return self._entries > ENTRIES_MAX

    def _in(self, folder: int, prefix: str, depth: int) -> Iterator[Found]:
        if self._is_cut():
            return
        files, folders, links = self._sorted(folder, prefix)
        if self._is_cut():
            return
        for name in files:
            yield Found(prefix + name, folder, name)
        for name in folders:
            yield Found(f"{prefix}{name}/", folder, name)
        walked = [name for name in folders if name not in links]
        if folders and depth >= self._depth_max:
            self._is_too_deep = True
            return
        for name in walked:
            yield from self._below(folder, f"{prefix}{name}/", name, depth + 1)

    def _below(self, folder: int, prefix: str, name: str, depth: int) -> Iterator[Found]:
        try:
            inner = os.open(name, _FOLDER, dir_fd=folder)
        except OSError:  # it may not be read, or is none any more
            self.unread += 1
            return
        try:
            yield from self._in(inner, prefix, depth)
        finally:
            os.close(inner)

    def _sorted(self, folder: int, prefix: str) -> tuple[list[str], list[str], set[str]]:
        """Return what is right in a folder: files, folders with links to such, and these links."""
        files, folders, links = list[str](), list[str](), set[str]()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    kind = self._kind(entry, prefix)
                    if kind != "file" and entry.name in SKIPPED:
                        continue
                    (files if kind == "file" else folders).append(entry.name)
                    links |= {entry.name} if kind == "link" else set()
                    self._entries += 1
                    if self._entries > ENTRIES_MAX:
                        break
        except OSError:
            self.unread += 1
        return sorted(files), sorted(folders), links

    def _kind(self, entry: os.DirEntry[str], prefix: str) -> str:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        is_link = entry.is_symlink() and self._leads_to_folder(prefix + entry.name)
        return "link" if is_link else "file"


def is_regular(found: Found) -> os.stat_result | None:
    """Return the status of a file that can be searched, None for what is none.

    Raises:
        OSError: it is gone.
    """
    status = os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
    return status if stat.S_ISREG(status.st_mode) else None
