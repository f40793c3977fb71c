"""The worker processes: forked, greeted, kept as spares, handed out, and finalized when they end.

A worker is known by the identity of its connection, which nobody can guess, and by its process:
what comes from another one is refused, so what it says is about itself and nobody else. One that
breaks the contract of the wire is ended: what it said last is not there, and its session goes on
from the journal. Its pidfd shows its exit; its last frames are read first.
"""

import asyncio
import contextlib
import os
import re
import signal
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.errors import AccessDenied, CmdcError, Overloaded, ProtocolError
from cmdc_runtime.ids import WorkerId, new_worker_id
from cmdc_runtime.reasons import Other, PlainReason
from cmdc_runtime.runtime_dir import REGISTRY, is_host_socket, register, registered_ids, unregister
from cmdc_runtime.wire.frames import (
    Attend,
    Detached,
    FromWorker,
    HostLost,
    HostWanted,
    Ready,
    SdkImported,
    Started,
    Terminate,
    ToWorker,
)
from supervisor.adapters.orphans import Survivor
from supervisor.adapters.peers import Origin, SessionProcesses, own_origin
from supervisor.adapters.pidfd import Reaper
from supervisor.adapters.router import Published, Router
from supervisor.adapters.tasks import BackgroundTasks, awake_timeout
from supervisor.adapters.zygote import Boot, ZygoteFailed, ZygoteLost
from supervisor.core.exits import ExitRecord
from supervisor.core.limits import (
    FORK_RETRY_S,
    FORK_RETRY_S_MAX,
    HANDSHAKE_S,
    LAST_FRAMES_LOOK_S,
    LAST_FRAMES_S,
    SPARE_ANSWER_S,
    SPARE_PAUSE_S,
    SPARE_RETRY_S,
)
from supervisor.processes.containment import Containments
from supervisor.processes.starts import Starts
from supervisor.processes.tool_hosts import SpawnErrors, ToolHosts
from supervisor.processes.worker import Sweeper, Worker, WorkerOwner
from supervisor.processes.zygotes import Zygotes

log = structlog.get_logger()

_OLD_HOST_SOCKET: Final = re.compile(r"h-[0-9a-f]{8}")
NOBODY_WAITS: Final = "nobody waits for a process any more"
_SHOWN_CHARS: Final = 120
"""Of an address in an error."""


