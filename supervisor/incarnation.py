"""One process of a session: what it is given, what it says, and how it ended.

It holds what belongs to this incarnation alone, so that nothing of an earlier one is taken for the
present one's: its frames come by its own connection, and the journal refuses its records once the
next one has begun.
"""

import signal
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import structlog

from cmdc_runtime.codec import failed
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.frames import (
    Answer,
    Batch,
    Doze,
    Failed,
    FromWorker,
    LastWords,
    NotStarted,
    Refusal,
    Reply,
    Started,
    Terminate,
    ToClient,
    ToWorker,
    Write,
    Written,
)
from cmdc_runtime.ids import CommandId, SessionId
from cmdc_runtime.reasons import Evidence, Other, PlainReason, Unkillable
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.requests import Supervision
from supervisor.adapters.pidfd import stuck_at
from supervisor.chores import Chores
from supervisor.core import exits
from supervisor.core.exits import Asked
from supervisor.core.tree.words import Ending, Ref
from supervisor.desk import Desk
from supervisor.workforce import Obituary, Worker

log = structlog.get_logger()

NOT_JUDGED: Final = "the daemon failed to judge how it ended; its log says why"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    reason: PlainReason
    ending: Ending
    evidence: Evidence


class Owner(Protocol):
    """What a process needs of its session."""

    @property
    def id(self) -> SessionId:
        """The session's id."""

    def reply(self, command_id: CommandId, frame: ToClient | bytes) -> None:
        """Answer a command."""

    def process_up(self, process: "AgentProcess") -> None:
        """Take note that the agent takes commands."""

    def process_idle(self, process: "AgentProcess") -> None:
        """Take note that the agent has been idle for long."""

    def process_ended(self, process: "AgentProcess", ended: Ended) -> None:
        """Take note that the process is gone, and all that it published is out."""


