"""Where the cgroups of a process are: /proc/self/mountinfo and /proc/self/cgroup, read together.

Pure: text in, paths as text out. Both files speak of the reader's own cgroup namespace, so that
``/..`` in them is a place that the reader cannot name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_FIELDS_MIN: Final = 6
"""In front of the optional fields of a line of mountinfo (proc_pid_mountinfo(5))."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_KINDS: Final = ("cgroup", "cgroup2")
UNIFIED: Final = ""
"""The controller under which /proc/self/cgroup lists cgroup v2."""
SYSTEMD: Final = "name=systemd"
"""The v1 hierarchy in which systemd keeps its units where there is no cgroup v2."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy of cgroups."""

    root: str
    """Which of its cgroups is to be seen at ``point``."""
    point: str
    controllers: frozenset[str]
    """Of v1; ``UNIFIED`` alone is v2, whose controllers are in a file."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where this process is in one hierarchy."""

    hierarchy: Hierarchy
    below: str
    """Its cgroup below the mount point; "" is the mount point."""

    @property
    def path(self) -> str:
        """The directory of its cgroup."""
        return f"{self.hierarchy.point}/{self.below}".rstrip("/")


def parse_mountinfo(text: str) -> tuple[Hierarchy, ...]:
    """Return the mounted hierarchies, in the order of the mounts."""
    return tuple(_hierarchies(text.splitlines()))


def _hierarchies(lines: Iterable[str]) -> Iterator[Hierarchy]:
    for line in lines:
        mount, mark, about = line.partition(" - ")
        fields, kind = mount.split(" "), about.split(" ")
        if not mark or len(fields) < _FIELDS_MIN or kind[0] not in _KINDS:
            continue
        is_unified = kind[0] == "cgroup2"
        controllers = [UNIFIED] if is_unified else kind[-1].split(",")
        yield Hierarchy(_plain(fields[3]), _plain(fields[4]), frozenset(controllers))


def parse_own_cgroups(text: str) -> dict[str, str]:
    """Return this process's cgroup for each controller, ``UNIFIED`` for v2."""
    lines = (line.split(":", 2) for line in text.splitlines())
    return {
        controller: line[2]
        for line in lines
        if len(line) == 3  # noqa: PLR2004 - number, controllers, path
        for controller in line[1].split(",")
    }


def spot_of(
    controller: str, hierarchies: Iterable[Hierarchy], own: Mapping[str, str]
) -> Spot | None:
    """Return where this process is with regard to ``controller``; None if that cannot be seen."""
    path = own.get(controller)
    if path is None:
        return None
    for hierarchy in hierarchies:
        if controller not in hierarchy.controllers:
            continue
        root = hierarchy.root.rstrip("/")
        below = path[len(root) :].strip("/")
        if f"{path}/".startswith(f"{root}/") and ".." not in below.split("/"):
            return Spot(hierarchy, below)
    return None


def _plain(field: str) -> str:
    return _OCTAL.sub(lambda code: chr(int(code[1], 8)), field)
