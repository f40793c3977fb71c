"""Takes out of a damaged SQLite file all rows that can be read, and says what is missing.

Pages known to be damaged are filled with a random mark first, so that nothing on them is taken for
good: SQLite refuses such a page of a table, and a body that ran over one has the mark in it. Rows
are found twice, by the table and by an index, which stand on different pages: so it is known whose
row it was that is missing.
"""

import secrets
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cmdc_runtime.ids import SessionId
from cmdc_runtime.reasons import Other
from cmdc_runtime.wire.codec import encode
from supervisor.adapters.journal import schema
from supervisor.adapters.journal.repair.sums import PAGE_BYTES
from supervisor.adapters.journal.repair.volume import lacks_room

VITAL: Final = ("sessions", "commands", "records", "marks")
"""A session that misses a row of these cannot go on: something acknowledged is not known."""
_SNAPSHOTS: Final = "snapshots"
_ROWID_MAX: Final = 2**62
_WHERE_KEPT: Final = "what is left of it can be read and exported"


@dataclass(slots=True)
class Salvaged:
    """What came of it: rows kept, rows lost by table, and what sessions that are ended miss."""

    kept: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    ended: dict[str, Counter[str]] = field(default_factory=dict)
    unknown: int = 0
    """Rows of which not even the session is known."""
    unsure: set[str] = field(default_factory=set)
    """Tables of which rows may be missing without a trace: no index of them is whole either."""


class UnreadableError(Exception):
    """There is nothing to take out of it."""


