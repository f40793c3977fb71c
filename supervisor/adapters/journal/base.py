"""The rows, results and errors of a journal.

``operations`` has what a journal is asked, ``store`` how, and what a backend adds.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cmdc_runtime.errors import (
    Overloaded,
    ProtocolError,
    SessionError,
    StorageFull,
    TransientError,
    UsageError,
)
from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId
from supervisor.core.history import Hole

Durability: TypeAlias = Literal["process", "power"]
"""``process``: committed outlives the death of any process; ``power``: also that of the machine."""


class JournalFailed(TransientError):
    """The store did not take or give it: disk full, I/O error, closed. Nothing was acknowledged."""


class JournalLocked(JournalFailed):
    """Another daemon has the journal."""


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
    empty body is an end that nobody is notified of.
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
    ``missing`` are the numbers after it that no row has, ``snapshots`` is how many are kept.
    """

    row: SessionRow
    records: tuple[RecordRow, ...]
    unanswered: tuple[CommandRow, ...]
    snapshot: bytes = b""
    missing: tuple[Hole, ...] = ()
    snapshots: int = 0


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
