"""A journal as plain lists and dictionaries, written from the words of ``operations`` alone.

``perform`` carries out an operation, without a queue: it returns the result or raises. It shares
the operations, the rows and the errors with the stores, and not one line of how they work.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from cmdc_runtime.errors import InvalidSession, SessionExists
from supervisor.adapters.journal import operations
from supervisor.adapters.journal.base import (
    Accepted,
    BlobRow,
    CheckpointRow,
    CommandRow,
    DownRow,
    Duplicate,
    EventConflict,
    EventRow,
    MissingWrite,
    Past,
    RecordRow,
    SessionEnded,
    SessionRow,
    StaleIncarnation,
    Stored,
)
from supervisor.adapters.journal.operations import Operation


@dataclass
class Life:
    """One session."""

    row: SessionRow
    order: int
    last_seq: int = 0
    commands: list[CommandRow] = field(default_factory=list)
    records: list[RecordRow] = field(default_factory=list)
    snapshots: list[tuple[int, bytes]] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    dropped: int = 0
    is_restored: bool = False

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.row.ended_ms is None


class Reference:
    """All sessions, and what outlives them."""

    def __init__(self, commands_kept: int, events_kept: int) -> None:
        self._commands_kept = commands_kept
        self._events_kept = events_kept
        self._lives: dict[str, Life] = {}
        self._downs: list[DownRow] = []
        self._checkpoints: list[CheckpointRow] = []
        self._blobs: dict[str, dict[str, bytes]] = {}
        self._created = 0

    def perform(self, operation: Operation[Any]) -> Any:
        method = getattr(self, METHODS[type(operation)])
        return method(*msgspec.structs.astuple(operation))

    # --- writes ---------------------------------------------------------------------------------

    def create(self, row: SessionRow) -> None:
        old = self._lives.get(row.session_id)
        if old is not None and old.is_alive:
            raise SessionExists(row.session_id)
        if old is not None:
            self._downs = [
                replace(down, incarnation=None) if down.session_id == row.session_id else down
                for down in self._downs
            ]
            if not any(row.session_id == old.row.session_id for row in self._checkpoints):
                self._blobs.pop(row.session_id, None)
        self._created += 1
        self._lives[row.session_id] = Life(row=row, order=self._created)

    def restore(
        self,
        past: Past,
        events: tuple[EventRow, ...] = (),
        checkpoints: tuple[CheckpointRow, ...] = (),
        blobs: tuple[BlobRow, ...] = (),
        holds_of: str | None = None,
    ) -> None:
        held = dict(self._blobs.get(past.row.session_id, {}))
        self.create(replace(past.row, ended_ms=None, reason=None))
        held |= {blob.digest: blob.body for blob in blobs}
        held |= self._blobs.get(holds_of or "", {})
        self._blobs[past.row.session_id] = held
        life = self._lives[past.row.session_id]
        life.is_restored = True
        life.records, life.commands = list(past.records), list(past.commands)
        if past.snapshot:
            life.snapshots = [(past.snapshot_seq, past.snapshot)]
        seqs = [row.seq for row in (*past.records, *past.commands)]
        life.last_seq = max([0, *seqs, *(seq for seq, _ in life.snapshots)])
        life.events = list(events)
        for row in checkpoints:
            self.save_checkpoint(row)

    def accept(
        self, session_id: str, command_id: str, body: bytes, at_ms: int
    ) -> Accepted | Duplicate:
        life = self._known(session_id)
        for row in life.commands:
            if row.command_id == command_id:
                return Duplicate(row.answer)
        if not life.is_alive:
            raise SessionEnded(session_id)
        life.last_seq += 1
        life.commands.append(
            CommandRow(command_id=command_id, seq=life.last_seq, at_ms=at_ms, body=body)
        )
        return Accepted(life.last_seq)

    def append(  # noqa: PLR0913, PLR0917 - the fields of the operation
        self,
        session_id: str,
        incarnation: int,
        records: list[tuple[str, bytes]],
        answers: list[tuple[str, bytes]],
        number: int = 0,
        snapshot: bytes = b"",
        events: tuple[EventRow, ...] = (),
    ) -> None:
        life = self._lives.get(session_id)
        if life is None or not life.is_alive or life.row.incarnation != incarnation:
            raise StaleIncarnation(session_id)
        if number > life.row.written + 1:
            raise MissingWrite(session_id)
        for row in events:
            self.publish(session_id, row.first, row.count, row.body)
        if number and number <= life.row.written:
            return
        for kind, body in records:
            life.last_seq += 1
            life.records.append(
                RecordRow(seq=life.last_seq, incarnation=incarnation, kind=kind, body=body)
            )
        for command_id, answer in answers:
            life.commands = [
                replace(row, answer=answer)
                if row.command_id == command_id and row.answer is None
                else row
                for row in life.commands
            ]
        if number:
            life.row = replace(life.row, written=number)
        if snapshot:
            life.snapshots = [one for one in life.snapshots if one[0] != life.last_seq]
            life.snapshots.append((life.last_seq, snapshot))
            self._bound(life)

    def _bound(self, life: Life) -> None:
        if len(life.snapshots) > 1:
            life.snapshots = life.snapshots[-2:]
            oldest = life.snapshots[0][0]
            life.records = [row for row in life.records if row.seq > oldest]
        if len(life.commands) > self._commands_kept + self._commands_kept // 10:
            answered = [row for row in life.commands if row.answer is not None]
            gone = {row.seq for row in answered[: max(0, len(answered) - self._commands_kept)]}
            life.commands = [row for row in life.commands if row.seq not in gone]
        if len(life.events) > self._events_kept + self._events_kept // 10:
            cut = len(life.events) - self._events_kept
            last = life.events[cut - 1]
            life.dropped = last.first + last.count - 1
            life.events = life.events[cut:]

    def publish(self, session_id: str, first: int, count: int, body: bytes) -> None:
        life = self._known(session_id)
        new = EventRow(first=first, count=count, body=body)
        last = first + count - 1
        if new in life.events or last <= life.dropped:
            return
        if first <= life.dropped or any(
            row.first <= last and first <= row.first + row.count - 1 for row in life.events
        ):
            raise EventConflict(session_id)
        life.events = sorted([*life.events, new], key=lambda row: row.first)

    def began(self, session_id: str, incarnation: int, restarts: int) -> None:
        life = self._known(session_id)
        if not life.is_alive or incarnation < life.row.incarnation:
            raise StaleIncarnation(session_id)
        life.row = replace(life.row, incarnation=incarnation, restarts=restarts, written=0)

    def ended(self, session_id: str, reason: bytes, at_ms: int) -> None:
        life = self._known(session_id)
        if life.is_alive:
            life.row = replace(life.row, ended_ms=at_ms, reason=reason)

    def note_down(self, row: DownRow) -> int:
        life = self._known(row.session_id)
        if row.incarnation is not None:
            if life.is_alive and row.incarnation > life.row.incarnation:
                life.row = replace(life.row, incarnation=row.incarnation)
            for down in self._downs:
                if _which(down) == _which(row):
                    return down.seq
        seq = max([1, row.at_ms, *(down.seq + 1 for down in self._downs)])
        others = [
            down for down in self._downs if down.session_id != row.session_id or len(down.body)
        ]
        self._downs = [*others, replace(row, seq=seq)]
        return seq

    def prune(self, before_ms: int, limit: int) -> int:
        ended = [
            life
            for life in self._lives.values()
            if life.row.ended_ms is not None and life.row.ended_ms < before_ms
        ]
        ended.sort(key=lambda life: life.row.ended_ms)
        for life in ended[: max(0, limit)]:
            name = life.row.session_id
            del self._lives[name]
            self._downs = [row for row in self._downs if row.session_id != name]
            self.delete_checkpoint(name, None)
            self._blobs.pop(name, None)
        return len(ended[: max(0, limit)])

    def save_checkpoint(self, row: CheckpointRow) -> None:
        self._known(row.session_id)
        self.delete_checkpoint(row.session_id, row.checkpoint_id)
        self._checkpoints.append(row)

    def delete_checkpoint(self, session_id: str, checkpoint_id: str | None) -> None:
        self._checkpoints = [
            row
            for row in self._checkpoints
            if row.session_id != session_id or checkpoint_id not in (None, row.checkpoint_id)
        ]

    def keep_blob(self, session_id: str, blob: BlobRow) -> None:
        self._known(session_id)
        self._blobs.setdefault(session_id, {})[blob.digest] = blob.body

    # --- reads ----------------------------------------------------------------------------------

    def load(self, session_id: str) -> Stored | None:
        life = self._lives.get(session_id)
        if life is None:
            return None
        seq, snapshot = life.snapshots[-1] if life.snapshots else (0, b"")
        taken = {row.seq for row in (*life.records, *life.commands)}
        gone = [one for one in range(seq + 1, max(taken, default=seq)) if one not in taken]
        assert life.is_restored or not gone  # nothing that a daemon does leaves a hole
        missing = [[one, one] for one in gone[:1]]
        for one in gone[1:]:
            if one > missing[-1][1] + 1:
                missing.append([one, one])
            missing[-1][1] = one
        return Stored(
            row=life.row,
            records=tuple(row for row in life.records if row.seq > seq),
            unanswered=tuple(row for row in life.commands if row.answer is None),
            snapshot=snapshot,
            missing=tuple((first, last) for first, last in missing),
            snapshots=len(life.snapshots),
        )

    def history(self, session_id: str) -> Past | None:
        life = self._lives.get(session_id)
        if life is None:
            return None
        seq, snapshot = life.snapshots[0] if life.snapshots else (0, b"")
        if any(row.seq <= seq for row in life.records):
            seq, snapshot = 0, b""
        return Past(
            row=life.row,
            snapshot=snapshot,
            records=tuple(life.records),
            commands=tuple(life.commands),
            snapshot_seq=seq,
        )

    def alive(self) -> list[SessionRow]:
        lives = [life for life in self._lives.values() if life.is_alive]
        lives.sort(key=lambda life: (life.row.created_ms, life.order))
        return [life.row for life in lives]

    def over(self, limit: int) -> list[tuple[SessionRow, int]]:
        rows = [life.row for life in self._lives.values() if not life.is_alive]
        rows.sort(key=lambda row: (-row.ended_ms, -row.created_ms, row.session_id))
        return [
            (replace(row, spec=b"", written=0), self.last_index(row.session_id))
            for row in rows[: max(0, limit)]
        ]

    def find(self, session_id: str) -> SessionRow | None:
        life = self._lives.get(session_id)
        return None if life is None else life.row

    def replay(self, session_id: str, after: int, through: int, limit: int) -> list[EventRow]:
        life = self._lives.get(session_id)
        found = [
            row
            for row in (life.events if life else [])
            if row.first <= through and row.first + row.count - 1 > after
        ]
        return found[: max(0, limit)]

    def last_index(self, session_id: str) -> int:
        life = self._lives.get(session_id)
        return max((row.first + row.count - 1 for row in life.events), default=0) if life else 0

    def answer(self, session_id: str, command_id: str) -> bytes | None:
        life = self._lives.get(session_id)
        rows = life.commands if life else []
        return next((row.answer for row in rows if row.command_id == command_id), None)

    def downs(self, session_id: str, after: int, limit: int) -> list[DownRow]:
        rows = [row for row in self._downs if row.session_id == session_id]
        return [row for row in rows if row.seq > after and row.body][: max(0, limit)]

    def newest_down(self, session_id: str) -> DownRow | None:
        rows = [row for row in self._downs if row.session_id == session_id]
        return rows[-1] if rows else None

    def checkpoints(self, session_id: str) -> list[CheckpointRow]:
        rows = [row for row in self._checkpoints if row.session_id == session_id]
        rows.reverse()  # of two in one millisecond the later one comes first
        rows.sort(key=lambda row: -row.saved_ms)
        return [replace(row, body=b"") for row in rows]

    def checkpoint(self, session_id: str, checkpoint_id: str | None) -> CheckpointRow | None:
        names = [row.checkpoint_id for row in self.checkpoints(session_id)]
        wanted = names[0] if names and checkpoint_id is None else checkpoint_id
        found = (
            row
            for row in self._checkpoints
            if (row.session_id, row.checkpoint_id) == (session_id, wanted)
        )
        return next(found, None)

    def blob(self, session_id: str, digest: str) -> bytes | None:
        return self._blobs.get(session_id, {}).get(digest)

    def blobs(self, session_id: str) -> list[tuple[str, int]]:
        return [(name, len(body)) for name, body in sorted(self._blobs.get(session_id, {}).items())]

    def _known(self, session_id: str) -> Life:
        life = self._lives.get(session_id)
        if life is None:
            raise InvalidSession(session_id)
        return life


def _which(row: DownRow) -> Any:
    return row.session_id, row.incarnation, row.restarting


METHODS = {
    operations.CreateSession: "create",
    operations.AcceptCommand: "accept",
    operations.AppendRecords: "append",
    operations.BeginIncarnation: "began",
    operations.EndSession: "ended",
    operations.RestoreSession: "restore",
    operations.PruneSessions: "prune",
    operations.PublishEvents: "publish",
    operations.RecordDown: "note_down",
    operations.SaveCheckpoint: "save_checkpoint",
    operations.DeleteCheckpoint: "delete_checkpoint",
    operations.FindSession: "find",
    operations.ListLiveSessions: "alive",
    operations.ListEndedSessions: "over",
    operations.LoadSession: "load",
    operations.ReadHistory: "history",
    operations.FindAnswer: "answer",
    operations.ReplayEvents: "replay",
    operations.FindLastIndex: "last_index",
    operations.ListDowns: "downs",
    operations.FindNewestDown: "newest_down",
    operations.ListCheckpoints: "checkpoints",
    operations.FindCheckpoint: "checkpoint",
    operations.KeepBlob: "keep_blob",
    operations.FindBlob: "blob",
    operations.ListBlobs: "blobs",
}
