"""What the daemon asks of a journal: rows, answers, errors and the ``Journal`` protocol.

Rules of every implementation:

- Bodies are opaque bytes. Nothing here decodes a command, a record or an event.
- A write takes effect in the order in which the methods are called, not awaited. Its awaitable is
  done when it is committed, with the result or the refusal; cancelling the wait cancels no write.
- A refusal (every error below but the first three) leaves nothing behind and touches no other one.
- A read sees every write that was called before it, and only what is committed.
- On a full disk that order is given up for ends: ``note_down`` and ``ended`` go ahead of what waits
  for room, and reads do not wait for it. What would begin something is refused (``JournalFull``).

To add an implementation, write a store over ``ledger.Ledger`` and its journal, as ``memory`` does,
and give it a row in ``tests/contract/journal/conftest.py``: the contract is then held to it.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from cmdc_runtime.errors import (
    Overloaded,
    ProtocolError,
    SessionError,
    StorageFull,
    TransientError,
    UsageError,
)
from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId
from cmdc_runtime.requests import PastPart
from supervisor.adapters.journal.health import Health

Durability: TypeAlias = Literal["process", "power"]
"""``process``: committed outlives the death of any process; ``power``: also that of the machine."""


class JournalFailed(TransientError):
    """The store did not take or give it: disk full, I/O error, closed. Nothing was acknowledged."""


class JournalFull(JournalFailed, StorageFull):
    """There is no room on the disk for something new; what is under way waits for room."""


class JournalUnread(JournalFull):
    """The same, and whether it is here from before could not be read."""


class JournalUnsettled(JournalFailed):
    """Nobody knows whether it was committed: it is not to be done again but under its own id."""


class JournalOverloaded(Overloaded):
    """Too much waits for the store already; raised by the call itself, nothing was queued."""


class JournalRefused(UsageError):
    """The file cannot be this daemon's journal; it was left as it is."""


class StaleIncarnation(ProtocolError):
    """An earlier process of the session, or a process of an ended one, wants to write."""


