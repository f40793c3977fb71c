"""One worker process as the daemon has it, what is said of its end, and what it has left behind.

The fault points of the daemon name victims, which have pids. Several die together by their names
with a plus between them: all of them, or nobody where one of them is not there. What many that die
at once have left is swept together.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from cmdc_runtime.faults import AGENT
from cmdc_runtime.ids import Incarnation, SessionId, WorkerId
from cmdc_runtime.process_table import look_up
from cmdc_runtime.reasons import PlainReason
from cmdc_runtime.runtime_dir import Registration, boot_id
from cmdc_runtime.wire.frames import FromWorker
from supervisor.adapters.orphans import REAPED_MAX, Mark, reap_adopted, sweep
from supervisor.adapters.pidfd import is_over
from supervisor.adapters.router import Published
from supervisor.adapters.zygote import Zygote
from supervisor.core.exits import ExitRecord
from supervisor.core.limits import SWEEP_RETRY_S
from supervisor.processes.containment import Containment
from supervisor.processes.tool_hosts import ToolHosts

# --- the worker -----------------------------------------------------------------------------------


class WorkerOwner:
    """Who has a worker: the pool while it is a spare, then an agent or a reader.

    What an owner does not override is ignored.
    """

    __slots__ = ()

    def on_frame(self, frame: FromWorker, published: Published) -> None:
        """Take a frame of it, and the events that came with it."""

    def on_exit(self, record: ExitRecord) -> None:
        """Record that it has ended, after its last frame."""

    def on_contained(self) -> None:
        """Record that it is in its cgroup, or known to have none."""

    def on_fail(self, reason: PlainReason) -> None:
        """Have it killed for this: it hangs, uses too much, or broke the contract of the wire."""

    def on_stack(self) -> None:
        """Have it write its stacks to standard error."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Worker:
    """One process; ``owner`` has it now."""

    id: WorkerId
    containment: Containment
    pid: int
    pidfd: int
    ready: asyncio.Future[None]
    forked_at: float = 0.0
    mark: Mark | None = None
    """What its orphans are known by, once it is an agent."""
    is_registered: bool = False
    """Whether it has said so: it is in the registry then, by which the next daemon finds it.

    An agent that has no daemon takes itself out as it ends, and this daemon is its own from when it
    knows that it was adopted."""
    is_detached: bool = False
    """It has an earlier daemon still, or none: until it announces itself nothing of it counts."""
    has_ended: bool = False
    """The one word on that: its containment and its tool hosts ask for it here."""
    has_litellm: bool = False
    is_failed: bool = False
    """Whether a frame of its own was refused, for which it is ended; once is enough."""
    greeted_by: int | None = None
    """Which process was ready in its name before its pid was known."""
    owner: WorkerOwner | None = None
    hosts: ToolHosts = field(init=False)
    servers_wanted: set[str] = field(default_factory=set)
    """The keys of the shared MCP servers that it has asked for."""
    peer: bytes = b""
    """Its connection's identity; one that was adopted has another one than at first."""

    def __post_init__(self) -> None:
        """Know the connection by the worker's own id, and hear what the containment sees."""
        self.peer = self.peer or self.id.encode()
        self.containment.worker = self

    @property
    def is_forked(self) -> bool:
        """Whether there is a process; before that it waits for its turn, or for a zygote."""
        return self.pidfd >= 0

    def retire(self) -> None:
        """Let go of who had it, once it is finalized, so that nobody waits for a collection."""
        self.owner = None
        self.containment.worker = None

    def on_contained(self) -> None:
        """Report it to the owner of the moment."""
        if self.owner is not None:
            self.owner.on_contained()

    def on_fail(self, reason: PlainReason) -> None:
        """Report it to the owner of the moment."""
        if self.owner is not None:
            self.owner.on_fail(reason)

    def on_stack(self) -> None:
        """Report it to the owner of the moment."""
        if self.owner is not None:
            self.owner.on_stack()

    def is_stopped(self) -> bool:
        """Ask the kernel whether a signal, or a debugger, keeps it from running.

        Without a descriptor to ask by nobody knows, and it counts as running.
        """
        with suppress(OSError):
            line = look_up(self.pid)
            return line is not None and line.is_stopped
        return False

    def entry(self) -> Registration | None:
        """Return what an agent is registered with, None of one that has ended."""
        line = look_up(self.pid)
        if self.mark is None or line is None or line.has_ended:
            return None
        return Registration(
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


# --- victims of fault points ----------------------------------------------------------------------

DAEMON: Final = "daemon"
ZYGOTE: Final = "zygote"
HOST: Final = "host"
CHILDREN: Final = "children"
"""The agents of the session's subagents."""
BRANCH: Final = "branch"
"""The oldest of them that lives."""
BOTH: Final = f"{AGENT}+{DAEMON}"
FAMILY: Final = f"{AGENT}+{CHILDREN}"
ALL: Final = f"{FAMILY}+{DAEMON}"
HOST_AND_DAEMON: Final = f"{HOST}+{DAEMON}"
CHILDREN_AND_DAEMON: Final = f"{CHILDREN}+{DAEMON}"
WITH_HOST: Final = f"{AGENT}+{HOST}"
WITH_ZYGOTE: Final = f"{AGENT}+{ZYGOTE}"
VICTIMS: Final = (
    *(AGENT, HOST, ZYGOTE, BRANCH, DAEMON),
    *(BOTH, FAMILY, ALL, WITH_HOST, WITH_ZYGOTE),
    *(HOST_AND_DAEMON, CHILDREN_AND_DAEMON),
)


def pids_of(
    victim: str, zygote: Zygote, family: Callable[[], Iterable[Worker | None]]
) -> tuple[int, ...]:
    """Return the processes that the name stands for now, the daemon last.

    ``family`` returns the worker of the session, then those of its subagents.
    """
    agent, *children = family() or (None,)
    is_up = agent is not None and agent.is_forked and not agent.has_ended
    below = tuple(one.pid for one in children if one and one.is_forked and not one.has_ended)
    there: dict[str, tuple[int, ...]] = {
        AGENT: (agent.pid,) if agent is not None and is_up else (),
        HOST: tuple(one.child.pid for one in agent.hosts.all) if agent and is_up else (),
        CHILDREN: below,
        BRANCH: below[:1],
        ZYGOTE: () if zygote.pid is None else (zygote.pid,),
        DAEMON: (os.getpid(),),
    }
    found = [there[name] for name in victim.split("+")]
    return tuple(pid for pids in found for pid in pids) if all(found) else ()


# --- what dead ones have left ---------------------------------------------------------------------

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class Sweeper:
    """Sweeps behind workers; ``own_pids`` are those children of the daemon that are left alone."""

    own_pids: Callable[[], frozenset[int]]
    _unswept: dict[int, Mark | None] = field(default_factory=dict)
    _sweeping: asyncio.Lock = field(default_factory=asyncio.Lock)
    _litter: dict[SessionId, asyncio.Event] = field(default_factory=dict)
    """Of each session with a dead process that was not swept behind yet: set when it is."""

    @contextlib.contextmanager
    def littered(self, worker: Worker) -> Iterator[None]:
        """Have ``swept`` wait meanwhile, unless the process's cgroup has ended what it left."""
        if worker.mark is None or worker.containment.is_contained:
            yield
            return
        session_id, is_swept = SessionId(worker.mark[0]), asyncio.Event()
        self._litter[session_id] = is_swept
        try:
            yield
        finally:
            is_swept.set()
            if self._litter.get(session_id) is is_swept:
                del self._litter[session_id]

    async def swept(self, session_id: SessionId) -> None:
        """Return when what dead processes of a session have left is ended, as far as it is known.

        So that the next one finds free what they had; their end is reported before that.
        """
        while (is_swept := self._litter.get(session_id)) is not None:
            await is_swept.wait()

    async def sweep(self, worker: Worker) -> None:
        """End what is left of a worker that has ended."""
        self._unswept[worker.pid] = worker.mark
        async with self._sweeping:  # those who die meanwhile are swept together
            dead, self._unswept = self._unswept, {}
            own = self.own_pids() if dead else frozenset()
            marks = [mark for one in dead.values() if (mark := one) is not None]
            try:
                killed = await asyncio.to_thread(sweep, dead, marks, own) if dead else 0
            except OSError as error:  # no descriptor is left to look with
                log.warning("orphan.not_swept", problem=str(error))
                self._unswept |= dead  # the next one that ends is swept behind for them, too
                killed = 0
        if killed:
            log.info("orphan.killed", killed=killed)

    def reap(self) -> None:
        """Reap what was left to the daemon by a process that died before its children."""
        try:
            reaped = reap_adopted(self.own_pids())
            if len(reaped) >= REAPED_MAX:
                asyncio.get_running_loop().call_soon(self.reap)
        except OSError as error:  # as above
            log.warning("orphan.not_reaped", problem=str(error), retry_s=SWEEP_RETRY_S)
            asyncio.get_running_loop().call_later(SWEEP_RETRY_S, self.reap)
