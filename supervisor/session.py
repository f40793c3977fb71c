"""One session as the daemon keeps it: does what ``core/lifecycle.py`` decides.

It holds the session's worker, the commands that wait for an answer, and the callers that wait for
its start or its end. Everything runs in the loop; the awaits are in tasks that this file starts
and whose failure is an input of the table.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.codec import failed
from cmdc_runtime.errors import (
    CmdcError,
    DaemonUnavailable,
    Overloaded,
    SessionNotAlive,
    StartFailed,
)
from cmdc_runtime.frames import (
    Answer,
    Assign,
    Batch,
    Deliver,
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
from cmdc_runtime.ids import CommandId, EventIndex, SessionId
from cmdc_runtime.reasons import AnyReason, Other, PlainReason
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.requests import SessionInfo, StartSession
from supervisor.adapters.reaper import Exited
from supervisor.core import lifecycle
from supervisor.core.exits import Evidence, classify, ending_of
from supervisor.core.history import slices
from supervisor.core.lifecycle import Effect, Input, Life, Phase
from supervisor.core.limits import COMMANDS_PENDING_MAX
from supervisor.core.restart import Ending
from supervisor.desk import Desk
from supervisor.workforce import SpawnErrors, Worker

log = structlog.get_logger()


@dataclass(slots=True)
class Pending:
    """A command without an answer; ``body`` is kept where a new process must be asked again."""

    client: bytes
    body: msgspec.Raw | None


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
    pending: dict[CommandId, Pending] = field(default_factory=dict)
    ended: asyncio.Future[AnyReason] = field(init=False)
    started: asyncio.Future[None] = field(init=False)
    _backlog: list[Deliver] = field(default_factory=list)
    _process: _Process | None = None
    _timers: list[asyncio.TimerHandle] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Make what callers wait for."""
        loop = asyncio.get_running_loop()
        self.ended, self.started = loop.create_future(), loop.create_future()

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
            phase=self.phase.value,
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
        self.phase, self.life, effects = lifecycle.advance(self.phase, self.life, given)
        for effect in effects:
            self._perform(effect)

    def check_room(self, command_id: CommandId) -> None:
        """Refuse a new command while too many wait; to be asked before one is journaled.

        Raises:
            Overloaded: too many commands wait for this session.
        """
        if command_id not in self.pending and len(self.pending) >= COMMANDS_PENDING_MAX:
            raise Overloaded(f"{COMMANDS_PENDING_MAX} commands wait for session {self.id}")

    def deliver(
        self, client: bytes, command_id: CommandId, body: msgspec.Raw, *, durable: bool
    ) -> None:
        """Give a command to the agent, now or when it is up; a durable one is journaled already.

        Raises:
            Overloaded: too many commands wait for this session.
        """
        known = self.pending.get(command_id)
        if known is not None:  # the client asks again: only where to send the answer may be new
            known.client = client
            return
        if not durable:
            self.check_room(command_id)
        self.pending[command_id] = Pending(client, None if durable else body)
        frame = Deliver(id=command_id, body=body, durable=durable)
        if self.phase is Phase.UP and self._process is not None:
            self.desk.workforce.send(self._process.worker, frame)
        elif durable:
            self._backlog.append(frame)

    def record_end(self, reason: bytes) -> None:
        """Write the session's end down, in the background."""
        self._spawn(self._record_end(reason))

    async def _record_end(self, reason: bytes) -> None:
        try:
            await self.desk.journal.ended(self.id, reason, now_ms())
        except CmdcError as error:
            log.error("end.not_journaled", session_id=self.id, problem=str(error))

    # --- effects --------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case lifecycle.StartProcess(timeout_s=timeout_s):
                self._spawn(self._start_process(timeout_s))
            case lifecycle.TellUp():
                self._tell_up()
            case lifecycle.WaitDelay(delay_s=delay_s):
                self._later(delay_s, lifecycle.DelayOver())
            case lifecycle.AskToEnd(reason=reason, term_s=term_s, kill_s=kill_s):
                self._ask_to_end(reason, term_s, kill_s)
            case lifecycle.Terminate():
                self._signal(signal.SIGTERM)
            case lifecycle.Kill(blamed=blamed):
                self._kill(blamed)
            case lifecycle.TellDown():
                log.info(
                    "process.ended",
                    session_id=self.id,
                    reason=str(effect.reason),
                    incarnation=effect.incarnation,
                    restarting=effect.restarting,
                )
                self.desk.notify(self, effect)
            case lifecycle.TellEnded(reason=reason, was_up=was_up):
                self._end(reason, was_up=was_up)

    async def _start_process(self, timeout_s: float) -> None:
        process: _Process | None = None
        try:
            worker = await self.desk.workforce.hire()
            worker.on_frame, worker.on_exit = self._on_frame, self._on_exit
            process = self._process = _Process(worker)
            await self._assign(worker)
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
            self._later(timeout_s, lifecycle.StartOverdue())

    async def _assign(self, worker: Worker) -> None:
        journal, incarnation = self.desk.journal, self.life.incarnation
        if incarnation > 1:
            await journal.began(self.id, incarnation, self.life.restarts)
            stored = await journal.load(self.id)
        else:
            stored = None
        assign = Assign(
            session_id=self.id,
            incarnation=incarnation,
            restarts=self.life.restarts,
            next_index=EventIndex(self.desk.hub.taken_index(self.id) + 1),
            agent=self.spec.agent,
            parent_id=self.spec.parent_id,
            group_id=self.spec.group_id,
            last_reason=self.life.last_reason,
        )
        for frame in (assign, *slices(stored)):
            self.desk.workforce.send(worker, frame)

    def _tell_up(self) -> None:
        self._cancel_timers()
        if not self.started.done():
            self.started.set_result(None)
        log.info(
            "agent.started",
            session_id=self.id,
            pid=self.pid,
            incarnation=self.life.incarnation,
        )
        assert self._process is not None  # noqa: S101 - it has just said that it is up
        for command_id, pending in self.pending.items():
            if pending.body is not None:
                frame = Deliver(id=command_id, body=pending.body, durable=False)
                self.desk.workforce.send(self._process.worker, frame)
        backlog, self._backlog = self._backlog, []
        for frame in backlog:
            self.desk.workforce.send(self._process.worker, frame)

    def _ask_to_end(self, reason: str, term_s: float | None, kill_s: float | None) -> None:
        self._cancel_timers()
        if self._process is not None:
            self.desk.workforce.send(self._process.worker, Terminate(reason=reason))
        if term_s is not None:
            self._later(term_s, lifecycle.TermDue())
        if kill_s is not None:
            self._later(kill_s, lifecycle.KillDue())

    def _kill(self, blamed: PlainReason | None) -> None:
        if self._process is not None:
            self._process.blamed = blamed
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self.desk.workforce.signal(self._process.worker, number)

    def _end(self, reason: AnyReason, *, was_up: bool) -> None:
        self._cancel_timers()
        error: CmdcError = SessionNotAlive(reason) if was_up else StartFailed(reason)
        if self.desk.is_leaving:
            error = DaemonUnavailable("the daemon is stopping; the next one goes on with it")
        for command_id, pending in self.pending.items():
            self.desk.answer(pending.client, failed(command_id, error))
        self.pending.clear()
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
            case NotStarted(stage=stage, message=message) if self._process is not None:
                self._process.not_started = StartFailedReason(stage=stage, message=message)
            case LastWords(reason=reason) if self._process is not None:
                self._process.last_words = reason
            case _:
                log.warning("frame.refused", session_id=self.id, frame=type(frame).__name__)

    def _reply(self, command_id: CommandId, frame: ToClient | bytes) -> None:
        pending = self.pending.pop(command_id, None)
        if pending is not None:
            self.desk.answer(pending.client, frame)

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
        self._spawn(self._settle(process, write, written))

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
        self._spawn(self._conclude(exited))

    async def _conclude(self, exited: Exited) -> None:
        process, self._process = self._process, None
        self._cancel_timers()
        assert process is not None  # noqa: S101 - it is the one that ended
        # A Down is told after every event that the process published.
        await self.desk.hub.flushed(self.id)
        reason = classify(
            Evidence(exited.status, process.last_words, process.not_started, process.blamed)
        )
        ending = ending_of(reason, exited.status)
        self.take(lifecycle.ProcessEnded(reason, ending, time.monotonic()))

    # --- timers and tasks -----------------------------------------------------------------------

    def _later(self, delay_s: float, given: Input) -> None:
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(delay_s, self.take, given))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:  # Any: asyncio's own shape
        task = asyncio.create_task(work, name=f"session-{self.id}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug of ours in one session: it must not take the others along, nor hide.
            log.error("session.failed", session_id=self.id, exc_info=error)
            self._signal(signal.SIGKILL)
