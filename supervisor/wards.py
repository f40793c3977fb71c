"""What surrounds each worker: a slot on the heartbeat board, its output, the cell that it is in.

A ``Ward`` is opened before its process is forked and closed when nothing of that is left. It keeps
the process within its limits, notices that it hangs, and tells at its end what it was and did last.
What may block, the cell above all, is done in threads, one thing at a time for each ward.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import structlog

from cmdc_runtime.ids import EventIndex, Incarnation, SessionId, WorkerId
from cmdc_runtime.reasons import Other, OutOfMemory, PlainReason, StartFailed, Unresponsive
from cmdc_runtime.requests import LayerFact, Supervision
from cmdc_runtime.runtime_dir import BOARD_FILE, OUTPUT_SOCKET
from supervisor.adapters.board import Board, Pulse
from supervisor.adapters.cells import Cell, Cells
from supervisor.adapters.footprint import Footprint
from supervisor.adapters.forkserver import Boot, Handed
from supervisor.adapters.output import Outputs
from supervisor.adapters.presence import Kept
from supervisor.core.cells import Controller, Limits, Usage, base_name, cell_name
from supervisor.core.exits import LastSeen
from supervisor.core.limits import (
    BOARD_SLOTS,
    CELL_RETRY_S,
    LAST_OUTPUT_S,
    OOM_LOOK_S,
    SPARE_SILENT_S,
    WATCH_RETRY_S,
)
from supervisor.core.stderr import OUTPUT_BYTES_MAX, STACK_BYTES_MAX

log = structlog.get_logger()

CELLS_FILE: Final = "cells"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Inquest:
    """What was found out about a process that has ended."""

    seen: LastSeen
    oom_kills: int = 0
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(slots=True, eq=False)
class Ward:
    """The surroundings of one worker; ``on_blame`` and ``on_stack`` are set by its owner."""

    house: "Wards"
    worker_id: WorkerId
    slot: int
    brings_slot: bool = False
    """Its process has the memory of its slot already, and brings it."""
    on_blame: Callable[[PlainReason], None] | None = None
    """Called with why the process must be killed: it hangs, or uses too much."""
    on_stack: Callable[[], None] | None = None
    """Called when it is to write its stacks."""
    cell: Cell | None = None
    limits: Limits = field(default_factory=Limits)
    oom_known: int = 0
    """OOM kills in its cell that were counted before, of tools perhaps: no word on its own end."""
    _oom_seen: int = 0
    """Those of the last look, which may be on its own end already: a large process dies slowly."""
    _is_over: bool = False
    """Its process has ended."""
    _bearer: tuple[SessionId, Incarnation] = (SessionId(""), Incarnation(0))
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def boot(self) -> Boot:
        """What the process has to know of it when it is forked."""
        return {
            "output": str(self.house.outputs_path),
            "log_level": self.house.log_level,
        }

    def lend_slot(self) -> Handed:
        """Return the way to its slot, for the process that is forked; to be called once."""
        return Handed(self.house.board.lend(self.slot))

    def idle(self) -> None:
        """Expect beats of a spare."""
        if not self._is_over:
            self.house.pulse.watch(self, self.slot, SPARE_SILENT_S)

    def assign(
        self, pid: int, session_id: SessionId, incarnation: Incarnation, policy: Supervision
    ) -> None:
        """Bind it to one incarnation; where it has limits, they hold from now on.

        A cell without limits is only for the end, and to make one takes a core that the agent
        needs for its start: that can wait until it is up.
        """
        self.house.pulse.unwatch(self)  # while it loads code, its start has a limit of its own
        self._bearer = (session_id, incarnation)
        self.name(self.worker_id, pid)
        self.limits = Limits.of(policy)
        if unheld := self.house.cells.unenforced(self.limits):
            log.warning("limit.unenforced", session_id=session_id, limits=list(unheld))
        if self.limits.controllers:
            self.house.spawn(self._enclose(pid))

    def take_over(
        self, pid: int, session_id: SessionId, incarnation: Incarnation, policy: Supervision
    ) -> None:
        """Bind it to an agent that runs already, in the cell that it has or in a new one."""
        self.assign(pid, session_id, incarnation, policy)
        if not self.limits.controllers:
            self.house.spawn(self._enclose(pid))

    def expect(self, pid: int, limit_s: float) -> None:
        """Expect beats of an agent that is up."""
        if self._is_over:
            return
        self.house.pulse.watch(self, self.slot, limit_s)
        if not self.limits.controllers and self.cell is None:
            self.house.spawn(self._enclose(pid))

    async def _enclose(self, pid: int) -> None:
        name = cell_name(*self._bearer)
        try:
            cell = await self._alone(lambda: self.house.cells.open(name, self.limits))
            self.cell = cell
            is_in = not self._is_over and await self._alone(lambda: cell.admit(pid))
        except OSError as error:  # no descriptor is left
            log.warning("cell.weakened", cell=name, problem=str(error))
            if self.limits.controllers:  # without them it may run
                why = f"it has no cell: {error.strerror}"
                _blame(self, StartFailed(stage="spawn", message=why))
            return
        finally:
            if self.slot < 0:  # it was given back meanwhile
                await self._close_cell()
        if is_in and not self._is_over:
            self.house.footprint.watch(self, cell)
            if self.limits.memory_bytes is not None and Controller.MEMORY in cell.guards:
                self.house.limited.add(self)

    def forked(self, pid: int) -> None:
        """Know the worker's process: no other one may write in its name."""
        self.house.outputs.expect(self.worker_id, pid)

    def name(self, output_id: WorkerId, pid: int) -> None:
        """Bind what a process of the incarnation writes to it."""
        session_id, incarnation = self._bearer
        self.house.outputs.name(output_id, session_id=session_id, incarnation=incarnation, pid=pid)

    async def admit(self, pid: int, place: str) -> bool:
        """Put another process of the same session into its cell; False if it must not run.

        In the ``place`` of that name it can be ended without the rest, by ``end_place``.
        """
        async with self._turn:  # a cell that is being made is there then
            cell = self.cell
        if cell is None:
            return True
        try:
            return await self._alone(lambda: cell.admit(pid, place))
        except OSError as error:  # as in ``_enclose``
            log.error("process.not_admitted", pid=pid, cell=cell.name, problem=str(error))
            return False

    async def end_place(self, place: str) -> bool:
        """Kill everything in one place of the cell; False where there is none, or some is left."""
        cell = self.cell
        if cell is None or not cell.rooms:
            return False
        return await self._alone(lambda: cell.end_place(place))

    @property
    def is_contained(self) -> bool:
        """Whether the process is in a cell, in which all dies that it has started."""
        return self.cell is not None and bool(self.cell.rooms)

    @property
    def bearer(self) -> tuple[SessionId, Incarnation]:
        """The incarnation that it is bound to."""
        return self._bearer

    def kill(self) -> None:
        """Kill everything in the cell, in the background.

        Without cgroups the sweep behind the burial does that, for all who die at once.
        """
        cell = self.cell
        if cell is not None and cell.rooms:
            self.house.spawn(self._alone(cell.kill))

    def ended(self) -> None:
        """Take note at once that the process has ended: nothing is expected of it any more."""
        self._is_over = True
        self.house.pulse.unwatch(self)
        self.house.footprint.forget(self)
        self.house.limited.discard(self)

    async def inquest(self, pid: int, lived_s: float) -> Inquest:
        """End what is left in the cell, and return what is known of a process that has ended."""
        usage, _ = await asyncio.gather(
            self._empty(), self.house.outputs.drained(self.worker_id, LAST_OUTPUT_S)
        )
        beat = self.house.board.read(self.slot)
        has_beaten = beat.heartbeat_ns > 0
        seen = LastSeen(
            pid=pid,
            lived_ms=round(lived_s * 1000),
            state=beat.activity.state,
            turns=beat.activity.turns,
            tools=beat.activity.tools,
            opening=beat.activity.opening,
            last_index=EventIndex(beat.last_index) if has_beaten else None,
            max_rss_bytes=beat.usage.max_rss_bytes or None,
            user_us=beat.usage.user_us if has_beaten else None,
            system_us=beat.usage.system_us if has_beaten else None,
            output=self.house.outputs.tail(self.worker_id, OUTPUT_BYTES_MAX + STACK_BYTES_MAX),
        )
        return Inquest(
            seen,
            oom_kills=max(0, (usage.oom_kills or 0) - self.oom_known),
            memory_peak_bytes=usage.memory_peak_bytes,
            memory_limit_bytes=self.limits.memory_bytes,
        )

    async def close(self) -> None:
        """Give everything back; the process is gone and buried. Idempotent."""
        if self.slot < 0:
            return
        slot, self.slot = self.slot, -1
        self.house.pulse.unwatch(self)
        self.house.outputs.forget(self.worker_id)
        self.house.bringing.pop(self.worker_id, None)
        self.house.board.release(slot)
        await self._close_cell()

    def count_ooms(self, kills: int) -> None:
        """Take note of OOM kills in the cell; the process has survived those of the look before."""
        self.oom_known, self._oom_seen = self._oom_seen, kills

    async def _close_cell(self) -> None:
        cell, self.cell = self.cell, None
        if cell is not None:
            await self._alone(cell.close)

    async def _empty(self) -> Usage:
        cell = self.cell
        if cell is None or not cell.rooms:  # there is nothing to ask but the whole process table
            return Usage()

        def look() -> Usage:
            if not cell.is_empty():
                left = cell.usage().processes
                cell.kill()
                if left:  # else it could not be looked at
                    log.info("orphan.killed", killed=left, cell=cell.name)
            return cell.usage()

        return await self._alone(look)

    async def _alone(self, work: Callable[[], _T]) -> _T:
        async with self._turn:
            return await asyncio.to_thread(work)


