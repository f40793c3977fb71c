"""One worker process as the daemon has it, and what is told of its end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from cmdc_runtime.frames import FromWorker
from cmdc_runtime.ids import Incarnation, SessionId, WorkerId
from cmdc_runtime.process_table import look_up
from cmdc_runtime.runtime_dir import Entry, boot_id
from supervisor.adapters.orphans import Mark
from supervisor.adapters.pidfd import is_over
from supervisor.adapters.reaper import Exited
from supervisor.adapters.router import Told
from supervisor.hosts import ToolHosts
from supervisor.wards import Inquest, Ward


@dataclass(frozen=True, slots=True)
class Obituary:
    """How a worker ended, and what was found out about it."""

    exited: Exited
    inquest: Inquest


@dataclass(slots=True, eq=False)
class Worker:
    """One process; its owner sets the callbacks when it takes the worker over."""

    id: WorkerId
    ward: Ward
    pid: int
    pidfd: int
    ready: asyncio.Future[None]
    forked_at: float = 0.0
    mark: Mark | None = None
    """What its orphans are known by, once it is an agent."""
    has_signed: bool = False
    """Whether it is on the roll, by which the next daemon finds it."""
    has_ended: bool = False
    is_condemned: bool = False
    """Whether a frame of its own was refused, for which it is ended; once is enough."""
    greeted_by: int | None = None
    """Which process was ready in its name before its pid was known."""
    on_frame: Callable[[FromWorker, Told], None] | None = None
    on_exit: Callable[[Obituary], None] | None = None
    hosts: ToolHosts = field(init=False)
    peer: bytes = b""
    """Its connection's identity; one that was taken over has another one than at first."""

    def __post_init__(self) -> None:
        """Know the connection by the worker's own id."""
        self.peer = self.peer or self.id.encode()

    @property
    def is_forked(self) -> bool:
        """Whether there is a process; before that it waits for its turn, or for a nursery."""
        return self.pidfd >= 0

    def retire(self) -> None:
        """Let go of who had it, once it is buried, so that nobody waits for a collection."""
        self.on_frame = self.on_exit = None
        self.ward.on_blame = self.ward.on_stack = None
        self.hosts.retire()

    def is_stopped(self) -> bool:
        """Ask the kernel whether a signal, or a debugger, keeps it from running.

        Without a descriptor to ask by nobody knows, and it counts as running.
        """
        with suppress(OSError):
            line = look_up(self.pid)
            return line is not None and line.is_stopped
        return False

    def entry(self) -> Entry | None:
        """Return what an agent signs the roll with, None of one that has ended."""
        line = look_up(self.pid)
        if self.mark is None or line is None or line.has_ended:
            return None
        return Entry(
            worker_id=self.id,
            session_id=SessionId(self.mark[0]),
            incarnation=Incarnation(self.mark[1]),
            pid=self.pid,
            start_ticks=line.start_ticks,
            boot_id=boot_id(),
        )

    def is_over(self) -> bool:
        """Ask the kernel whether it has ended; the loop may hear of that later."""
        return self.has_ended or is_over(self.pidfd)
