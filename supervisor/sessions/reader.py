"""Questions to a session without a process, answered without giving it one: by a reader.

A reader is a process forked like an agent and given the session's journal, which is no incarnation
of it: it is no child of the tree, records nothing, goes on with nothing, and ends when nobody has
asked it for a while. One that dies of what it reads is followed by another, which leaves that out
as the session's own process does (``Falls``).

The questions are the session's, which has them in its ``pending``; a reader knows which of them it
was asked. So whatever becomes of it, the session's own process answers if it is woken meanwhile. A
question that waits for what the session has not done yet has no answer of the reader, and stays for
that process.

A session that hibernates has its reader itself. One that has ended, which the journal keeps for a
while, has no process any more and no place in the tree: as ``EndedSession`` it is known from the
first question until its reader is gone. Whatever else is asked of it is refused.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import structlog

from cmdc_runtime.errors import CmdcError, SessionError, TransientError
from cmdc_runtime.ids import CommandId, Incarnation, SessionId
from cmdc_runtime.reasons import AnyReason, PlainReason
from cmdc_runtime.requests import StartSession, Supervision
from cmdc_runtime.wire.codec import failed
from cmdc_runtime.wire.frames import (
    Answer,
    Deliver,
    ExitNotice,
    FromWorker,
    NotStarted,
    Refusal,
    Started,
    ToClient,
)
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.router import Published
from supervisor.core.exits import ExitRecord, Falls, fell_at
from supervisor.core.limits import READER_ANSWER_S, READER_IDLE_S
from supervisor.processes.tool_hosts import SpawnErrors
from supervisor.processes.worker import Worker, WorkerOwner
from supervisor.sessions.assignment import Services, SessionView, reading, spec_of
from supervisor.sessions.pending import PendingCommands, answer_of
from supervisor.sessions.session_tasks import SessionTasks

# --- the reader -----------------------------------------------------------------------------------

log = structlog.get_logger()

_NO_LIMITS = Supervision()


@dataclass(slots=True, eq=False)
class Reader(WorkerOwner):
    """One reader, from the first question to the end of its process."""

    services: Services
    session: SessionView
    stands: str = "sleeps"
    """What an error says of the session."""
    is_over: bool = False
    """It takes no more questions."""
    _problem: str = "the process that read it ended"
    """The error for who has no answer at its end."""
    _is_hopeless: bool = False
    """Another reader would end as this one: what is wrong has to be mended first."""
    _asked: set[CommandId] = field(default_factory=set)
    """Which of the session's questions are its own, until it has answered them."""
    _worker: Worker | None = None
    _is_up: bool = False
    _fell_at: int | None = None
    _timer: asyncio.TimerHandle | None = None
    _gone: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        """Have the session's questions answered; one that is asked already is asked once."""
        for question in self.session.pending.looks():
            if question.id not in self._asked:
                self._asked.add(question.id)
                if self._is_up:
                    self._send(question)
        self._wait(READER_ANSWER_S)

    async def run(self) -> None:
        """Answer until nobody asks any more; return when its process is gone."""
        async with self.services.readers:
            while not self.is_over and await self._begin():
                await self._gone.wait()
                step = self._fell_at
                if step is None or not self.session.reader_fell(step):
                    break
                self._gone.clear()
        self._conclude()

    def end(self) -> None:
        """End it, also before its time."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._worker is not None:
            self.services.pool.kill(self._worker)

    def on_fail(self, _reason: PlainReason) -> None:
        """Have it killed: who asked gets the error that it ended."""
        if self._worker is not None:
            self.services.pool.kill(self._worker)

    async def _begin(self) -> bool:
        """Give a process the session's journal; False where there is none."""
        try:
            worker = await self.services.pool.acquire(lambda: False)
        except SpawnErrors as error:
            self._problem = f"there is no process to read it: {error}"
            return False
        self._worker = worker
        worker.owner = self
        worker.containment.assign(worker.pid, self.session.id, self.session.incarnation, _NO_LIMITS)
        try:
            frames = await reading(self.services, self.session)
        except CmdcError as error:
            self._problem = str(error)
            self.end()
            return True
        for frame in frames:
            self.services.pool.send(worker, frame)
        if self.is_over:  # meanwhile, when it had no process to end
            self.end()
        return True

    def _begin_to_answer(self) -> None:
        """Give a process that is up what it was asked, but for what is answered meanwhile."""
        self._is_up = True
        waiting = [one for one in self.session.pending.looks() if one.id in self._asked]
        self._asked = {one.id for one in waiting}
        for question in waiting:
            self._send(question)
        if not waiting:
            self._wait(READER_IDLE_S)

    def _send(self, question: Deliver) -> None:
        if self._worker is not None:
            self.services.pool.send(self._worker, question)

    def _wait(self, limit_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(limit_s, self._late)

    def _late(self) -> None:
        self._problem = f"it could not be read within {READER_ANSWER_S:g} s"
        self._conclude()

    def on_frame(self, frame: FromWorker, _published: Published) -> None:
        """Take an answer, or why there is none."""
        match frame:
            case Started():
                self._begin_to_answer()
            case Answer() | Refusal():
                self._asked.discard(frame.id)
                self.session.reply(frame.id, answer_of(frame))
                if not any(map(self.session.pending.is_look, self._asked)):
                    self._wait(READER_IDLE_S)
            case NotStarted(stage=stage, message=message):
                self._is_hopeless = True
                self._problem = f"cannot be read until this is repaired: {stage}: {message}"
            case ExitNotice(reason=reason):
                self._problem = f"the process that read it ended: {reason}"
            case _:
                log.warning("frame.refused", session_id=self.session.id, frame=type(frame).__name__)

    def on_exit(self, record: ExitRecord) -> None:
        """Record that its process is gone; another one may be tried."""
        self._worker, self._is_up = None, False
        self._fell_at = None if self.is_over else fell_at(record)
        self._gone.set()

    def _conclude(self) -> None:
        self.end()
        asked, self._asked = self._asked, set()
        for command_id in asked:
            if self._is_up and not self.session.pending.is_look(command_id):
                continue  # it was heard, and waits
            why = f"session {self.session.id} {self.stands}, and {self._problem}"
            error = SessionError(why) if self._is_hopeless else TransientError(why)
            self.session.reply(command_id, failed(command_id, error))


# --- sessions that have ended ---------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class EndedSession:
    """One ended session while it is read, as its readers see it."""

    services: Services
    spec: StartSession
    incarnation: Incarnation
    restarts: int
    last_reason: AnyReason | None
    keys: Mapping[str, str] = field(default_factory=dict)
    """None: who reads asks no model."""
    pending: PendingCommands = field(init=False)
    _falls: Falls = field(default_factory=Falls)
    _reader: Reader | None = None
    _tasks: SessionTasks = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no question."""
        self.pending = PendingCommands(self.id)
        self._tasks = SessionTasks(self.id, on_bug=self.close)

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self.spec.session_id

    @property
    def is_read(self) -> bool:
        """Whether a question waits, or a process may still answer the next one."""
        return len(self.pending) > 0 or (self._reader is not None and not self._reader.is_over)

    @property
    def set_aside(self) -> tuple[int, ...]:
        """The steps of rebuilding that have killed its readers."""
        return self._falls.set_aside

    def look(self, client: bytes, command_id: CommandId, body: msgspec.Raw) -> None:
        """Have a question answered.

        Raises:
            Overloaded: too many questions wait for this session.
        """
        if self.pending.renew(client, command_id):
            return
        self.pending.check_room(command_id)
        question = Deliver(id=command_id, body=body, durable=False)
        self.pending.add(client, question, is_sent=False, looks=True)
        if self._reader is None or self._reader.is_over:
            self._reader = Reader(self.services, self, "has ended")
            self._tasks.spawn(self._reader.run())
        self._reader.ask()

    def close(self) -> None:
        """End its reader; who waits gets the error that the daemon ended it."""
        if self._reader is not None:
            self._reader.end()
        error = CmdcError(f"the daemon ended the process that read session {self.id}")
        for command_id, client in self.pending.drain():
            self.services.answer(client, failed(command_id, error))

    # --- what a reader asks of it ---------------------------------------------------------------

    def reply(self, command_id: CommandId, frame: ToClient | bytes) -> None:
        """Answer a question."""
        if (client := self.pending.answered(command_id)) is not None:
            self.services.answer(client, frame)

    def reader_fell(self, step: int) -> bool:
        """Record the step of rebuilding that a reader died at; say whether to try again."""
        self._falls.note(step)
        return self._falls.may_try_again


@dataclass(slots=True, eq=False)
class EndedSessions:
    """The ended sessions that are read now; there are no more of them than open requests."""

    services: Services
    _read: dict[SessionId, EndedSession] = field(default_factory=dict)

    def of(self, row: SessionRow, reason: AnyReason | None) -> EndedSession:
        """Return an ended session that can be asked, from its row in the journal.

        Raises:
            ProtocolError: its definition is damaged.
        """
        for session_id in [one for one, session in self._read.items() if not session.is_read]:
            del self._read[session_id]
        found = self._read.get(row.session_id)
        if found is None:
            spec = spec_of(row.spec)
            found = EndedSession(self.services, spec, row.incarnation, row.restarts, reason)
            self._read[row.session_id] = found
        return found

    def forget(self, session_id: SessionId) -> None:
        """End what reads a session that goes on under its id."""
        if (found := self._read.pop(session_id, None)) is not None:
            found.close()
