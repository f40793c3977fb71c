"""The layers round the process that calls it, in the order in which they can be had.

Namespaces come first, since a domain of Landlock lets nobody mount; capabilities go then, and a
filter of seccomp comes last, since what it refuses is what the others need. A process is confined
between its fork and the code that it is for, and it has one thread.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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
from cmdc_runtime.confinement.layer import Confinement, LayerMissing
from cmdc_runtime.confinement.protection import protect

ENTRIES_MAX: Final = 50_000
"""Of /etc and what lies below, when it is looked at; what lies beyond is not given."""


SHARED: Final = "/dev/shm"  # noqa: S108 - a place of the process's own is mounted there
"""Where processes of one program share memory and locks; it is empty for each command."""
SHARED_BYTES_MAX: Final = 256 * 2**20
"""Of what is shared there; it is memory, and counts as that of who writes it."""


def confine(wanted: Confinement) -> None:
    """Confine this process and all that it starts, for ever.

    Raises:
        LayerMissing: a layer can't hold what is wanted of it; the process is of no use then.
    """
    check_machine()
    separate(wanted)
    close_up(wanted)


def separate(wanted: Confinement) -> None:
    """Give this process namespaces of its own, in which what is protected can't be written to.

    Where its network is a proxy's, that one is outside of them, and the way to it is in them.

    Raises:
        LayerMissing: they can't be had, or something can't be protected.
    """
    working_dir = os.getcwd()  # noqa: PTH109 - a text
    way_out = None
    if wanted.network == "proxy":
        from cmdc_runtime.confinement import proxy  # noqa: PLC0415 - most commands have none

        way_out = proxy.start(wanted.allow_hosts)
    namespaces.enter(has_network=wanted.network == "on")
    if way_out is not None:
        way_out.open()
    try:
        for root in wanted.writable:
            protect(root, wanted.protected)
        with suppress(FileNotFoundError):  # no machine of ours is without it
            namespaces.mount_own(SHARED, SHARED_BYTES_MAX)
        os.chdir(working_dir)  # where it stood lies below the mounts, and shows what they cover
    except OSError as error:
        raise LayerMissing("protected paths", str(error)) from error


def close_up(wanted: Confinement) -> None:
    """Give up capabilities, then what Landlock holds, then the calls of the table.

    Raises:
        LayerMissing: a layer can't hold what is wanted of it.
    """
    try:
        namespaces.drop_capabilities()
        domain = EVERYTHING if wanted.network == "off" else EVERYTHING_BUT_PORTS
        restrict(domain, grants_of(wanted))
    except OSError as error:
        raise LayerMissing("landlock", str(error)) from error
    seccomp.install(wanted.network)
    _set_places(wanted)


def _set_places(wanted: Confinement) -> None:
    """Have programs keep what is theirs, and what is for a moment, where they may write."""
    for variable, name in (("HOME", "home"), ("TMPDIR", "tmp")):
        place = f"{wanted.writable[0]}/.cmdc/{name}"
        with suppress(OSError):  # confined already: it makes nothing elsewhere
            Path(place).mkdir(0o700, parents=True, exist_ok=True)
        os.environ[variable] = place
    # Where a program is found and can't be run, a shell looks no further.
    there = [folder for folder in os.get_exec_path() if _is_readable(folder)]
    os.environ["PATH"] = os.pathsep.join(there)


def _is_readable(folder: str) -> bool:
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


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
    """Yield what is given."""
    yield from (Grant(path, READ) for path in wanted.readable)
    yield from (Grant(path, WRITE) for path in (*wanted.writable, SHARED))
    yield from (Grant(path, DEVICE) for path in wanted.devices)


@dataclass(frozen=True, slots=True)
class Openness:
    """Of a folder: the fewest paths that are all that everybody may read, and those that not."""

    open: tuple[str, ...]
    closed: dict[str, bool]
    """With whether each is a folder."""


@cache
def openness_of(folder: str) -> Openness:
    """Return what everybody may read below a folder; it is looked at once in a process's life.

    For root, who may read everything, as well.
    """
    closed: dict[str, bool] = {}
    is_whole, found = _open_below(folder, [ENTRIES_MAX], closed)
    return Openness((folder,) if is_whole else tuple(found), closed)


def _open_below(folder: str, left: list[int], closed: dict[str, bool]) -> tuple[bool, list[str]]:
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
            closed[entry.path] = entry.is_dir(follow_symlinks=False)
            is_whole = False
            continue
        with suppress(OSError):
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):  # where it leads has its own rights
                continue
            if not mode & stat.S_IROTH:
                is_whole = False
                closed[entry.path] = stat.S_ISDIR(mode)
            elif not stat.S_ISDIR(mode):
                found.append(entry.path)
            else:
                is_open, below = _open_below(entry.path, left, closed)
                found += [entry.path] if is_open else below
                is_whole = is_whole and is_open
    return is_whole, found
