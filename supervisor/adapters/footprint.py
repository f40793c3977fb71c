"""The daemon's own watch on memory and process counts, for sessions that no cgroup limits.

``watch`` takes a session in, if anything is left to watch, and ``run`` looks at all of them every
second. A look reads the process table once, in a thread, whatever the number of sessions; without
a session it does nothing. What is over a limit is told once, in the loop, and not watched any more:
the one who is told ends it.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

from cmdc_runtime.process_table import PAGE_BYTES, ProcessLine, Table, look_up, process_table
from supervisor.adapters.cgroups import Cgroup
from supervisor.core.cgroups import (
    Excess,
    Limits,
    Load,
    may_be_too_large,
    too_large,
    too_many,
    watched,
)

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
        told = self.on_memory if excess.what == "memory" else self.on_processes
        told(key, excess.used, excess.limit)


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
