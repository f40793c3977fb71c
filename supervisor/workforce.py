"""The worker processes: forked, greeted, kept as spares, handed out, and buried when they end.

A worker is known by the identity of its connection, which the daemon chose, so what it says is
about itself and nobody else. Its exit is told by the pidfd; its last frames are read first.

A tool host is a second kind of child: it belongs to one worker and speaks to it alone. A worker is
buried, and so replaced, only when its host and all that ran in it are gone.
"""

import asyncio
import contextlib
import os
import select
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from cmdc_runtime.errors import CmdcError, Overloaded
from cmdc_runtime.frames import FromWorker, HostLost, HostWanted, Ready, ToWorker
from cmdc_runtime.ids import WorkerId, new_worker_id
from cmdc_runtime.process import HOST_MODULE
from supervisor.adapters.forkserver import Boot, Child
from supervisor.adapters.nursery import Nursery, NurseryFailed, NurseryLost
from supervisor.adapters.orphans import reap_adopted, sweep
from supervisor.adapters.reaper import Exited, Reaper
from supervisor.adapters.router import Router
from supervisor.core.exits import Evidence, classify
from supervisor.core.limits import (
    HANDSHAKE_S,
    HOST_END_S,
    LAST_FRAMES_LOOK_S,
    LAST_FRAMES_S,
    SPARE_PAUSE_S,
    SPARE_RETRY_S,
)

log = structlog.get_logger()

SpawnErrors: Final = (NurseryFailed, NurseryLost, CmdcError, OSError, TimeoutError)
"""What forking and greeting a worker may fail with."""


@dataclass(slots=True, eq=False)
class ToolHost:
    """The tool host of a worker; ``gone`` is set when nothing of it runs any more."""

    address: str
    child: Child
    gone: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class Worker:
    """One process; its owner sets the callbacks when it takes the worker over."""

    id: WorkerId
    pid: int
    pidfd: int
    ready: asyncio.Future[None]
    has_ended: bool = False
    on_frame: Callable[[FromWorker, bytes], None] | None = None
    on_exit: Callable[[Exited], None] | None = None
    hosts: set[ToolHost] = field(default_factory=set)
    is_hiring: bool = False

    @property
    def peer(self) -> bytes:
        """Its connection's identity."""
        return self.id.encode()


