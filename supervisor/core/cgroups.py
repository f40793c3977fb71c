"""What a cgroup is: limits as files and values, names, places, and the words of the kernel's files.

A cgroup is what one process generation of a session runs in. Where cgroups can be used, it is a
directory in each hierarchy that holds a limit or can kill; ``supervisor.adapters.cgroups`` makes
it. To limit something else, add a ``Controller`` and a row for each version to ``SETTINGS`` and
``NEEDED_FILES``. Pure: text in, values out.

Where no cgroup says whether a session uses more than it may, its footprint does. Memory is PSS:
each page counts as its share among those who have it, so that what all agents have from the zygote
is not held against one of them. PSS costs a walk through the page tables, while the resident size,
which is never less, comes with the process table: it is asked first.

/proc/self/mountinfo and /proc/self/cgroup, read together, say where the cgroups of a process are.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal
from urllib.parse import quote_from_bytes, unquote

from cmdc_runtime.ids import Incarnation, SessionId
from cmdc_runtime.requests import Supervision

# --- what is limited ------------------------------------------------------------------------------

CGROUP_NAME_BYTES_MAX: Final = 200
"""The kernel takes 255 bytes; what is longer is cut and distinguished by a hash."""
CPU_PERIOD_US: Final = 100_000
"""The kernel's default: a session over its share waits for less than 0.1 s at a time."""
CPU_QUOTA_US_MIN: Final = 1_000
"""The kernel refuses less."""

_BASE_NAME: Final = re.compile(r"cmdc-[0-9a-f]{16}")
_BASE_HASH_CHARS: Final = 16
_HASH_CHARS: Final = 32
_CUT: Final = "%~"
"""Between the beginning of an id that is too long and its hash: no escape reads so."""
_CGROUP_NAME: Final = re.compile(r"s-((?:[A-Za-z0-9._:@~-]|%[0-9A-F]{2})+)\.([1-9][0-9]*)")


What = Literal["memory", "cpu", "processes", "files", "kill", "oom"]
By = Literal["cgroup v2", "cgroup v1", "rlimit", "watch", "process session", "none"]


class Controller(StrEnum):
    """What the kernel limits; the values are its own names."""

    MEMORY = "memory"
    CPU = "cpu"
    PROCESSES = "pids"


class Version(StrEnum):
    """The two kinds of hierarchies, best first."""

    V2 = "cgroup v2"
    V1 = "cgroup v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a session may use; None: as much as there is."""

    memory_bytes: int | None = None
    cpu_cores: float | None = None
    processes: int | None = None
    """Threads count too, as they do in the kernel."""

    @classmethod
    def of(cls, supervision: Supervision) -> "Limits":
        """Return the limits that a session was started with."""
        return cls(
            memory_bytes=supervision.memory_limit,
            cpu_cores=supervision.cpu_limit,
            processes=supervision.max_processes,
        )

    @property
    def controllers(self) -> frozenset[Controller]:
        """What these limits are about."""
        given = {
            Controller.MEMORY: self.memory_bytes,
            Controller.CPU: self.cpu_cores,
            Controller.PROCESSES: self.processes,
        }
        return frozenset(one for one, limit in given.items() if limit is not None)


