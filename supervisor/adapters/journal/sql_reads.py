"""The SQL of each query: ``READS`` has its function over a ``Database``.

``operations`` says what each one returns. To add one, add its class there and its row here.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeAlias

import structlog

from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.ids import EventIndex, Incarnation, SessionId
from cmdc_runtime.wire.frames import MISPLACED
from supervisor.adapters.journal.base import (
    CheckpointRow,
    CommandRow,
    DownRow,
    Duplicate,
    EventRow,
    Past,
    RecordRow,
    SessionRow,
    Stored,
    down_problem,
)
from supervisor.adapters.journal.operations import (
    FindAnswer,
    FindBlob,
    FindCheckpoint,
    FindCommand,
    FindLastIndex,
    FindNewestDown,
    FindSession,
    ListBlobs,
    ListCheckpoints,
    ListDowns,
    ListEndedSessions,
    ListLiveSessions,
    LoadSession,
    Query,
    ReadHistory,
    ReadHistoryPart,
    ReplayEvents,
)
from supervisor.adapters.journal.schema import IS_DAMAGED_END, Database
from supervisor.core.history import Hole, holes
from supervisor.core.limits import (
    DOWNS_READ_MAX,
    HISTORY_ITEMS_MAX,
    INACTIVE_LISTED_MAX,
    PAST_BYTES_MAX,
    REPLAY_BATCHES_MAX,
    REPLAY_BYTES_MAX,
)
from supervisor.core.ring import filling

log = structlog.get_logger()

SESSION: Final = tuple(field.name for field in fields(SessionRow) if field.name != "written")
"""The columns of each row, as its class has them."""
COMMAND: Final = tuple(field.name for field in fields(CommandRow))
RECORD: Final = tuple(field.name for field in fields(RecordRow))
DOWN: Final = tuple(field.name for field in fields(DownRow))
CHECKPOINT: Final = tuple(field.name for field in fields(CheckpointRow))
_BARE: Final = tuple(name for name in CHECKPOINT if name != "body")

_SESSIONS: Final = f"""
    SELECT {", ".join(SESSION)}, coalesce(
        (SELECT written FROM marks WHERE marks.session_id = sessions.session_id), 0)
    FROM sessions
"""  # noqa: S608 - our names
_LISTED: Final = tuple(name for name in SESSION if name != "spec")
_LAST_INDEX: Final = "first + count - 1 FROM events WHERE session_id"
_ENDED: Final = f"""
    SELECT {", ".join(_LISTED)}, coalesce(
        (SELECT {_LAST_INDEX} = sessions.session_id ORDER BY first DESC LIMIT 1), 0)
    FROM sessions WHERE ended_ms IS NOT NULL AND NOT {IS_DAMAGED_END}
    ORDER BY ended_ms DESC, created_ms DESC, session_id LIMIT ?
"""  # noqa: S608 - our names
_SNAPSHOTS: Final = "SELECT seq, body FROM snapshots WHERE session_id = ? ORDER BY seq"
_SNAPSHOTS_COUNT: Final = "SELECT count(*) FROM snapshots WHERE session_id = ?"
# A batch that starts before the range may reach into it: start at the last one that does.
_IN_RANGE: Final = """
    FROM events WHERE session_id = :session_id
      AND first >= coalesce((SELECT max(first) FROM events
                             WHERE session_id = :session_id AND first <= :after + 1), :after + 1)
      AND first <= :through AND first + count - 1 > :after
    ORDER BY first LIMIT :limit
"""
_REPLAY_SIZES: Final = f"SELECT length(body) {_IN_RANGE}"
_REPLAY: Final = f"SELECT first, count, body {_IN_RANGE}"
_DOWNS: Final = f"SELECT {', '.join(DOWN)} FROM downs"  # noqa: S608 - our names
_BELOW_ALL: Final = -(2**63)
"""What a column's number can be; a damaged one below 0 is to be reported."""
# A saved one gets a new rowid, so of two in one millisecond the later one comes first.
_NEWEST_FIRST: Final = " WHERE session_id = ? ORDER BY saved_ms DESC, rowid DESC"


# --- sessions -----------------------------------------------------------------------------------


def find_session(db: Database, query: FindSession | LoadSession | ReadHistory) -> SessionRow | None:
    """Return one session."""
    row = db.execute(f"{_SESSIONS} WHERE session_id = ?", (query.session_id,)).fetchone()
    return None if row is None else _session(row)


