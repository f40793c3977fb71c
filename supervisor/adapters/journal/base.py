"""What the daemon asks of a journal: rows, answers, errors and the ``Journal`` protocol.

Rules of every implementation:

- Bodies are opaque bytes. Nothing here decodes a command, a record or an event.
- A write takes effect in the order in which the methods are called, not awaited. Its awaitable is
  done when it is committed, with the result or the refusal; cancelling the wait cancels no write.
- A refusal (every error below but the first two) leaves nothing of its operation behind and touches
  no other one.
- A read sees every write that was called before it, and only what is committed.

To add an implementation, write one module with one class and run ``test_journal.py`` over it.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from cmdc_runtime.errors import Overloaded, ProtocolError, SessionError, TransientError, UsageError
from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId

Durability: TypeAlias = Literal["process", "power"]
"""``process``: committed outlives the death of any process; ``power``: also that of the machine."""


class JournalFailed(TransientError):
    """The store did not take or give it: disk full, I/O error, closed. Nothing was acknowledged."""


class JournalOverloaded(Overloaded):
    """Too much waits for the store already; raised by the call itself, nothing was queued."""


class JournalRefused(UsageError):
    """The file cannot be this daemon's journal; it was left as it is."""


class StaleIncarnation(ProtocolError):
    """An earlier process of the session, or a process of an ended one, wants to write."""


class SessionEnded(SessionError):
    """The session is over and takes no more commands."""


class EventConflict(ProtocolError):
    """Event indexes that are taken were published again with other content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session; ``ended_ms`` and ``reason`` are None while it is alive."""

    session_id: SessionId
    created_ms: int
    spec: bytes
    parent_id: SessionId | None = None
    group_id: str | None = None
    incarnation: Incarnation = Incarnation(0)
    restarts: int = 0
    ended_ms: int | None = None
    reason: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """One accepted command; ``answer`` is None until its effect is recorded."""

    command_id: CommandId
    seq: int
    at_ms: int
    body: bytes
    answer: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """One record of what the session did; ``kind`` is the worker's word, for people to read."""

    seq: int
    incarnation: Incarnation
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One batch of durable events, numbered ``first`` to ``first + count - 1``."""

    first: EventIndex
    count: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DownRow:
    """One end: of a process, or without ``restarting`` of the session, also between two processes.

    ``seq`` is given by the journal. ``incarnation`` is None where the id was used again since. An
    empty body is an end that nobody is told of.
    """

    session_id: SessionId
    incarnation: Incarnation | None
    restarting: bool
    at_ms: int
    body: bytes
    seq: DownSeq = DownSeq(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a session is rebuilt from; ``seq`` of records and commands is one common counter."""

    row: SessionRow
    records: tuple[RecordRow, ...]
    unanswered: tuple[CommandRow, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The command is new and now safe."""

    seq: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The command was accepted before; ``answer`` is None while it has none."""

    answer: bytes | None


class Journal(Protocol):
    """The store of everything that was acknowledged."""

    async def open(self) -> None:
        """Open the store, and bring an older one up to date.

        Raises:
            JournalRefused: it is newer than this program, or no journal; it was left untouched.
            JournalFailed: it cannot be opened, or another daemon has it.

        """
        ...

    async def close(self) -> None:
        """Finish what was called before, within a bound, and close the store."""
        ...

    def create(self, row: SessionRow) -> Awaitable[None]:
        """Start a session; the history of an ended one with this id is deleted.

        Its ends stay, for whoever was away when it ended.

        Raises:
            SessionExists: the id is alive.

        """
        ...

    def accept(
        self, session_id: SessionId, command_id: CommandId, body: bytes, at_ms: int
    ) -> Awaitable[Accepted | Duplicate]:
        """Take a command once, however often it comes.

        Raises:
            InvalidSession: there was never such a session.
            SessionEnded: the command is new and the session is over.

        """
        ...

    def append(
        self,
        session_id: SessionId,
        incarnation: Incarnation,
        records: Sequence[tuple[str, bytes]],
        answers: Sequence[tuple[CommandId, bytes]],
    ) -> Awaitable[None]:
        """Add records as (kind, body) and answers to commands, all of it or nothing.

        The first answer to a command stays; an answer to a command that is not here is dropped.

        Raises:
            StaleIncarnation: ``incarnation`` is not the session's current one.

        """
        ...

    def publish(
        self, session_id: SessionId, first: EventIndex, count: int, body: bytes
    ) -> Awaitable[None]:
        """Keep a batch of durable events; the same batch again changes nothing.

        Raises:
            InvalidSession: there was never such a session.
            EventConflict: one of the indexes is taken by another batch.

        """
        ...

    def began(
        self, session_id: SessionId, incarnation: Incarnation, restarts: int
    ) -> Awaitable[None]:
        """Make ``incarnation`` the current one: earlier ones can write no more.

        Raises:
            InvalidSession: there was never such a session.
            StaleIncarnation: the session is at a later incarnation, or over.

        """
        ...

    def ended(self, session_id: SessionId, reason: bytes, at_ms: int) -> Awaitable[None]:
        """Close the session's history; the first reason stays.

        Raises:
            InvalidSession: there was never such a session.

        """
        ...

    def note_down(self, row: DownRow) -> Awaitable[DownSeq]:
        """Record an end and return its number; the first of (incarnation, restarting) stays.

        The session's incarnation is no less than this one from now on. The newest
        ``DOWNS_KEPT_MAX`` are kept, and of those that nobody is told of the newest only.

        Raises:
            InvalidSession: there was never such a session.

        """
        ...

    def load(self, session_id: SessionId) -> Awaitable[Stored | None]:
        """Return what the session is rebuilt from, or None when it was never there."""
        ...

    def alive(self) -> Awaitable[list[SessionRow]]:
        """Return the sessions that have not ended, oldest first."""
        ...

    def find(self, session_id: SessionId) -> Awaitable[SessionRow | None]:
        """Return one session, ended or not, or None when it was never there."""
        ...

    def replay(
        self,
        session_id: SessionId,
        after_index: EventIndex,
        through_index: EventIndex,
        limit: int,
    ) -> Awaitable[list[EventRow]]:
        """Return batches with events after ``after_index`` up to ``through_index``, oldest first.

        At most ``limit`` of them, and never more than ``REPLAY_BATCHES_MAX``: ask again after the
        last one. The outer batches may reach beyond what was asked for.
        """
        ...

    def last_index(self, session_id: SessionId) -> Awaitable[EventIndex]:
        """Return the index of the last durable event, 0 when there is none."""
        ...

    def answer(self, session_id: SessionId, command_id: CommandId) -> Awaitable[bytes | None]:
        """Return the recorded answer to a command, or None."""
        ...

    def downs(self, session_id: SessionId, after: DownSeq, limit: int) -> Awaitable[list[DownRow]]:
        """Return ends that somebody is told of, numbered after ``after``, oldest first.

        At most ``limit`` of them, and never more than ``DOWNS_READ_MAX``: ask again after the last
        one. Those of earlier sessions with this id are among them.
        """
        ...

    def newest_down(self, session_id: SessionId) -> Awaitable[DownRow | None]:
        """Return the newest end, also one that nobody is told of, or None."""
        ...
