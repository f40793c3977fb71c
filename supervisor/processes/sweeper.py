"""What dead workers have left is ended: many that die at once are swept behind together."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog

from cmdc_runtime.ids import SessionId
from supervisor.adapters.orphans import REAPED_MAX, Mark, reap_adopted, sweep
from supervisor.core.limits import SWEEP_RETRY_S
from supervisor.processes.worker import Worker

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

        So that the next one finds free what they had; their end is told before that.
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
