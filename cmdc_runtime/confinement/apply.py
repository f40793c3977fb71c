"""The layers round the process that calls it, in the order in which they can be had.

Namespaces come first, since a domain of Landlock lets nobody mount; capabilities go then, and a
filter of seccomp comes last, since what it refuses is what the others need. A process is confined
between its fork and the code that it is for, and it has one thread.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from cmdc_runtime.confinement import landlock, namespaces, seccomp
from cmdc_runtime.confinement.landlock import (
    ABI_MIN,
    DEVICE,
    EVERYTHING,
    EVERYTHING_BUT_PORTS,
    READ,
    WRITE,
    Grant,
    abi,
    missing,
    restrict,
)
from cmdc_runtime.confinement.layer import LayerMissing
from cmdc_runtime.confinement.policy import Confinement

ENTRIES_MAX: Final = 50_000
"""Of /etc and what lies below, when it is looked at; what lies beyond is not given."""


def confine(wanted: Confinement) -> None:
    """Confine this process and all that it starts, for ever.

    Raises:
        LayerMissing: a layer can't hold what is wanted of it; the process is of no use then.
    """
    check_machine()
    grants = [*grants_of(wanted)]  # before paths can be changed
    places, working_dir = _places(wanted), os.getcwd()  # noqa: PTH109 - a text
    namespaces.enter(has_network=wanted.network == "on")
    for root in wanted.writable:
        namespaces.hold(root)
    for place, is_kept in places.items():
        (namespaces.hold if is_kept else namespaces.make_read_only)(place)
    os.chdir(working_dir)  # where it stood lies below the mounts, and shows what they cover
    namespaces.drop_capabilities()
    # With the proxy, the network is empty but for that.
    restrict(EVERYTHING if wanted.network == "off" else EVERYTHING_BUT_PORTS, grants)
    seccomp.install(wanted.network)


def shield() -> None:
    """Let no program that this process becomes look into processes outside, or mount.

    It holds for root as well, from the next exec on. Where the kernel has no Landlock nothing
    happens: ``cmdc doctor`` says so.
    """
    ruleset = landlock.shield()
    if ruleset is None:
        return
    namespaces.lose_at_exec(namespaces.OVER_PROCESSES)
    try:
        landlock.enforce(ruleset)
    finally:
        os.close(ruleset)


def check_machine() -> None:
    """Raise ``LayerMissing`` where this machine lacks what is needed, namespaces left aside."""
    found = abi()
    if found < ABI_MIN:
        why = f"the kernel has ABI {found}, and {ABI_MIN} is needed: {'; '.join(missing(found))}"
        raise LayerMissing("landlock", why)
    seccomp.machine()


def grants_of(wanted: Confinement) -> Iterator[Grant]:
    """Yield what is given; of /etc only what everybody may read, which counts for root as well."""
    for path in wanted.readable:
        if path == "/etc":
            yield from (Grant(one, READ) for one in open_to_all(path))
        else:
            yield Grant(path, READ)
    yield from (Grant(path, WRITE) for path in wanted.writable)
    yield from (Grant(path, DEVICE) for path in wanted.devices)


@cache
def open_to_all(folder: str) -> tuple[str, ...]:
    """Return the fewest paths below a folder that together are all that everybody may read.

    It is looked at once in the life of a process.
    """
    left = [ENTRIES_MAX]
    is_whole, found = _open_below(folder, left)
    return (folder,) if is_whole else tuple(found)


def _open_below(folder: str, left: list[int]) -> tuple[bool, list[str]]:
    """Say whether everybody may read all that is below a folder, and what of it."""
    is_whole = True
    found: list[str] = []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return False, []
    for entry in entries:
        left[0] -= 1
        if left[0] < 0:
            return False, found
        with suppress(OSError):
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):  # where it leads has its own rights
                continue
            if not mode & stat.S_IROTH:
                is_whole = False
            elif not stat.S_ISDIR(mode):
                found.append(entry.path)
            else:
                is_open, below = _open_below(entry.path, left)
                found += [entry.path] if is_open else below
                is_whole = is_whole and is_open
    return is_whole, found


# --- what is protected below what is writable -----------------------------------------------------

_DEPTH_MAX: Final = 4
"""Folders between a writable one and a repository in it that is looked for."""
_FOLDERS_MAX: Final = 2_000
"""Folders that are looked into for repositories, of one writable folder."""
_REPOSITORY: Final = ".git"


def _places(wanted: Confinement) -> dict[str, bool]:
    """Return the paths to mount over, outer ones first, and whether each stays writable."""
    places: dict[str, bool] = {}
    nested: dict[str, list[str]] = {}
    for root, path in wanted.protected:
        is_of_git = path.startswith(f"{_REPOSITORY}/")
        if is_of_git and root not in nested:
            nested[root] = [*_repositories(root)]
        for folder in [root, *(nested[root] if is_of_git else ())]:
            for place, is_kept in _on_the_way(folder, path):
                places[place] = is_kept and places.get(place, True)
    return places


def _on_the_way(root: str, path: str) -> Iterator[tuple[str, bool]]:
    """Yield the folders on the way to what is protected, which stay where they are, and that.

    What is missing is made, empty, since else the process could make it; but no repository is. A
    link on the way is no place to mount at: the folder that it is in is protected, and where it
    leads. A file in place of a folder, which leads to one, is protected itself.
    """
    at = root
    parts = Path(path).parts
    for depth, part in enumerate(parts, 1):
        parent, at = at, f"{at}/{part}"
        is_last = depth == len(parts)
        mode = _mode_of(at)
        if mode is None and part == _REPOSITORY:
            return  # git outside finds nothing to take orders from; the process may make its own
        if mode is None:
            _make(parent, part, is_folder=not is_last or path.endswith("/"))
        elif stat.S_ISLNK(mode):
            if parent == root:
                why = f"{at} is a link that could be changed: leave it out of protected, or end it"
                raise LayerMissing("protected paths", why)
            yield parent, False
        elif not stat.S_ISDIR(mode):
            is_last = True
        yield at, not is_last
        if is_last:
            return


def _repositories(root: str) -> Iterator[str]:
    """Yield the folders below ``root`` that are repositories, without what is hidden."""
    folders, left = [(root, 0)], _FOLDERS_MAX
    while folders and left:
        folder, depth = folders.pop(0)
        left -= 1
        with suppress(OSError):
            for entry in os.scandir(folder):
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if entry.name == _REPOSITORY and folder != root:
                    yield folder
                elif depth < _DEPTH_MAX and not entry.name.startswith("."):
                    folders.append((entry.path, depth + 1))


def _mode_of(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def _make(parent: str, name: str, *, is_folder: bool) -> None:
    """Make an empty protected thing, in a folder that is no link."""
    folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            if is_folder:
                os.mkdir(name, 0o755, dir_fd=folder)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(name, flags, 0o644, dir_fd=folder))
    finally:
        os.close(folder)
