"""One session as the daemon keeps it: the child handler of its agent in the tree.

The tree decides when a process is started, ended or given up. Here stands what is a session's own:
it begins and ends, hibernates and is woken, its commands wait for a process, its callers for its
start and its end. Everything runs in the loop; the awaits are in tasks that this file starts.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import msgspec
import structlog

from cmdc_runtime.errors import (
    CmdcError,
    DaemonUnavailable,
    SessionNotAlive,
    SessionParked,
    start_error,
)
from cmdc_runtime.ids import CommandId, Incarnation, SessionId
from cmdc_runtime.process import HIBERNATE
from cmdc_runtime.reasons import (
    AnyReason,
    NoProcess,
    Normal,
    Other,
    PlainReason,
    Shutdown,
    Unkillable,
)
from cmdc_runtime.requests import SessionInfo, StartSession
from cmdc_runtime.wire.codec import failed
from cmdc_runtime.wire.frames import Deliver, ToClient
from supervisor.core.exits import Asked, ExitRecord, Falls, fell_at
from supervisor.core.limits import STATUS_BYTES_MAX
from supervisor.core.session_phase import SHOWN, Happening, Phase, after
from supervisor.core.session_tree import AGENT, HIBERNATE_GRACE_S, check_parent, parks
from supervisor.core.tree.messages import (
    CallResult,
    Ending,
    Outcome,
    ProcessEnded,
    Ref,
    SupervisorEnded,
    SupervisorPath,
)
from supervisor.processes.worker import Worker
from supervisor.sessions.agent import Agent
from supervisor.sessions.assignment import Services
from supervisor.sessions.pending import PendingCommands
from supervisor.sessions.reader import Reader
from supervisor.sessions.session_tasks import SessionTasks
from supervisor.sessions.start_attempt import Inherited, StartAttempt
from supervisor.sessions.tree_runtime import ignored

log = structlog.get_logger()

STOPPED_EARLY: Final = "it was stopped before it was started"
BUG: Final = "a task of the daemon failed while the process was started; its log says how"
_NOT_ITS_OWN: Final = (Shutdown(detail=HIBERNATE), Shutdown(detail="normal"))
"""What a process says, or is said of it, that is stopped while it hibernates or has not started."""


class SessionServices(Services, Protocol):
    """What the session needs beside that; a protocol, since ``Sessions`` imports this module."""

    def notify(self, session: "Session", ended: ProcessEnded) -> None:
        """Notify the monitors that a process ended; ``record`` is an ``ExitRecord`` or None."""

    def record_hibernation(self, session: "Session") -> None:
        """Record that a process ended and nobody is notified."""

    def forget(self, session: "Session", reason: AnyReason) -> None:
        """Remove an ended session."""


@dataclass(slots=True, eq=False)
class Session:
    """One session; ``spec`` is the StartSession request that it is started from."""

    services: SessionServices
    spec: StartSession
    path: SupervisorPath
    created_ms: int
    incarnation: Incarnation = Incarnation(0)
    restarts: int = 0
    was_up: bool = False
    needs_litellm: bool = False
    """Its model is asked by litellm, as far as one of its processes has said so."""
    last_reason: AnyReason | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of providers, for each of its processes."""
    phase: Phase = Phase.STARTING
    inherited: Inherited | None = None
    """The agent that an earlier daemon left running, until it is adopted."""
    announced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when that agent has been adopted, or is gone."""
    children: "set[Session]" = field(default_factory=set)
    pending: PendingCommands = field(init=False)
    ended: asyncio.Future[AnyReason] = field(init=False)
    started: asyncio.Future[None] = field(init=False)
    _start_attempt: StartAttempt | None = None
    """How its agent was started, until its process has ended."""
    _is_wanted: bool = False
    _stop_reason: PlainReason | None = None
    _falls: Falls = field(default_factory=Falls)
    """Where its processes have died while they made its memory out of the journal."""
    _idle_status: bytes = b""
    """The status of its agent when it hibernated."""
    _reader: Reader | None = None
    """Who answers questions while it hibernates."""
    _tasks: SessionTasks = field(init=False)

    def __post_init__(self) -> None:
        """Make what callers wait for."""
        loop = asyncio.get_running_loop()
        self.ended, self.started = loop.create_future(), loop.create_future()
        self.pending = PendingCommands(self.id)
        self._tasks = SessionTasks(self.id, on_bug=self._let_crash)

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self.spec.session_id

    @property
    def _process(self) -> Agent | None:
        return None if self._start_attempt is None else self._start_attempt.process

    @property
    def worker(self) -> Worker | None:
        """Its process, None between two."""
        return None if self._process is None else self._process.worker

    @property
    def set_aside(self) -> tuple[int, ...]:
        """The steps of rebuilding that have killed its processes: the next one leaves them out."""
        return self._falls.set_aside

    @property
    def is_parked(self) -> bool:
        """Whether it ended so that it goes on when it is resumed: it was there, and not stopped."""
        origin = self.spec.origin
        was_there = self.was_up or (origin is not None and origin.session_id == self.id)
        is_root, is_stopped = self.spec.parent_id is None, self._stop_reason is not None
        return parks(self.last_reason) and was_there and is_root and not is_stopped

    def info(self) -> SessionInfo:
        """Return what is known without asking the agent."""
        return SessionInfo(
            session_id=self.id,
            phase=SHOWN[self.phase],
            incarnation=self.incarnation,
            restarts=self.restarts,
            pid=None if self.worker is None else self.worker.pid,
            parent_id=self.spec.parent_id,
            group_id=self.spec.group_id,
            last_index=self.services.hub.taken_index(self.id),
            reason=self.last_reason,
            created_ms=self.created_ms,
            asleep=self._idle_status if SHOWN[self.phase] == "hibernated" else b"",
            own_checkpoints=self.spec.own_checkpoints,
        )

    def check_child(self, asks: Incarnation | None) -> None:
        """Refuse a child that could outlive the process that it is started for.

        Raises:
            SessionNotAlive: the session ends.
            TransientError: it has no process now, or not the one that asks.
        """
        if self.phase in {Phase.STOPPING, Phase.ENDING, Phase.ENDED}:
            raise SessionNotAlive(self.last_reason or Shutdown(detail="it is being stopped"))
        check_parent(self.id, self.phase, self.incarnation, asks or self.incarnation)

    def deliver(
        self, client: bytes, command_id: CommandId, body: msgspec.Raw, *, durable: bool
    ) -> None:
        """Give a command to the agent, now or when it is up; a durable one is journaled already.

        Raises:
            Overloaded: too many commands wait for this session.
        """
        if self._knows(client, command_id):
            return
        if not durable:
            self.pending.check_room(command_id)
        command = Deliver(id=command_id, body=body, durable=durable)
        process = self._process if self.phase is Phase.UP else None
        self.pending.add(client, command, is_sent=process is not None)
        if process is not None:
            process.send(command)
        elif self.phase is Phase.HIBERNATING:
            self._is_wanted = True
        elif self.phase is Phase.HIBERNATED:
            self._wake()

    def _knows(self, client: bytes, command_id: CommandId) -> bool:
        """Say whether a client asks again: only where to send the answer may be new."""
        if (known := self.pending.early_answer(command_id)) is not None:
            self.services.answer(client, known)
            return True
        return self.pending.renew(client, command_id)

    def look(
        self, client: bytes, command_id: CommandId, body: msgspec.Raw, *, waits: bool = False
    ) -> None:
        """Give a question to the agent, or to a reader while it hibernates: nobody is woken.

        One that ``waits`` may have no answer before the agent is awake, and keeps it awake.

        Raises:
            Overloaded: too many commands wait for this session.
        """
        if self._knows(client, command_id):
            return
        self.pending.check_room(command_id)
        question = Deliver(id=command_id, body=body, durable=False)
        process = self._process if self.phase is Phase.UP else None
        self.pending.add(client, question, is_sent=process is not None, looks=True, waits=waits)
        if process is not None:
            process.send(question)
        elif self.phase is Phase.HIBERNATED:
            self._read()

    def _read(self) -> None:
        """Have the questions that wait answered without a process of the session."""
        if not self.pending.looks():
            return
        if self._reader is None or self._reader.is_over:
            self._reader = Reader(self.services, self)
            self._tasks.spawn(self._reader.run())
        self._reader.ask()

    def _enter(self, happening: Happening) -> bool:
        """Go to the phase that something leads to, and say whether that is another one."""
        before, self.phase = self.phase, after(self.phase, happening)
        return self.phase is not before

    # --- its start and its end, as the tree reports them ---------------------------------------

    def begun(self, answer: CallResult) -> None:
        """Take the answer of the call that started the session."""
        if answer.outcome is Outcome.OK:
            if not self.started.done():
                self.started.set_result(None)
        elif self.phase is not Phase.ENDED:  # it never was in the tree, so nothing else does
            self._publish_last(self._stop_reason or Shutdown(detail=STOPPED_EARLY))

    def unwritten(self, error: CmdcError) -> None:
        """Answer who waits for a session that could not be written down, and so never was."""
        self._enter(Happening.OVER)
        self._answer_all(error)
        self.ended.set_result(NoProcess())

    def stop(self, reason: str, grace_s: float | None) -> None:
        """End the session; a second call may give it less time."""
        if self.phase is Phase.ENDED:
            return
        if self._enter(Happening.STOPPED):
            self._stop_reason = Normal() if reason == "normal" else Shutdown(detail=reason)
        self._end_in_tree(reason, grace_s)

    def _end_in_tree(self, why: str, grace_s: float | None) -> None:
        self.services.runtime.terminate_child(self.path[:-1], self.path[-1], ignored, why, grace_s)

    def over(self, ended: SupervisorEnded) -> None:
        """Record that nothing of the session is left in the tree."""
        if self.phase is Phase.ENDING:
            assert self.last_reason is not None  # noqa: S101 - set by ``on_ended``
            self._end(self.last_reason)
        elif self.phase is not Phase.ENDED:
            self._publish_last(self._stop_reason or ended.cause)

    def _publish_last(self, reason: AnyReason) -> None:
        """Publish an end for which there was no process of it to be reported."""
        ref = Ref(self.path, AGENT, self.incarnation)
        self._publish_down(
            ProcessEnded(
                ref=ref, reason=reason, restarting=False, asked=True, restarts=self.restarts
            )
        )
        self._end(reason)

    def _end(self, reason: AnyReason) -> None:
        self._enter(Happening.OVER)
        self.last_reason = reason
        if self._reader is not None:
            self._reader.end()
        self._tasks.cancel_timers()  # tasks run to their end
        error: CmdcError = SessionNotAlive(reason) if self.was_up else start_error(reason)
        if self.is_parked:
            error = SessionParked(str(reason))
        if self.services.is_leaving:
            error = DaemonUnavailable("the daemon is stopping; the next one goes on with it")
        self._answer_all(error)
        if not self.started.done():
            self.started.set_exception(error)
            self.started.exception()  # nobody may be waiting
        self.ended.set_result(reason)
        self.services.forget(self, reason)

    def _answer_all(self, error: CmdcError) -> None:
        for command_id, client in self.pending.drain():
            self.services.answer(client, failed(command_id, error))

    # --- the child handler of its agent ---------------------------------------------------------

    def launch(self, ref: Ref) -> None:
        """Make a worker the agent; a daemon that ends leaves that to the next one."""
        if self.services.is_leaving:
            return
        self._enter(Happening.LAUNCHED)
        self.incarnation = ref.generation
        inherited, self.inherited = self.inherited, None
        self._start_attempt = StartAttempt(ref, self, self.services, self._tasks)
        self._start_attempt.begin(inherited)

    def ask(self, ref: Ref, reason: str) -> None:
        """Ask the process politely to end; where there is none yet, none is started."""
        over = self.phase is not Phase.HIBERNATING
        self._enter(Happening.ASKED)
        if self._process is None:
            self._give_up(ref, Shutdown(detail=reason), Ending.NORMAL)
        else:  # with a daemon that stops the session is not over
            self._process.ask(reason, over=over and not self.services.is_leaving)

    def terminate(self, _ref: Ref) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def kill(self, ref: Ref, fail_reason: PlainReason | None) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.kill(fail_reason)
        else:
            early = fail_reason or self._stop_reason or Shutdown(detail=STOPPED_EARLY)
            self._give_up(ref, early, Ending.NORMAL if fail_reason is None else Ending.CRASH)

    def is_over(self) -> bool:
        """Say whether its process is gone, though its end is not reported yet."""
        return self._process is not None and self._process.worker.is_over()

    def on_ended(self, ended: ProcessEnded) -> None:
        """Notify who watches, unless the session hibernates."""
        if self.phase is Phase.HIBERNATING:
            self.last_reason = None
            self.services.record_hibernation(self)
            return
        if ended.asked and ended.reason in _NOT_ITS_OWN:
            ended = replace(ended, reason=self._stop_reason or Normal())
        if isinstance(ended.reason, Unkillable) and self._process is not None:
            record = self._process.stuck(ended.reason)
            ended = replace(ended, reason=record.reason, record=record)
        self.restarts, self.last_reason = ended.restarts, ended.reason
        self._enter(Happening.RESTARTED if ended.restarting else Happening.NOT_RESTARTED)
        self._publish_down(ended)
        if isinstance(ended.reason, Unkillable):
            # No process takes its place, so a supervisor that was not about to end would wait.
            self._end_in_tree(str(ended.reason), 0.0)

    def _publish_down(self, ended: ProcessEnded) -> None:
        log.info(
            "process.ended",
            session_id=self.id,
            reason=str(ended.reason),
            incarnation=ended.ref.generation,
            restarting=ended.restarting,
        )
        self.services.notify(self, ended)

    def _give_up(self, ref: Ref, reason: PlainReason, ending: Ending) -> None:
        if self._start_attempt is not None and self._start_attempt.ref == ref:
            self._start_attempt.give_up(reason, ending)

    # --- what its process says ------------------------------------------------------------------

    def reply(self, command_id: CommandId, frame: ToClient | bytes) -> None:
        """Answer a command."""
        if (client := self.pending.answered(command_id)) is not None:
            self.services.answer(client, frame)

    def reply_early(self, command_id: CommandId, frame: bytes) -> None:
        """Answer a command that the journal had no room for, though what it did waits for room."""
        if (client := self.pending.answered_early(command_id, frame)) is not None:
            self.services.answer(client, frame)

    def reader_fell(self, step: int) -> bool:
        """Record the step of rebuilding that a reader died at; say whether to try again."""
        self._falls.note(step)
        return self._falls.may_try_again

    def disk_full(self) -> None:
        """Answer the questions whose answers wait behind what there is no room for."""
        if self._process is not None:
            self._process.answer_looks()

    def process_up(self, process: Agent) -> None:
        """Give the agent what waits for it; callers of the start have their answer."""
        if process is not self._process or not self._enter(Happening.CAME_UP):
            return
        self._tasks.cancel_timers()
        self.was_up = True
        process.begin(self.spec.supervision)
        self.services.runtime.up(process.ref, process.worker.pid)
        for client, refusal in self.pending.dropped():
            log.warning("question.dropped", session_id=self.id, incarnation=self.incarnation)
            self.services.answer(client, refusal)
        for command in self.pending.take_unsent():
            process.send(command)
        self.announced.set()

    def process_lean(self, process: Agent) -> None:
        """Give the session a process that has litellm: now if it is not up, or the next one."""
        if self._start_attempt is not None and process is self._process:
            self.needs_litellm = True
            if self.phase is Phase.STARTING and not process.has_spoken:
                self._start_attempt.exchange(process)

    def process_idle(self, process: Agent, status: bytes) -> None:
        """Give the process up unless somebody depends on it: it says so again later."""
        is_needed = self.pending.needs_agent or len(self.children) > 0
        if process is self._process and not is_needed and self._enter(Happening.IDLED):
            self._is_wanted = False
            self._idle_status = status if len(status) <= STATUS_BYTES_MAX else b""
            self.services.runtime.hibernate_child(
                process.ref, self._hibernated, HIBERNATE, HIBERNATE_GRACE_S
            )

    def _may_try_again(self, process: Agent) -> bool:
        """Say whether another process may take the place of one that died before it was up.

        Where it had written nothing nobody knew of it, so it is the same try.
        """
        is_ours = self.phase is Phase.STARTING and process.asked is Asked.NOTHING
        return is_ours and not process.has_spoken and self._falls.may_try_again

    def process_ended(self, process: Agent, record: ExitRecord) -> None:
        """Report its end to the tree."""
        if self._start_attempt is None or process is not self._process:
            return
        self._start_attempt.close()
        self._start_attempt = None
        self._tasks.cancel_timers()
        self.pending.process_ended(crashed=record.ending is Ending.CRASH)
        step = fell_at(record)
        self._falls.note(step, was_up=self.phase is Phase.UP)
        if step is not None and self._may_try_again(process):
            log.warning(
                "process.fell",
                session_id=self.id,
                incarnation=process.ref.generation,
                step=step,
                reason=str(record.reason),
            )
            self._start_attempt = StartAttempt(process.ref, self, self.services, self._tasks)
            self._start_attempt.begin(None)
            return
        self.announced.set()
        if self.phase is Phase.HIBERNATING:
            log.info("agent.hibernated", session_id=self.id, reason=str(record.reason))
        ending = record.ending
        if ending is Ending.CRASH and self._falls.spares(step):
            ending = Ending.FELL
        self.services.runtime.exited(process.ref, record.reason, ending, record)

    def _hibernated(self, answer: CallResult) -> None:
        if self.phase is not Phase.HIBERNATING:
            return  # it was stopped meanwhile
        if answer.outcome is Outcome.NO_PROCESS:
            self._enter(Happening.NOT_HIBERNATED)
            return
        if answer.outcome is not Outcome.OK:
            self.stop(f"its idle process could not be ended: {answer.reason}", 0.0)
            return
        self._enter(Happening.HIBERNATED)
        if self._is_wanted:
            self._wake()
        else:
            self._read()

    def _wake(self) -> None:
        self._enter(Happening.WANTED)
        self.services.runtime.wake_child(Ref(self.path, AGENT, self.incarnation), ignored)

    def _let_crash(self) -> None:
        """End what is under way after a task of ours has failed: nothing else would come of it."""
        if self.phase is Phase.ENDED:
            return
        if self._process is not None:
            self._process.kill()
        elif self._start_attempt is not None:
            self._start_attempt.give_up(Other(detail=BUG), Ending.CRASH)
