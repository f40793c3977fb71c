"""How the post of a session's agent is filled: one try at it is a hiring.

A worker is hired and briefed, or the agent that an earlier daemon left running is taken in. Either
the process comes up, or the tree is told, once, that there is none.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import structlog

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.reasons import PlainReason, Unkillable, Unresponsive
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from supervisor.adapters.left import Left
from supervisor.briefing import Briefed, briefing
from supervisor.chores import Chores
from supervisor.containment import Containments
from supervisor.core.limits import (
    ADOPT_SILENT_S_MIN,
    INDEX_JUMP,
    REPLACED_MAX,
    START_LOOK_S,
    START_STACK_S,
)
from supervisor.core.session_phase import Phase
from supervisor.core.tree.messages import Ending, Ref
from supervisor.desk import Desk
from supervisor.hosts import SpawnErrors, unborn
from supervisor.incarnation import AgentProcess, Owner

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Inherited:
    """An agent that an earlier daemon left running, and the last of its writes in the journal."""

    left: Left
    written: int


class Employer(Owner, Briefed, Protocol):
    """What a hiring needs of its session."""

    phase: Phase
    was_up: bool
    met: asyncio.Event


async def dismiss(containments: Containments, left: Left) -> Unkillable | None:
    """End an agent that is not kept, with all that it has started; else say what is known of it."""
    entry = left.entry
    log.warning("agent.not_adopted", session_id=entry.session_id, pid=left.pid)
    stuck = await asyncio.to_thread(left.end)
    await containments.end_leftover(entry.session_id, entry.incarnation)
    return stuck


@dataclass(slots=True, eq=False)
class Hiring:
    """The try to fill the post ``ref``; ``process`` is who has it, once there is one."""

    ref: Ref
    session: Employer
    desk: Desk
    chores: Chores
    process: AgentProcess | None = None
    _is_over: bool = False
    _replaced: int = 0

    def begin(self, inherited: Inherited | None) -> None:
        """Take in the agent that was left, or hire a new one."""
        if inherited is None:
            self.chores.spawn(self._hire())
        else:
            self._take_in(inherited)

    def vacate(self) -> None:
        """Take note that its process has ended: nothing more comes of this try."""
        self._is_over = True

    def give_up(self, reason: PlainReason, ending: Ending) -> None:
        """Tell the tree that there is no process, and will be none. Idempotent."""
        if not self._is_over:
            self.vacate()
            self.session.met.set()
            self.desk.runtime.exited(self.ref, reason, ending)

    async def _hire(self) -> None:
        session, workforce = self.session, self.desk.workforce
        try:
            await workforce.swept(session.id)
            worker = await workforce.hire(lambda: session.was_up and not self._is_over)
        except SpawnErrors as error:
            log.warning("process.not_started", session_id=session.id, problem=str(error))
            self.give_up(unborn(error), Ending.CRASH)
            return
        if self._is_over or self.desk.is_leaving:  # nobody wants it any more
            workforce.release(worker)
            return
        policy = session.spec.supervision
        process = self.process = AgentProcess(self.ref, session, self.desk, worker, self.chores)
        process.take_over(policy)
        try:
            for frame in await briefing(self.desk, session):
                process.send(frame)
        except CmdcError as error:
            failed = StartFailedReason(stage="rebuild", message=str(error))
            self.desk.runtime.fail(self.ref, failed)
            return
        if self._is_awaited():
            self.chores.later(policy.start_timeout, lambda: self._fail_late(process))
            self._look_after(process, was_stopped=False)

    def _look_after(self, process: AgentProcess, *, was_stopped: bool) -> None:
        """Replace a process that somebody has stopped while it becomes an agent."""
        if not self._is_awaited() or process is not self.process:
            return
        is_stopped = process.worker.is_stopped()
        if is_stopped and was_stopped:
            self._replace(process)
        else:
            self.chores.later(
                START_LOOK_S, lambda: self._look_after(process, was_stopped=is_stopped)
            )

    def _replace(self, process: AgentProcess) -> None:
        """Go on with another process; one that has spoken already can't be without an end."""
        self._replaced += 1
        log.warning("process.hung", session_id=self.session.id, pid=process.worker.pid)
        if process.has_spoken or self._replaced > REPLACED_MAX:
            silent = Unresponsive(silent_ms=round(START_LOOK_S * 1000))
            self.desk.runtime.fail(self.ref, silent)
            return

        def goes_on() -> bool:
            if not self._is_awaited() or process is not self.process:
                return False
            self.process = None
            self.chores.cancel_timers()
            self.chores.spawn(self._hire_after(process))
            return True

        process.give_way(goes_on)

    async def _hire_after(self, process: AgentProcess) -> None:
        await process.worker.containment.close()  # the next one has a cgroup of the same name
        await self._hire()

    def _take_in(self, inherited: Inherited) -> None:
        """Wait for the agent to call; one that hangs does not."""
        session, policy = self.session, self.session.spec.supervision
        try:
            worker = self.desk.workforce.take_in(inherited.left)
        except CmdcError as error:
            self.chores.spawn(self._dismiss(inherited.left, error))
            return
        process = self.process = AgentProcess(self.ref, session, self.desk, worker, self.chores)
        process.adopt(policy, inherited.written)
        limit_s = max(policy.unresponsive_after, ADOPT_SILENT_S_MIN)
        silent = Unresponsive(silent_ms=round(limit_s * 1000))
        self.chores.later(limit_s, lambda: self.desk.runtime.fail(self.ref, silent))

    async def _dismiss(self, left: Left, error: CmdcError) -> None:
        """End an agent that there is no place for; which events it published, nobody knows."""
        self.desk.hub.skip(self.session.id, INDEX_JUMP)
        stuck = await dismiss(self.desk.workforce.containments, left)
        self.give_up(stuck or unborn(error), Ending.CRASH)

    def _is_awaited(self) -> bool:
        """Say whether its process lives and has still to come up."""
        return not self._is_over and self.session.phase is Phase.STARTING

    def _fail_late(self, process: AgentProcess) -> None:
        if self._is_awaited():
            process.ask_for_stack()  # where it hangs stands in the evidence then
            limit_s = self.session.spec.supervision.start_timeout
            why = f"the agent was not up within {limit_s:g} s"
            late = StartFailedReason(stage="load", message=why)
            self.chores.later(START_STACK_S, lambda: self.desk.runtime.fail(self.ref, late))
