"""What stays as it is below what is writable: orders that programs outside take from there.

Git runs hooks, and what its configuration names; editors run tasks. What is protected is mounted
over itself, read only, and the folders on the way to it are, as they are: so nobody in the
namespace writes there, or puts other folders in their place. What is missing is made, empty, since
else the process could make it; but a repository is not, so one that a tool makes has the hooks that
the tool gives it.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from cmdc_runtime.confinement import namespaces
from cmdc_runtime.confinement.layer import LayerMissing

_DEPTH_MAX: Final = 4
"""Folders between a writable one and a repository in it that is looked for."""
_FOLDERS_MAX: Final = 2_000
"""Folders that are looked into for repositories, of one writable folder."""
_REPOSITORY: Final = ".git"


def is_protected(names: Iterable[str], protected: Iterable[str]) -> bool:
    """Say whether a path below a writable folder, by its names, is protected or in what is.

    Those of a repository are so wherever it lies. On some disks letters are small and large alike.
    """
    path = [name.casefold() for name in names]
    for one in protected:
        parts = [part.casefold() for part in Path(one).parts]
        starts = range(len(path)) if parts[0] == _REPOSITORY else (0,)
        if any(path[start : start + len(parts)] == parts for start in starts):
            return True
    return False


def protect(root: str, protected: Iterable[str]) -> None:
    """Mount over what is protected below a writable folder, in a namespace of this process's own.

    Raises:
        LayerMissing: a link is in the way that could lead elsewhere later.
        OSError: what is there has changed meanwhile.
    """
    paths = [*protected]
    folders = [""]
    if any(path.startswith(f"{_REPOSITORY}/") for path in paths):
        folders += _repositories(root)
    places: dict[str, bool] = {}
    for folder in folders:
        for path in paths:
            if folder and not path.startswith(f"{_REPOSITORY}/"):
                continue
            for place, is_kept in _on_the_way(root, folder, path):
                places[place] = is_kept and places.get(place, True)
    _hold_path(root)
    with closing(_Folder(root)) as top:
        for place, is_kept in places.items():
            descriptor = namespaces.open_below(top.number, place)
            try:
                namespaces.hold(descriptor, is_read_only=not is_kept)
            finally:
                os.close(descriptor)


class _Folder:
    """A writable folder that is open: the one that was given, and none that a link leads to now."""

    def __init__(self, path: str) -> None:
        slash = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.number = namespaces.open_below(slash, path.strip("/") or ".")
        finally:
            os.close(slash)

    def close(self) -> None:
        os.close(self.number)


def _hold_path(path: str) -> None:
    with closing(_Folder(path)) as folder:
        namespaces.hold(folder.number)


def _on_the_way(root: str, folder: str, path: str) -> Iterator[tuple[str, bool]]:
    """Yield the folders on the way to what is protected, which stay where they are, and that.

    A link on the way is no place to mount at: the folder that it is in is protected. A file in
    place of a folder, which leads to one, is protected itself.
    """
    at = folder
    parts = Path(path).parts
    for depth, part in enumerate(parts, 1):
        parent, at = at, f"{at}/{part}".lstrip("/")
        is_last = depth == len(parts)
        mode = _mode_of(f"{root}/{at}")
        if mode is None and part == _REPOSITORY:
            return  # git outside finds nothing to take orders from
        if mode is None:
            _make(root, parent, part, is_folder=not is_last or path.endswith("/"))
        elif stat.S_ISLNK(mode):
            if not parent:
                why = f"{root}/{at} is a link that could be changed: leave it out of protected"
                raise LayerMissing("protected paths", why)
            yield parent, False
            return
        elif not stat.S_ISDIR(mode):
            is_last = True
        yield at, not is_last
        if is_last:
            return


def _repositories(root: str) -> Iterator[str]:
    """Yield the folders below ``root`` that are repositories, without what is hidden."""
    folders, left = [("", 0)], _FOLDERS_MAX
    while folders and left:
        folder, depth = folders.pop(0)
        left -= 1
        with suppress(OSError):
            for entry in os.scandir(f"{root}/{folder}"):
                if entry.name == _REPOSITORY and folder and not entry.is_symlink():
                    yield folder
                elif not entry.is_dir(follow_symlinks=False) or entry.name.startswith("."):
                    continue
                elif depth < _DEPTH_MAX:
                    folders.append((f"{folder}/{entry.name}".lstrip("/"), depth + 1))


def _mode_of(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def _make(root: str, parent: str, name: str, *, is_folder: bool) -> None:
    """Make an empty protected thing, in a folder to which no link below the root leads."""
    with closing(_Folder(root)) as top:
        folder = namespaces.open_below(top.number, parent or ".")
    try:
        with suppress(FileExistsError):
            if is_folder:
                os.mkdir(name, 0o755, dir_fd=folder)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(name, flags, 0o644, dir_fd=folder))
    finally:
        os.close(folder)
