"""The cgroups of one daemon: which layers hold a session's limits, and the cgroups in those layers.

A ``Cgroup`` is what one incarnation of a session runs in, and dies in as a whole: a directory in
each of several hierarchies. Where the kernel lets us make none it stands for the POSIX sessions of
those that were admitted, and what bears the session's mark.

``Cgroups.survey`` finds out what this process may use, each resource on its own, and ends what an
earlier life of the same daemon has left there. Who cannot have one gets a ``Cgroup`` without
directories, never an error. Every call may come from any thread, and blocks for as long as it says.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.process_table import Table, look_up, process_table
from cmdc_runtime.runtime_dir import PRIVATE_MODE
from supervisor.adapters import cgroup_roots, orphans
from supervisor.adapters.cgroup_roots import CgroupRoot, Survey, come_back, lock, survey_roots
from supervisor.core.cgroups import (
    MEMORY_FILES,
    By,
    Controller,
    Layer,
    Limits,
    Setting,
    Usage,
    Version,
    What,
    is_base_name,
    oom_kills,
    parse_cgroup_name,
    settings,
)

# --- one cgroup -----------------------------------------------------------------------------------

log = structlog.get_logger()

KILL_S: Final = 2.0
"""For everything in a cgroup to be gone; the kernel needs a millisecond, and longer for
gigabytes."""


@dataclass(frozen=True, slots=True)
class CgroupPart:
    """The part of a cgroup that lies in one hierarchy."""

    path: Path
    version: Version
    controllers: frozenset[Controller]


@dataclass(slots=True, eq=False)
class Cgroup:
    """Made by ``Cgroups.open``; ``parts`` are best first, the first one holds every process.

    Rules: nothing here raises for what a process or the kernel may do; a hierarchy that refuses is
    given up, and ``guards`` says what is limited still. Everything blocks for as long as its
    docstring says, so call it in a thread.
    """

    name: str
    limits: Limits
    parts: list[CgroupPart]
    known: Callable[[], Collection[int]]
    """The pids of this process's own children, which are no orphans."""
    on_stuck: Callable[[Path], None]
    """Called with a directory that the kernel does not let go of."""
    _leaders: dict[int, int] = field(default_factory=dict)
    """When each admitted process started, by its pid."""

    @property
    def guards(self) -> frozenset[Controller]:
        """What the kernel keeps within the limits; the rest is for others to watch."""
        held = frozenset[Controller]().union(*(part.controllers for part in self.parts))
        return held & self.limits.controllers

    def admit(self, pid: int, subgroup: str = "") -> bool:
        """Put a process into the cgroup, with what it forks from now on; False if it has ended.

        With the name of a ``subgroup`` it can be ended without the rest of the cgroup. It
        must be one that nobody has reaped. Takes up to 20 ms where there are cgroups, most of it
        for the first of several; nothing is to be awaited where there are none.

        Raises:
            OSError: this process is out of descriptors.

        """
        line = look_up(pid)
        if line is None or line.has_ended:
            return False
        self._leaders[pid] = line.start_ticks
        for part in list(self.parts):
            try:
                if subgroup:
                    (part.path / subgroup).mkdir(exist_ok=True)
                if not cgroup_roots.admit(part.path / subgroup, pid):
                    return False
            except OSError as error:
                self._give_up(part, str(error.strerror))
        return True

    def pids(self, table: Table | None = None) -> frozenset[int]:
        """Return the living processes; ``table`` saves one without directories from reading it.

        Raises:
            OSError: as ``admit``.

        """
        if self.parts:
            return cgroup_roots.pids(self.parts[0].path)
        seen = process_table() if table is None else table
        found = orphans.of_sessions(seen, self._leaders, self._marks(), self._strange())
        return frozenset(line.pid for line in found if not line.has_ended)

    def is_empty(self) -> bool:
        """Say whether nothing lives in it, as far as can be seen."""
        try:
            if self.parts:
                return all(cgroup_roots.is_empty(part.path) for part in self.parts)
            return not self.pids()
        except OSError:
            return False

    def kill(self) -> bool:
        """Kill everything in it; says whether it is empty now. Nothing is to be admitted after it.

        Takes some milliseconds, and up to ``KILL_S`` for what does not end.
        """
        deadline = time.monotonic() + KILL_S
        try:
            if self.parts:
                killed = [cgroup_roots.kill(part.path, deadline) for part in self.parts]
                return all(killed)
            orphans.end_sessions(self._leaders, self._marks(), self._strange(), deadline)
            return not self.pids()
        except OSError as error:
            log.error("cgroup.not_killed", cgroup=self.name, problem=str(error))
            return False

    def end_subgroup(self, subgroup: str) -> bool:
        """Kill everything in one subgroup, if there is any; says whether it is empty now.

        Takes as long as ``kill``. Without cgroups there are no subgroups, and nothing is done.
        """
        deadline = time.monotonic() + KILL_S
        try:
            killed = [cgroup_roots.kill(part.path / subgroup, deadline) for part in self.parts]
        except OSError as error:
            log.error("cgroup.not_killed", cgroup=self.name, subgroup=subgroup, problem=str(error))
            return False
        for part in self.parts:
            cgroup_roots.remove(part.path / subgroup)  # what stays goes with the cgroup
        return all(killed)

    def usage(self) -> Usage:
        """Return what it uses; to be asked before ``close``, and after its processes have ended."""
        try:
            return self._usage()
        except OSError:
            return Usage()

    def close(self) -> bool:
        """Remove it; False if some of it stays, which is remembered and tried again later.

        Takes a millisecond, and 50 ms for each directory that the kernel does not let go of.
        """
        parts, self.parts = self.parts, []
        stuck = [part.path for part in parts if not cgroup_roots.remove(part.path)]
        for path in stuck:
            self.on_stuck(path)
        return not stuck

    def _usage(self) -> Usage:
        processes = len(self.pids())
        part = next((one for one in self.parts if Controller.MEMORY in one.controllers), None)
        if part is None:
            return Usage(processes=processes)
        now, peak, kills = MEMORY_FILES[part.version]
        # Of v1 each directory counts its own, of v2 all below it too.
        counted = [part.path] if part.version is Version.V2 else cgroup_roots.directories(part.path)
        counts = [oom_kills(text) for one in counted if (text := cgroup_roots.read(one / kills))]
        return Usage(
            memory_bytes=_number(part.path / now),
            memory_peak_bytes=_number(part.path / peak),
            oom_kills=sum(counts) if counts else None,
            processes=processes,
        )

    def _give_up(self, part: CgroupPart, problem: str) -> None:
        """Go on without one hierarchy; what it would have limited is not in ``guards`` then."""
        lost = sorted(part.controllers & self.limits.controllers)
        log.warning(
            "cgroup.weakened", cgroup=self.name, problem=problem, path=str(part.path), lost=lost
        )
        self.parts.remove(part)
        if not cgroup_roots.remove(part.path):
            self.on_stuck(part.path)

    def _marks(self) -> list[orphans.Mark]:
        mark = parse_cgroup_name(self.name)
        return [] if mark is None else [mark]

    def _strange(self) -> frozenset[int]:
        """Return the daemon's children that are not of this cgroup."""
        return frozenset(self.known()) - self._leaders.keys()