@dataclass(slots=True)
class Workforce:
    """All workers of the daemon."""

    nursery: Nursery
    reaper: Reaper
    address: str
    spares_wanted: int
    router: Router[FromWorker, ToWorker] = field(init=False)
    _workers: dict[bytes, Worker] = field(default_factory=dict)
    _spares: deque[Worker] = field(default_factory=deque)
    _forking: int = 0
    _number: int = 0
    _is_closing: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _empty: asyncio.Event = field(default_factory=asyncio.Event)
    _unswept: set[int] = field(default_factory=set)
    _sweeping: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def spares(self) -> int:
        """How many workers wait for a session."""
        return len(self._spares)

    def __len__(self) -> int:
        """Return how many workers there are."""
        return len(self._workers)

    async def hire(self) -> Worker:
        """Return a worker that waits for its Assign: a spare, or a new one.

        Raises one of ``SpawnErrors``.
        """
        while self._spares:
            worker = self._spares.popleft()
            self._wake.set()
            # Asked of the kernel, since the loop may not have heard of its end yet.
            if not worker.has_ended and not _is_over(worker.pidfd):
                return worker
        try:
            worker = await self._fork()
        except NurseryLost:  # it died over this very fork: the next one comes from a new nursery
            worker = await self._fork()
        self._wake.set()
        if worker.has_ended:
            raise Overloaded(f"worker {worker.pid} ended as soon as it was ready")
        return worker

    async def keep_spares(self) -> None:
        """Refill the pool in the background, until cancelled."""
        while True:
            try:
                while len(self._spares) < self.spares_wanted:
                    spare = await self._fork()
                    spare.on_exit = lambda _exited, spare=spare: self._lose_spare(spare)
                    self._spares.append(spare)
            except SpawnErrors as error:
                log.warning("spare.not_forked", problem=str(error), retry_s=SPARE_RETRY_S)
                await asyncio.sleep(SPARE_RETRY_S)
                continue
            self._wake.clear()
            await self._wake.wait()
            # A fork costs a core some milliseconds, which the agent just hired needs now.
            await asyncio.sleep(SPARE_PAUSE_S)

    def send(self, worker: Worker, frame: ToWorker) -> bool:
        """Send ``frame``; False means that the worker is gone."""
        return not worker.has_ended and self.router.send(worker.peer, frame)

    def signal(self, worker: Worker, number: signal.Signals) -> None:
        """Send a signal, by the pidfd and so never to a stranger."""
        if not worker.has_ended:
            try:
                signal.pidfd_send_signal(worker.pidfd, number)
            except ProcessLookupError:
                log.debug("worker.signalled_late", pid=worker.pid, signal=number.name)

    def receive(self, peer: bytes, frame: FromWorker, more: bytes) -> None:
        """Take one frame from a worker."""
        worker = self._workers.get(peer)
        if worker is None:
            self.router.refused += 1
            log.warning("frame.refused", socket="workers", problem="an unknown worker")
        elif isinstance(frame, Ready):
            if not worker.ready.done():
                worker.ready.set_result(None)
        elif isinstance(frame, HostWanted):
            self._start_host(worker, frame.address)
        elif worker.on_frame is not None:
            worker.on_frame(frame, more)

    async def close(self) -> None:
        """End every worker and return when all are buried."""
        self._is_closing = True
        for worker in list(self._workers.values()):
            self.signal(worker, signal.SIGKILL)
        if self._workers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HANDSHAKE_S):
                    await self._empty.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reap(self) -> None:
        """Reap what was left to the daemon by a process that died before its children."""
        reap_adopted(self.nursery.pids | self.reaper.pids)

    def _start_host(self, worker: Worker, address: str) -> None:
        """Give a worker a tool host that connects to ``address``, in place of any that it has.

        That happens in the background; where it can't be, and when the host ends, the worker is
        told ``HostLost``.
        """
        if worker.has_ended:
            return
        folder = Path(self.address.removeprefix("ipc://")).parent
        if worker.is_hiring or Path(address).parent != folder:
            problem = "another is being started" if worker.is_hiring else f"it is not in {folder}"
            self.send(worker, HostLost(address=address, message=problem))
            return
        worker.is_hiring = True
        self._spawn(self._hire_host(worker, address), f"host-{worker.id}")

    async def _hire_host(self, worker: Worker, address: str) -> None:
        for old in worker.hosts:
            old.child.send_signal(signal.SIGKILL)
        try:
            host = ToolHost(address, await self._fork_host(address))
        except SpawnErrors as error:
            message = f"it could not be started: {error}"
            self.send(worker, HostLost(address=address, message=message))
            return
        finally:
            worker.is_hiring = False
        worker.hosts.add(host)
        self.reaper.watch(
            host.child,
            lambda exited: self._spawn(self._bury_host(worker, host, exited), f"bury-{address}"),
        )
        log.debug("host.forked", pid=host.child.pid, worker_pid=worker.pid)
        if worker.has_ended:
            host.child.send_signal(signal.SIGKILL)

    async def _fork_host(self, address: str) -> Child:
        self._check_open()
        boot: Boot = {"address": address, "daemon_pid": os.getpid()}
        try:
            return await self.nursery.fork(boot, module=HOST_MODULE)
        except NurseryLost:  # as in ``hire``
            return await self.nursery.fork(boot, module=HOST_MODULE)

    async def _bury_host(self, worker: Worker, host: ToolHost, exited: Exited) -> None:
        # Its calls die with it; what they have started is still there.
        await asyncio.to_thread(sweep, {exited.pid})
        await asyncio.to_thread(Path(host.address).unlink, missing_ok=True)
        worker.hosts.discard(host)
        host.gone.set()
        message = str(classify(Evidence(exited.status)))
        self.send(worker, HostLost(address=host.address, message=message))

    async def _end_hosts(self, worker: Worker) -> None:
        """Return when nothing runs any more in the tool hosts of a dead worker."""
        gone = [asyncio.ensure_future(host.gone.wait()) for host in worker.hosts]
        for host in worker.hosts:
            host.child.send_signal(signal.SIGKILL)
        if gone:
            _, late = await asyncio.wait(gone, timeout=HOST_END_S)
            for waiter in late:
                waiter.cancel()
                log.error("host.not_ended", worker_pid=worker.pid, after_s=HOST_END_S)

    def _check_open(self) -> None:
        if self._is_closing:
            raise Overloaded("the daemon is about to end")

    async def _fork(self) -> Worker:
        self._check_open()
        self._number += 1
        worker_id = new_worker_id(self._number)
        boot: Boot = {
            "address": self.address,
            "worker_id": worker_id,
            "daemon_pid": os.getpid(),
        }
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        # Known before it is forked: its first frame may be faster than the fork's return.
        worker = Worker(worker_id, pid=0, pidfd=-1, ready=ready)
        self._workers[worker.peer] = worker
        try:
            child = await self.nursery.fork(boot)
        except BaseException:
            del self._workers[worker.peer]
            raise
        worker.pid, worker.pidfd = child.pid, child.pidfd
        self.reaper.watch(child, lambda exited: self._start_burial(worker, exited))
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await asyncio.shield(ready)
        except TimeoutError:
            self.signal(worker, signal.SIGKILL)
            raise TimeoutError(
                f"worker {child.pid} was not ready within {HANDSHAKE_S:g} s"
            ) from None
        return worker

    def _start_burial(self, worker: Worker, exited: Exited) -> None:
        worker.has_ended = True
        if not worker.ready.done():
            worker.ready.set_exception(
                Overloaded(f"worker {worker.pid} ended before it was ready ({exited.status})")
            )
            worker.ready.exception()  # whoever forked it may be gone
        self._spawn(self._bury(worker, exited), f"bury-{worker.id}")

    async def _bury(self, worker: Worker, exited: Exited) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LAST_FRAMES_S
        self.router.drain()
        while self.router.is_connected(worker.peer) and loop.time() < deadline:
            await asyncio.sleep(LAST_FRAMES_LOOK_S)
            self.router.drain()
        await self._end_hosts(worker)
        self._workers.pop(worker.peer, None)
        if self._is_closing and not self._workers:
            self._empty.set()
        if worker.on_exit is not None:
            worker.on_exit(exited)
        self._unswept.add(worker.pid)
        async with self._sweeping:  # those who die meanwhile are swept together
            dead, self._unswept = self._unswept, set()
            killed = await asyncio.to_thread(sweep, dead) if dead else 0
        if killed:
            log.info("orphan.killed", killed=killed)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:  # Any: asyncio's own
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lose_spare(self, spare: Worker) -> None:
        if spare in self._spares:
            self._spares.remove(spare)
            self._wake.set()


def _is_over(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
