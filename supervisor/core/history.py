"""A session's journal cut into frames of bounded size, each of which a process can read. Pure.

An edited or damaged file has any value in any column. A record, a snapshot or a command whose body
is none of ours is sent as bytes of the same size limit: its process says what is wrong with it,
sets it aside or refuses it. A command whose id is none is sent to nobody, since nobody could be
answered: ``command_problem`` says why, and the daemon logs it. Where rows are gone, their process
reads which in their place.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeAlias

import msgspec

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.ids import CommandId
from cmdc_runtime.plain import text_problem
from cmdc_runtime.wire.codec import decode_as
from cmdc_runtime.wire.frames import (
    COMMAND_ID_CHARS_MAX,
    FRAME_BYTES_MAX,
    MISSING,
    Deliver,
    History,
    JournalCommand,
    JournalRecord,
)
from supervisor.core.limits import HISTORY_BYTES_MAX, HISTORY_ITEMS_MAX, HOLES_MAX

Hole: TypeAlias = tuple[int, int]
"""The first and the last of some numbers that no row has."""

KIND_CHARS_MAX: Final = 64
"""Of a record's kind: what a frame takes."""
BODY_BYTES_MAX: Final = FRAME_BYTES_MAX - 8 * 1024
"""Of one body: beside it a frame has its own fields, and the longest id or kind."""
_NO_BODY: Final = msgspec.Raw(b"\xc0")
"""What is delivered where a body is no value: no frame could hold that."""


class KeptRecord(Protocol):
    """One record, as the journal gives it."""

    @property
    def seq(self) -> int:
        """Its number."""

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
    def missing(self) -> tuple[Hole, ...]:
        """Which numbers no row has, lowest first."""

    @property
    def unanswered(self) -> tuple[KeptCommand, ...]:
        """Its unanswered commands, oldest first."""


def slices(kept: Kept | None) -> Iterator[History]:
    """Yield the frames that carry ``kept``; the last one says so. None is an empty history."""
    records: list[JournalRecord] = []
    size = 0
    snapshot = b"" if kept is None else _bytes(kept.snapshot)
    for first in range(0, len(snapshot), HISTORY_BYTES_MAX):
        piece = snapshot[first : first + HISTORY_BYTES_MAX]
        yield History(records=(), commands=(), complete=False, snapshot=piece)
    for sent in _frames_of(kept) if kept is not None else ():
        if records and _is_full(len(records), size + len(sent.body)):
            yield History(records=tuple(records), commands=(), complete=False)
            records, size = [], 0
        records.append(sent)
        size += len(sent.body)
    commands: list[JournalCommand] = []
    for command in kept.unanswered if kept is not None else ():
        if command_problem(command) is not None:
            continue
        items, body = len(records) + len(commands), _body(command.body)
        if items and _is_full(items, size + len(body)):
            yield History(records=tuple(records), commands=tuple(commands), complete=False)
            records, commands, size = [], [], 0
        commands.append(JournalCommand(id=command.command_id, body=body))
        size += len(body)
    yield History(records=tuple(records), commands=tuple(commands), complete=True)


def holes(after: int, numbers: Iterable[int]) -> tuple[Hole, ...]:
    """Return which numbers between ``after`` and the highest of ``numbers`` are not among them.

    Of more than ``HOLES_MAX`` holes the last ones are sent as one: from the first number of theirs
    that is missing to the last.
    """
    found: list[Hole] = []
    for number in sorted(numbers):
        if number > after + 1:
            first = after + 1 if len(found) < HOLES_MAX else found.pop()[0]
            found.append((first, number - 1))
        after = max(after, number)
    return tuple(found)


def _frames_of(kept: Kept) -> Iterator[JournalRecord]:
    """Yield the records as frames take them, and in their places the holes among them."""
    missing = list(reversed(kept.missing))
    for record in kept.records:
        while missing and missing[-1][0] < record.seq:
            yield _hole(missing.pop())
        yield _sent(record)
    yield from map(_hole, reversed(missing))


def hole_text(hole: Hole) -> str:
    """Return a hole as people read it."""
    first, last = hole
    return str(first) if first == last else f"{first} to {last}"


def _hole(hole: Hole) -> JournalRecord:
    return JournalRecord(kind=MISSING, body=hole_text(hole).encode())


def command_problem(command: KeptCommand) -> str | None:
    """Return why a command can't be given to a process, None for one that can.

    Nobody could be answered: the answer is filed under the id, in a frame of the process.
    """
    command_id: object = command.command_id
    wrong = text_problem(command_id, chars_max=COMMAND_ID_CHARS_MAX)
    if wrong is None and "\0" in str(command_id):
        wrong = "it has the control character U+0000"
    return None if wrong is None else f"command_id: {wrong}"


def delivery(command: KeptCommand) -> Deliver:
    """Return the frame that gives a process one command; ``command_problem`` has none with it."""
    body = msgspec.Raw(_body(command.body))
    try:
        decode_as(msgspec.Raw, body)
    except ProtocolError:
        body = _NO_BODY
    return Deliver(id=command.command_id, body=body, durable=True)


def _sent(record: KeptRecord) -> JournalRecord:
    """Return a row as a frame takes it.

    A kind that is no word is sent as none. Whether the body is a record is for the agent to say.
    """
    kind: object = record.kind
    is_word = text_problem(kind, chars_max=KIND_CHARS_MAX, one_line=True) is None
    return JournalRecord(kind=str(kind) if is_word else "", body=_body(record.body))


def _body(body: object) -> bytes:
    """Return a body as a frame has room for it; one that was cut can be read by nobody."""
    return _bytes(body)[:BODY_BYTES_MAX]


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def _is_full(items: int, size: int) -> bool:
    return items >= HISTORY_ITEMS_MAX or size > HISTORY_BYTES_MAX