def open_part(
    path: Path,
    version: Version,
    controllers: Collection[Controller],
    limits: Limits,
    *,
    is_kept: bool = False,
) -> CgroupPart:
    """Make a directory that keeps to ``limits``; one that is kept may be there already.

    Raises:
        OSError: the kernel refuses; no directory is left then.

    """
    path.mkdir(exist_ok=is_kept)
    try:
        for controller in controllers:
            _limit(path, settings(controller, version, limits))
    except OSError:
        cgroup_roots.remove(path)
        raise
    return CgroupPart(path, version, frozenset(controllers))


def _limit(path: Path, wanted: Iterable[Setting]) -> None:
    for setting in wanted:
        if not setting.is_optional or (path / setting.file).exists():
            cgroup_roots.write(path / setting.file, setting.value)


def _number(path: Path) -> int | None:
    text = (cgroup_roots.read(path) or "").strip()
    return int(text) if text.isdecimal() else None


# --- the cgroups of a daemon ----------------------------------------------------------------------

SWEEP_S: Final = 5.0
"""For all that an earlier life has left to be gone, before the daemon starts all the same."""
LITTER_MAX: Final = 100
"""Places of other daemons that are looked at, whether their owner has died and left nothing."""
RECORD_BYTES_MAX: Final = 2**16
"""Of the file that says where the roots of an earlier life were."""

_BY: Final[Mapping[Version, By]] = {Version.V2: "cgroup v2", Version.V1: "cgroup v1"}


@dataclass(frozen=True, slots=True)
class _Without:
    """What becomes of a limit that no cgroup holds."""

    what: What
    option: str
    by: By
    way: str


_WITHOUT: Final[Mapping[Controller, _Without]] = {
    Controller.MEMORY: _Without("memory", "memory_limit", "watch", "PSS is added up every second"),
    Controller.CPU: _Without("cpu", "cpu_limit", "none", "nothing else holds a share"),
    Controller.PROCESSES: _Without(
        "processes", "max_processes", "watch", "they are counted every second"
    ),
}


