"""The rows, results and errors of a journal, and what makes a row unusable. Pure.

SQLite keeps any value in any column, and a file may have been edited, restored from elsewhere or
written by a program with a fault: a row is looked at as what comes from a client is.

``operations`` has what a journal is asked, ``store`` how, and what a backend adds.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from cmdc_runtime.checked_struct import INCARNATION_MAX, INDEX_MAX, TIME_MS_MAX
from cmdc_runtime.checkpoints import CHECKPOINT_ID, SCHEMA_VERSION_MAX
from cmdc_runtime.errors import (
    Overloaded,
    ProtocolError,
    SessionError,
    StorageFull,
    TransientError,
    UsageError,
)
from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId, is_session_id
from cmdc_runtime.plain import text_problem, whole_problem
from supervisor.core.history import Hole

# --- rows, results and errors ---------------------------------------------------------------------

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


class JournalUndecided(JournalFailed):
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


@dataclass(frozen=True, slots=True)
class BlobRow:
    """Bytes by their SHA-256, in hex."""

    digest: str
    body: bytes


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


# --- what is wrong with a row ---------------------------------------------------------------------

TEXT_CHARS_MAX: Final = 2**20
"""Of a parent's id or a group's name; older programs had no bound for these."""
_DOWN_NUMBERS: Final = (
    ("seq", INDEX_MAX),
    ("incarnation", INCARNATION_MAX),
    ("restarting", 1),
    ("at_ms", TIME_MS_MAX),
)
_CHECKPOINT_NUMBERS: Final = (("saved_ms", TIME_MS_MAX), ("schema_version", SCHEMA_VERSION_MAX))
_NUMBERS: Final = (
    ("created_ms", TIME_MS_MAX),
    ("incarnation", INCARNATION_MAX - 1),  # the next process has a number, too
    ("restarts", INCARNATION_MAX - 1),
    ("written", INDEX_MAX),
)


def row_problem(row: SessionRow) -> str | None:
    """Return what in a row no daemon can have written, or None."""
    session_id: object = row.session_id
    if not isinstance(session_id, str) or not is_session_id(session_id):
        return f"session_id: no session can be called {ascii(session_id)[:80]}"
    for name, high in _NUMBERS:
        if (wrong := whole_problem(getattr(row, name), 0, high)) is not None:
            return f"{name}: {wrong}"
    if row.ended_ms is not None:
        wrong = whole_problem(row.ended_ms, 0, TIME_MS_MAX)
        if wrong is not None:
            return f"ended_ms: {wrong}"
    spec: object = row.spec
    if not isinstance(spec, bytes):
        return f"spec: expected bytes, got {type(spec).__name__}"
    for name in ("parent_id", "group_id"):
        text = getattr(row, name)
        if text is not None and (wrong := text_problem(text, chars_max=TEXT_CHARS_MAX)) is not None:
            return f"{name}: {wrong}"
    return None


def check_row(row: SessionRow) -> None:
    """Refuse a row that a session cannot go on from, before it is written or taken over.

    Raises:
        UsageError: with what is wrong.
    """
    if (problem := row_problem(row)) is not None:
        raise UsageError(f"the journal's row of the session is damaged: {problem}")


def shown_row(row: SessionRow) -> SessionRow:
    """Return a row that can be shown to clients: what is damaged of it reads as if never set.

    An id that is none is replaced by one that can be asked for, made from what is there.
    """
    session_id: object = row.session_id
    changes: dict[str, Any] = {}  # Any: values of columns
    if not isinstance(session_id, str) or not is_session_id(session_id):
        mark = hashlib.sha256(ascii(session_id).encode()).hexdigest()[:16]
        changes["session_id"] = f"damaged-{mark}"
    for name, high in _NUMBERS:
        if whole_problem(getattr(row, name), 0, high) is not None:
            changes[name] = 0
    if whole_problem(row.ended_ms, 0, TIME_MS_MAX) is not None:
        changes["ended_ms"] = None
    for name in ("parent_id", "group_id"):
        if text_problem(getattr(row, name), chars_max=TEXT_CHARS_MAX) is not None:
            changes[name] = None
    return replace(row, **changes)


def checkpoint_problem(row: CheckpointRow) -> str | None:
    """Return what in a checkpoint's row no daemon can have written, or None."""
    if not is_checkpoint_id(row.checkpoint_id):
        return f"checkpoint_id: no checkpoint can be called {ascii(row.checkpoint_id)[:80]}"
    for name, high in _CHECKPOINT_NUMBERS:
        if (wrong := whole_problem(getattr(row, name), 0, high)) is not None:
            return f"{name}: {wrong}"
    if (wrong := _label_problem(row.label)) is not None:
        return f"label: {wrong}"
    for name in ("metadata", "body"):
        value: object = getattr(row, name)
        if not isinstance(value, bytes):
            return f"{name}: expected bytes, got {type(value).__name__}"
    return None


def is_checkpoint_id(found: object) -> bool:
    """Say whether a checkpoint that is called so can be asked for."""
    return isinstance(found, str) and CHECKPOINT_ID.fullmatch(found) is not None


def shown_checkpoint(row: CheckpointRow) -> CheckpointRow:
    """Return a row that can be shown to clients: what is damaged of it reads as if never set.

    Its metadata are left empty then, which nobody can read: so the client knows.
    """
    if checkpoint_problem(row) is None:
        return row
    changes: dict[str, Any] = {"metadata": b""}  # Any: values of columns
    for name, high in _CHECKPOINT_NUMBERS:
        if whole_problem(getattr(row, name), 0, high) is not None:
            changes[name] = 0
    if _label_problem(row.label) is not None:
        changes["label"] = None
    return replace(row, **changes)


def down_problem(columns: Mapping[str, object]) -> str | None:
    """Return what in an end's columns no daemon can have written, or None."""
    for name, high in _DOWN_NUMBERS:
        value = columns[name]
        is_unset = name == "incarnation" and value is None  # its id was used again
        if not is_unset and (wrong := whole_problem(value, 0, high)) is not None:
            return f"{name}: {wrong}"
    if not isinstance(body := columns["body"], bytes):
        return f"body: expected bytes, got {type(body).__name__}"
    return None


def _label_problem(label: object) -> str | None:
    return None if label is None else text_problem(label, chars_max=TEXT_CHARS_MAX)