def live_sessions(db: Database, _query: ListLiveSessions) -> list[SessionRow]:
    """Return the live sessions, oldest first, and behind them those of a damaged end."""
    wanted = ("ended_ms IS NULL", f"ended_ms IS NOT NULL AND {IS_DAMAGED_END}")
    found = [
        db.execute(f"{_SESSIONS} WHERE {which} ORDER BY created_ms, rowid").fetchall()
        for which in wanted  # an index has each
    ]
    return [_session(row) for row in itertools.chain(*found)]


def ended_sessions(db: Database, query: ListEndedSessions) -> list[tuple[SessionRow, EventIndex]]:
    """Return what ended last, with the indexes of the last events."""
    found = db.execute(_ENDED, (max(0, min(query.limit, INACTIVE_LISTED_MAX)),)).fetchall()
    return [
        (SessionRow(spec=b"", **dict(zip(_LISTED, row, strict=True))), EventIndex(last))
        for *row, last in found
    ]


def load(db: Database, query: LoadSession) -> Stored | None:
    """Return what a session is rebuilt from."""
    row = find_session(db, query)
    if row is None:
        return None
    session_id = query.session_id
    newest = db.execute(f"{_SNAPSHOTS} DESC LIMIT 1", (session_id,)).fetchone()
    seq, snapshot = newest or (0, b"")
    records, misplaced = _records(db, session_id, seq), _misplaced(db, session_id)
    return Stored(
        row=row,
        records=records + misplaced,
        unanswered=_commands(db, session_id, "AND answer IS NULL"),
        snapshot=snapshot,
        missing=_missing(db, session_id, seq, records, len(misplaced)),
        snapshots=db.execute(_SNAPSHOTS_COUNT, (session_id,)).fetchone()[0],
    )


def history(db: Database, query: ReadHistory) -> Past | None:
    """Return all that is kept of a session but its events."""
    row = find_session(db, query)
    if row is None:
        return None
    base = _base_seq(db, query.session_id)
    return Past(
        row=row,
        snapshot=_snapshot(db, query.session_id, base),
        records=_records(db, query.session_id, 0),
        commands=_commands(db, query.session_id),
        snapshot_seq=base or 0,
    )


def history_part(db: Database, query: ReadHistoryPart) -> Past | None:
    """Return of a history what one answer may have of it, and one row more where there is one.

    What an answer has no room for is not read: a page costs the same however long the history is.
    """
    session_id, after = query.session_id, query.after
    row = find_session(db, FindSession(session_id))
    if row is None:
        return None
    base = _base_seq(db, session_id)
    found = Past(row=row, snapshot=b"", records=(), commands=(), snapshot_seq=base or 0)
    match query.part:
        case "spec":
            return found
        case "snapshot":
            return replace(found, snapshot=_snapshot(db, session_id, base))
        case "records":
            last = _last_fitting(db, "records", "length(body)", session_id, after)
            return replace(found, records=_records(db, session_id, after, last))
        case "commands":
            size = "length(body) + coalesce(length(answer), 0)"
            last = _last_fitting(db, "commands", size, session_id, after)
            which = f"AND seq > {int(after)} AND seq <= {int(last)}"
            return replace(found, commands=_commands(db, session_id, which))


def _base_seq(db: Database, session_id: SessionId) -> int | None:
    """Return the seq of the snapshot that a history begins with, None: it begins with records."""
    query = (
        "SELECT (SELECT min(seq) FROM snapshots WHERE session_id = :id),"
        " (SELECT min(seq) FROM records WHERE session_id = :id)"
    )
    oldest, first = db.execute(query, {"id": session_id}).fetchone()
    return None if oldest is None or (first is not None and first <= oldest) else int(oldest)


def _snapshot(db: Database, session_id: SessionId, seq: int | None) -> bytes:
    if seq is None:
        return b""
    query = "SELECT body FROM snapshots WHERE session_id = ? AND seq = ?"
    body: tuple[bytes] = db.execute(query, (session_id, seq)).fetchone()
    return body[0]


def _last_fitting(db: Database, table: str, size: str, session_id: SessionId, after: int) -> int:
    """Return the seq of the first row that an answer has no room for, or of the last one."""
    query = f"SELECT seq, {size} FROM {table} WHERE session_id = ? AND seq > ?"  # noqa: S608 - our names
    found = db.execute(
        f"{query} AND seq <= ? ORDER BY seq LIMIT ?",
        (session_id, after, INDEX_MAX, HISTORY_ITEMS_MAX + 1),
    ).fetchall()
    last, total = after, 0
    for seq, bytes_ in found:
        is_first, last, total = last == after, seq, total + bytes_
        if total > PAST_BYTES_MAX and not is_first:
            break
    return last


