"""What surrounds each worker: a slot on the heartbeat table, its output, the cgroup that it is in.

A ``Containment`` is opened before its process is forked and closed when nothing of that is left. It
keeps the process within its limits, notices that it hangs, and reports at its end what it was and
did last. What may block, the cgroup above all, is done in threads, one thing at a time for each
containment.

A session that no cgroup limits has the daemon's own watch on memory and process counts. A look
reads the process table once, in a thread, whatever the number of sessions, every second; without a
session it does nothing. What is over a limit is reported once, in the loop, and not watched any
more: the one who gets the report ends it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from cmdc_runtime.ids import EventIndex, Incarnation, SessionId, WorkerId
from cmdc_runtime.process_table import PAGE_BYTES, ProcessLine, Table, look_up, process_table
from cmdc_runtime.reasons import Other, OutOfMemory, PlainReason, StartFailed, Unresponsive
from cmdc_runtime.requests import LayerFact, Supervision
from cmdc_runtime.runtime_dir import BOARD_FILE, OUTPUT_SOCKET
from supervisor.adapters.cgroups import Cgroup, Cgroups
from supervisor.adapters.heartbeats import HeartbeatTable, HeartbeatWatch
from supervisor.adapters.output import Outputs
from supervisor.adapters.presence import KeptPath
from supervisor.adapters.tasks import BackgroundTasks
from supervisor.adapters.zygote import Boot, Handed
from supervisor.core.cgroups import (
    Controller,
    Excess,
    Limits,
    Load,
    Usage,
    base_name,
    cgroup_name,
    may_be_too_large,
    too_large,
    too_many,
    watched,
)
from supervisor.core.exits import ExitRecord
from supervisor.core.limits import (
    CGROUP_RETRY_S,
    HEARTBEAT_SLOTS,
    LAST_OUTPUT_S,
    OOM_LOOK_S,
    SPARE_SILENT_S,
    WATCH_RETRY_S,
)
from supervisor.core.output import OUTPUT_BYTES_MAX, STACK_BYTES_MAX

# --- where no cgroup limits -----------------------------------------------------------------------

log = structlog.get_logger()

LOOK_S: Final = 1.0
"""Between two looks: what a session can take in that time is what it can go over its limit."""

_PSS_KIB: Final = "Pss:"

K = TypeVar("K", bound=Hashable)

OnExcess = Callable[[K, int, int], None]
"""Gets the session's key, what it uses and what it may use: bytes, or processes and threads."""


@dataclass(slots=True)
class Footprint(Generic[K]):
    """Watches sessions by a key of the caller's."""

    on_memory: OnExcess[K]
    on_processes: OnExcess[K]
    look_s: float = LOOK_S
    _watched: dict[K, tuple[Cgroup, Limits]] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self, key: K, cgroup: Cgroup) -> None:
        """Watch what the cgroup's own guards do not; to be called when its process is admitted."""
        limits = watched(cgroup.limits, cgroup.guards)
        if limits.controllers:
            self._watched[key] = (cgroup, limits)
            self._wake.set()

    def forget(self, key: K) -> None:
        """Watch this session no more; does nothing if it is not watched."""
        self._watched.pop(key, None)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            if not self._watched:
                self._wake.clear()
                await self._wake.wait()
            try:
                await self._look()
            except OSError as error:  # out of descriptors, or of memory: the next look may do
                log.warning("footprint.not_taken", problem=str(error), retry_s=self.look_s)
            await asyncio.sleep(self.look_s)

    async def _look(self) -> None:
        now = dict(self._watched)
        for key, excess in await asyncio.to_thread(_excesses, now):
            # It may have ended while we looked, and its successor have come.
            if self._watched.get(key) is now[key]:
                self.forget(key)
                self._report(key, excess)

    def _report(self, key: K, excess: Excess) -> None:
        on_excess = self.on_memory if excess.what == "memory" else self.on_processes
        on_excess(key, excess.used, excess.limit)


def pss_bytes(pid: int) -> int | None:
    """Return a process's share of the memory that it has; None if it has ended.

    Of a process that may not be looked into it is what it shares with nobody. Takes about a
    millisecond for 100 MB.
    """
    try:
        with Path(f"/proc/{pid}/smaps_rollup").open(encoding="ascii") as file:
            for line in file:
                if line.startswith(_PSS_KIB):
                    return int(line.split()[1]) * 1024
    except PermissionError:
        return _own_bytes(pid)
    except OSError:
        return None
    return None


