"""One process of a session: what it is given, what it says, and how it ended.

It may have been another daemon's before: then it is adopted when it calls, and sends again what
has no ack of that daemon. Here stands what belongs to this incarnation alone, so that
nothing of an earlier one is taken for the present one's: its frames come by its own connection, and
the journal refuses its records once the next one has begun.

``Acks`` say what is safe, which the agent need not keep for the next daemon.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec
import structlog

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.ids import CommandId, EventIndex, SessionId
from cmdc_runtime.reasons import Other, PlainReason, Unkillable
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.requests import Supervision
from cmdc_runtime.wire.codec import failed
from cmdc_runtime.wire.frames import (
    OWN_SLOT,
    Adopted,
    Answer,
    Batch,
    Contained,
    Detached,
    ExitNotice,
    FailedReply,
    FromWorker,
    IdleNotice,
    LitellmWanted,
    NotStarted,
    PagedReply,
    Refusal,
    ServerWanted,
    Started,
    Terminate,
    ToWorker,
    ValueReply,
    Write,
    Written,
)
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import EventRow
from supervisor.adapters.journal.operations import AppendRecords, LoadSession
from supervisor.adapters.pidfd import stuck_at
from supervisor.adapters.router import Published
from supervisor.adapters.self_check import FlushBarrier
from supervisor.core.exits import Asked, ExitRecord, judge
from supervisor.core.limits import ACK_EVENTS_S, INDEX_JUMP
from supervisor.core.session_phase import Phase
from supervisor.core.storage import Condition
from supervisor.core.tree.messages import Ending, Ref
from supervisor.processes.worker import Worker, WorkerOwner
from supervisor.sessions.assignment import Services, SessionView, deliveries
from supervisor.sessions.pending import answer_of
from supervisor.sessions.session_tasks import SessionTasks

# --- acks -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Acks:
    """Reports to one process of a session which of its writes are stored, and which events are out.

    A write is safe when the journal has it. An event is when ZeroMQ has passed it on: until then it
    is lost with this daemon.
    """

    hub: Hub
    flush_barrier: FlushBarrier
    session_id: SessionId
    send: Callable[[ToWorker], bool]
    written: int = 0
    """The newest of its writes that the journal has."""
    _out: EventIndex = EventIndex(0)
    """Up to here its events are safe."""
    _seen: EventIndex = EventIndex(0)
    """Up to here they were published at ``_mark``."""
    _mark: int = 0
    _sent: tuple[int, int] = (0, 0)
    _timer: asyncio.TimerHandle | None = None

    def store(self, number: int) -> None:
        """Record that the journal has the writes up to this one, and acknowledge it now."""
        self.written = max(self.written, number)
        self._send_in(0.0)

    def publish(self) -> None:
        """Record that there are new events; they get acks when they are safe, or soon after."""
        self._send_in(ACK_EVENTS_S)

    def close(self) -> None:
        """Acknowledge nothing more: the process has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _send_in(self, delay_s: float) -> None:
        """Acknowledge soon, and once for all that comes until then."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._send_ack)

    def _send_ack(self) -> None:
        self._timer = None
        if self.flush_barrier.is_flushed(self._mark):
            self._out = self._seen
            published = self.hub.last_index(self.session_id)
            if published > self._seen:
                self._seen, self._mark = published, self.flush_barrier.mark()
        if self._sent != (self.written, self._out):
            self._sent = (self.written, self._out)
            self.send(Written(number=self.written, index=self._out))
        if self._out < self.hub.taken_index(self.session_id):
            self._send_in(ACK_EVENTS_S)


# --- the process ----------------------------------------------------------------------------------

log = structlog.get_logger()


class AgentOwner(SessionView, Protocol):
    """What an agent needs of its session beside that; a protocol, as ``Session`` imports this."""

    phase: Phase
    was_up: bool
    needs_litellm: bool
    announced: asyncio.Event

    def reply_early(self, command_id: CommandId, frame: bytes) -> None:
        """Answer a command that the journal had no room for."""

    def process_up(self, process: "Agent") -> None:
        """Record that the agent takes commands."""

    def process_lean(self, process: "Agent") -> None:
        """Record that the agent needs litellm, which its process does not have."""

    def process_idle(self, process: "Agent", status: bytes) -> None:
        """Record that the agent has been idle for long, and how it stands."""

    def process_ended(self, process: "Agent", record: ExitRecord) -> None:
        """Record that the process is gone, and all that it published is out."""


@dataclass(slots=True, eq=False)
class Agent(WorkerOwner):
    """A worker that is, or is about to be, the agent of a session."""

    ref: Ref
    owner: AgentOwner
    services: Services
    worker: Worker
    tasks: SessionTasks
    said: PlainReason | None = None
    not_started: StartFailedReason | None = None
    fail_reason: PlainReason | None = None
    asked: Asked = field(default=Asked.NOTHING)
    events_max: int = 0
    """Of the ring that is opened where it is adopted."""
    is_adopted: bool = False
    """It was another daemon's."""
    _is_behind: bool = False
    """What it had published for that daemon may not have come again: it was not up since."""
    _was_up: bool = False
    """Its agent was made: what is said of its start from then on is none of its words."""
    _has_lost: bool = False
    """A write of it could not be stored: what it says of its work from then on has no place."""
    _given: int = 0
    """The newest of its writes that the journal was given."""
    _has_published: bool = False
    _answers: deque[tuple[int, ValueReply | PagedReply | FailedReply]] = field(
        default_factory=deque
    )
    """Answers to questions, behind the write that must be in the journal before them."""
    _acks: Acks = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing that is safe."""
        send = partial(self.services.pool.send, self.worker)  # not of this object: no cycle
        self._acks = Acks(self.services.hub, self.services.flush_barrier, self.owner.id, send)

    def adopt(self, policy: Supervision, written: int) -> None:
        """Wait for an agent of an earlier daemon to call; ``written`` is its last write there."""
        self.is_adopted = self._is_behind = self._was_up = True
        self.worker.is_detached = True
        self._acks.written = self._given = written
        self.events_max = policy.event_buffer_size
        self._hear(policy)
        self.worker.containment.take_over(
            self.worker.pid, self.owner.id, self.ref.generation, policy
        )

    def take_over(self, policy: Supervision) -> None:
        """Hear the worker from now on, and keep it within its limits."""
        self._hear(policy)
        self.worker.containment.assign(self.worker.pid, self.owner.id, self.ref.generation, policy)

    def _hear(self, policy: Supervision) -> None:
        self.worker.owner = self
        self.worker.hosts.max_open_files = policy.max_open_files
        self.worker.mark = (self.owner.id, self.ref.generation)

    def begin(self, policy: Supervision) -> None:
        """Record that it is up, and expect signs of life from now on."""
        whose = {"session_id": self.owner.id, "incarnation": self.ref.generation}
        if self.is_adopted:
            log.info("agent.adopted", pid=self.worker.pid, **whose)
            self.tasks.spawn(self._give_unanswered())
        else:
            log.info("agent.started", pid=self.worker.pid, **whose)
        self.worker.containment.expect(self.worker.pid, policy.unresponsive_after)

    def send(self, frame: ToWorker) -> None:
        """Send a frame; one that is gone does not get it."""
        self.services.pool.send(self.worker, frame)

    async def _give_unanswered(self) -> None:
        """Give an agent what an earlier daemon accepted for it and perhaps did not give it.

        It knows what it has taken. What it has answered is in the journal by now: it sent that
        before it was up.
        """
        try:
            stored = await self.services.journal.read(LoadSession(self.owner.id))
        except CmdcError as error:
            self.kill(StartFailedReason(stage="rebuild", message=str(error)))
            return
        for frame in deliveries(self.owner.id, stored):
            self.send(frame)

    def ask(self, reason: str, *, over: bool = False) -> None:
        """Ask the process politely to end; ``over``: the session ends with it."""
        self._raise(Asked.POLITELY)
        self.send(Terminate(reason=reason, over=over))

    def on_contained(self) -> None:
        """Send word that its tools may run; an adopted agent does not wait for it."""
        if not self.is_adopted:
            self.send(Contained())

    def on_fail(self, reason: PlainReason) -> None:
        """Report it to the tree, which has it killed."""
        self.services.runtime.fail(self.ref, reason)

    def on_stack(self) -> None:
        """Have the process write its stacks to standard error, however it hangs."""
        self.services.pool.signal(self.worker, signal.SIGQUIT)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._raise(Asked.SIGTERM)
        self.services.pool.signal(self.worker, signal.SIGTERM)

    def kill(self, fail_reason: PlainReason | None = None) -> None:
        """Send SIGKILL to it and what it started; ``fail_reason`` is the reason to report."""
        if not self.worker.has_ended:  # what comes too late says nothing about its end
            self.fail_reason = self.fail_reason or fail_reason
        self._raise(Asked.SIGKILL)
        self.services.pool.kill(self.worker)

    @property
    def has_spoken(self) -> bool:
        """Whether the journal or a subscriber may have something of it."""
        return self._given > 0 or self._has_published

    def give_way(self, goes_on: Callable[[], bool]) -> None:
        """Be killed, for another process of this incarnation; only for one that has not spoken.

        ``goes_on`` is asked when it has ended. If it says no, this is an end like any other.
        """
        worker = self.worker
        worker.owner = _GivingWay(self, goes_on)
        self.services.pool.kill(worker)

    def stuck(self, reason: Unkillable) -> ExitRecord:
        """Return what is known of a process that SIGKILL did not end: where in the kernel it is."""
        worker = self.worker
        found = None if worker.has_ended else stuck_at(worker.pid, worker.pidfd)
        if found is not None:
            reason = msgspec.structs.replace(reason, state=found.state, wchan=found.wchan)
        return ExitRecord(pid=worker.pid, reason=reason, ending=Ending.CRASH)

    def _raise(self, asked: Asked) -> None:
        if not self.worker.has_ended:
            rungs = list(Asked)
            self.asked = max(self.asked, asked, key=rungs.index)

    # --- what it says -----------------------------------------------------------------------

    def on_frame(self, frame: FromWorker, published: Published) -> None:
        """Take what it says, unless that builds on what was lost."""
        match frame:
            case Batch() | Write() | Answer() | Refusal() if self._has_lost:
                pass  # it was sent before the process died, and leans on what is not there
            case Batch():
                self._take(published)
                self._acks.publish()
            case Write():
                self._write(frame, published)
            case Answer() | Refusal():
                self._answer(answer_of(frame))
            case Started():
                self._is_behind, self._was_up = False, True
                self.worker.is_registered = True
                self.owner.process_up(self)
            case IdleNotice(status=status):
                self.owner.process_idle(self, status)
            case LitellmWanted():
                self.owner.process_lean(self)
            case ServerWanted(key=key):
                self.services.server_hosts.want(self.worker, key)
            case _:
                self._on_word(frame)

    def _on_word(self, frame: FromWorker) -> None:
        """Take what it says of its end, or of another daemon's."""
        match frame:
            case Detached():
                self._on_announced(frame)
            case NotStarted(stage=stage, message=message) if not self._was_up:
                self.not_started = StartFailedReason(stage=stage, message=message)
            case ExitNotice(reason=reason):
                self.said = reason
            case _:
                log.warning("frame.refused", session_id=self.owner.id, frame=type(frame).__name__)

    def _answer(self, frame: ValueReply | PagedReply | FailedReply) -> None:
        """Answer a question, when what the agent did before it is in the journal.

        Nobody may read what both the daemon and the agent could still forget; but who looks how
        things are while the disk is full gets what the agent knows, marked as unsaved.
        """
        if self._acks.written >= self._given:
            self.owner.reply(frame.id, frame)
            return
        self._answers.append((self._given, frame))
        if self.services.journal.health.condition is Condition.FULL:
            self.answer_looks()

    def answer_looks(self) -> None:
        """Answer questions how things are; what is behind a write waits for room on the disk."""
        waiting, self._answers = self._answers, deque()
        for behind, frame in waiting:
            if not self.owner.pending.is_look(frame.id):
                self._answers.append((behind, frame))
            elif isinstance(frame, ValueReply):
                self.owner.reply(frame.id, msgspec.structs.replace(frame, unsaved=True))
            else:
                self.owner.reply(frame.id, frame)

    def _answer_safe(self) -> None:
        while self._answers and self._answers[0][0] <= self._acks.written:
            _, frame = self._answers.popleft()
            self.owner.reply(frame.id, frame)

    def _on_announced(self, announced: Detached) -> None:
        """Take the agent over, from the oldest event that it can send again."""
        if self.worker.is_detached:
            newest = self.services.hub.taken_index(self.owner.id)
            if announced.first > newest + INDEX_JUMP:
                why = f"its next event is {announced.first}, and the journal ends at {newest}"
                self.kill(Other(detail=why))
                return
            self.worker.is_detached = False
            last = EventIndex(announced.first - 1)
            self.services.hub.open_channel(self.owner.id, self.events_max, last)
        worker = self.worker
        self.send(
            Adopted(
                daemon_pid=os.getpid(),
                written=self._acks.written,
                slot=OWN_SLOT if worker.containment.brings_slot else worker.containment.slot,
                output_id=worker.id,
            )
        )

    def _take(
        self, published: Published, written: "asyncio.Future[None] | None" = None
    ) -> tuple[EventRow, ...]:
        """Have events published, and return those that the journal is to keep."""
        taken = []
        self._has_published |= bool(published)
        for batch, body in published:
            if not self.services.hub.take(self.owner.id, batch, body, written):
                log.warning("event.refused", session_id=self.owner.id, first=batch.first)
            elif batch.durable:
                taken.append(EventRow(first=batch.first, count=batch.count, body=body))
        return tuple(taken)

    def _write(self, write: Write, published: Published) -> None:
        """Hand records, outcomes and the events that report them to the journal, as one.

        Apart, a death of the daemon and one of the agent could leave records without their events.
        """
        records = [(record.kind, record.body) for record in write.records]
        settled = [(one.id, one.frame) for one in write.completed]
        self._given = max(self._given, write.number)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            written = self.services.journal.write(
                AppendRecords(
                    self.owner.id,
                    self.ref.generation,
                    records,
                    settled,
                    number=write.number,
                    snapshot=write.snapshot,
                    events=self._take(published, done),
                )
            )
        except CmdcError as error:
            self._lose_write(write, error, done)
            return
        if self.services.journal.health.condition is Condition.FULL:
            for one in write.completed:
                self.owner.reply_early(one.id, one.frame)
        self.tasks.spawn(self._acknowledge(write, written, done))

    async def _acknowledge(
        self, write: Write, written: Awaitable[None], done: "asyncio.Future[None]"
    ) -> None:
        try:
            await written
        except CmdcError as error:
            self._lose_write(write, error, done)
            return
        done.set_result(None)
        for one in write.completed:
            self.owner.reply(one.id, one.frame)
        self._acks.store(write.number)
        self._answer_safe()

    def _lose_write(self, write: Write, error: CmdcError, done: "asyncio.Future[None]") -> None:
        """End a process whose records could not be stored: the next one begins where they end.

        Going on would leave a hole in the history, and a later record would stand beside it.
        """
        done.set_exception(error)
        done.exception()  # there may be no event that waits for it
        self._has_lost = True
        if self.services.journal.health.has_failed or self.services.is_leaving:
            return  # the daemon ends; the agent keeps this, and sends it to the next one
        log.error("record.not_journaled", session_id=self.owner.id, problem=str(error))
        for one in write.completed:
            self.owner.reply(one.id, failed(one.id, error))
        self.kill(Other(detail=f"its records could not be journaled: {error}"))

    # --- its end ----------------------------------------------------------------------------

    def on_exit(self, record: ExitRecord) -> None:
        """Judge its end, and report it to the session, when all that it published is out."""
        self._acks.close()
        self.tasks.spawn(self._conclude(record))

    async def _conclude(self, record: ExitRecord) -> None:
        try:
            if self._is_behind:
                self.services.hub.skip(self.owner.id, INDEX_JUMP)
            # A Down is published after every event that the process published.
            await self.services.hub.flushed(self.owner.id)
            record.said, record.not_started = self.said, self.not_started
            record.fail_reason, record.asked = self.fail_reason, self.asked
            judge(record)
        except Exception:  # who is not notified would wait for this end for ever
            log.exception("process.not_judged", session_id=self.owner.id)
            record = ExitRecord()
        self.owner.process_ended(self, record)


@dataclass(slots=True, eq=False)
class _GivingWay(WorkerOwner):
    """An agent that another process takes the place of; ``goes_on`` says whether that is so."""

    agent: Agent
    goes_on: Callable[[], bool]

    def on_exit(self, record: ExitRecord) -> None:
        if not self.goes_on():
            self.agent.on_exit(record)
