"""The journal in one SQLite file: write-ahead log, one writer thread, group commit.

``SqliteJournal`` is what the daemon holds: each method hands one call of ``store.SqliteStore`` to
the writer's thread. ``base.Journal`` says what the methods promise, docs/adr/0004 why it is so.
"""

import sqlite3
from asyncio import Future
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, SessionId
from supervisor.adapters.journal.base import (
    Accepted,
    DownRow,
    Duplicate,
    Durability,
    EventRow,
    SessionRow,
    Stored,
)
from supervisor.adapters.journal.store import SqliteStore
from supervisor.adapters.journal.writer import GroupWriter


class SqliteJournal:
    """A ``base.Journal`` in ``directory``, which is this user's alone; made if it is not there."""

    def __init__(self, directory: Path, *, durability: Durability = "process") -> None:
        """Prepare; ``open`` touches the disk."""
        self._store = SqliteStore(directory, durability)
        self._writer = GroupWriter(self._store, failures=(sqlite3.OperationalError,))

    async def open(self) -> None:
        """Open the file, and bring an older one up to date."""
        await self._writer.open()

    async def close(self) -> None:
        """Finish what was called before, within ``JOURNAL_CLOSE_S``, and close the file."""
        await self._writer.close()

    def create(self, row: SessionRow) -> Future[None]:
        """Start a session; the history of an ended one with this id is deleted."""
        return self._writer.write(partial(self._store.create, row), len(row.spec))

    def accept(
        self, session_id: SessionId, command_id: CommandId, body: bytes, at_ms: int
    ) -> Future[Accepted | Duplicate]:
        """Take a command once, however often it comes."""
        call = partial(self._store.accept, session_id, command_id, body, at_ms)
        return self._writer.write(call, len(body))

    def append(
        self,
        session_id: SessionId,
        incarnation: Incarnation,
        records: Sequence[tuple[str, bytes]],
        answers: Sequence[tuple[CommandId, bytes]],
    ) -> Future[None]:
        """Add records as (kind, body) and answers to commands, all of it or nothing."""
        call = partial(self._store.append, session_id, incarnation, records, answers)
        return self._writer.write(call, sum(len(body) for _, body in (*records, *answers)))

    def publish(
        self, session_id: SessionId, first: EventIndex, count: int, body: bytes
    ) -> Future[None]:
        """Keep a batch of durable events; the same batch again changes nothing."""
        call = partial(self._store.publish, session_id, first, count, body)
        return self._writer.write(call, len(body))

    def began(self, session_id: SessionId, incarnation: Incarnation, restarts: int) -> Future[None]:
        """Make ``incarnation`` the current one: earlier ones can write no more."""
        return self._writer.write(partial(self._store.began, session_id, incarnation, restarts), 0)

    def ended(self, session_id: SessionId, reason: bytes, at_ms: int) -> Future[None]:
        """Close the session's history; the first reason stays."""
        call = partial(self._store.ended, session_id, reason, at_ms)
        return self._writer.write(call, len(reason))

    def note_down(self, row: DownRow) -> Future[DownSeq]:
        """Record an end and return its number; the first of (incarnation, restarting) stays."""
        return self._writer.write(partial(self._store.note_down, row), len(row.body))

    def load(self, session_id: SessionId) -> Future[Stored | None]:
        """Return what the session is rebuilt from, or None when it was never there."""
        return self._writer.read(partial(self._store.load, session_id))

    def alive(self) -> Future[list[SessionRow]]:
        """Return the sessions that have not ended, oldest first."""
        return self._writer.read(self._store.alive)

    def find(self, session_id: SessionId) -> Future[SessionRow | None]:
        """Return one session, ended or not, or None when it was never there."""
        return self._writer.read(partial(self._store.find, session_id))

    def replay(
        self,
        session_id: SessionId,
        after_index: EventIndex,
        through_index: EventIndex,
        limit: int,
    ) -> Future[list[EventRow]]:
        """Return batches with events after ``after_index`` up to ``through_index``."""
        call = partial(self._store.replay, session_id, after_index, through_index, limit)
        return self._writer.read(call)

    def last_index(self, session_id: SessionId) -> Future[EventIndex]:
        """Return the index of the last durable event, 0 when there is none."""
        return self._writer.read(partial(self._store.last_index, session_id))

    def answer(self, session_id: SessionId, command_id: CommandId) -> Future[bytes | None]:
        """Return the recorded answer to a command, or None."""
        return self._writer.read(partial(self._store.answer, session_id, command_id))

    def downs(self, session_id: SessionId, after: DownSeq, limit: int) -> Future[list[DownRow]]:
        """Return ends that somebody is told of, numbered after ``after``, oldest first."""
        return self._writer.read(partial(self._store.downs, session_id, after, limit))

    def newest_down(self, session_id: SessionId) -> Future[DownRow | None]:
        """Return the newest end, also one that nobody is told of, or None."""
        return self._writer.read(partial(self._store.newest_down, session_id))
