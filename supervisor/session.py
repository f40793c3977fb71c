"""One session as the daemon keeps it: does what ``core/transitions.py`` decides.

It holds the session's worker, its children, and the callers that wait for its start or its end.
Everything runs in the loop; the awaits are in tasks that this file starts and whose failure is an
input of the table.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

import msgspec
import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.codec import failed
from cmdc_runtime.errors import (
    CmdcError,
    DaemonUnavailable,
    SessionNotAlive,
    StartFailed,
    TransientError,
)
from cmdc_runtime.frames import (
    Answer,
    Batch,
    Deliver,
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
    Write,
    Written,
)
from cmdc_runtime.ids import CommandId, Incarnation, SessionId
from cmdc_runtime.reasons import AnyReason, Other, PlainReason, Shutdown
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.requests import SessionInfo, StartSession
from supervisor.adapters.reaper import Exited
from supervisor.briefing import briefing
from supervisor.chores import Chores
from supervisor.core import lifecycle
from supervisor.core.exits import Evidence, classify, ending_of
from supervisor.core.lifecycle import Effect, Input, Life, Phase
from supervisor.core.limits import STOP_ALL_S
from supervisor.core.restart import Ending
from supervisor.core.transitions import advance
from supervisor.desk import Desk
from supervisor.waiting import Waiting
from supervisor.workforce import SpawnErrors, Worker

log = structlog.get_logger()


@dataclass(slots=True)
class _Process:
    """What is known of the process of one incarnation."""

    worker: Worker
    last_words: PlainReason | None = None
    not_started: StartFailedReason | None = None
    blamed: PlainReason | None = None


@dataclass(slots=True, eq=False)
class Session:
    """One session; ``spec`` is the StartSession request that it is started from."""

    desk: Desk
    spec: StartSession
    life: Life
    created_ms: int
    phase: Phase = Phase.STARTING
    children: "set[Session]" = field(default_factory=set)
    waiting: Waiting = field(init=False)
    ended: asyncio.Future[AnyReason] = field(init=False)
    started: asyncio.Future[None] = field(init=False)
    _process: _Process | None = None
    _chores: Chores = field(init=False)

    def __post_init__(self) -> None:
        """Make what callers wait for."""
        loop = asyncio.get_running_loop()
        self.ended, self.started = loop.create_future(), loop.create_future()
        self.waiting = Waiting(self.id)
        self._chores = Chores(self.id, on_bug=lambda: self._signal(signal.SIGKILL))

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self.spec.session_id

    @property
    def pid(self) -> int | None:
        """The pid of its process, None between two."""
        return self._process.worker.pid if self._process is not None else None

    def info(self) -> SessionInfo:
        """Return what is known without asking the agent."""
        return SessionInfo(
            session_id=self.id,
            phase=lifecycle.SHOWN[self.phase],
            incarnation=self.life.incarnation,
            restarts=self.life.restarts,
            pid=self.pid,
            parent_id=self.spec.parent_id,
            group_id=self.spec.group_id,
            last_index=self.desk.hub.taken_index(self.id),
            reason=self.life.last_reason,
        )

    def take(self, given: Input) -> None:
        """Feed one input to the table and do what it says."""
        self.phase, self.life, effects = advance(self.phase, self.life, given)
        for effect in effects:
            self._perform(effect)

    def check_child(self, parent_incarnation: Incarnation | None) -> None:
        """Refuse a child that could outlive the process that it is started for.

        Raises:
            SessionNotAlive: the session ends.
            TransientError: it has no process now, or not the one that asks.
        """
        if self.phase in {Phase.STOPPING, Phase.ENDING}:
            raise SessionNotAlive(self.life.last_reason or Shutdown(detail="it is being stopped"))
        asks = parent_incarnation or self.life.incarnation
        if self.phase not in lifecycle.HAVING_CHILDREN or asks != self.life.incarnation:
            raise TransientError(
                f"parent_id: session {self.id} is {lifecycle.SHOWN[self.phase]} as incarnation "
                f"{self.life.incarnation}; start the child from there when it is up"
            )

    def deliver(
        self, client: bytes, command_id: CommandId, body: msgspec.Raw, *, durable: bool
    ) -> None:
        """Give a command to the agent, now or when it is up; a durable one is journaled already.

        Raises:
            Overloaded: too many commands wait for this session.
        """
        if self.waiting.renew(client, command_id):
            return  # the client asks again: only where to send the answer may be new
        if not durable:
            self.waiting.check_room(command_id)
        command = Deliver(id=command_id, body=body, durable=durable)
        process = self._process if self.phase is Phase.UP else None
        self.waiting.add(client, command, is_sent=process is not None)
        if process is not None:
            self.desk.workforce.send(process.worker, command)
        else:
            self.take(lifecycle.Wanted())

    def record_end(self, reason: bytes) -> None:
        """Write the session's end down, in the background."""
        self._chores.spawn(self._record_end(reason))

    async def _record_end(self, reason: bytes) -> None:
        try:
            await self.desk.journal.ended(self.id, reason, now_ms())
        except CmdcError as error:
            log.error("end.not_journaled", session_id=self.id, problem=str(error))

    # --- effects --------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:  # noqa: C901 - one case for each effect
        match effect:
            case lifecycle.StartProcess(timeout_s=timeout_s):
                self._chores.spawn(self._start_process(timeout_s))
            case lifecycle.TellUp():
                self._tell_up()
            case lifecycle.EndChildren(grace_s=grace_s):
                self._end_children(grace_s)
            case lifecycle.AwaitChildren():
                self._await_children()
            case lifecycle.WaitDelay(delay_s=delay_s):
                self._chores.later(delay_s, lambda: self.take(lifecycle.DelayOver()))
            case lifecycle.AskToEnd(reason=reason, term_s=term_s, kill_s=kill_s):
                self._ask_to_end(reason, term_s, kill_s)
            case lifecycle.Terminate():
                self._signal(signal.SIGTERM)
            case lifecycle.Kill(blamed=blamed):
                self._kill(blamed)
            case lifecycle.TellDown():
                self._tell_down(effect)
            case lifecycle.TellEnded(reason=reason, was_up=was_up):
                self._end(reason, was_up=was_up)

    async def _start_process(self, timeout_s: float) -> None:
        process: _Process | None = None
        try:
            worker = await self.desk.workforce.hire()
            worker.on_frame, worker.on_exit = self._on_frame, self._on_exit
            process = self._process = _Process(worker)
            for frame in await briefing(self.desk, self.spec, self.life):
                self.desk.workforce.send(worker, frame)
        except SpawnErrors as error:
            log.warning("process.not_started", session_id=self.id, problem=str(error))
            stage = "spawn" if process is None else "rebuild"
            reason = StartFailedReason(stage=stage, message=str(error))
            if process is None:
                self.take(lifecycle.ProcessEnded(reason, Ending.CRASH, time.monotonic()))
            elif self._process is process:
                self._kill(reason)
            return
        if self._process is not process:
            return  # it ended meanwhile, and its end was told
        if self.phase is Phase.STOPPING:
            self._signal(signal.SIGKILL)
        elif self.phase is Phase.STARTING:
            self._chores.later(timeout_s, lambda: self.take(lifecycle.StartOverdue()))

    def _tell_up(self) -> None:
        self._chores.cancel_timers()
        if not self.started.done():
            self.started.set_result(None)
        log.info(
            "agent.started",
            session_id=self.id,
            pid=self.pid,
            incarnation=self.life.incarnation,
        )
        assert self._process is not None  # noqa: S101 - it has just said that it is up
        for command in self.waiting.owed():
            self.desk.workforce.send(self._process.worker, command)

    def _tell_down(self, down: lifecycle.TellDown) -> None:
        log.info(
            "process.ended",
            session_id=self.id,
            reason=str(down.reason),
            incarnation=down.incarnation,
            restarting=down.restarting,
        )
        self.desk.notify(self, down)

    def _end_children(self, grace_s: float | None) -> None:
        for child in list(self.children):
            own_s = child.spec.supervision.shutdown
            bounds_s = (STOP_ALL_S if own_s is None else own_s, STOP_ALL_S, grace_s)
            least_s = min(bound_s for bound_s in bounds_s if bound_s is not None)
            child.take(lifecycle.Stop(lifecycle.PARENT_ENDED, least_s))

    def _await_children(self) -> None:
        if self.children:
            self._chores.spawn(self._outlive_children())
        else:
            self.take(lifecycle.ChildrenGone())

    async def _outlive_children(self) -> None:
        while self.children:
            await asyncio.wait([child.ended for child in self.children])
        self.take(lifecycle.ChildrenGone())

    def _ask_to_end(self, reason: str, term_s: float | None, kill_s: float | None) -> None:
        self._chores.cancel_timers()
        if self._process is not None:
            self.desk.workforce.send(self._process.worker, Terminate(reason=reason))
        if term_s is not None:
            self._chores.later(term_s, lambda: self.take(lifecycle.TermDue()))
        if kill_s is not None:
            self._chores.later(kill_s, lambda: self.take(lifecycle.KillDue()))

    def _kill(self, blamed: PlainReason | None) -> None:
        if self._process is not None:
            self._process.blamed = blamed
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self.desk.workforce.signal(self._process.worker, number)

    def _end(self, reason: AnyReason, *, was_up: bool) -> None:
        self._chores.cancel_timers()
        error: CmdcError = SessionNotAlive(reason) if was_up else StartFailed(reason)
        if self.desk.is_leaving:
            error = DaemonUnavailable("the daemon is stopping; the next one goes on with it")
        for command_id, client in self.waiting.drain():
            self.desk.answer(client, failed(command_id, error))
        if not self.started.done():
            self.started.set_exception(error)
            self.started.exception()  # nobody may be waiting
        self.ended.set_result(reason)
        self.desk.forget(self, reason)

    # --- what the worker says -------------------------------------------------------------------

    def _on_frame(self, frame: FromWorker, more: bytes) -> None:
        match frame:
            case Batch():
                if not self.desk.hub.take(self.id, frame, more):
                    log.warning("event.refused", session_id=self.id, first=frame.first)
            case Write():
                self._write(frame)
            case Answer(id=command_id, body=body):
                self._reply(command_id, Reply(id=command_id, body=msgspec.Raw(body)))
            case Refusal(id=command_id, code=code, message=message, details=details):
                refused = Failed(
                    id=command_id, code=code, message=message, details=msgspec.Raw(details)
                )
                self._reply(command_id, refused)
            case Started():
                self.take(lifecycle.AgentUp())
            case Doze():
                self.take(lifecycle.Doze(len(self.waiting), len(self.children)))
            case NotStarted(stage=stage, message=message) if self._process is not None:
                self._process.not_started = StartFailedReason(stage=stage, message=message)
            case LastWords(reason=reason) if self._process is not None:
                self._process.last_words = reason
            case _:
                log.warning("frame.refused", session_id=self.id, frame=type(frame).__name__)

    def _reply(self, command_id: CommandId, frame: ToClient | bytes) -> None:
        client = self.waiting.answered(command_id)
        if client is not None:
            self.desk.answer(client, frame)

    def _write(self, write: Write) -> None:
        """Hand records and outcomes to the journal at once, ahead of the events behind them."""
        process = self._process
        assert process is not None  # noqa: S101 - it has just spoken
        records = [(record.kind, record.body) for record in write.records]
        settled = [(one.id, one.frame) for one in write.settled]
        try:
            written = self.desk.journal.append(self.id, self.life.incarnation, records, settled)
        except CmdcError as error:
            self._lose_write(process, write, error)
            return
        self._chores.spawn(self._settle(process, write, written))

    async def _settle(self, process: _Process, write: Write, written: Awaitable[None]) -> None:
        try:
            await written
        except CmdcError as error:
            self._lose_write(process, write, error)
            return
        for one in write.settled:
            self._reply(one.id, one.frame)
        if write.barrier:
            self.desk.workforce.send(process.worker, Written(barrier=write.barrier))

    def _lose_write(self, process: _Process, write: Write, error: CmdcError) -> None:
        """End a process whose records could not be stored: the next one begins where they end.

        Going on would leave a hole in the history, and a later record would stand beside it.
        """
        log.error("record.not_journaled", session_id=self.id, problem=str(error))
        for one in write.settled:
            self._reply(one.id, failed(one.id, error))
        if self._process is process:
            self._kill(Other(detail=f"its records could not be journaled: {error}"))

    def _on_exit(self, exited: Exited) -> None:
        self._chores.spawn(self._conclude(exited))

    async def _conclude(self, exited: Exited) -> None:
        process, self._process = self._process, None
        self._chores.cancel_timers()
        assert process is not None  # noqa: S101 - it is the one that ended
        # A Down is told after every event that the process published.
        await self.desk.hub.flushed(self.id)
        reason = classify(
            Evidence(exited.status, process.last_words, process.not_started, process.blamed)
        )
        ending = ending_of(reason, exited.status)
        if self.phase is Phase.DOZING:
            log.info("agent.hibernated", session_id=self.id, reason=str(reason))
        self.take(lifecycle.ProcessEnded(reason, ending, time.monotonic()))