class Wards:
    """All surroundings, and what they have in common; for one event loop."""

    def __init__(
        self, directory: Path, state_dir: Path, log_level: str, kept: Collection[str] = ()
    ) -> None:
        """Take the machine's measure; it may move this process into a cgroup of its own.

        ``kept`` are names of cells whose agents are about to be taken over.
        """
        self.board_path = directory / BOARD_FILE
        self.outputs_path = directory / OUTPUT_SOCKET
        self.log_level = log_level
        self.cells = Cells.survey(
            base_name(str(directory)), record=state_dir / CELLS_FILE, kept=kept
        )
        self.outputs = Outputs(self.outputs_path)
        self.limited: set[Ward] = set()
        """Those whose memory is limited."""
        self.bringing: dict[WorkerId, tuple[Ward, int]] = {}
        """Those whose processes, by pid, may bring the memory of their slots."""
        self._tasks: set[asyncio.Future[object]] = set()
        self._started = ExitStack()
        """What ``start`` has made: a daemon whose journal is refused is closed without it."""

    def start(self, echo_fd: int | None = None) -> None:
        """Make the board and listen, in the running loop; ``echo_fd`` gets what tools print."""
        if echo_fd is not None:
            os.set_inheritable(echo_fd, False)  # noqa: FBT003 - os takes it so
            self.outputs.echo_fd = echo_fd
        self.board = Board(self.board_path, BOARD_SLOTS)
        self._started.callback(self.board.close)
        self.pulse: Pulse[Ward] = Pulse(self.board, _ask_for_stack, _blame_silence)
        self.footprint: Footprint[Ward] = Footprint(_blame_memory, _blame_processes)
        loop = asyncio.get_running_loop()

        def hand_on(worker_id: str, pid: int, fd: int) -> None:
            loop.call_soon_threadsafe(self._take_slot, worker_id, pid, fd)

        self.outputs.on_descriptor = hand_on
        self.outputs.start()

    def kept(self) -> tuple[Kept, ...]:
        """Return what workers look for in the directory, to be put there again if it is gone."""
        return (Kept(self.outputs_path, self.outputs.listen_again),)

    def know(self, children: Callable[[], Collection[int]]) -> None:
        """Take note of which children of this process are no orphans."""
        self.cells.known = children

    @property
    def layers(self) -> tuple[LayerFact, ...]:
        """Say who keeps sessions within each kind of bound."""
        return tuple(LayerFact(what=one.what, by=one.by, why=one.why) for one in self.cells.layers)

    def open(self, worker_id: WorkerId) -> Ward:
        """Return the surroundings of a worker that is about to be forked.

        Raises:
            Overloaded: the board is full.
        """
        return Ward(self, worker_id, self.board.take())

    def open_left(self, worker_id: WorkerId, pid: int, *, brings_slot: bool) -> Ward:
        """Return the surroundings of an agent of an earlier daemon.

        Raises:
            Overloaded: the board is full.
        """
        if not brings_slot:
            return Ward(self, worker_id, self.board.take_by_path())
        ward = Ward(self, worker_id, self.board.take_empty(), brings_slot=True)
        self.bringing[worker_id] = ward, pid
        return ward

    def _take_slot(self, worker_id: str, pid: int, fd: int) -> None:
        """Take the memory that an agent brings; what anybody else sends is closed."""
        ward, known = self.bringing.get(WorkerId(worker_id), (None, 0))
        if ward is None or known != pid:
            os.close(fd)
            log.warning("slot.refused", worker_id=worker_id, pid=pid)
            return
        try:
            self.board.attach(ward.slot, fd)
        except (OSError, ValueError) as error:
            log.warning("slot.refused", worker_id=worker_id, pid=pid, problem=str(error))

    async def watch(self) -> None:
        """Look after all of them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_for_ever("pulse", self.pulse.run))
            group.create_task(_for_ever("footprint", self.footprint.run))
            group.create_task(_for_ever("oom", self._count_ooms))
            group.create_task(_for_ever("cells", self._retry_cells))

    def spawn(self, work: Awaitable[object]) -> None:
        """Have something done in the background, and not forgotten."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("ward.failed", exc_info=error)

    async def forsake(self, session_id: SessionId, incarnation: Incarnation) -> None:
        """End what is in the cell of an agent of an earlier daemon that is not taken over."""
        await asyncio.to_thread(self.cells.forsake, cell_name(session_id, incarnation))

    async def leave(self) -> None:
        """Give back what is the daemon's alone, and leave the rest to its successor."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.outputs.close()
        self._started.close()
        self.cells.leave()

    async def close(self) -> None:
        """End what is left in any cell, and give everything back."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.outputs.close()
        self._started.close()
        await asyncio.to_thread(self.cells.close)

    async def _count_ooms(self) -> None:
        while True:
            await asyncio.sleep(OOM_LOOK_S)
            cells = [(ward, ward.cell) for ward in self.limited if ward.cell is not None]
            for ward, kills in await asyncio.to_thread(_oom_kills, cells) if cells else ():
                if ward in self.limited:  # it may have ended while we looked
                    ward.count_ooms(kills)

    async def _retry_cells(self) -> None:
        """Remove what the kernel did not let go of, when it does."""
        while True:
            await asyncio.sleep(CELL_RETRY_S)
            if self.cells.quarantined:
                await asyncio.to_thread(self.cells.retry)


