"""The commands of one session that have no answer yet: whom to answer, what to give a new process.

A durable command is in the journal, from which a new process gets it; only one that came while
there was no process to take it is kept here as well, since the journal was perhaps read before.
Any other command is kept until it is answered, and given to each process anew; but one that
``DEATHS_MAX`` processes in a row died with may be what they died of, and is given to no other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from cmdc_runtime.errors import CommandDropped, Overloaded
from cmdc_runtime.ids import CommandId, SessionId
from cmdc_runtime.wire.codec import encode, failed
from cmdc_runtime.wire.frames import Answer, Deliver, FailedReply, PagedReply, Refusal, ValueReply
from supervisor.core.exits import DEATHS_MAX
from supervisor.core.limits import COMMANDS_PENDING_MAX, EARLY_ANSWERS_MAX


@dataclass(slots=True)
class _Pending:
    """Who waits; ``body`` is kept where a new process must be asked again.

    One that ``looks`` needs no process of the session: a reader can answer it, unless it ``waits``
    for what the session has not done yet. ``is_sent``: the present process has it. ``deaths`` are
    those of processes that had it; none is counted for one that looks: it runs nobody's code, and
    may be in hand at any death.
    """

    client: bytes
    body: msgspec.Raw | None
    looks: bool
    waits: bool
    is_sent: bool
    deaths: int = 0


@dataclass(slots=True)
class PendingCommands:
    """The commands of one session without an answer; each is known by the client's id."""

    session_id: SessionId
    _pending: dict[CommandId, _Pending] = field(default_factory=dict)
    _backlog: list[Deliver] = field(default_factory=list)
    _early_answers: dict[CommandId, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._pending)

    @property
    def needs_agent(self) -> bool:
        """Whether one of them is for the session's own process."""
        return any(not pending.looks or pending.waits for pending in self._pending.values())

    def has(self, command_id: CommandId) -> bool:
        """Say whether a command waits for its answer."""
        return command_id in self._pending

    def check_room(self, command_id: CommandId) -> None:
        """Refuse a new command while too many wait; to be asked before one is journaled.

        Raises:
            Overloaded: too many commands wait for this session.
        """
        if not self.has(command_id) and len(self._pending) >= COMMANDS_PENDING_MAX:
            raise Overloaded(f"{COMMANDS_PENDING_MAX} commands wait for session {self.session_id}")

    def renew(self, client: bytes, command_id: CommandId) -> bool:
        """Answer ``client`` from now on if the command waits already; say whether it does."""
        known = self._pending.get(command_id)
        if known is not None:
            known.client = client
        return known is not None

    def add(
        self,
        client: bytes,
        command: Deliver,
        *,
        is_sent: bool,
        looks: bool = False,
        waits: bool = False,
    ) -> None:
        """Keep a new command; ``is_sent``: a process has it."""
        body = None if command.durable else command.body
        self._pending[command.id] = _Pending(client, body, looks, waits, is_sent)
        if command.durable and not is_sent:
            self._backlog.append(command)

    def take_unsent(self) -> list[Deliver]:
        """Return what a new process must be given beyond its history, and take it as sent."""
        asked_again = []
        for command_id, pending in self._pending.items():
            if pending.body is not None:
                pending.is_sent = True
                asked_again.append(Deliver(id=command_id, body=pending.body, durable=False))
        backlog, self._backlog = self._backlog, []
        return asked_again + backlog

    def process_ended(self, *, crashed: bool) -> None:
        """Take what the process had as unsent, and count a crash for it."""
        for pending in self._pending.values():
            if crashed and pending.is_sent and not pending.looks:
                pending.deaths += 1
            pending.is_sent = False

    def dropped(self) -> list[tuple[bytes, bytes]]:
        """Return the refusals of what no other process is given, each behind who gets it.

        ``early_answer`` has them: a copy of a question may be on its way while it is refused.
        """
        deadly = [
            command_id
            for command_id, pending in self._pending.items()
            if pending.body is not None and pending.deaths >= DEATHS_MAX
        ]
        refusals = []
        for command_id in deadly:
            error = CommandDropped(
                f"{DEATHS_MAX} processes of session {self.session_id} died one after the other"
                " with this command in hand, so it is not given to the next one; the session goes"
                " on"
            )
            refusal = encode(failed(command_id, error))
            client = self.answered_early(command_id, refusal)
            if client is not None:
                refusals.append((client, refusal))
        return refusals

    def answered(self, command_id: CommandId) -> bytes | None:
        """Return who waits for this answer, None for nobody, and forget the command."""
        pending = self._pending.pop(command_id, None)
        return None if pending is None else pending.client

    def answered_early(self, command_id: CommandId, frame: bytes) -> bytes | None:
        """As ``answered``, of a command that is not in the journal: ``early_answer`` has it then.

        The journal would not know that one if its client asked again.
        """
        known = self._pending.get(command_id)
        if known is None or known.body is None:
            return None
        self._early_answers[command_id] = frame
        if len(self._early_answers) > EARLY_ANSWERS_MAX:
            del self._early_answers[next(iter(self._early_answers))]
        return self.answered(command_id)

    def early_answer(self, command_id: CommandId) -> bytes | None:
        """Return what was answered for good to a command that is not in the journal."""
        return self._early_answers.get(command_id)

    def is_look(self, command_id: CommandId) -> bool:
        """Say whether it is a question how things are, which has an answer now."""
        known = self._pending.get(command_id)
        return known is not None and known.looks and not known.waits

    def looks(self) -> list[Deliver]:
        """Return the questions that a reader may be able to answer."""
        return [
            Deliver(id=command_id, body=pending.body, durable=False)
            for command_id, pending in self._pending.items()
            if pending.looks and pending.body is not None
        ]

    def drain(self) -> Iterator[tuple[CommandId, bytes]]:
        """Yield every command with who waits for it, and forget it."""
        while self._pending:
            command_id, pending = self._pending.popitem()
            yield command_id, pending.client


def answer_of(frame: Answer | Refusal) -> ValueReply | PagedReply | FailedReply:
    """Return what a client is sent of the answer of a process."""
    if isinstance(frame, Refusal):
        details = msgspec.Raw(frame.details)
        return FailedReply(id=frame.id, code=frame.code, message=frame.message, details=details)
    if frame.page_id:
        return PagedReply(id=frame.id, body=frame.body, page_id=frame.page_id)
    return ValueReply(id=frame.id, body=msgspec.Raw(frame.body))
