"""One cell: what a process generation of a session runs in, and dies in as a whole.

With cgroups it is a directory in each of several hierarchies; without any it is the POSIX sessions
of those that were admitted, and what bears the session's mark. Rules: nothing here raises for what
a process or the kernel may do; a hierarchy that refuses is given up, and ``guards`` says what is
limited still. Everything blocks for as long as its docstring says, so call it in a thread.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.process_table import Table, look_up, process_table
from supervisor.adapters import cgroupfs, orphans
from supervisor.core.cells import (
    MEMORY_FILES,
    Controller,
    Limits,
    Setting,
    Usage,
    Version,
    oom_kills,
    parse_cell_name,
    settings,
)

log = structlog.get_logger()

KILL_S: Final = 2.0
"""For everything in a cell to be gone; the kernel needs a millisecond, and longer for gigabytes."""


@dataclass(frozen=True, slots=True)
class Room:
    """The part of a cell that lies in one hierarchy."""

    path: Path
    version: Version
    controllers: frozenset[Controller]


@dataclass(slots=True, eq=False)
class Cell:
    """Made by ``Cells.open``; ``rooms`` are best first, the first one holds every process."""

    name: str
    limits: Limits
    rooms: list[Room]
    known: Callable[[], Collection[int]]
    """The pids of this process's own children, which are no orphans."""
    on_stuck: Callable[[Path], None]
    """Told of a directory that the kernel does not let go of."""
    _leaders: dict[int, int] = field(default_factory=dict)
    """When each admitted process started, by its pid."""

    @property
    def guards(self) -> frozenset[Controller]:
        """What the kernel keeps within the limits; the rest is for others to watch."""
        held = frozenset[Controller]().union(*(room.controllers for room in self.rooms))
        return held & self.limits.controllers

    def admit(self, pid: int, place: str = "") -> bool:
        """Put a process into the cell, with what it forks from now on; False if it has ended.

        With a ``place``, a name of the caller's, it can be ended without the rest of the cell. It
        must be one that nobody has reaped. Takes up to 20 ms where there are cgroups, most of it
        for the first of several; nothing is to be awaited where there are none.

        Raises:
            OSError: this process is out of descriptors.

        """
        line = look_up(pid)
        if line is None or line.has_ended:
            return False
        self._leaders[pid] = line.start_ticks
        for room in list(self.rooms):
            try:
                if place:
                    (room.path / place).mkdir(exist_ok=True)
                if not cgroupfs.admit(room.path / place, pid):
                    return False
            except OSError as error:
                self._give_up(room, str(error.strerror))
        return True

    def pids(self, table: Table | None = None) -> frozenset[int]:
        """Return the living processes; ``table`` saves a cell without cgroups from reading one.

        Raises:
            OSError: as ``admit``.

        """
        if self.rooms:
            return cgroupfs.pids(self.rooms[0].path)
        seen = process_table() if table is None else table
        found = orphans.of_sessions(seen, self._leaders, self._marks(), self._strange())
        return frozenset(line.pid for line in found if not line.has_ended)

    def is_empty(self) -> bool:
        """Say whether nothing lives in it, as far as can be seen."""
        try:
            if self.rooms:
                return all(cgroupfs.is_empty(room.path) for room in self.rooms)
            return not self.pids()
        except OSError:
            return False

    def kill(self) -> bool:
        """Kill everything in it; says whether it is empty now. Nothing is to be admitted after it.

        Takes some milliseconds, and up to ``KILL_S`` for what does not end.
        """
        deadline = time.monotonic() + KILL_S
        try:
            if self.rooms:
                killed = [cgroupfs.kill(room.path, deadline) for room in self.rooms]
                return all(killed)
            orphans.end_sessions(self._leaders, self._marks(), self._strange(), deadline)
            return not self.pids()
        except OSError as error:
            log.error("cell.not_killed", cell=self.name, problem=str(error))
            return False

    def end_place(self, place: str) -> bool:
        """Kill everything in one place of the cell, if there is any; says whether it is empty now.

        Takes as long as ``kill``. Without cgroups there are no places, and nothing is done.
        """
        deadline = time.monotonic() + KILL_S
        try:
            killed = [cgroupfs.kill(room.path / place, deadline) for room in self.rooms]
        except OSError as error:
            log.error("cell.not_killed", cell=self.name, place=place, problem=str(error))
            return False
        for room in self.rooms:
            cgroupfs.remove(room.path / place)  # what stays goes with the cell
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
        rooms, self.rooms = self.rooms, []
        stuck = [room.path for room in rooms if not cgroupfs.remove(room.path)]
        for path in stuck:
            self.on_stuck(path)
        return not stuck

    def _usage(self) -> Usage:
        processes = len(self.pids())
        room = next((one for one in self.rooms if Controller.MEMORY in one.controllers), None)
        if room is None:
            return Usage(processes=processes)
        now, peak, kills = MEMORY_FILES[room.version]
        # Of v1 each directory counts its own, of v2 all below it too.
        places = [room.path] if room.version is Version.V2 else cgroupfs.directories(room.path)
        counts = [oom_kills(text) for one in places if (text := cgroupfs.read(one / kills))]
        return Usage(
            memory_bytes=_number(room.path / now),
            memory_peak_bytes=_number(room.path / peak),
            oom_kills=sum(counts) if counts else None,
            processes=processes,
        )

    def _give_up(self, room: Room, problem: str) -> None:
        """Go on without one hierarchy; what it would have limited is not in ``guards`` then."""
        lost = sorted(room.controllers & self.limits.controllers)
        log.warning(
            "cell.weakened", cell=self.name, problem=problem, place=str(room.path), lost=lost
        )
        self.rooms.remove(room)
        if not cgroupfs.remove(room.path):
            self.on_stuck(room.path)

    def _marks(self) -> list[orphans.Mark]:
        mark = parse_cell_name(self.name)
        return [] if mark is None else [mark]

    def _strange(self) -> frozenset[int]:
        """Return the daemon's children that are not of this cell."""
        return frozenset(self.known()) - self._leaders.keys()


def open_room(
    path: Path,
    version: Version,
    controllers: Collection[Controller],
    limits: Limits,
    *,
    is_kept: bool = False,
) -> Room:
    """Make a directory that keeps to ``limits``; one that is kept may be there already.

    Raises:
        OSError: the kernel refuses; no directory is left then.

    """
    path.mkdir(exist_ok=is_kept)
    try:
        for controller in controllers:
            _limit(path, settings(controller, version, limits))
    except OSError:
        cgroupfs.remove(path)
        raise
    return Room(path, version, frozenset(controllers))


def _limit(path: Path, wanted: Iterable[Setting]) -> None:
    for setting in wanted:
        if not setting.is_optional or (path / setting.file).exists():
            cgroupfs.write(path / setting.file, setting.value)


def _number(path: Path) -> int | None:
    text = (cgroupfs.read(path) or "").strip()
    return int(text) if text.isdecimal() else None