@dataclass(slots=True)
class WorkerPool:
    """All workers of the daemon."""

    zygotes: Zygotes
    reaper: Reaper
    containments: Containments
    address: str
    spares_wanted: int
    grace_s: float = 0.0
    """How long agents go on without a daemon."""
    router: Router[FromWorker, ToWorker] = field(init=False)
    """By which it speaks with the workers; made with ``receive``, ``check`` and ``refused``."""
    _workers: dict[bytes, Worker] = field(default_factory=dict)
    _spares: deque[Worker] = field(default_factory=deque)
    _forking: int = 0
    _number: int = 0
    _is_closing: bool = False
    _tasks: BackgroundTasks = field(default_factory=lambda: BackgroundTasks(_log_failed))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _empty: asyncio.Event = field(default_factory=asyncio.Event)
    awaited: Mapping[WorkerId, int] = field(default_factory=dict)
    """Those of an earlier daemon that are not decided upon yet, and their pids; they call again."""
    _survivors: dict[WorkerId, Worker] = field(default_factory=dict)
    """Those that were adopted, until they are finalized."""
    sweeper: Sweeper = field(init=False)
    hung: int = 0
    """Spares that were killed since they did not answer."""
    starts: Starts = field(default_factory=Starts)
    _origin: Origin = field(default_factory=own_origin)
    """Looked up at once: those who started this daemon may end before it is asked for."""

    def __post_init__(self) -> None:
        """Sweep behind the workers, and leave alone what is waited for."""
        self.sweeper = Sweeper(lambda: self.own_pids)

    @property
    def folder(self) -> Path:
        """The runtime directory."""
        return Path(self.address.removeprefix("ipc://")).parent

    @property
    def spares(self) -> int:
        """How many workers wait for a session."""
        return len(self._spares)

    def session_processes(self) -> SessionProcesses:
        """Return the processes that sessions run in now."""
        workers = [one for one in self._workers.values() if one.is_forked and not one.has_ended]
        hosts = {host.child.pid: one.mark for one in workers for host in one.hosts.all}
        own = {one.pid: one.mark for one in workers}
        return SessionProcesses(own, hosts, self.folder, self._origin)

    def __len__(self) -> int:
        """Return how many workers there are."""
        return len(self._workers)

    @property
    def own_pids(self) -> frozenset[int]:
        """Children of the daemon that are waited for elsewhere."""
        return self.zygotes.pids | self.reaper.pids

    async def acquire(self, is_waiting: Callable[[], bool], *, has_litellm: bool = False) -> Worker:
        """Return a worker that waits for its Assign: a spare, or a new one.

        None of the spares has litellm.

        Where no process can be forked, one who waits is kept waiting until it can be or until
        ``is_waiting`` says no; another one gets the error at once.

        Raises one of ``SpawnErrors``.
        """
        if not is_waiting():
            return await self._acquire_in_turn(None, has_litellm=has_litellm)
        pause_s = FORK_RETRY_S
        while is_waiting():
            try:
                if not self._spares and not has_litellm:
                    await self.zygotes.lean.warmed.wait()  # its handler warms it, at its own pace
                return await self._acquire_in_turn(is_waiting, has_litellm=has_litellm)
            except (ZygoteFailed, ZygoteLost):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, FORK_RETRY_S_MAX)
        raise ZygoteLost(NOBODY_WAITS)

    async def _acquire_in_turn(
        self, is_waiting: Callable[[], bool] | None, *, has_litellm: bool
    ) -> Worker:
        """Return a worker when fewer than may become agents together are about to."""
        await self.starts.enter(is_first=is_waiting is None)
        worker = None
        try:
            if is_waiting is None or is_waiting():
                worker = await self._acquire(has_litellm=has_litellm)
        finally:
            if worker is None:
                self.starts.leave()
            else:
                self.starts.give(worker.pid)
        if worker is None:
            raise ZygoteLost(NOBODY_WAITS)
        return worker

    def adopt(self, survivor: Survivor) -> Worker:
        """Watch over an agent that an earlier daemon left; it names its connection by ``Detached``.

        Raises:
            Overloaded: there is no place for it on the heartbeat table.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ready.set_result(None)
        worker_id, pid, brings = survivor.entry.worker_id, survivor.pid, survivor.entry.brings_slot
        containment = self.containments.open_survivor(worker_id, pid, brings_slot=brings)
        worker = Worker(worker_id, containment, pid, survivor.pidfd, ready)
        worker.forked_at = survivor.started_at
        containment.forked(pid)
        worker.hosts = self._hosts_of(worker)
        self._workers[worker.peer] = self._survivors[worker_id] = worker
        self.reaper.watch(survivor, lambda record: self._on_exit(worker, record))
        return worker

    def release(self, worker: Worker) -> None:
        """Take back a worker that was acquired and not assigned."""
        self.starts.over(worker.pid)
        if worker.has_ended or worker.has_litellm or len(self._spares) >= self.spares_wanted:
            self.kill(worker)
        else:
            self._keep(worker)

    def kill(self, worker: Worker) -> None:
        """Send SIGKILL to a worker and to what it has started."""
        self.signal(worker, signal.SIGKILL)
        worker.containment.kill()

    async def _acquire(self, *, has_litellm: bool) -> Worker:
        while self._spares and not has_litellm:
            worker = self._spares.popleft()
            self._wake.set()
            try:
                # Asked of the kernel, since the loop may not have heard of its end yet.
                if not worker.has_ended and not worker.is_over() and await self._answers(worker):
                    return worker
            except BaseException:  # nobody waits for it any more, or it can't be looked at
                self.release(worker)
                raise
        try:
            worker = await self._fork(has_litellm=has_litellm)
        except ZygoteLost:  # it died over this very fork: the next one comes from a new zygote
            worker = await self._fork(has_litellm=has_litellm)
        self._wake.set()
        if not worker.has_ended:
            return worker
        raise Overloaded(f"worker {worker.pid} ended as soon as it was ready")

    async def _answers(self, spare: Worker) -> bool:
        """Say whether a spare answers within ``SPARE_ANSWER_S``; else it is killed, and counted."""
        if not spare.is_stopped():
            spare.ready = asyncio.get_running_loop().create_future()
            self.send(spare, Attend())
            with contextlib.suppress(TimeoutError, Overloaded):
                async with awake_timeout(SPARE_ANSWER_S):
                    await asyncio.shield(spare.ready)
                return not spare.has_ended
        if not spare.has_ended:
            self.hung += 1
            log.warning("spare.hung", pid=spare.pid, hung=self.hung)
            self.kill(spare)
        return False

    async def keep_spares(self) -> None:
        """Refill the pool in the background, until cancelled."""
        while True:
            try:
                while len(self._spares) < self.spares_wanted:
                    self._keep(await self._fork())
            except SpawnErrors as error:
                log.warning("spare.not_forked", problem=str(error), retry_s=SPARE_RETRY_S)
                await asyncio.sleep(SPARE_RETRY_S)
                if isinstance(error, (ZygoteFailed, ZygoteLost)):
                    await self.zygotes.lean.warmed.wait()  # as in ``acquire``
                continue
            self._wake.clear()
            await self._wake.wait()
            # A fork costs a core some milliseconds, which the agent just acquired needs now.
            await asyncio.sleep(SPARE_PAUSE_S)

    def want_spares(self, count: int) -> None:
        """Keep this many spares from now on; those beyond it end."""
        self.spares_wanted = count
        while len(self._spares) > count:
            self.signal(self._spares.pop(), signal.SIGKILL)
        self._wake.set()

    def _keep(self, spare: Worker) -> None:
        spare.owner = _Spare(self, spare)
        spare.containment.idle()
        self._spares.append(spare)

    def send(self, worker: Worker, frame: ToWorker) -> bool:
        """Send ``frame``; False means that the worker is gone."""
        return not worker.has_ended and self.router.send(worker.peer, frame)

    def signal(self, worker: Worker, number: signal.Signals) -> None:
        """Send a signal, by the pidfd and so never to a stranger."""
        if not worker.has_ended and worker.is_forked:
            try:
                signal.pidfd_send_signal(worker.pidfd, number)
            except ProcessLookupError:
                log.debug("worker.signalled_late", pid=worker.pid, signal=number.name)

    def check(self, peer: bytes, pid: int | None, frame: FromWorker) -> None:
        """Let a worker speak for itself: by its connection, from its process, of what is its own.

        Raises:
            AccessDenied: it is not that worker that speaks.
            ProtocolError: it has no right to that.
        """
        if not pid:
            raise AccessDenied(
                "its process is not known: it is of another pid namespace, or libzmq is too old"
            )
        if isinstance(frame, Detached):
            self._check_announced(peer, pid, frame)
            return
        worker = self._workers.get(peer)
        if worker is None:
            raise AccessDenied("an unknown worker")
        if not worker.is_forked and isinstance(frame, Ready):
            worker.greeted_by = pid  # whether that is the one is known when the fork returns
        elif pid != worker.pid:
            raise AccessDenied(f"worker {worker.id} is process {worker.pid}, not {pid}")
        if isinstance(frame, HostWanted) and not self._may_have_host(worker, frame.address):
            raise ProtocolError(
                f"{frame.address[:_SHOWN_CHARS]!r} is no place of worker {worker.id}"
            )

    def _check_announced(self, peer: bytes, pid: int, frame: Detached) -> None:
        """Let an agent of an earlier daemon, or one that nobody knows, call for itself."""
        own = self._workers.get(peer)
        is_own = own is not None and own.pid == pid
        if (
            own is not None
            and is_own
            and (own.id != frame.worker_id or own.id not in self._survivors)
        ):
            raise ProtocolError(
                f"worker {own.id} calls as agent {frame.worker_id} of session {frame.session_id}"
            )
        worker = self._survivors.get(frame.worker_id)
        known = self.awaited.get(frame.worker_id) if worker is None else worker.pid
        if known not in {None, pid}:
            raise AccessDenied(f"agent {frame.worker_id} is process {known}, not {pid}")
        if worker is not None and worker.mark not in {None, (frame.session_id, frame.incarnation)}:
            raise ProtocolError(f"agent {frame.worker_id} is not of session {frame.session_id}")

    def _may_have_host(self, worker: Worker, address: str) -> bool:
        if worker.mark is None:  # it is nobody's agent yet
            return False
        if is_host_socket(self.folder, worker.id, address):
            return True
        # An agent that was started by an earlier program has made up the name.
        path = Path(address)
        is_old = path.parent == self.folder and _OLD_HOST_SOCKET.fullmatch(path.name) is not None
        return is_old and worker.id in self._survivors

    def refused(self, peer: bytes, pid: int | None, error: CmdcError) -> None:
        """End a worker whose own frame was refused: what follows would build on it.

        A frame of a stranger, whatever name it gives, has no consequence. Nor has what the worker
        says until it has ended: the router counts that among the refused frames.
        """
        worker = self._workers.get(peer)
        if worker is None or worker.pid != pid or worker.has_ended or worker.is_failed:
            return
        worker.is_failed = True
        log.error("worker.failed", worker_id=worker.id, pid=pid, problem=str(error))
        if worker.owner is None:
            self.kill(worker)
        else:
            worker.owner.on_fail(Other(detail=f"it broke the contract of the wire: {error}"))

    def receive(self, peer: bytes, frame: FromWorker, published: Published) -> None:
        """Take one frame from a worker, and its events; of an agent, from its announcement on.

        What it sent before was meant for the daemon before, and what counts of it comes again.
        """
        worker = self._workers.get(peer)
        if isinstance(frame, Detached):
            self._hear_announced(peer, frame)
        elif worker is None or worker.is_detached:
            pass  # it was finalized over the frame before, or speaks to another daemon
        elif isinstance(frame, Ready):
            if not worker.ready.done():
                worker.ready.set_result(None)
        elif isinstance(frame, HostWanted):
            worker.hosts.start(frame.address)
        elif isinstance(frame, SdkImported):
            self._tasks.spawn(self.zygotes.sdk_imported(), "learn-sdk")
        elif worker.owner is not None:
            worker.owner.on_frame(frame, published)
            if isinstance(frame, Started) and not isinstance(worker.owner, _Spare):
                self.starts.over(worker.pid)

    def _hear_announced(self, peer: bytes, frame: Detached) -> None:
        """Hear an agent of an earlier daemon; one that nobody knows is asked to end."""
        worker = self._survivors.get(frame.worker_id)
        if worker is None and frame.worker_id in self.awaited:
            return
        if worker is None or worker.has_ended or worker.owner is None:
            log.warning("agent.rejected", session_id=frame.session_id, peer=peer.decode())
            self.router.send(peer, Terminate(reason="its session goes on elsewhere, or is over"))
            return
        if worker.peer != peer:
            del self._workers[worker.peer]
            worker.peer = peer
            self._workers[peer] = worker
        worker.owner.on_frame(frame, ())

    def register_again(self) -> None:
        """Put the agents into the registry again where somebody has removed it.

        Raises:
            OSError: it can't be written.
        """
        if self.grace_s <= 0:
            return
        there, folder = registered_ids(self.folder), str(self.folder / REGISTRY)
        missed = (
            one for one in self._workers.values() if one.is_registered and one.id not in there
        )
        lost = [entry for one in missed if not one.has_ended and (entry := one.entry())]
        if lost:
            log.error("registry.lost", path=folder, agents=len(lost))
            for entry in lost:
                register(self.folder, entry)
            log.warning("registry.restored", path=folder, agents=len(lost))

    async def leave(self) -> None:
        """End what is nobody's yet; agents go on, for the next daemon to adopt."""
        self._is_closing = True
        for spare in self._spares:
            self.signal(spare, signal.SIGKILL)
        await self.zygotes.close()
        self._tasks.cancel()
        await self._tasks.wait()
        self.reaper.close()

    async def close(self) -> None:
        """End every worker and return when all are finalized."""
        self._is_closing = True
        for worker in list(self._workers.values()):
            self.signal(worker, signal.SIGKILL)
        if self._has_processes():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HANDSHAKE_S):
                    await self._empty.wait()
        await self.zygotes.close()  # who still waits for a process, a tool host say, waits no more
        while self._tasks:  # the end of one may be what another one begins with
            await self._tasks.wait()

    def _hosts_of(self, worker: Worker) -> ToolHosts:
        whose = weakref.ref(worker)  # which has them: no cycle

        def on_lost(address: str, message: str) -> None:
            if (known := whose()) is not None:
                self.send(known, HostLost(address=address, message=message))

        parts = self.zygotes.lean, self.reaper, worker.containment, on_lost
        return ToolHosts(*parts, self._tasks.spawn, self._check_open, lambda: self.own_pids)

    def _has_processes(self) -> bool:
        return any(worker.is_forked for worker in self._workers.values())

    def _check_open(self) -> None:
        if self._is_closing:
            raise Overloaded("the daemon is about to end")

    async def _fork(self, *, has_litellm: bool = False) -> Worker:
        self._check_open()
        self._number += 1
        worker_id = new_worker_id(self._number)
        try:
            containment = self.containments.open(worker_id)
        except OSError as problem:  # of what a fork takes: no memory, or no descriptor
            raise ZygoteFailed("fork", str(problem)) from problem
        boot: Boot = {
            "address": self.address,
            "worker_id": worker_id,
            "daemon_pid": os.getpid(),
            "grace_s": self.grace_s,
            "slot_fd": containment.lend_slot(),
            **containment.boot,
        }
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        # Known before it is forked: its first frame may be faster than the fork's return.
        worker = Worker(worker_id, containment, pid=0, pidfd=-1, ready=ready)
        worker.has_litellm = has_litellm
        worker.hosts = self._hosts_of(worker)
        self._workers[worker.peer] = worker
        try:
            child = await self.zygotes.fork(boot, has_litellm=has_litellm)
        except BaseException:
            del self._workers[worker.peer]
            await containment.close()
            raise
        worker.pid, worker.pidfd, worker.forked_at = child.pid, child.pidfd, child.started_at
        containment.forked(child.pid)
        self.reaper.watch(child, lambda record: self._on_exit(worker, record))
        if self._is_closing:  # while it waited for a zygote
            self.signal(worker, signal.SIGKILL)
        if worker.greeted_by not in {None, child.pid}:
            self.signal(worker, signal.SIGKILL)
            raise Overloaded(f"process {worker.greeted_by} spoke as the new worker {child.pid}")
        try:
            async with awake_timeout(HANDSHAKE_S):
                await asyncio.shield(ready)
        except TimeoutError:
            self.signal(worker, signal.SIGKILL)
            raise TimeoutError(
                f"worker {child.pid} was not ready within {HANDSHAKE_S:g} s"
            ) from None
        return worker

    def _on_exit(self, worker: Worker, record: ExitRecord) -> None:
        worker.has_ended = True
        worker.containment.ended()
        self.starts.over(worker.pid)
        if not worker.ready.done():
            worker.ready.set_exception(
                Overloaded(f"worker {worker.pid} ended before it was ready ({record.status})")
            )
            worker.ready.exception()  # whoever forked it may be gone
        self._tasks.spawn(self._finalize(worker, record), f"finalize-{worker.id}")

    async def _finalize(self, worker: Worker, record: ExitRecord) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LAST_FRAMES_S
        self.router.drain()
        while self.router.is_connected(worker.peer) and loop.time() < deadline:
            await asyncio.sleep(LAST_FRAMES_LOOK_S)
            self.router.drain()
        await self._examine(worker, record)
        self._workers.pop(worker.peer, None)
        self._survivors.pop(worker.id, None)
        unregister(self.folder, worker.id)
        with self.sweeper.littered(worker):
            if worker.owner is not None:
                worker.owner.on_exit(record)
            await worker.containment.close()
            worker.retire()
            if self._is_closing and not self._has_processes():
                self._empty.set()
            await self.sweeper.sweep(worker)

    async def _examine(self, worker: Worker, record: ExitRecord) -> None:
        """End what a dead worker leaves, and find out what there is to know of it."""
        record.pid = worker.pid
        try:
            await worker.hosts.end()
            await worker.containment.examine(record, record.exited_at - worker.forked_at)
        except Exception:  # its session would wait for its end for ever
            log.exception("worker.not_examined", worker_id=worker.id, pid=worker.pid)

    def lose_spare(self, spare: Worker) -> None:
        """Have one spare less: it has ended."""
        if spare in self._spares:
            self._spares.remove(spare)
            self._wake.set()


def _log_failed(task: str, error: BaseException) -> None:
    log.error("finalize.failed", task=task, exc_info=error)


@dataclass(slots=True, eq=False)
class _Spare(WorkerOwner):
    """The pool as the owner of a worker that waits for a session."""

    pool: WorkerPool
    worker: Worker

    def on_exit(self, _record: ExitRecord) -> None:
        self.pool.lose_spare(self.worker)

    def on_fail(self, _reason: PlainReason) -> None:
        self.pool.kill(self.worker)

    def on_stack(self) -> None:
        self.pool.signal(self.worker, signal.SIGQUIT)