def _own_bytes(pid: int) -> int | None:
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    return (int(resident) - int(shared)) * PAGE_BYTES


def _excesses(sessions: dict[K, tuple[Cgroup, Limits]]) -> list[tuple[K, Excess]]:
    needs_table = any(not cgroup.parts for cgroup, _ in sessions.values())
    table: Table = process_table() if needs_table else {}
    found = [(key, _excess(cgroup, limits, table)) for key, (cgroup, limits) in sessions.items()]
    return [(key, excess) for key, excess in found if excess is not None]


def _excess(cgroup: Cgroup, limits: Limits, table: Table) -> Excess | None:
    lines = list(_lines(cgroup.pids(table), table))
    loads = [Load(rss_bytes=line.rss_bytes, threads=line.threads) for line in lines]
    if excess := too_many(loads, limits):
        return excess
    if not may_be_too_large(loads, limits):
        return None
    shares = (pss_bytes(line.pid) for line in lines)
    return too_large((share for share in shares if share is not None), limits)


def _lines(pids: Iterable[int], table: Table) -> Iterable[ProcessLine]:
    looked_up = (table.get(pid) or look_up(pid) for pid in pids)
    return (line for line in looked_up if line is not None and not line.has_ended)


# --- containment ----------------------------------------------------------------------------------

CGROUPS_FILE: Final = "cells"

_T = TypeVar("_T")


class ContainedWorker(Protocol):
    """The worker in a containment, which hears what is seen of its process."""

    has_ended: bool

    def on_contained(self) -> None:
        """Record that the process is in its cgroup, or known to have none."""

    def on_fail(self, reason: PlainReason) -> None:
        """Have the process killed for this: it hangs, or uses too much."""

    def on_stack(self) -> None:
        """Have the process write its stacks."""