def salvage(  # noqa: PLR0913 - from where to where, what is wrong, and two things that follow
    source: Path,
    target: Path,
    damaged: Collection[int],
    at_ms: int,
    *,
    misses_commits: bool = False,
    may_be_empty: bool = False,
) -> Salvaged:
    """Copy every readable row of ``source`` to a new file ``target``; end who misses some.

    ``source`` is a working copy without a write-ahead log, and is written to. Where it
    ``misses_commits``, and nobody knows of whom, everybody is ended.

    Raises:
        UnreadableError: the tables' names cannot be read; or no row, unless it ``may_be_empty``.
    """
    mark = secrets.token_bytes(16)
    with source.open("r+b") as file:
        for page in damaged:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(mark * (PAGE_BYTES // len(mark)))
    found = Salvaged(unsure=set(VITAL) if misses_commits else set())
    with (
        closing(sqlite3.connect(f"{source.as_uri()}?immutable=1", uri=True)) as old,
        closing(sqlite3.connect(target, isolation_level=None)) as new,
    ):
        new.execute("BEGIN")
        try:
            tables = _make_tables(old, new)
            for table in tables:
                _Rescue(old, new, table, mark, found).run()
        except sqlite3.DatabaseError as error:
            if lacks_room(error):
                raise
            raise UnreadableError(f"no table of it can be read: {error}") from error
        if not found.kept and not may_be_empty:
            raise UnreadableError("nothing of it can be read")
        _spare(new, found)
        _suspect(new, found)
        for session_id, missing in found.ended.items():
            _end(new, session_id, missing, at_ms)
        new.execute("COMMIT")
    return found


def _make_tables(old: sqlite3.Connection, new: sqlite3.Connection) -> list[str]:
    made = old.execute("SELECT type, name, sql FROM sqlite_master ORDER BY rowid").fetchall()
    if not made:
        raise UnreadableError("it has no tables")
    for _, _, statement in made:
        if statement is not None:
            new.execute(statement)
    for name in ("user_version", "application_id"):
        (value,) = old.execute(f"PRAGMA {name}").fetchone()
        new.execute(f"PRAGMA {name} = {value}")
    return [name for kind, name, _ in made if kind == "table"]


@dataclass(slots=True)
class _Rescue:
    """The rows of one table."""

    old: sqlite3.Connection
    new: sqlite3.Connection
    table: str
    mark: bytes
    found: Salvaged
    has_index: bool = False
    """Whether an index leads to every row."""
    has_table: bool = True
    """Whether the table itself does."""

    def run(self) -> None:
        """Copy what can be read and note what cannot."""
        owners = self._owners()
        rowids = set(owners)
        rowids.update(self._rowids())
        for rowid in sorted(rowids):
            row = self._row(rowid)
            if row is None:
                self._miss(owners.get(rowid))
                continue
            places = ", ".join("?" * len(row))
            self.new.execute(f"INSERT OR IGNORE INTO {self.table} VALUES ({places})", row)  # noqa: S608 - our names
            self.found.kept += 1

        if not self.has_index and not self.has_table:
            self.found.unsure.add(self.table)

    def _miss(self, session_id: str | None) -> None:
        self.found.lost[self.table] += 1
        if session_id is None:
            self.found.unknown += 1
        elif self.table in (*VITAL, _SNAPSHOTS):
            self.found.ended.setdefault(session_id, Counter())[self.table] += 1

    def _owners(self) -> dict[int, str]:
        """Return whose each row is, by the indexes alone."""
        found: dict[int, str] = {}
        indexes = self.old.execute(f"PRAGMA index_list({self.table})").fetchall()
        for name in (name for _, name, _, _, is_partial in indexes if not is_partial):
            # As far as it can be read from one end, and then from the other.
            if self._read_index(name, "ASC", found) or self._read_index(name, "DESC", found):
                self.has_index = True
        return found

    def _read_index(self, name: str, order: str, found: dict[int, str]) -> bool:
        """Add what an index says of whose each row is; say whether it was read to its end."""
        query = (
            f'SELECT rowid, session_id FROM {self.table} INDEXED BY "{name}"'  # noqa: S608 - our names
            f" ORDER BY session_id {order}"
        )
        try:
            for rowid, session_id in self.old.execute(query):
                if isinstance(session_id, str) and not self._is_marked(session_id):
                    found.setdefault(rowid, session_id)
        except sqlite3.DatabaseError:
            return False
        return True

    def _rowids(self) -> Iterator[int]:
        """Yield the numbers of the rows that the table itself leads to, over every hole in it."""
        at = self._next(-_ROWID_MAX)
        if at is None and not self._is_end(-_ROWID_MAX):
            self.has_table = False
            at = self._leap(0)
        while at is not None:
            yield at
            before, at = at, self._next(at + 1)
            if at is None and not self._is_end(before + 1):
                self.has_table = False
                at = self._leap(before + 1)

    def _next(self, rowid: int) -> int | None:
        """Return the first row from ``rowid`` on, None where there is none that can be read."""
        query = (
            f"SELECT rowid FROM {self.table} NOT INDEXED"  # noqa: S608 - our names
            " WHERE rowid >= ? ORDER BY rowid LIMIT 1"
        )
        try:
            found: tuple[int] | None = self.old.execute(query, (rowid,)).fetchone()
        except sqlite3.DatabaseError:
            return None
        return None if found is None else found[0]

    def _is_end(self, rowid: int) -> bool:
        """Say whether there is no row from ``rowid`` on, as far as that can be read."""
        query = f"SELECT count(*) FROM (SELECT 1 FROM {self.table} NOT INDEXED WHERE rowid >= ?)"  # noqa: S608 - our names
        try:
            (count,) = self.old.execute(query, (rowid,)).fetchone()
        except sqlite3.DatabaseError:
            return False
        return bool(count == 0)

    def _leap(self, hole: int) -> int | None:
        """Return the first readable row behind a hole that begins at ``hole``."""
        step = 1
        while step < _ROWID_MAX and self._next(hole + step) is None:
            step *= 2
        if step >= _ROWID_MAX:
            return None
        low, high = step // 2, step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._next(hole + middle) is None else (low, middle)
        return self._next(hole + high)

    def _row(self, rowid: int) -> tuple[Any, ...] | None:  # Any: what SQL returns
        query = f"SELECT * FROM {self.table} NOT INDEXED WHERE rowid = ?"  # noqa: S608 - our names
        try:
            row: tuple[Any, ...] | None = self.old.execute(query, (rowid,)).fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return None
        if row is None or any(self._is_marked(value) for value in row):
            return None
        return row

    def _is_marked(self, value: object) -> bool:
        """Say whether a value runs over a damaged page."""
        data = value.encode(errors="replace") if isinstance(value, str) else value
        # The mark repeats: whatever part of a page a body has, a half of it is enough to know it.
        return isinstance(data, bytes) and self.mark[:8] in data


def _spare(new: sqlite3.Connection, found: Salvaged) -> None:
    """Let a session live that still has a snapshot: the records after it are all there."""
    for session_id, missing in list(found.ended.items()):
        if (
            set(missing) == {_SNAPSHOTS}
            and new.execute(
                "SELECT 1 FROM snapshots WHERE session_id = ?", (session_id,)
            ).fetchone()
        ):
            del found.ended[session_id]


def _suspect(new: sqlite3.Connection, found: Salvaged) -> None:
    """Remember each session that may have lost a row: such a session is ended."""
    suspects: dict[str, list[str]] = {}
    for table in found.unsure & {*VITAL, _SNAPSHOTS}:
        query = "SELECT session_id FROM sessions WHERE ended_ms IS NULL"
        suspects[table] = [row[0] for row in new.execute(query)]
    orphans = " UNION ".join(f"SELECT session_id FROM {one}" for one in VITAL[1:3])  # noqa: S608 - our names
    query = f"{orphans} EXCEPT SELECT session_id FROM sessions"  # noqa: S608 - our names
    suspects.setdefault(VITAL[0], []).extend(row[0] for row in new.execute(query))
    for table, session_ids in suspects.items():
        for session_id in session_ids:
            found.ended.setdefault(session_id, Counter())[table] += 0


def _end(new: sqlite3.Connection, session_id: str, missing: Counter[str], at_ms: int) -> None:
    """End a session of which something is missing; what is left of it stays."""
    losses = ", ".join(
        f"{count or 'some'} of its {table}" for table, count in sorted(missing.items())
    )
    is_sure = all(missing.values())
    how = "cannot be read" if is_sure else "cannot be read, or may be missing"
    reason = encode(Other(detail=f"the journal was damaged: {losses} {how}; {_WHERE_KEPT}"))
    if not schema.end(new, SessionId(session_id), at_ms, reason):
        # Its row is gone, or it had ended before.
        new.execute(
            "INSERT OR IGNORE INTO sessions"
            " (session_id, created_ms, spec, incarnation, restarts, ended_ms, reason)"
            " VALUES (?, 0, x'', 0, 0, ?, ?)",
            (session_id, at_ms, reason),
        )