class Cgroups:
    """All cgroups of this daemon."""

    def __init__(
        self,
        survey: Survey,
        name: str,
        kept: Collection[str] = (),
        known: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """Use what a survey has found; ``Cgroups.survey`` makes one."""
        self._survey = survey
        self._name = name
        self._kept = set(kept)
        self._quarantine: set[Path] = set()
        self._known = known

    @classmethod
    def survey(
        cls,
        base_name: str,
        *,
        versions: Collection[Version] = tuple(Version),
        record: Path | None = None,
        kept: Collection[str] = (),
        known: Callable[[], Collection[int]] = tuple,
    ) -> "Cgroups":
        """Take the places called ``base_name``, and end what is left there of an earlier life.

        Call it before anything is started: it may move this process into a cgroup of its own, below
        the one that it is in. ``record`` is a file that outlives the daemon and says where its
        roots were, for a successor that is started in another cgroup. ``kept`` are names of cgroups
        whose agents are about to be adopted; ``known`` returns this process's own children. Takes
        some 20 ms, and up to ``SWEEP_S`` where something does not end.
        """
        found = survey_roots(base_name, versions)
        cgroups = cls(found, base_name, kept, known)
        deadline = time.monotonic() + SWEEP_S
        for root in found.roots:
            cgroups._sweep(cgroup_roots.children(root.path), deadline)
            _remove_litter(root.path.parent, base_name)
        if record is not None:
            cgroups._sweep_recorded(record, deadline)
        return cgroups

    @property
    def roots(self) -> tuple[CgroupRoot, ...]:
        """Where its cgroups are, best first."""
        return tuple(self._survey.roots)

    @property
    def quarantined(self) -> frozenset[Path]:
        """What could not be removed, and is not used again before it is."""
        return frozenset(self._quarantine)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Say for each kind of bound who holds it, and why."""
        limits = [self._layer(controller) for controller in Controller]
        files = Layer("files", "rlimit", "RLIMIT_NOFILE of each process")
        return (*limits, files, self._kill_layer(), self._oom_layer())

    def unenforced(self, limits: Limits) -> tuple[str, ...]:
        """Return the names of those limits that nobody here can hold."""
        left = limits.controllers - {one for root in self.roots for one in root.controllers}
        without = [_WITHOUT[one] for one in Controller if one in left]
        return tuple(one.option for one in without if one.by == "none")

    def open(self, name: str, limits: Limits) -> Cgroup:
        """Make the cgroup of one process generation; ``name`` is from ``core.cgroups.cgroup_name``.

        Takes less than a millisecond. Where a hierarchy refuses, the cgroup does without.
        """
        parts: list[CgroupPart] = []
        for root in self._survey.roots:
            # Of v1 each hierarchy is a directory more: only those that count, hold or kill.
            needed = root.controllers & (limits.controllers | {Controller.MEMORY})
            if not needed and parts and root.version is Version.V1:
                continue
            try:
                is_kept = name in self._kept
                parts.append(
                    open_part(
                        root.path / name, root.version, root.controllers, limits, is_kept=is_kept
                    )
                )
            except OSError as error:
                log.warning("cgroup.weakened", cgroup=name, problem=str(error), path=str(root.path))
        return Cgroup(name, limits, parts, known=self._known, on_stuck=self._hold_back)

    def retry(self) -> frozenset[Path]:
        """Try once more to empty and remove what is in quarantine; returns what still is."""
        for path in self.quarantined:
            cgroup_roots.kill(path, time.monotonic())
            if cgroup_roots.remove(path):
                self._quarantine.discard(path)
                log.info("cgroup.removed_late", path=str(path))
        return self.quarantined

    def close(self) -> None:
        """Kill what is left in any cgroup, remove them all, and give the roots back.

        Takes a millisecond, and up to ``SWEEP_S`` where something does not end.
        """
        deadline = time.monotonic() + SWEEP_S
        self._kept.clear()
        for root in self._survey.roots:
            self._sweep(cgroup_roots.children(root.path), deadline)
            if not cgroup_roots.remove(root.path):
                log.warning("cgroup.left_behind", path=str(root.path))
            os.close(root.lock_fd)
        self._survey.roots.clear()
        if self._survey.left is not None and not self._survey.ground.is_managed:
            come_back(self._survey.left)
            self._survey.left = None

    def end_leftover(self, name: str) -> None:
        """End what is in the cgroup of an agent that was kept and is not adopted after all.

        Takes a millisecond, and up to ``SWEEP_S`` where something does not end.
        """
        self._kept.discard(name)
        parts = [root.path / name for root in self._survey.roots]
        self._sweep(parts, time.monotonic() + SWEEP_S)

    def leave(self) -> None:
        """Let go of the roots with all that is in them, for a successor to adopt."""
        for root in self._survey.roots:
            os.close(root.lock_fd)
        self._survey.roots.clear()

    def _hold_back(self, path: Path) -> None:
        """Record a directory that is to be removed when the kernel lets go of it."""
        self._quarantine.add(path)
        log.warning("cgroup.stuck", path=str(path))

    def _sweep(self, found: Iterable[Path], deadline: float) -> None:
        """Empty and remove cgroups that nobody owns any more."""
        for path in found:
            if path.name in self._kept or not path.exists():
                continue
            left = len(cgroup_roots.pids(path))
            cgroup_roots.kill(path, deadline)
            is_gone = cgroup_roots.remove(path)
            if left or not is_gone:
                log.warning("cgroup.swept", path=str(path), killed=left, is_gone=is_gone)
            if not is_gone:
                self._quarantine.add(path)

    def _sweep_recorded(self, record: Path, deadline: float) -> None:
        """End what an earlier life had in other roots, and write down where ours are."""
        ours = {root.path for root in self._survey.roots}
        mounts = [Path(one.point) for one in self._survey.ground.hierarchies]
        for path in _recorded(record):
            is_named = path.name == self._name and ".." not in path.parts
            if path in ours or not is_named or not any(map(path.is_relative_to, mounts)):
                continue
            lock_fd = lock(path)
            if lock_fd is not None:
                self._bring(path, mounts)
                self._sweep([path], deadline)
                os.close(lock_fd)
        try:  # of a daemon's first life there is no directory yet; the journal comes later
            record.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
            fresh = record.with_suffix(".new")  # a daemon that is killed now leaves the old one
            fresh.write_text(json.dumps(sorted(map(str, ours))), encoding="utf-8")
            fresh.replace(record)
        except OSError as error:
            log.warning("cgroup.roots_not_recorded", file=str(record), problem=str(error))

    def _bring(self, old: Path, mounts: Iterable[Path]) -> None:
        """Move what is kept from a root of an earlier life to ours in the same hierarchy."""
        for cgroup in cgroup_roots.children(old):
            if cgroup.name not in self._kept:
                continue
            mount = next(one for one in mounts if old.is_relative_to(one))
            for root in self._survey.roots:
                if root.path.is_relative_to(mount):
                    _move(cgroup, root.path / cgroup.name)

    def _root_of(self, controller: Controller) -> CgroupRoot | None:
        return next((one for one in self._survey.roots if controller in one.controllers), None)

    def _layer(self, controller: Controller) -> Layer:
        without = _WITHOUT[controller]
        root = self._root_of(controller)
        if root is None:
            why = f"{without.way}; {self._survey.refusal(controller)}"
            return Layer(without.what, without.by, why)
        return Layer(without.what, _BY[root.version], f"controller {controller} in {root.path}")

    def _kill_layer(self) -> Layer:
        if not self.roots:
            way = "what has left its POSIX session is known by its environment"
            return Layer("kill", "process session", f"{way}; {self._survey.refusal(None)}")
        best = self.roots[0]
        is_whole = (best.path / cgroup_roots.KILL).exists()
        way = "all at once" if is_whole else "each process by its pidfd"
        return Layer("kill", _BY[best.version], f"{way} in {best.path}")

    def _oom_layer(self) -> Layer:
        root = self._root_of(Controller.MEMORY)
        if root is None:
            return Layer("oom", "watch", "only what the daemon's own watch ended is distinguished")
        return Layer("oom", _BY[root.version], "the kernel counts its kills in each cgroup")


def _remove_litter(ground: Path, own_name: str) -> None:
    """Remove what daemons left behind that died without a word, unless something runs in there."""
    names = [one for one in cgroup_roots.children(ground) if is_base_name(one.name)]
    for path in names[:LITTER_MAX]:
        lock_fd = None if path.name == own_name else lock(path)
        if lock_fd is None:
            continue
        if cgroup_roots.is_empty(path):
            cgroup_roots.remove(path)
        os.close(lock_fd)


def _move(cgroup: Path, to: Path) -> None:
    """Move the processes of a cgroup, which go on; what the kernel refuses is logged and stays."""
    try:
        to.mkdir(exist_ok=True)
        for pid in cgroup_roots.pids(cgroup):
            cgroup_roots.admit(to, pid)
    except OSError as error:
        log.warning("cgroup.not_moved", path=str(cgroup), problem=str(error.strerror))


def _recorded(record: Path) -> list[Path]:
    try:
        with record.open("rb") as file:
            found = json.loads(file.read(RECORD_BYTES_MAX))
    except (OSError, ValueError):
        return []
    return [Path(one) for one in found if isinstance(one, str)] if isinstance(found, list) else []