@dataclass(slots=True, eq=False)
class Containment:
    """The surroundings of one worker, which enters itself as ``worker`` when it is made."""

    shared: "Containments"
    worker_id: WorkerId
    slot: int
    brings_slot: bool = False
    """Its process has the memory of its slot already, and brings it."""
    worker: ContainedWorker | None = None
    """None before it is made, and after it is finalized."""
    cgroup: Cgroup | None = None
    limits: Limits = field(default_factory=Limits)
    oom_known: int = 0
    """OOM kills in its cgroup that were counted before, of tools perhaps: no word on its own
    end."""
    _oom_seen: int = 0
    """Those of the last look, which may be on its own end already: a large process dies slowly."""
    _bearer: tuple[SessionId, Incarnation] = (SessionId(""), Incarnation(0))
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended, as its worker knows; nobody asks before there is one."""
        return self.worker is None or self.worker.has_ended

    @property
    def boot(self) -> Boot:
        """What the process has to know of it when it is forked."""
        return {
            "output": str(self.shared.outputs_path),
            "log_level": self.shared.log_level,
        }

    def lend_slot(self) -> Handed:
        """Return the way to its slot, for the process that is forked; to be called once."""
        return Handed(self.shared.heartbeats.lend(self.slot))

    def idle(self) -> None:
        """Expect heartbeats of a spare."""
        if not self.has_ended:
            self.shared.heartbeat_watch.watch(self, self.slot, SPARE_SILENT_S)

    def assign(
        self, pid: int, session_id: SessionId, incarnation: Incarnation, policy: Supervision
    ) -> None:
        """Bind it to one incarnation; where it has limits, they hold from now on.

        A cgroup without limits is only for the end, and to make one takes a core that the agent
        needs for its start: that can wait until it is up.
        """
        self.shared.heartbeat_watch.unwatch(
            self
        )  # while it loads code, its start has a limit of its own
        self._bearer = (session_id, incarnation)
        self.name(self.worker_id, pid)
        self.limits = Limits.of(policy)
        if unheld := self.shared.cgroups.unenforced(self.limits):
            log.warning("limit.unenforced", session_id=session_id, limits=list(unheld))
        if self.limits.controllers:
            self.shared.spawn(self._enclose(pid))

    def take_over(
        self, pid: int, session_id: SessionId, incarnation: Incarnation, policy: Supervision
    ) -> None:
        """Bind it to an agent that runs already, in the cgroup that it has or in a new one."""
        self.assign(pid, session_id, incarnation, policy)
        if not self.limits.controllers:
            self.shared.spawn(self._enclose(pid))

    def expect(self, pid: int, limit_s: float) -> None:
        """Expect heartbeats of an agent that is up."""
        if self.has_ended:
            return
        self.shared.heartbeat_watch.watch(self, self.slot, limit_s)
        if not self.limits.controllers and self.cgroup is None:
            self.shared.spawn(self._enclose(pid))

    async def _enclose(self, pid: int) -> None:
        name = cgroup_name(*self._bearer)
        try:
            cgroup = await self._alone(lambda: self.shared.cgroups.open(name, self.limits))
            self.cgroup = cgroup
            is_in = not self.has_ended and await self._alone(lambda: cgroup.admit(pid))
        except OSError as error:  # no descriptor is left
            log.warning("cgroup.weakened", cgroup=name, problem=str(error))
            if self.limits.controllers:  # without them it may run
                why = f"it has no cgroup: {error.strerror}"
                _fail(self, StartFailed(stage="spawn", message=why))
            return
        finally:
            if self.worker is not None:
                self.worker.on_contained()
            if self.slot < 0:  # it was given back meanwhile
                await self._close_cgroup()
        if is_in and not self.has_ended:
            self.shared.footprint.watch(self, cgroup)
            if self.limits.memory_bytes is not None and Controller.MEMORY in cgroup.guards:
                self.shared.limited.add(self)

    def forked(self, pid: int) -> None:
        """Know the worker's process: no other one may write in its name."""
        self.shared.outputs.expect(self.worker_id, pid)

    def name(self, output_id: WorkerId, pid: int) -> None:
        """Bind what a process of the incarnation writes to it."""
        session_id, incarnation = self._bearer
        self.shared.outputs.name(output_id, session_id=session_id, incarnation=incarnation, pid=pid)

    async def admit(self, pid: int, subgroup: str) -> bool:
        """Put another process of the same session into its cgroup; False if it must not run.

        In the ``subgroup`` of that name it can be ended without the rest, by ``end_subgroup``.
        """
        async with self._turn:  # a cgroup that is being made is there then
            cgroup = self.cgroup
        if cgroup is None:
            return True
        try:
            return await self._alone(lambda: cgroup.admit(pid, subgroup))
        except OSError as error:  # as in ``_enclose``
            log.error("process.not_admitted", pid=pid, cgroup=cgroup.name, problem=str(error))
            return False

    async def end_subgroup(self, subgroup: str) -> bool:
        """Kill everything in one subgroup; False where there is none, or some is left."""
        cgroup = self.cgroup
        if cgroup is None or not cgroup.parts:
            return False
        return await self._alone(lambda: cgroup.end_subgroup(subgroup))

    @property
    def is_contained(self) -> bool:
        """Whether the process is in a cgroup, in which all dies that it has started."""
        return self.cgroup is not None and bool(self.cgroup.parts)

    @property
    def bearer(self) -> tuple[SessionId, Incarnation]:
        """The incarnation that it is bound to."""
        return self._bearer

    def kill(self) -> None:
        """Kill everything in the cgroup, in the background.

        Without cgroups the sweep behind the finalizing does that, for all who die at once.
        """
        cgroup = self.cgroup
        if cgroup is not None and cgroup.parts:
            self.shared.spawn(self._alone(cgroup.kill))

    def ended(self) -> None:
        """Expect nothing of the process any more, at once: it has ended, as its worker knows."""
        self.shared.heartbeat_watch.unwatch(self)
        self.shared.footprint.forget(self)
        self.shared.limited.discard(self)

    async def examine(self, record: ExitRecord, lived_s: float) -> None:
        """End what is left in the cgroup, and fill in what is known of a process that has ended."""
        usage, _ = await asyncio.gather(
            self._empty(), self.shared.outputs.drained(self.worker_id, LAST_OUTPUT_S)
        )
        heartbeat = self.shared.heartbeats.read(self.slot)
        record.lived_ms = round(lived_s * 1000)
        record.state = heartbeat.activity.state
        record.turns = heartbeat.activity.turns
        record.tools = heartbeat.activity.tools
        record.opening = heartbeat.activity.opening
        record.max_rss_bytes = heartbeat.usage.max_rss_bytes or None
        if heartbeat.heartbeat_ns > 0:
            record.last_index = EventIndex(heartbeat.last_index)
            record.user_us = heartbeat.usage.user_us
            record.system_us = heartbeat.usage.system_us
        record.output = self.shared.outputs.tail(self.worker_id, OUTPUT_BYTES_MAX + STACK_BYTES_MAX)
        record.oom_kills = max(0, (usage.oom_kills or 0) - self.oom_known)
        record.memory_peak_bytes = usage.memory_peak_bytes
        record.memory_limit_bytes = self.limits.memory_bytes

    async def close(self) -> None:
        """Give everything back; the process is gone and finalized. Idempotent."""
        if self.slot < 0:
            return
        slot, self.slot = self.slot, -1
        self.shared.heartbeat_watch.unwatch(self)
        self.shared.outputs.forget(self.worker_id)
        self.shared.bringing.pop(self.worker_id, None)
        self.shared.heartbeats.release(slot)
        await self._close_cgroup()

    def count_ooms(self, kills: int) -> None:
        """Record OOM kills in the cgroup; the process has survived those of the look before."""
        self.oom_known, self._oom_seen = self._oom_seen, kills

    async def _close_cgroup(self) -> None:
        cgroup, self.cgroup = self.cgroup, None
        if cgroup is not None:
            await self._alone(cgroup.close)

    async def _empty(self) -> Usage:
        cgroup = self.cgroup
        if (
            cgroup is None or not cgroup.parts
        ):  # there is nothing to ask but the whole process table
            return Usage()

        def look() -> Usage:
            if not cgroup.is_empty():
                left = cgroup.usage().processes
                cgroup.kill()
                if left:  # else it could not be looked at
                    log.info("orphan.killed", killed=left, cgroup=cgroup.name)
            return cgroup.usage()

        return await self._alone(look)

    async def _alone(self, work: Callable[[], _T]) -> _T:
        async with self._turn:
            return await asyncio.to_thread(work)