async def _for_ever(name: str, watch: Callable[[], Awaitable[None]]) -> None:
    """Watch until cancelled; a watch that fails takes none of the others along."""
    while True:
        try:
            await watch()
        except Exception:
            log.exception("watch.failed", watch=name, retry_s=WATCH_RETRY_S)
        await asyncio.sleep(WATCH_RETRY_S)


def _oom_kills(cells: Collection[tuple[Ward, Cell]]) -> list[tuple[Ward, int]]:
    return [(ward, cell.usage().oom_kills or 0) for ward, cell in cells]


def _ask_for_stack(ward: Ward) -> None:
    if ward.on_stack is not None:
        ward.on_stack()


def _blame(ward: Ward, reason: PlainReason) -> None:
    if ward.on_blame is not None:
        ward.on_blame(reason)


def _blame_silence(ward: Ward, silent_ms: int) -> None:
    _blame(ward, Unresponsive(silent_ms=silent_ms))


def _blame_memory(ward: Ward, used_bytes: int, limit_bytes: int) -> None:
    _blame(ward, OutOfMemory(rss_bytes=used_bytes, limit_bytes=limit_bytes))


def _blame_processes(ward: Ward, used: int, limit: int) -> None:
    _blame(ward, Other(detail=f"max_processes: {used} processes and threads, the limit is {limit}"))
