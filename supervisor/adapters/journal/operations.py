"""What a journal is asked, as values: each write and each query, and what it promises.

Rules of every journal:

- Bodies are opaque bytes. Nothing here decodes a command, a record or an event.
- Writes take effect in the order in which they are given to ``Journal.write``, not awaited. The
  awaitable is done when its write is committed, with the result or the refusal; cancelling the wait
  cancels no write.
- A refusal (any error but a ``JournalFailed``) leaves nothing behind, and touches no other one.
- A query sees every write that was given before it, and only what is committed.
- On a full disk that order is given up for ends: ``RecordDown`` and ``EndSession`` go ahead of what
  waits for room, and queries do not wait for it. What would begin something is refused
  (``JournalFull``).

The type that ``Write`` and ``Query`` are given is what ``Journal.write`` and ``Journal.read``
return for it. To add an operation, add its class here and its row in ``sql_store.WRITES`` or
``sql_reads.READS``; a write also needs its place in the crash matrix.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec

from cmdc_runtime import faults
from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId
from cmdc_runtime.requests import PastPart
from supervisor.adapters.journal.base import (
    Accepted,
    BlobRow,
    CheckpointRow,
    DownRow,
    Duplicate,
    EventRow,
    Past,
    SessionRow,
    Stored,
)
from supervisor.core.limits import JOURNAL_QUEUED_BYTES_MAX
from supervisor.core.storage import Need

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SNAPSHOT: Final = "snapshot"
"""Stands beside the kinds of records in a fault point where the state after them is written too."""


class Query(msgspec.Struct, Generic[T_co], frozen=True):
    """Changes nothing and returns a ``T_co``."""


class Write(msgspec.Struct, Generic[T_co], frozen=True):
    """Changes what is kept, as a whole or not at all, and returns a ``T_co``."""

    name: ClassVar[str]
    """Of its fault points, and of its row in the crash matrix."""
    need: ClassVar[Need] = Need.WORK
    """What it is for, which decides its fate where there is no room."""

    @property
    def size_bytes(self) -> int:
        """About how much it writes, and how much of the queue's bound it takes."""
        return 0

    @property
    def point(self) -> str:
        """Its fault point, without the moment."""
        return self.name

    @property
    def known(self) -> Query[T_co | None] | None:
        """What finds the result if it was done before, asked where there is no room; else None."""
        return None


Operation: TypeAlias = Write[T] | Query[T]


# --- sessions -----------------------------------------------------------------------------------


class CreateSession(Write[None], frozen=True):
    """Start a session; the history of an ended one with this id is deleted.

    Its ends stay, for whoever was away when it ended, and its checkpoints, to go back to. Blobs
    that it held stay where a checkpoint does.

    Raises:
        SessionExists: the id is alive.
    """

    row: SessionRow

    name = "create"
    need = Need.NEW

    @property
    def session_id(self) -> SessionId:
        """Whose row it is."""
        return self.row.session_id

    @property
    def size_bytes(self) -> int:
        """The definition."""
        return len(self.row.spec)


class AcceptCommand(Write[Accepted | Duplicate], frozen=True):
    """Accept a command once, however often it comes.

    One that is here is known where there is no room, too.

    Raises:
        InvalidSession: there was never such a session.
        SessionEnded: the command is new and the session is over.
        JournalFull: the command is new and there is no room.
        JournalUnread: there is no room, and nobody knows whether the command is new.
    """

    session_id: SessionId
    command_id: CommandId
    body: bytes
    at_ms: int

    name = "accept"
    need = Need.NEW

    @property
    def size_bytes(self) -> int:
        """The body."""
        return len(self.body)

    @property
    def known(self) -> "FindCommand":
        """The same command, accepted before."""
        return FindCommand(self.session_id, self.command_id)


class AppendRecords(Write[None], frozen=True):
    """Add records as (kind, body), answers and the events of the same step, or nothing of it.

    The first answer to a command stays; an answer to a command that is not here is dropped.
    ``number`` counts the writes of an incarnation from 1 without a gap. One that is not larger
    than the last is there already, and succeeds. A write with 0 is not numbered. ``events`` are
    kept as by ``PublishEvents``.

    ``snapshot`` is the state after these records and all before, empty for none. The newest
    ``SNAPSHOTS_KEPT`` stay, and the records after the oldest of them; earlier records go. Then,
    too, a session that has more keeps at least its newest ``COMMANDS_KEPT`` answered commands and
    ``EVENTS_KEPT`` event batches, and not a tenth more.

    Raises:
        StaleIncarnation: ``incarnation`` is not the session's current one.
        MissingWrite: the write before ``number`` is not here.
        EventConflict: other events have these indexes.
    """

    session_id: SessionId
    incarnation: Incarnation
    records: Sequence[tuple[str, bytes]]
    answers: Sequence[tuple[CommandId, bytes]]
    number: int = 0
    snapshot: bytes = b""
    events: Sequence[EventRow] = ()

    name = "append"

    @property
    def size_bytes(self) -> int:
        """Every body of it."""
        size = len(self.snapshot) + sum([len(body) for _, body in self.records])
        size += sum([len(body) for _, body in self.answers])
        return size + sum([len(row.body) for row in self.events])

    @property
    def point(self) -> str:
        """Named by the kinds of records that are written."""
        kinds = [kind for kind, _ in self.records]
        if self.snapshot:
            kinds.append(SNAPSHOT)
        return f"{self.name}.{faults.written_kinds(kinds, self.answers)}"


