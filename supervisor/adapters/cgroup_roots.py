"""Where this process may make cgroups, taking that root, and the files and directories there.

A root is below this process's own cgroup, nowhere else. Under systemd only a unit with
``Delegate=yes`` may. Elsewhere the cgroup that we are in will do, if we can write there. A root is
a directory named after the daemon; a ``flock`` on it says that its owner lives, whatever the pid
namespace, and the kernel gives it back however the owner dies. The controllers of cgroup v2 are had
only by children of a cgroup without processes, so this process moves into a leaf of its own first.
Call ``survey_roots`` before anything is started.

What reads, writes, kills and removes takes a directory and looks at it and below it, since what
runs in a cgroup may make cgroups of its own there. Rules: no file is ever created; nothing but
cgroup.procs names a process; what the kernel refuses is False or None, and OSError is left to
``write`` and to a process that is out of descriptors. Reading takes some 20 us a file.
"""

import errno
import fcntl
import os
import select
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cmdc_runtime.process_table import ProcessLine, end_all, look_up
from supervisor.core.cgroups import (
    HALTS,
    NEEDED_FILES,
    SYSTEMD,
    UNIFIED,
    Controller,
    Hierarchy,
    Spot,
    Version,
    is_populated,
    parse_mountinfo,
    parse_own_cgroups,
    parse_pids,
    spot_of,
)

# --- files and directories ------------------------------------------------------------------------

DIRECTORIES_MAX: Final = 1_000
"""Looked at below one cgroup."""
REMOVE_TRIES_MAX: Final = 5
"""The kernel says EBUSY for a moment after the last process has ended."""
REMOVE_PAUSE_S: Final = 0.01
"""Between two tries."""
POPULATED_WAIT_S: Final = 0.1
"""Between two looks whether a cgroup is empty, when the kernel sends no notice."""

_ABSENT: Final = frozenset(
    {errno.ENOENT, errno.ENODEV, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP}
)

PROCS: Final = "cgroup.procs"
EVENTS: Final = "cgroup.events"
KILL: Final = "cgroup.kill"


def read(path: Path) -> str | None:
    """Return the text of a file; None where there is none, or none for us.

    Raises:
        OSError: this process has no descriptor left for it.

    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def write(path: Path, value: str) -> None:
    """Write to a file that is there.

    Raises:
        OSError: the kernel refuses, or there is no such file.

    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def admit(directory: Path, pid: int) -> bool:
    """Move a process into a cgroup; False if it has ended.

    The first move after a while takes about 10 ms, in which the kernel waits for all cores; those
    that follow at once take less than 0.1 ms.

    Raises:
        OSError: the kernel refuses for another reason.

    """
    try:
        write(directory / PROCS, str(pid))
    except ProcessLookupError:
        return False
    return True


def directories(directory: Path) -> list[Path]:
    """Return a cgroup and all below it, the deepest last; at most ``DIRECTORIES_MAX``."""
    found = [directory]
    for one in found:
        found += children(one)
        if len(found) >= DIRECTORIES_MAX:
            break
    return found[:DIRECTORIES_MAX]


def children(directory: Path) -> list[Path]:
    """Return the cgroups right below one."""
    try:
        with os.scandir(directory) as entries:
            return [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False)]
    except OSError:  # it is gone
        return []


def pids(directory: Path) -> frozenset[int]:
    """Return the processes in a cgroup and below it."""
    texts = (read(one / PROCS) for one in directories(directory))
    return frozenset().union(*(parse_pids(text) for text in texts if text))


def is_empty(directory: Path) -> bool:
    """Say whether no process lives in a cgroup or below it; zombies do not count."""
    events = read(directory / EVENTS)
    return not pids(directory) if events is None else not is_populated(events)


def kill(directory: Path, deadline: float) -> bool:
    """Kill everything in a cgroup and below it; says whether it is empty now.

    Returns soon after ``deadline``, of the monotonic clock. This process is never killed, nor is
    anything in a cgroup that it is in itself.
    """
    if os.getpid() in pids(directory):
        return False
    try:
        write(directory / KILL, "1")
    except OSError:  # v1, or a kernel before 5.14
        _kill_each(directory, deadline)
        return is_empty(directory)
    return _await_empty(directory, deadline)


def remove(directory: Path) -> bool:
    """Remove a cgroup and all below it; False if the kernel does not let go of one of them.

    Blocks for up to ``REMOVE_TRIES_MAX`` times ``REMOVE_PAUSE_S``.
    """
    for attempt in range(REMOVE_TRIES_MAX):
        if attempt:
            time.sleep(REMOVE_PAUSE_S)
        if all(_remove_one(one) for one in reversed(directories(directory))):
            return True
    return False