def _records(
    db: Database, session_id: SessionId, after: int, through: int = INDEX_MAX
) -> tuple[RecordRow, ...]:
    query = f"SELECT {', '.join(RECORD)} FROM records"  # noqa: S608 - our names
    found = db.execute(
        f"{query} WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (session_id, after, through),
    ).fetchall()
    return tuple(RecordRow(**dict(zip(RECORD, row, strict=True))) for row in found)


def _misplaced(db: Database, session_id: SessionId) -> tuple[RecordRow, ...]:
    """Return the records whose ``seq`` is no number: SQLite sorts texts and bytes behind them.

    They keep nothing of their row but the body, by which their process sets them aside.
    """
    query = "SELECT body FROM records WHERE session_id = ? AND seq > ?"
    found = db.execute(query, (session_id, INDEX_MAX)).fetchall()
    return tuple(
        RecordRow(seq=INDEX_MAX, incarnation=Incarnation(0), kind=MISPLACED, body=body)
        for (body,) in found
    )


def _missing(
    db: Database,
    session_id: SessionId,
    after: int,
    records: Sequence[RecordRow],
    misplaced: int,
) -> tuple[Hole, ...]:
    """Return which numbers behind ``after`` no row has, though records and commands have each one.

    Where rows have no number that is one, as many numbers are theirs: these rows are reported as
    such.
    """
    query = "SELECT seq FROM commands WHERE session_id = ? AND seq > ?"
    commands = [seq for (seq,) in db.execute(query, (session_id, after)).fetchall()]
    numbers = [seq for seq in commands if isinstance(seq, int) and seq <= INDEX_MAX]
    found = holes(after, itertools.chain((one.seq for one in records), numbers))
    gone = sum(last - first + 1 for first, last in found)
    return () if gone <= misplaced + len(commands) - len(numbers) else found


def _commands(db: Database, session_id: SessionId, which: str = "") -> tuple[CommandRow, ...]:
    query = f"SELECT {', '.join(COMMAND)} FROM commands WHERE session_id = ?"  # noqa: S608 - our names
    found = db.execute(f"{query} {which} ORDER BY seq", (session_id,)).fetchall()
    rows = (dict(zip(COMMAND, row, strict=True)) for row in found)
    return tuple(CommandRow(**row | {"answer": _answer(row["answer"])}) for row in rows)


def _answer(found: object) -> bytes | None:
    """Return an answer as it is kept; one of another type can't be read, which "" can't either."""
    return found if found is None or isinstance(found, bytes) else b""


def _session(row: Any) -> SessionRow:  # Any: what SQL returns, in the order of the columns
    return SessionRow(**dict(zip((*SESSION, "written"), row, strict=True)))


# --- commands and events ------------------------------------------------------------------------


def find_command(db: Database, query: FindCommand) -> Duplicate | None:
    """Return what has come of a command that was accepted, None for one that was not."""
    known = db.execute(
        "SELECT answer FROM commands WHERE session_id = ? AND command_id = ?",
        (query.session_id, query.command_id),
    ).fetchone()
    return None if known is None else Duplicate(_answer(known[0]))


def find_answer(db: Database, query: FindAnswer) -> bytes | None:
    """Return the answer to a command."""
    known = find_command(db, FindCommand(query.session_id, query.command_id))
    return None if known is None else known.answer


def replay(db: Database, query: ReplayEvents) -> list[EventRow]:
    """Return the batches of a range; how long they are is asked first, which reads no body.

    Otherwise each answer took all that was left: four readers of five batches of 7.2 MiB cost
    265 MiB, now 72; one reader of twenty 256 MiB.
    """
    asked = {
        "session_id": query.session_id,
        "after": query.after_index,
        "through": query.through_index,
        "limit": max(0, min(query.limit, REPLAY_BATCHES_MAX)),
    }
    sizes = (size for (size,) in db.execute(_REPLAY_SIZES, asked).fetchall())
    asked["limit"] = filling(sizes, REPLAY_BYTES_MAX)
    rows = db.execute(_REPLAY, asked).fetchall()
    return [EventRow(first=first, count=count, body=body) for first, count, body in rows]


def last_index(db: Database, query: FindLastIndex) -> EventIndex:
    """Return the index of the last event, or 0."""
    row = db.execute(
        f"SELECT {_LAST_INDEX} = ? ORDER BY first DESC LIMIT 1",
        (query.session_id,),
    ).fetchone()
    return EventIndex(0 if row is None else row[0])


