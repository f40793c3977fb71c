"""Questions to a session that sleeps, answered without waking it: by a reader.

A reader is a process forked like an agent and given the session's journal, which is no incarnation
of it: it is no child of the tree, records nothing, goes on with nothing, and ends when nobody has
asked it for a while. One that dies of what it reads is followed by another, which leaves that out
as the session's own process does (``core/falls.py``). What it is asked
stays with the session: whatever becomes of the reader, the session's own process answers if it is
woken meanwhile. A question that waits for what the session has not done yet has no answer of the
reader, and stays for that process.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from cmdc_runtime.errors import CmdcError, SessionError, TransientError
from cmdc_runtime.ids import CommandId
from cmdc_runtime.reasons import PlainReason
from cmdc_runtime.requests import Supervision
from cmdc_runtime.wire.codec import failed
from cmdc_runtime.wire.frames import (
    Answer,
    Deliver,
    ExitNotice,
    FromWorker,
    NotStarted,
    Refusal,
    Started,
)
from supervisor.adapters.router import Published
from supervisor.core.exits import ExitRecord, fell_at
from supervisor.core.limits import READER_ANSWER_S, READER_IDLE_S
from supervisor.processes.tool_hosts import SpawnErrors
from supervisor.processes.worker import Worker, WorkerOwner
from supervisor.sessions.assignment import SessionView, reading
from supervisor.sessions.pending import answer_of
from supervisor.sessions.services import Services

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
    _asked: dict[CommandId, Deliver] = field(default_factory=dict)
    _worker: Worker | None = None
    _is_up: bool = False
    _fell_at: int | None = None
    _timer: asyncio.TimerHandle | None = None
    _gone: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self, questions: Iterable[Deliver]) -> None:
        """Have questions answered; one that is asked already is asked once."""
        for question in questions:
            if question.id not in self._asked:
                self._asked[question.id] = question
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
                self._is_up = True
                for question in self._asked.values():
                    self._send(question)
            case Answer() | Refusal():
                self._asked.pop(frame.id, None)
                self.session.reply(frame.id, answer_of(frame))
                if not any(map(self.session.is_look, self._asked)):
                    self._wait(READER_IDLE_S)
            case NotStarted(stage=stage, message=message):
                self._is_hopeless = True
                self._problem = f"cannot be read until this is mended: {stage}: {message}"
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
        asked, self._asked = self._asked, {}
        for command_id in asked:
            if self._is_up and not self.session.is_look(command_id):
                continue  # it was heard, and waits
            why = f"session {self.session.id} {self.stands}, and {self._problem}"
            error = SessionError(why) if self._is_hopeless else TransientError(why)
            self.session.reply(command_id, failed(command_id, error))
