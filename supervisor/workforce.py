"""The worker processes: forked, greeted, kept as spares, handed out, and buried when they end.

A worker is known by the identity of its connection, which the daemon chose, so what it says is
about itself and nobody else. Its exit is told by the pidfd; its last frames are read first.
"""

import asyncio
import contextlib
import os
import select
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from cmdc_runtime.errors import CmdcError, Overloaded
from cmdc_runtime.frames import FromWorker, Ready, ToWorker
from cmdc_runtime.ids import WorkerId, new_worker_id
from supervisor.adapters.nursery import Nursery, NurseryFailed, NurseryLost
from supervisor.adapters.orphans import reap_adopted, sweep
from supervisor.adapters.reaper import Exited, Reaper
from supervisor.adapters.router import Router
from supervisor.core.limits import (
    HANDSHAKE_S,
    LAST_FRAMES_LOOK_S,
    LAST_FRAMES_S,
    SPARE_PAUSE_S,
    SPARE_RETRY_S,
)

log = structlog.get_logger()

SpawnErrors: Final = (NurseryFailed, NurseryLost, CmdcError, OSError, TimeoutError)
"""What forking and greeting a worker may fail with."""


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

    async def _fork(self) -> Worker:
        if self._is_closing:
            raise Overloaded("the daemon is about to end")
        self._number += 1
        worker_id = new_worker_id(self._number)
        boot: dict[str, str | int | float] = {
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
        task = asyncio.create_task(self._bury(worker, exited), name=f"bury-{worker.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bury(self, worker: Worker, exited: Exited) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LAST_FRAMES_S
        self.router.drain()
        while self.router.is_connected(worker.peer) and loop.time() < deadline:
            await asyncio.sleep(LAST_FRAMES_LOOK_S)
            self.router.drain()
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

    def _lose_spare(self, spare: Worker) -> None:
        if spare in self._spares:
            self._spares.remove(spare)
            self._wake.set()


def _is_over(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