class BeginIncarnation(Write[None], frozen=True):
    """Make ``incarnation`` the current one: earlier ones can write no more, its count is at 0.

    Raises:
        InvalidSession: there was never such a session.
        StaleIncarnation: the session is at a later incarnation, or over.
    """

    session_id: SessionId
    incarnation: Incarnation
    restarts: int

    name = "began"


class EndSession(Write[None], frozen=True):
    """Close the session's history; the first reason stays.

    Raises:
        InvalidSession: there was never such a session.
    """

    session_id: SessionId
    reason: bytes
    at_ms: int

    name = "ended"
    need = Need.END

    @property
    def size_bytes(self) -> int:
        """The reason."""
        return len(self.reason)


class RestoreSession(Write[None], frozen=True):
    """Create a live session from what another journal had of it, all of it or nothing.

    ``past`` is what ``ReadHistory`` returned; ``seq`` of records and commands stay. As with
    ``CreateSession``, an ended session with its id makes room, but what blobs it held it holds.
    ``blobs`` come along, and those that session ``holds_of`` holds are held by this one too.

    Raises:
        SessionExists: the id is alive.
    """

    past: Past
    events: Sequence[EventRow] = ()
    checkpoints: Sequence[CheckpointRow] = ()
    blobs: Sequence[BlobRow] = ()
    holds_of: SessionId | None = None

    name = "restore"
    need = Need.NEW

    @property
    def session_id(self) -> SessionId:
        """Whose history it is."""
        return self.past.row.session_id

    @property
    def size_bytes(self) -> int:
        """Every body of it; one that is larger than the queue may be still goes, alone."""
        past = self.past
        size = len(past.row.spec) + len(past.snapshot)
        size += sum(len(row.body) for row in past.records)
        size += sum(len(row.body) + len(row.answer or b"") for row in past.commands)
        size += sum(len(row.body) for row in self.events)
        size += sum(len(row.body) for row in self.checkpoints)
        size += sum(len(blob.body) for blob in self.blobs)
        return min(size, JOURNAL_QUEUED_BYTES_MAX)


class PruneSessions(Write[int], frozen=True):
    """Delete sessions that ended before ``before_ms``, longest ago first, and return how many.

    All that is kept of them goes, ends and checkpoints too. At most ``limit`` of them, and never
    more than ``PRUNED_MAX``: ask again until it is 0.
    """

    before_ms: int
    limit: int

    name = "prune"


class FindSession(Query[SessionRow | None], frozen=True):
    """Return one session, ended or not, or None when it was never there."""

    session_id: SessionId


class ListLiveSessions(Query[list[SessionRow]], frozen=True):
    """Return the sessions that have not ended, oldest first.

    Behind them come those of which nobody can say it, since their ``ended_ms`` is damaged.
    """


class ListEndedSessions(Query[list[tuple[SessionRow, EventIndex]]], frozen=True):
    """Return the sessions that ended last, newest first, each with the index of its last event.

    At most ``limit`` of them, and never more than ``INACTIVE_LISTED_MAX``. Their rows are without
    ``spec``, which may be large, and without ``written``.
    """

    limit: int


class LoadSession(Query[Stored | None], frozen=True):
    """Return what the session is rebuilt from, or None when it was never there."""

    session_id: SessionId


class ReadHistory(Query[Past | None], frozen=True):
    """Return all that is kept of a session, ended or not, or None when it was never there."""

    session_id: SessionId


class ReadHistoryPart(Query[Past | None], frozen=True):
    """Return one part of ``ReadHistory``, of records and commands those behind ``after``.

    As many as one answer may have (``HISTORY_ITEMS_MAX``, ``PAST_BYTES_MAX``), and one row more
    where there is one: no other client waits while a long history is read.
    """

    session_id: SessionId
    part: PastPart
    after: int


# --- commands and events ------------------------------------------------------------------------


class FindCommand(Query[Duplicate | None], frozen=True):
    """Return what has come of a command that was accepted, None for one that was not."""

    session_id: SessionId
    command_id: CommandId