def _remove_one(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError as error:
        return error.errno in {errno.ENOENT, errno.ENODEV}
    return True


def _kill_each(directory: Path, deadline: float) -> None:
    for halt in HALTS:
        with suppress(OSError):
            write(directory / halt.file, halt.value)
    end_all(lambda: _members(directory), deadline)


def _members(directory: Path) -> list[ProcessLine]:
    """Return the processes in a cgroup; each was the same before and after it was seen there."""
    before = [line for pid in pids(directory) if (line := look_up(pid)) is not None]
    there = pids(directory)
    return [line for line in before if line.pid in there]


def _await_empty(directory: Path, deadline: float) -> bool:
    """Wait for the kernel's word that no process is left."""
    try:
        events = os.open(directory / EVENTS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return is_empty(directory)
    poll = select.poll()
    poll.register(events, select.POLLPRI)
    try:
        while is_populated(os.pread(events, 4096, 0).decode()):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            poll.poll(min(left_s, POPULATED_WAIT_S) * 1e3)
    except OSError:  # somebody removed it: nothing can be in there
        return True
    finally:
        os.close(events)
    return True


# --- roots ---------------------------------------------------------------------------------------

LEAF: Final = "daemon"
"""Where this process goes; units are never called so, since their names have a suffix."""
CLAIM_TRIES_MAX: Final = 10
"""Another daemon that looks for litter holds the lock for a moment; an owner holds it for good."""
CLAIM_PAUSE_S: Final = 0.01
"""Between two tries."""

_DELEGATED: Final = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd says that a cgroup is left to its unit (since 246)."""
_V1_ORDER: Final = (Controller.PROCESSES, Controller.MEMORY, Controller.CPU)
"""The first one is where processes are killed if there is no v2: they can be kept from forking."""
_CPUSET: Final = "cpuset"
"""A v1 hierarchy with it lets nothing in before cores and memory nodes are chosen."""


class Unusable(Exception):
    """No cgroups can be made there; the text says why."""


@dataclass(frozen=True, slots=True)
class CgroupRoot:
    """A directory in which this daemon makes its cgroups, and what is limited there."""

    version: Version
    path: Path
    controllers: frozenset[Controller]
    lock_fd: int


@dataclass(slots=True)
class Survey:
    """What was found: the roots, best first, and why there are not more of them."""

    ground: "Ground"
    roots: list[CgroupRoot] = field(default_factory=list)
    refusals: dict[tuple[Version, Controller | None], str] = field(default_factory=dict)
    """By version and controller; None as the controller: no cgroup of this version at all."""
    left: Path | None = None
    """The cgroup that this process has moved out of."""

    def refusal(self, controller: Controller | None) -> str:
        """Say in one line why no cgroup is there for this; what holds for both is said once."""
        found: dict[str, list[str]] = {}
        for version in Version:
            keys = (version, controller), (version, None)
            why = next((self.refusals[key] for key in keys if key in self.refusals), None)
            if why is not None:
                found.setdefault(why, []).append(version)
        return "; ".join(f"{' and '.join(versions)}: {why}" for why, versions in found.items())


@dataclass(frozen=True, slots=True)
class Ground:
    """What this process can see of the machine's cgroups."""

    hierarchies: tuple[Hierarchy, ...]
    own: dict[str, str]
    is_managed: bool
    """systemd is there, and all cgroups are its own but those that it delegates."""

    @classmethod
    def here(cls) -> "Ground":
        """Look."""
        return cls(
            parse_mountinfo(read(Path("/proc/self/mountinfo")) or ""),
            parse_own_cgroups(read(Path("/proc/self/cgroup")) or ""),
            Path("/run/systemd/system").is_dir(),
        )

    def spot(self, controller: str) -> Spot:
        """Return where this process is in one hierarchy; raises Unusable."""
        found = spot_of(controller, self.hierarchies, self.own)
        if found is None:
            raise Unusable("it is not mounted, or not where this process can see its own cgroup")
        return found

    def subtree(self, controller: str) -> Path:
        """Return the cgroup below which this process may make others; raises Unusable."""
        spot = self.spot(controller)
        if not self.is_managed:
            return Path(spot.path)
        unit = self._unit()
        if controller != UNIFIED and spot.below != unit:
            raise Unusable(f"systemd has not delegated it to {unit}")
        return Path(spot.hierarchy.point, unit)

    def _unit(self) -> str:
        """Return the cgroup that systemd has left to this process."""
        spot = spot_of(UNIFIED, self.hierarchies, self.own) or self.spot(SYSTEMD)
        above, _, last = spot.below.rpartition("/")
        for below in (above, spot.below) if last == LEAF else (spot.below,):
            if _is_delegated(Path(spot.hierarchy.point, below)):
                return below
        raise Unusable(
            f"systemd manages the cgroups and {spot.path} is its own: set Delegate=yes in the unit,"
            " or start with systemd-run --scope -p Delegate=yes (for a user: --user)"
        )


def survey_roots(name: str, versions: Collection[Version]) -> Survey:
    """Take the places called ``name`` that this process may have; ``versions``: no others.

    May move this process into a cgroup of its own, below the one that it is in.
    """
    survey = Survey(Ground.here())
    for version in Version:
        if version not in versions:
            survey.refusals[version, None] = "not wanted"
    if Version.V2 in versions:
        with _refused(survey, Version.V2, None):
            _take_v2(survey, name)
    if Version.V1 in versions:
        had = {controller for root in survey.roots for controller in root.controllers}
        for controller in _V1_ORDER:
            if controller not in had:
                with _refused(survey, Version.V1, controller):
                    _take_v1(survey, name, controller)
    return survey


def claim(path: Path) -> int:
    """Return a descriptor that holds the lock of a root, which is made if it is not there.

    Raises:
        Unusable: its owner lives, or it cannot be made or opened.

    """
    for attempt in range(CLAIM_TRIES_MAX):
        if attempt:
            time.sleep(CLAIM_PAUSE_S)
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise Unusable(f"{path}: {error.strerror}") from error
        lock_fd = lock(path)
        if lock_fd is not None:
            return lock_fd
    raise Unusable(f"{path} belongs to another daemon, which lives")


def lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a root; None: it is gone, or its owner lives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it before may have removed the directory that this is a lock of.
        if os.path.samestat(path.stat(), os.fstat(fd)):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def enable(subtree: Path, controllers: Collection[str]) -> dict[str, str]:
    """Have children of a v2 cgroup limited by ``controllers``; returns why not, for those left out.

    This process moves into ``LEAF`` below ``subtree`` if that is needed, and nothing else is moved.
    """
    had = _words(subtree / "cgroup.subtree_control")
    offered = _words(subtree / "cgroup.controllers")
    refusals = {
        one: f"{subtree} has no controller {one}" for one in controllers if one not in offered
    }
    wanted = [one for one in controllers if one in offered and one not in had]
    if not wanted:
        return refusals
    if problem := _leave(subtree):
        return refusals | dict.fromkeys(wanted, problem)
    for one in wanted:
        try:
            write(subtree / "cgroup.subtree_control", f"+{one}")
        except OSError as error:
            refusals[one] = f"{subtree}: {error.strerror}"
    return refusals


def come_back(subtree: Path) -> None:
    """Undo ``enable`` as far as the kernel lets us; to be called when no cgroup is left."""
    with suppress(OSError):
        for one in _words(subtree / "cgroup.subtree_control"):
            write(subtree / "cgroup.subtree_control", f"-{one}")
        admit(subtree, os.getpid())
        (subtree / LEAF).rmdir()


def _take_v2(survey: Survey, name: str) -> None:
    subtree = survey.ground.subtree(UNIFIED)
    fd = claim(subtree / name)
    refusals = enable(subtree, list(Controller))
    if str(os.getpid()) in (read(subtree / LEAF / PROCS) or "").split():
        survey.left = subtree
    refusals |= enable(subtree / name, [one for one in Controller if one not in refusals])
    usable = set()
    for controller in Controller:
        missing = _missing(subtree / name, controller, Version.V2)
        if why := refusals.get(controller) or missing:
            survey.refusals[Version.V2, controller] = why
        else:
            usable.add(controller)
    if survey.left and not usable:
        come_back(subtree)
        survey.left = None
    survey.roots.append(CgroupRoot(Version.V2, subtree / name, frozenset(usable), fd))


def _take_v1(survey: Survey, name: str, controller: Controller) -> None:
    spot = survey.ground.spot(controller)
    path = survey.ground.subtree(controller) / name
    if _CPUSET in spot.hierarchy.controllers:
        raise Unusable(f"it shares {spot.hierarchy.point} with {_CPUSET}")
    for index, root in enumerate(survey.roots):
        if root.path == path:  # two controllers in one hierarchy
            both = root.controllers | {controller}
            survey.roots[index] = CgroupRoot(Version.V1, path, both, root.lock_fd)
            return
    fd = claim(path)
    if missing := _missing(path, controller, Version.V1):
        os.close(fd)
        remove(path)
        raise Unusable(missing)
    survey.roots.append(CgroupRoot(Version.V1, path, frozenset({controller}), fd))


def _missing(path: Path, controller: Controller, version: Version) -> str:
    absent = [one for one in NEEDED_FILES[controller, version] if not (path / one).exists()]
    return f"this kernel has no {' and no '.join(absent)}" if absent else ""


def _leave(subtree: Path) -> str:
    """Move this process into its leaf; returns why that would not help, or ""."""
    if not (subtree / "cgroup.type").exists():
        return f"{subtree} is the machine's root cgroup, which is not ours to change"
    me = os.getpid()
    inside = (read(subtree / PROCS) or "").split()
    if others := [pid for pid in inside if pid != str(me)]:
        return f"{len(others)} other processes are in {subtree}, where none may be then"
    if not inside:
        return ""
    try:
        (subtree / LEAF).mkdir(exist_ok=True)
        admit(subtree / LEAF, me)
    except OSError as error:
        return f"{subtree / LEAF}: {error.strerror}"
    return ""


def _is_delegated(cgroup: Path) -> bool:
    for attribute in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(cgroup, attribute) == b"1":
                return True
    return False


def _words(path: Path) -> frozenset[str]:
    return frozenset((read(path) or "").split())


@contextmanager
def _refused(survey: Survey, version: Version, controller: Controller | None) -> Iterator[None]:
    try:
        yield
    except Unusable as unusable:
        survey.refusals[version, controller] = str(unusable)