class MissingWrite(ProtocolError):
    """A write came whose predecessor is not here: what is written stays without a hole."""


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
    written: int = 0
    """Number of the last write of this incarnation, 0 for none: an agent sends later ones again."""


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
class CheckpointRow:
    """One named snapshot; ``body`` is empty in a list, ``metadata`` is the session's own words."""

    session_id: SessionId
    checkpoint_id: str
    label: str | None
    saved_ms: int
    schema_version: int
    body: bytes
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a session is rebuilt from; ``seq`` of records and commands is one common counter.

    ``snapshot`` is the newest one, empty where there is none; ``records`` are those after it.
    """

    row: SessionRow
    records: tuple[RecordRow, ...]
    unanswered: tuple[CommandRow, ...]
    snapshot: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """All that is kept of a session but its events: to replay it, or to take it elsewhere.

    ``snapshot`` is the older one of two, which holds the records up to ``snapshot_seq``. It is
    empty while the records reach back to the start. ``commands`` are all that are kept, by ``seq``.
    """

    row: SessionRow
    snapshot: bytes
    records: tuple[RecordRow, ...]
    commands: tuple[CommandRow, ...]
    snapshot_seq: int = 0


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

    @property
    def health(self) -> Health:
        """How the store stands, for the loop: open, full for now, or failed for good."""
        ...

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

        Its ends stay, for whoever was away when it ended, and its checkpoints, to go back to.

        Raises:
            SessionExists: the id is alive.
        """
        ...

    def accept(
        self, session_id: SessionId, command_id: CommandId, body: bytes, at_ms: int
    ) -> Awaitable[Accepted | Duplicate]:
        """Take a command once, however often it comes.

        One that is here is known where there is no room, too.

        Raises:
            InvalidSession: there was never such a session.
            SessionEnded: the command is new and the session is over.
            JournalFull: the command is new and there is no room.
            JournalUnread: there is no room, and nobody knows whether the command is new.
        """
        ...

    def append(  # noqa: PLR0913 - what belongs together is written together
        self,
        session_id: SessionId,
        incarnation: Incarnation,
        records: Sequence[tuple[str, bytes]],
        answers: Sequence[tuple[CommandId, bytes]],
        *,
        number: int = 0,
        snapshot: bytes = b"",
        events: Sequence[EventRow] = (),
    ) -> Awaitable[None]:
        """Add records as (kind, body), answers and the events that tell of them, or nothing of it.

        The first answer to a command stays; an answer to a command that is not here is dropped.
        ``number`` counts the writes of an incarnation from 1 without a gap. One that is not larger
        than the last is there already, and succeeds. A write with 0 is not numbered. ``events`` as
        ``publish``.

        ``snapshot`` is the state after these records and all before, empty for none. The newest
        ``SNAPSHOTS_KEPT`` stay, and the records after the oldest of them; earlier records go.
        Then, too, a session that has more keeps at least its newest ``COMMANDS_KEPT`` answered
        commands and ``EVENTS_KEPT`` event batches, and not a tenth more.

        Raises:
            StaleIncarnation: ``incarnation`` is not the session's current one.
            MissingWrite: the write before ``number`` is not here.
            EventConflict: other events have these indexes.
        """
        ...

    def publish(
        self, session_id: SessionId, first: EventIndex, count: int, body: bytes
    ) -> Awaitable[None]:
        """Keep a batch of durable events, unless it is there already, or was before it was dropped.

        Raises:
            InvalidSession: there was never such a session.
            EventConflict: one of the indexes is taken by another batch.
        """
        ...

    def began(
        self, session_id: SessionId, incarnation: Incarnation, restarts: int
    ) -> Awaitable[None]:
        """Make ``incarnation`` the current one: earlier ones can write no more, its count is at 0.

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

    def restore(
        self,
        past: Past,
        events: Sequence[EventRow] = (),
        checkpoints: Sequence[CheckpointRow] = (),
    ) -> Awaitable[None]:
        """Create a live session from what another journal had of it, all of it or nothing.

        ``past`` is what ``history`` returned; ``seq`` of records and commands stay. As with
        ``create``, an ended session with its id makes room.

        Raises:
            SessionExists: the id is alive.
        """
        ...

    def prune(self, before_ms: int, limit: int) -> Awaitable[int]:
        """Delete sessions that ended before ``before_ms``, longest ago first, and return how many.

        All that is kept of them goes, ends and checkpoints too. At most ``limit`` of them, and
        never more than ``PRUNED_MAX``: ask again until it is 0.
        """
        ...

    def save_checkpoint(self, row: CheckpointRow) -> Awaitable[None]:
        """Keep a checkpoint, in the place of one with the same id.

        Raises:
            InvalidSession: there was never such a session.
        """
        ...

    def delete_checkpoint(
        self, session_id: SessionId, checkpoint_id: str | None
    ) -> Awaitable[None]:
        """Delete one checkpoint, or with None all of the session; none to delete is no error."""
        ...

    def load(self, session_id: SessionId) -> Awaitable[Stored | None]:
        """Return what the session is rebuilt from, or None when it was never there."""
        ...

    def history(self, session_id: SessionId) -> Awaitable[Past | None]:
        """Return all that is kept of a session, ended or not, or None when it was never there."""
        ...

    def past_part(
        self, session_id: SessionId, part: PastPart, after: int
    ) -> Awaitable[Past | None]:
        """Return one part of ``history``, of records and commands those behind ``after``.

        As many as one answer may have (``HISTORY_ITEMS_MAX``, ``PAST_BYTES_MAX``), and one row more
        where there is one: no other client waits while a long past is read.
        """
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

        At most ``limit`` of them, never more than ``REPLAY_BATCHES_MAX``, and none behind the one
        that fills ``REPLAY_BYTES_MAX``: ask again after the last one. The outer batches may reach
        beyond what was asked for.
        """
        ...

    def last_index(self, session_id: SessionId) -> Awaitable[EventIndex]:
        """Return the index of the last durable event, 0 when there is none; it never goes back."""
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

    def checkpoints(self, session_id: SessionId) -> Awaitable[list[CheckpointRow]]:
        """Return the checkpoints of a session without their bodies, last saved first."""
        ...

    def checkpoint(
        self, session_id: SessionId, checkpoint_id: str | None
    ) -> Awaitable[CheckpointRow | None]:
        """Return a checkpoint, or with None the last saved one; None when it is not there."""
        ...