class Containments:
    """All surroundings, and what they have in common; for one event loop."""

    def __init__(
        self,
        directory: Path,
        state_dir: Path,
        log_level: str,
        kept: Collection[str] = (),
        known: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """Take the machine's measure; it may move this process into a cgroup of its own.

        ``kept`` are names of cgroups whose agents are about to be adopted, ``known`` returns which
        children of this process are no orphans.
        """
        self.heartbeats_path = directory / BOARD_FILE
        self.outputs_path = directory / OUTPUT_SOCKET
        self.log_level = log_level
        self.cgroups = Cgroups.survey(
            base_name(str(directory)), record=state_dir / CGROUPS_FILE, kept=kept, known=known
        )
        self.outputs = Outputs(self.outputs_path, self._hand_on)
        self.limited: set[Containment] = set()
        """Those whose memory is limited."""
        self.bringing: dict[WorkerId, tuple[Containment, int]] = {}
        """Those whose processes, by pid, may bring the memory of their slots."""
        self._tasks = BackgroundTasks(_log_failed)
        self._started = ExitStack()
        """What ``start`` has made: a daemon whose journal is refused is closed without it."""

    def start(self, echo_fd: int | None = None) -> None:
        """Make the table and listen, in the running loop; ``echo_fd`` gets what tools print."""
        if echo_fd is not None:
            os.set_inheritable(echo_fd, False)  # noqa: FBT003 - os takes it so
            self.outputs.echo_fd = echo_fd
        self.heartbeats = HeartbeatTable(self.heartbeats_path, HEARTBEAT_SLOTS)
        self._started.callback(self.heartbeats.close)
        self.heartbeat_watch: HeartbeatWatch[Containment] = HeartbeatWatch(
            self.heartbeats, _ask_for_stack, _fail_silent
        )
        self.footprint: Footprint[Containment] = Footprint(_fail_memory, _fail_processes)
        self._loop = asyncio.get_running_loop()
        self.outputs.start()

    def kept(self) -> tuple[KeptPath, ...]:
        """Return what workers look for in the directory, to be put there again if it is gone."""
        return (KeptPath(self.outputs_path, self.outputs.listen_again),)

    @property
    def layers(self) -> tuple[LayerFact, ...]:
        """Say who keeps sessions within each kind of bound."""
        return tuple(
            LayerFact(what=one.what, by=one.by, why=one.why) for one in self.cgroups.layers
        )

    def open(self, worker_id: WorkerId) -> Containment:
        """Return the surroundings of a worker that is about to be forked.

        Raises:
            Overloaded: the heartbeat table is full.
        """
        return Containment(self, worker_id, self.heartbeats.take())

    def open_survivor(self, worker_id: WorkerId, pid: int, *, brings_slot: bool) -> Containment:
        """Return the surroundings of an agent of an earlier daemon.

        Raises:
            Overloaded: the heartbeat table is full.
        """
        if not brings_slot:
            return Containment(self, worker_id, self.heartbeats.take_by_path())
        containment = Containment(self, worker_id, self.heartbeats.take_empty(), brings_slot=True)
        self.bringing[worker_id] = containment, pid
        return containment

    def _hand_on(self, worker_id: str, pid: int, fd: int) -> None:
        """Have the loop take it; called on the thread of the outputs, once they have started."""
        self._loop.call_soon_threadsafe(self._take_slot, worker_id, pid, fd)

    def _take_slot(self, worker_id: str, pid: int, fd: int) -> None:
        """Take the memory that an agent brings; what anybody else sends is closed."""
        containment, known = self.bringing.get(WorkerId(worker_id), (None, 0))
        if containment is None or known != pid:
            os.close(fd)
            log.warning("slot.refused", worker_id=worker_id, pid=pid)
            return
        try:
            self.heartbeats.attach(containment.slot, fd)
        except (OSError, ValueError) as error:
            log.warning("slot.refused", worker_id=worker_id, pid=pid, problem=str(error))

    async def watch(self) -> None:
        """Look after all of them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_for_ever("heartbeats", self.heartbeat_watch.run))
            group.create_task(_for_ever("footprint", self.footprint.run))
            group.create_task(_for_ever("oom", self._count_ooms))
            group.create_task(_for_ever("cgroups", self._retry_cgroups))

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:  # Any: asyncio's own
        """Have something done in the background, and not forgotten."""
        self._tasks.spawn(work, "containment")

    async def end_leftover(self, session_id: SessionId, incarnation: Incarnation) -> None:
        """End what is in the cgroup of an agent of an earlier daemon that is not adopted."""
        await asyncio.to_thread(self.cgroups.end_leftover, cgroup_name(session_id, incarnation))

    async def leave(self) -> None:
        """Give back what is the daemon's alone, and leave the rest to its successor."""
        await self._tasks.wait()
        self.outputs.close()
        self._started.close()
        self.cgroups.leave()

    async def close(self) -> None:
        """End what is left in any cgroup, and give everything back."""
        await self._tasks.wait()
        self.outputs.close()
        self._started.close()
        await asyncio.to_thread(self.cgroups.close)

    async def _count_ooms(self) -> None:
        while True:
            await asyncio.sleep(OOM_LOOK_S)
            cgroups = [
                (containment, containment.cgroup)
                for containment in self.limited
                if containment.cgroup is not None
            ]
            for containment, kills in (
                await asyncio.to_thread(_oom_kills, cgroups) if cgroups else ()
            ):
                if containment in self.limited:  # it may have ended while we looked
                    containment.count_ooms(kills)

    async def _retry_cgroups(self) -> None:
        """Remove what the kernel did not let go of, when it does."""
        while True:
            await asyncio.sleep(CGROUP_RETRY_S)
            if self.cgroups.quarantined:
                await asyncio.to_thread(self.cgroups.retry)


def _log_failed(_task: str, error: BaseException) -> None:
    log.error("containment.failed", exc_info=error)


async def _for_ever(name: str, watch: Callable[[], Awaitable[None]]) -> None:
    """Watch until cancelled; a watch that fails takes none of the others along."""
    while True:
        try:
            await watch()
        except Exception:
            log.exception("watch.failed", watch=name, retry_s=WATCH_RETRY_S)
        await asyncio.sleep(WATCH_RETRY_S)


def _oom_kills(cgroups: Collection[tuple[Containment, Cgroup]]) -> list[tuple[Containment, int]]:
    return [(containment, cgroup.usage().oom_kills or 0) for containment, cgroup in cgroups]


def _ask_for_stack(containment: Containment) -> None:
    if containment.worker is not None:
        containment.worker.on_stack()


def _fail(containment: Containment, reason: PlainReason) -> None:
    if containment.worker is not None:
        containment.worker.on_fail(reason)


def _fail_silent(containment: Containment, silent_ms: int) -> None:
    _fail(containment, Unresponsive(silent_ms=silent_ms))


def _fail_memory(containment: Containment, used_bytes: int, limit_bytes: int) -> None:
    _fail(containment, OutOfMemory(rss_bytes=used_bytes, limit_bytes=limit_bytes))


def _fail_processes(containment: Containment, used: int, limit: int) -> None:
    _fail(
        containment,
        Other(detail=f"max_processes: {used} processes and threads, the limit is {limit}"),
    )