@dataclass(frozen=True, slots=True)
class Setting:
    """One file of a cgroup and what is written to it."""

    file: str
    value: str
    is_optional: bool = False
    """Kernels without the file do well enough."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Who keeps sessions within one kind of bound, and why nobody better does."""

    what: What
    by: By
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a cgroup uses and has used; None: not known."""

    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    oom_kills: int | None = None
    """Processes of the cgroup that the kernel killed for want of memory."""
    processes: int | None = None


# --- limits as files ------------------------------------------------------------------------------


def _memory_v2(limits: Limits) -> tuple[Setting, ...]:
    # All of the cgroup or nothing: an agent without its tools, or the reverse, is of no use.
    group = Setting("memory.oom.group", "1", is_optional=True)
    if limits.memory_bytes is None:
        return (group,)
    return (
        group,
        Setting("memory.swap.max", "0", is_optional=True),
        Setting("memory.max", str(limits.memory_bytes)),
    )


def _memory_v1(limits: Limits) -> tuple[Setting, ...]:
    if limits.memory_bytes is None:
        return ()
    # In this order: memory and swap together may never be limited to less than memory.
    return (
        Setting("memory.limit_in_bytes", str(limits.memory_bytes)),
        Setting("memory.memsw.limit_in_bytes", str(limits.memory_bytes), is_optional=True),
    )


def _cpu_v2(limits: Limits) -> tuple[Setting, ...]:
    if limits.cpu_cores is None:
        return ()
    return (Setting("cpu.max", f"{_quota_us(limits.cpu_cores)} {CPU_PERIOD_US}"),)


def _cpu_v1(limits: Limits) -> tuple[Setting, ...]:
    if limits.cpu_cores is None:
        return ()
    return (
        Setting("cpu.cfs_period_us", str(CPU_PERIOD_US)),
        Setting("cpu.cfs_quota_us", str(_quota_us(limits.cpu_cores))),
    )


def _processes(limits: Limits) -> tuple[Setting, ...]:
    return () if limits.processes is None else (Setting("pids.max", str(limits.processes)),)


def _quota_us(cores: float) -> int:
    return max(CPU_QUOTA_US_MIN, round(cores * CPU_PERIOD_US))


# fmt: off
SETTINGS: Final[Mapping[tuple[Controller, Version], Callable[[Limits], tuple[Setting, ...]]]] = {
    # controller             version       what to write, in this order
    (Controller.MEMORY,      Version.V2):  _memory_v2,
    (Controller.MEMORY,      Version.V1):  _memory_v1,
    (Controller.CPU,         Version.V2):  _cpu_v2,
    (Controller.CPU,         Version.V1):  _cpu_v1,
    (Controller.PROCESSES,   Version.V2):  _processes,
    (Controller.PROCESSES,   Version.V1):  _processes,
}

NEEDED_FILES: Final[Mapping[tuple[Controller, Version], tuple[str, ...]]] = {
    # controller             version       without one of these the kernel was built without it
    (Controller.MEMORY,      Version.V2):  ("memory.max", "memory.events"),
    (Controller.MEMORY,      Version.V1):  ("memory.limit_in_bytes", "memory.oom_control"),
    (Controller.CPU,         Version.V2):  ("cpu.max",),
    (Controller.CPU,         Version.V1):  ("cpu.cfs_quota_us",),
    (Controller.PROCESSES,   Version.V2):  ("pids.max",),
    (Controller.PROCESSES,   Version.V1):  ("pids.max",),
}

MEMORY_FILES: Final[Mapping[Version, tuple[str, str, str]]] = {
    # version       now                      at most                       kills
    Version.V2:    ("memory.current",        "memory.peak",                "memory.events"),
    Version.V1:    ("memory.usage_in_bytes", "memory.max_usage_in_bytes",  "memory.oom_control"),
}
# fmt: on

HALTS: Final = (Setting("cgroup.freeze", "1", is_optional=True), Setting("pids.max", "0", True))  # noqa: FBT003 - as above
"""What keeps a cgroup from forking on while its processes are killed one by one."""


def settings(controller: Controller, version: Version, limits: Limits) -> tuple[Setting, ...]:
    """Return what to write into a new cgroup so that it keeps to ``limits``."""
    return SETTINGS[controller, version](limits)


# --- names ----------------------------------------------------------------------------------------


def base_name(place: str) -> str:
    """Return the name of the directory for the cgroups of the daemon that lives at ``place``.

    The same for each life of that daemon, another one for every other daemon.
    """
    digest = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()
    return f"cmdc-{digest[:_BASE_HASH_CHARS]}"


def is_base_name(name: str) -> bool:
    """Say whether a directory has the name of one that holds the cgroups of a daemon."""
    return _BASE_NAME.fullmatch(name) is not None


def cgroup_name(session_id: str, incarnation: int) -> str:
    """Return the name of the cgroup of one process generation; no two have the same.

    A session id as the API allows it stands there as it is; other characters are escaped.
    """
    raw = session_id.encode(errors="surrogatepass")
    safe = quote_from_bytes(raw, safe=":@")
    name = f"s-{safe}.{incarnation}"
    if len(name) <= CGROUP_NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:_HASH_CHARS]
    tail = f"{_CUT}{digest}.{incarnation}"
    return f"s-{safe}"[: CGROUP_NAME_BYTES_MAX - len(tail)] + tail


def parse_cgroup_name(name: str) -> tuple[SessionId, Incarnation] | None:
    """Return whose cgroup this is; None for what is no cgroup of ours, or whose id was cut."""
    found = _CGROUP_NAME.fullmatch(name)
    if found is None:
        return None
    try:
        session_id = unquote(found[1], errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return SessionId(session_id), Incarnation(int(found[2]))


# --- the kernel's words ---------------------------------------------------------------------------


def parse_keyed(text: str) -> dict[str, int]:
    """Return the numbers of a file of ``name value`` lines; other lines are passed over."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}  # noqa: PLR2004 - a pair


def oom_kills(text: str) -> int:
    """Return the count of kills in memory.events or memory.oom_control; 0 where none is given."""
    return parse_keyed(text).get("oom_kill", 0)


def is_populated(text: str) -> bool:
    """Say whether cgroup.events reports living processes; zombies do not count."""
    return parse_keyed(text).get("populated", 0) != 0


def parse_pids(text: str) -> frozenset[int]:
    """Return the processes in cgroup.procs; 0 stands for those of a foreign pid namespace."""
    return frozenset(int(word) for word in text.split())


# --- footprint, where there is no cgroup ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one process uses; ``threads`` are at least 1."""

    rss_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class Excess:
    """A session uses more than it may."""

    what: Literal["memory", "processes"]
    used: int
    limit: int


def watched(limits: Limits, guards: Iterable[Controller]) -> Limits:
    """Return the limits that are left to the daemon's own watch, where ``guards`` are the kernel's.

    A share of the cores is not among them: a watch can't hold it.
    """
    held = frozenset(guards)
    return Limits(
        memory_bytes=None if Controller.MEMORY in held else limits.memory_bytes,
        processes=None if Controller.PROCESSES in held else limits.processes,
    )


def too_many(loads: Iterable[Load], limits: Limits) -> Excess | None:
    """Say whether there are more processes, threads counted, than the limits allow."""
    if limits.processes is None:
        return None
    count = sum(load.threads for load in loads)
    return Excess("processes", count, limits.processes) if count > limits.processes else None


def may_be_too_large(loads: Iterable[Load], limits: Limits) -> bool:
    """Say whether it is worth asking for PSS."""
    if limits.memory_bytes is None:
        return False
    return sum(load.rss_bytes for load in loads) > limits.memory_bytes


def too_large(pss_bytes: Iterable[int], limits: Limits) -> Excess | None:
    """Say whether the processes together have more memory than the limits allow."""
    if limits.memory_bytes is None:
        return None
    used = sum(pss_bytes)
    return Excess("memory", used, limits.memory_bytes) if used > limits.memory_bytes else None


# --- hierarchies ----------------------------------------------------------------------------------

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
    """Return where this process is with regard to ``controller``; None if that cannot be seen.

    The files of /proc speak of the reader's own cgroup namespace, so that ``/..`` in them is a
    place that the reader cannot name.
    """
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