# --- ends and checkpoints -----------------------------------------------------------------------


def list_downs(db: Database, query: ListDowns) -> list[DownRow]:
    """Return the ends that somebody is notified of; what is damaged shows in the log only."""
    statement = f"{_DOWNS} WHERE session_id = ? AND seq > ? AND length(body) > 0 ORDER BY seq"
    found: list[DownRow] = []
    limit = left = max(0, min(query.limit, DOWNS_READ_MAX))
    after: int = query.after or _BELOW_ALL
    while left > 0:
        rows = db.execute(f"{statement} LIMIT ?", (query.session_id, after, left)).fetchall()
        found += (row for values in rows if (row := _down(values)) is not None)
        if len(rows) < left:
            break
        after, left = rows[-1][DOWN.index("seq")], limit - len(found)
    return found


def newest_down(db: Database, query: FindNewestDown) -> DownRow | None:
    """Return the newest end; what is damaged shows in the log only."""
    statement = f"{_DOWNS} WHERE session_id = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
    damaged = 0
    while (values := db.execute(statement, (query.session_id, damaged)).fetchone()) is not None:
        if (found := _down(values)) is not None:
            return found
        damaged += 1
    return None


def _down(values: Sequence[Any]) -> DownRow | None:  # Any: what SQL returns, by column
    """Return an end, or None for one that no daemon has written so."""
    columns = dict(zip(DOWN, values, strict=True))
    if (problem := down_problem(columns)) is not None:
        log.warning("down.damaged", session_id=columns["session_id"], problem=problem)
        return None
    return DownRow(**columns | {"restarting": bool(columns["restarting"])})


def list_checkpoints(db: Database, query: ListCheckpoints) -> list[CheckpointRow]:
    """Return all of a session without their bodies, last saved first."""
    statement = f"SELECT {', '.join(_BARE)} FROM checkpoints{_NEWEST_FIRST}"  # noqa: S608 - our names
    found = db.execute(statement, (query.session_id,)).fetchall()
    return [CheckpointRow(body=b"", **dict(zip(_BARE, row, strict=True))) for row in found]


def find_checkpoint(db: Database, query: FindCheckpoint) -> CheckpointRow | None:
    """Return one, or the last saved."""
    statement = f"SELECT {', '.join(CHECKPOINT)} FROM checkpoints"  # noqa: S608 - our names
    row: tuple[Any, ...] | None  # Any: what SQL returns, in the order of the columns
    if query.checkpoint_id is None:
        row = db.execute(f"{statement}{_NEWEST_FIRST} LIMIT 1", (query.session_id,)).fetchone()
    else:
        one = f"{statement} WHERE session_id = ? AND checkpoint_id = ?"
        row = db.execute(one, (query.session_id, query.checkpoint_id)).fetchone()
    return None if row is None else CheckpointRow(**dict(zip(CHECKPOINT, row, strict=True)))


# --- blobs --------------------------------------------------------------------------------------


def find_blob(db: Database, query: FindBlob) -> bytes | None:
    """Return a blob that the session holds."""
    row: tuple[bytes] | None = db.execute(
        "SELECT body FROM blobs JOIN holds USING (digest) WHERE session_id = ? AND digest = ?",
        (query.session_id, query.digest),
    ).fetchone()
    return None if row is None else row[0]


def list_blobs(db: Database, query: ListBlobs) -> list[tuple[str, int]]:
    """Return what the session holds."""
    found = db.execute(
        "SELECT digest, size FROM holds WHERE session_id = ? ORDER BY digest", (query.session_id,)
    )
    return [(digest, int(size)) for digest, size in found.fetchall()]


Read: TypeAlias = Callable[[Database, Any], Any]  # Any: the query of its row, and its result

READS: Final[Mapping[type[Query[Any]], Read]] = {
    FindSession: find_session,
    ListLiveSessions: live_sessions,
    ListEndedSessions: ended_sessions,
    LoadSession: load,
    ReadHistory: history,
    ReadHistoryPart: history_part,
    FindCommand: find_command,
    FindAnswer: find_answer,
    ReplayEvents: replay,
    FindLastIndex: last_index,
    ListDowns: list_downs,
    FindNewestDown: newest_down,
    ListCheckpoints: list_checkpoints,
    FindCheckpoint: find_checkpoint,
    FindBlob: find_blob,
    ListBlobs: list_blobs,
}
