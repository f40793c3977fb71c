"""Bubblewrap: the arguments of ``bwrap`` for a confinement. Pure.

See bwrap(1). All namespaces are new, the file system is made of what may be read and written, and
the first process in it is a child that ends with ``bwrap``. Nothing is mounted below a folder that
the program writes to: what is protected there was mounted over before, in a namespace around this
one, and comes along as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from cmdc_runtime.confinement.layer import Confinement

VERSION_MIN: Final = (0, 12)
"""Before it a mount point below a folder that tools write to leads elsewhere (CVE-2026-87766)."""
HIDDEN_MAX: Final = 256
"""Paths of the system that are mounted over."""

OWN: Final = ("/tmp", "/run", "/var/tmp", "/dev/shm")  # noqa: S108 - nobody else's
"""Folders that are empty, and the sandbox's alone."""
OWN_BYTES_MAX: Final = {"/tmp": 2**30, "/run": 64 * 2**20, "/dev/shm": 256 * 2**20}  # noqa: S108
"""Of what is kept there, which is memory."""
_FIXED: Final = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"),
    *("--proc", "/proc", "--dev", "/dev"),
    *(
        word
        for path, size in OWN_BYTES_MAX.items()
        for word in ("--size", str(size), "--tmpfs", path)
    ),
    *("--perms", "0555", "--tmpfs", "/var", "--dir", OWN[2]),
)


def arguments_of(wanted: Confinement, hidden: Mapping[str, bool], working_dir: str) -> list[str]:
    """Return what stands between ``bwrap`` and the program, which has the environment of ``bwrap``.

    ``hidden`` are the paths below what may be read that not everybody may, with whether each is a
    folder. The program begins in ``working_dir``, a path without links, if that is there.
    """
    # That of a proxy is empty already, but for the way to it.
    network = ["--unshare-net"] if wanted.network == "off" else []
    return [*_FIXED, *_places(wanted, hidden), *network, *_begins_in(wanted, working_dir), "--"]


def inside(wanted: Confinement) -> Confinement:
    """Return what is left to hold in the file system that these arguments make."""
    return replace(wanted, readable=("/",), writable=(*wanted.writable, *OWN))


def _places(wanted: Confinement, hidden: Mapping[str, bool]) -> Iterator[str]:
    for path in sorted(path for path in wanted.readable if not _is_made(path)):
        yield from ("--ro-bind-try", path, path)
    for path, is_folder in sorted(hidden.items())[:HIDDEN_MAX]:
        yield from ("--tmpfs", path) if is_folder else ("--ro-bind", "/dev/null", path)
    for path in sorted(wanted.writable):
        yield from ("--bind", path, path)


def _begins_in(wanted: Confinement, working_dir: str) -> Iterator[str]:
    # By itself it goes where $PWD says it is, which may be a link that is not there, and then home.
    folder = PurePosixPath(working_dir)
    if any(folder.is_relative_to(path) for path in (*wanted.writable, *wanted.readable)):
        yield from ("--chdir", working_dir)


def _is_made(path: str) -> bool:
    """Say whether a sandbox has its own of it."""
    return any(path == own or path.startswith(f"{own}/") for own in ("/proc", "/dev", "/sys"))
