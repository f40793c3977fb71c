"""A session's journal cut into frames of bounded size. Pure."""

from collections.abc import Iterator
from typing import Final, Protocol

from cmdc_runtime.frames import History, JournalCommand, JournalRecord
from cmdc_runtime.ids import CommandId
from cmdc_runtime.plain import text_problem
from supervisor.core.limits import HISTORY_BYTES_MAX, HISTORY_ITEMS_MAX

KIND_CHARS_MAX: Final = 64
"""Of a record's kind: what a frame takes."""


class KeptRecord(Protocol):
    """One record, as the journal gives it."""

    @property
    def kind(self) -> str:
        """What it is."""

    @property
    def body(self) -> bytes:
        """What it says."""


class KeptCommand(Protocol):
    """One unanswered command, as the journal gives it."""

    @property
    def command_id(self) -> CommandId:
        """Which one."""

    @property
    def body(self) -> bytes:
        """What it says."""


class Kept(Protocol):
    """What a session is rebuilt from."""

    @property
    def records(self) -> tuple[KeptRecord, ...]:
        """Its records, oldest first."""

    @property
    def snapshot(self) -> bytes:
        """The state that the records come after, empty where they begin at the start."""

    @property
    def unanswered(self) -> tuple[KeptCommand, ...]:
        """Its unanswered commands, oldest first."""


def slices(kept: Kept | None) -> Iterator[History]:
    """Yield the frames that carry ``kept``; the last one says so. None is an empty history."""
    records: list[JournalRecord] = []
    size = 0
    snapshot = b"" if kept is None else kept.snapshot
    for first in range(0, len(snapshot), HISTORY_BYTES_MAX):
        piece = snapshot[first : first + HISTORY_BYTES_MAX]
        yield History(records=(), commands=(), complete=False, snapshot=piece)
    for record in kept.records if kept is not None else ():
        sent = _sent(record)
        if records and _is_full(len(records), size + len(sent.body)):
            yield History(records=tuple(records), commands=(), complete=False)
            records, size = [], 0
        records.append(sent)
        size += len(sent.body)
    commands: list[JournalCommand] = []
    for command in kept.unanswered if kept is not None else ():
        items = len(records) + len(commands)
        if items and _is_full(items, size + len(command.body)):
            yield History(records=tuple(records), commands=tuple(commands), complete=False)
            records, commands, size = [], [], 0
        commands.append(JournalCommand(id=command.command_id, body=command.body))
        size += len(command.body)
    yield History(records=tuple(records), commands=tuple(commands), complete=True)


def _sent(record: KeptRecord) -> JournalRecord:
    """Return a row as a frame takes it; an edited file has any value in any column.

    A kind that is no word is sent as none. Whether the body is a record is for the agent to say.
    """
    kind: object = record.kind
    body: object = record.body
    is_word = text_problem(kind, chars_max=KIND_CHARS_MAX, one_line=True) is None
    return JournalRecord(
        kind=str(kind) if is_word else "",
        body=body if isinstance(body, bytes) else str(body).encode(errors="replace"),
    )


def _is_full(items: int, size: int) -> bool:
    return items >= HISTORY_ITEMS_MAX or size > HISTORY_BYTES_MAX