@dataclass(slots=True, eq=False)
class AgentProcess:
    """A worker that is, or is about to be, the agent of a session."""

    ref: Ref
    owner: Owner
    desk: Desk
    worker: Worker
    chores: Chores
    last_words: PlainReason | None = None
    not_started: StartFailedReason | None = None
    blamed: PlainReason | None = None
    asked: Asked = field(default=Asked.NOTHING)

    def take_over(self, policy: Supervision) -> None:
        """Hear the worker from now on, and keep it within its limits."""
        self.worker.on_frame, self.worker.on_exit = self._on_frame, self._on_exit
        self.worker.hosts.max_open_files = policy.max_open_files
        self.worker.mark = (self.owner.id, self.ref.generation)
        ward = self.worker.ward
        ward.on_blame = lambda reason: self.desk.keeper.condemn(self.ref, reason)
        ward.on_stack = self.ask_for_stack
        ward.assign(self.worker.pid, self.owner.id, self.ref.generation, policy)

    def expect(self, policy: Supervision) -> None:
        """Expect a sign of life from now on."""
        self.worker.ward.expect(self.worker.pid, policy.unresponsive_after)

    def send(self, frame: ToWorker) -> None:
        """Send a frame; one that is gone does not get it."""
        self.desk.workforce.send(self.worker, frame)

    def ask(self, reason: str) -> None:
        """Ask the process politely to end."""
        self._raise(Asked.POLITELY)
        self.send(Terminate(reason=reason))

    def ask_for_stack(self) -> None:
        """Have the process write its stacks to standard error, however it hangs."""
        self.desk.workforce.signal(self.worker, signal.SIGQUIT)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._raise(Asked.SIGTERM)
        self.desk.workforce.signal(self.worker, signal.SIGTERM)

    def kill(self, blamed: PlainReason | None = None) -> None:
        """Send SIGKILL to it and what it started; ``blamed`` is the reason to tell."""
        if not self.worker.has_ended:  # what comes too late says nothing about its end
            self.blamed = self.blamed or blamed
        self._raise(Asked.SIGKILL)
        self.desk.workforce.kill(self.worker)

    def stuck(self, told: Unkillable) -> Ended:
        """Return what is known of a process that SIGKILL did not end: where in the kernel it is."""
        worker = self.worker
        found = None if worker.has_ended else stuck_at(worker.pid, worker.pidfd)
        if found is not None:
            told = msgspec.structs.replace(told, state=found.state, wchan=found.wchan)
        return Ended(told, Ending.CRASH, Evidence(pid=self.worker.pid))

    def _raise(self, asked: Asked) -> None:
        if not self.worker.has_ended:
            rungs = list(Asked)
            self.asked = max(self.asked, asked, key=rungs.index)

    # --- what it says -----------------------------------------------------------------------

    def _on_frame(self, frame: FromWorker, more: bytes) -> None:
        match frame:
            case Batch():
                if not self.desk.hub.take(self.owner.id, frame, more):
                    log.warning("event.refused", session_id=self.owner.id, first=frame.first)
            case Write():
                self._write(frame)
            case Answer(id=command_id, body=body):
                self.owner.reply(command_id, Reply(id=command_id, body=msgspec.Raw(body)))
            case Refusal(id=command_id, code=code, message=message, details=details):
                refused = Failed(
                    id=command_id, code=code, message=message, details=msgspec.Raw(details)
                )
                self.owner.reply(command_id, refused)
            case Started():
                self.owner.process_up(self)
            case Doze():
                self.owner.process_idle(self)
            case NotStarted(stage=stage, message=message):
                self.not_started = StartFailedReason(stage=stage, message=message)
            case LastWords(reason=reason):
                self.last_words = reason
            case _:
                log.warning("frame.refused", session_id=self.owner.id, frame=type(frame).__name__)

    def _write(self, write: Write) -> None:
        """Hand records and outcomes to the journal at once, ahead of the events behind them."""
        records = [(record.kind, record.body) for record in write.records]
        settled = [(one.id, one.frame) for one in write.settled]
        try:
            written = self.desk.journal.append(self.owner.id, self.ref.generation, records, settled)
        except CmdcError as error:
            self._lose_write(write, error)
            return
        self.chores.spawn(self._settle(write, written))

    async def _settle(self, write: Write, written: Awaitable[None]) -> None:
        try:
            await written
        except CmdcError as error:
            self._lose_write(write, error)
            return
        for one in write.settled:
            self.owner.reply(one.id, one.frame)
        if write.barrier:
            self.send(Written(barrier=write.barrier))

    def _lose_write(self, write: Write, error: CmdcError) -> None:
        """End a process whose records could not be stored: the next one begins where they end.

        Going on would leave a hole in the history, and a later record would stand beside it.
        """
        log.error("record.not_journaled", session_id=self.owner.id, problem=str(error))
        for one in write.settled:
            self.owner.reply(one.id, failed(one.id, error))
        self.kill(Other(detail=f"its records could not be journaled: {error}"))

    # --- its end ----------------------------------------------------------------------------

    def _on_exit(self, obituary: Obituary) -> None:
        self.chores.spawn(self._conclude(obituary))

    async def _conclude(self, obituary: Obituary) -> None:
        try:
            # A Down is told after every event that the process published.
            await self.desk.hub.flushed(self.owner.id)
            ended = self._judge(obituary)
        except Exception:  # who is not told would wait for this end for ever
            log.exception("process.not_judged", session_id=self.owner.id)
            ended = Ended(Other(detail=NOT_JUDGED), Ending.CRASH, Evidence())
        self.owner.process_ended(self, ended)

    def _judge(self, obituary: Obituary) -> Ended:
        inquest = obituary.inquest
        known = exits.Evidence(
            status=obituary.exited.status,
            last_words=self.last_words,
            not_started=self.not_started,
            blamed=self.blamed,
            core_dumped=obituary.exited.core_dumped,
            asked=self.asked,
            oom_kills=inquest.oom_kills,
            memory_peak_bytes=inquest.memory_peak_bytes,
            memory_limit_bytes=inquest.memory_limit_bytes,
        )
        reason = exits.classify(known)
        ending = exits.ending_of(reason, obituary.exited.status)
        return Ended(reason, ending, exits.evidence_of(known, inquest.seen))