class FindAnswer(Query[bytes | None], frozen=True):
    """Return the recorded answer to a command, or None."""

    session_id: SessionId
    command_id: CommandId


class PublishEvents(Write[None], frozen=True):
    """Keep a batch of durable events, unless it is there already, or was before it was dropped.

    Raises:
        InvalidSession: there was never such a session.
        EventConflict: one of the indexes is taken by another batch.
    """

    session_id: SessionId
    first: EventIndex
    count: int
    body: bytes

    name = "publish"

    @property
    def size_bytes(self) -> int:
        """The body."""
        return len(self.body)


class ReplayEvents(Query[list[EventRow]], frozen=True):
    """Return batches with events after ``after_index`` up to ``through_index``, oldest first.

    At most ``limit`` of them, never more than ``REPLAY_BATCHES_MAX``, and none behind the one that
    fills ``REPLAY_BYTES_MAX``: ask again after the last one. The outer batches may reach beyond
    what was asked for.
    """

    session_id: SessionId
    after_index: EventIndex
    through_index: EventIndex
    limit: int


class FindLastIndex(Query[EventIndex], frozen=True):
    """Return the index of the last durable event, 0 when there is none; it never goes back."""

    session_id: SessionId


# --- ends of processes and sessions -------------------------------------------------------------


class RecordDown(Write[DownSeq], frozen=True):
    """Record an end and return its number; the first of (incarnation, restarting) stays.

    The session's incarnation is no less than this one from now on. The newest ``DOWNS_KEPT_MAX``
    are kept, and of those that nobody is notified of the newest only.

    Raises:
        InvalidSession: there was never such a session.
    """

    row: DownRow

    name = "note_down"
    need = Need.END

    @property
    def session_id(self) -> SessionId:
        """Whose end it is."""
        return self.row.session_id

    @property
    def size_bytes(self) -> int:
        """The body."""
        return len(self.row.body)


class ListDowns(Query[list[DownRow]], frozen=True):
    """Return ends that somebody is notified of, numbered after ``after``, oldest first.

    At most ``limit`` of them, and never more than ``DOWNS_READ_MAX``: ask again after the last
    one. Those of earlier sessions with this id are among them.
    """

    session_id: SessionId
    after: DownSeq
    limit: int


class FindNewestDown(Query[DownRow | None], frozen=True):
    """Return the newest end, also one that nobody is notified of, or None."""

    session_id: SessionId


# --- checkpoints --------------------------------------------------------------------------------


class SaveCheckpoint(Write[None], frozen=True):
    """Keep a checkpoint, in the place of one with the same id.

    Raises:
        InvalidSession: there was never such a session.
    """

    row: CheckpointRow

    name = "save_checkpoint"
    need = Need.NEW

    @property
    def session_id(self) -> SessionId:
        """Whose checkpoint it is."""
        return self.row.session_id

    @property
    def size_bytes(self) -> int:
        """The body; one that is larger than the queue may be still goes, alone."""
        return min(len(self.row.body) + len(self.row.metadata), JOURNAL_QUEUED_BYTES_MAX)


class DeleteCheckpoint(Write[None], frozen=True):
    """Delete one checkpoint, or with None all of the session; none to delete is no error."""

    session_id: SessionId
    checkpoint_id: str | None

    name = "delete_checkpoint"


class ListCheckpoints(Query[list[CheckpointRow]], frozen=True):
    """Return the checkpoints of a session without their bodies, last saved first."""

    session_id: SessionId


class FindCheckpoint(Query[CheckpointRow | None], frozen=True):
    """Return a checkpoint, or with None the last saved one; None when it is not there."""

    session_id: SessionId
    checkpoint_id: str | None


# --- blobs --------------------------------------------------------------------------------------


class KeepBlob(Write[None], frozen=True):
    """Keep bytes for a session by their SHA-256, once for all sessions that hold them.

    They go when the last session goes that holds them. One that is held already costs nothing.

    Raises:
        InvalidSession: there was never such a session.
        InvalidPart: it holds as many, or as much, as a session may.
    """

    session_id: SessionId
    blob: BlobRow

    name = "keep_blob"
    need = Need.NEW

    @property
    def size_bytes(self) -> int:
        """The body."""
        return len(self.blob.body)


class FindBlob(Query[bytes | None], frozen=True):
    """Return a blob that a session holds, or None."""

    session_id: SessionId
    digest: str


class ListBlobs(Query[list[tuple[str, int]]], frozen=True):
    """Return the digests and sizes of the blobs that a session holds, by digest."""

    session_id: SessionId


WRITES: Final[tuple[type[Write[Any]], ...]] = tuple(  # Any: of every result
    one
    for one in list(globals().values())
    if isinstance(one, type) and issubclass(one, Write) and one is not Write
)
"""All of them, in the order of this file."""
