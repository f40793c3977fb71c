"""Questions to sessions that have ended, as long as the journal keeps them: by a reader each.

An ended session has no process and no place in the tree. What asks only how things were (its
status, its conversation) is answered as for one that sleeps, by a process that is given the journal
and records nothing (``reader``). It is known here from the first question until that process is
gone; whatever else is asked of an ended session is refused as before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.ids import CommandId, Incarnation, SessionId
from cmdc_runtime.reasons import AnyReason
from cmdc_runtime.requests import StartSession
from cmdc_runtime.wire.codec import failed
from cmdc_runtime.wire.frames import Deliver, ToClient
from supervisor.adapters.journal.base import SessionRow
from supervisor.core.falls import Falls
from supervisor.sessions.assignment import spec_of
from supervisor.sessions.pending import PendingCommands
from supervisor.sessions.reader import Reader
from supervisor.sessions.services import Services
from supervisor.sessions.session_tasks import SessionTasks


@dataclass(slots=True, eq=False)
class EndedSession:
    """One ended session while it is read: what a process that works for it needs of it."""

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
        self._reader.ask(self.pending.looks())

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

    def is_look(self, command_id: CommandId) -> bool:
        """Say whether a question waits."""
        return self.pending.is_look(command_id)

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
