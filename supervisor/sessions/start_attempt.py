"""How a session gets its agent: one try at it.

A worker is acquired and gets its assignment, or the agent that an earlier daemon left running is
adopted. Either the process comes up, or one report to the tree says that there is none.
"""

import asyncio
from dataclasses import dataclass

import structlog

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.reasons import PlainReason, Unkillable, Unresponsive
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.runtime_dir import unregister
from supervisor.adapters.orphans import Survivor
from supervisor.core.limits import (
    ADOPT_SILENT_S_MIN,
    INDEX_JUMP,
    REPLACED_MAX,
    START_LOOK_S,
    START_STACK_S,
)
from supervisor.core.session_phase import Phase
from supervisor.core.tree.messages import Ending, Ref
from supervisor.processes.pool import WorkerPool
from supervisor.processes.tool_hosts import SpawnErrors, spawn_failure
from supervisor.sessions.agent import Agent, AgentOwner
from supervisor.sessions.assignment import Services, assignment_frames
from supervisor.sessions.session_tasks import SessionTasks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Inherited:
    """An agent that an earlier daemon left running, and the last of its writes in the journal."""

    survivor: Survivor
    written: int


async def reject(pool: WorkerPool, survivor: Survivor) -> Unkillable | None:
    """End an agent that is not kept, with all that it has started; else say what is known of it."""
    entry = survivor.entry
    log.warning("agent.not_adopted", session_id=entry.session_id, pid=survivor.pid)
    stuck = await asyncio.to_thread(survivor.end)
    if stuck is None:
        unregister(pool.folder, entry.worker_id)
    await pool.containments.end_leftover(entry.session_id, entry.incarnation)
    return stuck


@dataclass(slots=True, eq=False)
class StartAttempt:
    """One try to have the child ``ref`` run; ``process`` is its agent, once there is one."""

    ref: Ref
    session: AgentOwner
    services: Services
    tasks: SessionTasks
    process: Agent | None = None
    _is_over: bool = False
    _replaced: int = 0

    def begin(self, inherited: Inherited | None) -> None:
        """Adopt the agent that was left, or acquire a new one."""
        if inherited is None:
            self.tasks.spawn(self._acquire())
        else:
            self._adopt(inherited)

    def close(self) -> None:
        """Record that its process has ended: nothing more comes of this try."""
        self._is_over = True

    def give_up(self, reason: PlainReason, ending: Ending) -> None:
        """Report to the tree that there is no process, and will be none. Idempotent."""
        if not self._is_over:
            self.close()
            self.session.announced.set()
            self.services.runtime.exited(self.ref, reason, ending)

    async def _acquire(self) -> None:
        session, pool = self.session, self.services.pool
        try:
            await pool.sweeper.swept(session.id)
            worker = await pool.acquire(
                lambda: session.was_up and not self._is_over, has_litellm=session.needs_litellm
            )
        except SpawnErrors as error:
            log.warning("process.not_started", session_id=session.id, problem=str(error))
            self.give_up(spawn_failure(error), Ending.CRASH)
            return
        if self._is_over or self.services.is_leaving:  # nobody wants it any more
            pool.release(worker)
            return
        policy = session.spec.supervision
        process = self.process = Agent(self.ref, session, self.services, worker, self.tasks)
        process.take_over(policy)
        try:
            for frame in await assignment_frames(self.services, session):
                process.send(frame)
        except CmdcError as error:
            failed = StartFailedReason(stage="rebuild", message=str(error))
            self.services.runtime.fail(self.ref, failed)
            return
        if self._is_awaited():
            self.tasks.later(policy.start_timeout, lambda: self._fail_late(process))
            self._look_after(process, was_stopped=False)

    def _look_after(self, process: Agent, *, was_stopped: bool) -> None:
        """Replace a process that somebody has stopped while it becomes an agent."""
        if not self._is_awaited() or process is not self.process:
            return
        is_stopped = process.worker.is_stopped()
        if is_stopped and was_stopped:
            self._replace(process)
        else:
            self.tasks.later(
                START_LOOK_S, lambda: self._look_after(process, was_stopped=is_stopped)
            )

    def _replace(self, process: Agent) -> None:
        """Go on with another process; one that has spoken already can't be without an end."""
        self._replaced += 1
        log.warning("process.hung", session_id=self.session.id, pid=process.worker.pid)
        if process.has_spoken or self._replaced > REPLACED_MAX:
            silent = Unresponsive(silent_ms=round(START_LOOK_S * 1000))
            self.services.runtime.fail(self.ref, silent)
            return
        self.exchange(process)

    def exchange(self, process: Agent) -> None:
        """Go on with another process, in place of one that has not spoken yet."""

        def goes_on() -> bool:
            if not self._is_awaited() or process is not self.process:
                return False
            self.process = None
            self.tasks.cancel_timers()
            self.tasks.spawn(self._acquire_after(process))
            return True

        process.give_way(goes_on)

    async def _acquire_after(self, process: Agent) -> None:
        await process.worker.containment.close()  # the next one has a cgroup of the same name
        await self._acquire()

    def _adopt(self, inherited: Inherited) -> None:
        """Wait for the agent to call; one that hangs does not."""
        session, policy = self.session, self.session.spec.supervision
        try:
            worker = self.services.pool.adopt(inherited.survivor)
        except CmdcError as error:
            self.tasks.spawn(self._reject(inherited.survivor, error))
            return
        process = self.process = Agent(self.ref, session, self.services, worker, self.tasks)
        process.adopt(policy, inherited.written)
        limit_s = max(policy.unresponsive_after, ADOPT_SILENT_S_MIN)
        silent = Unresponsive(silent_ms=round(limit_s * 1000))
        self.tasks.later(limit_s, lambda: self.services.runtime.fail(self.ref, silent))

    async def _reject(self, survivor: Survivor, error: CmdcError) -> None:
        """End an agent that there is no place for; which events it published, nobody knows."""
        self.services.hub.skip(self.session.id, INDEX_JUMP)
        stuck = await reject(self.services.pool, survivor)
        self.give_up(stuck or spawn_failure(error), Ending.CRASH)

    def _is_awaited(self) -> bool:
        """Say whether its process lives and has still to come up."""
        return not self._is_over and self.session.phase is Phase.STARTING

    def _fail_late(self, process: Agent) -> None:
        if self._is_awaited():
            process.on_stack()  # where it hangs stands in the evidence then
            limit_s = self.session.spec.supervision.start_timeout
            why = f"the agent was not up within {limit_s:g} s"
            late = StartFailedReason(stage="load", message=why)
            self.tasks.later(START_STACK_S, lambda: self.services.runtime.fail(self.ref, late))
