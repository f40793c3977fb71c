"""A session as a file: what moves from one daemon to another.

The file is a line that says what it is, then frames: length and CRC-32, both big-endian and of
four bytes, and a part in MessagePack. The first part is the ``Header``, the last one the ``End``
with the SHA-256 of all before it. So a file that was cut, or changed anywhere, is known for it. A
change that an older program must not read is a new ``FORMAT``.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final

import msgspec

from cmdc_runtime.checkpoints import CheckpointFacts
from cmdc_runtime.errors import UsageError
from cmdc_runtime.frames import FRAME_BYTES_MAX
from cmdc_runtime.ids import EventIndex, Incarnation, SessionId
from cmdc_runtime.reasons import snake
from cmdc_runtime.requests import PastCommand, PastRecord, ReplayedBatch

FORMAT: Final = 1
FORMAT_FIRST: Final = 1
MAGIC: Final = b"cmdc session\n"
PART_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024
"""Of one frame: it has to fit into a message to the daemon."""
PART_BYTES: Final = 2**20
"""Rows are put together up to this size; a larger one has a frame of its own."""
TRANSFER_BYTES_MAX: Final = 2**28
"""Of a whole session: the daemon that takes it holds it in memory."""
_LENGTH: Final = 4


class Part(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Base of all parts."""


class Header(Part, frozen=True, kw_only=True, array_like=True):
    """Whose session it is; ``spec`` is the request that it was started with.

    ``is_over``: it had ended where it comes from, so it may go on under its id. Times are
    milliseconds. The ``snapshot`` is the state after record ``snapshot_seq``, if there is one.
    """

    format: int
    session_id: SessionId
    exported_ms: int
    created_ms: int
    is_over: bool
    incarnation: Incarnation
    restarts: int
    last_index: EventIndex
    spec: bytes
    snapshot_seq: int


class PiecePart(Part, frozen=True, kw_only=True, array_like=True):
    """The next bytes of a long body; the part behind the pieces has its last bytes."""

    body: bytes


class SnapshotPart(Part, frozen=True, kw_only=True, array_like=True):
    """The state that the records come after."""

    body: bytes


class RecordsPart(Part, frozen=True, kw_only=True, array_like=True):
    """Records, oldest first."""

    rows: tuple[PastRecord, ...]


class CommandsPart(Part, frozen=True, kw_only=True, array_like=True):
    """Commands with their answers, oldest first; those without one are still to be done."""

    rows: tuple[PastCommand, ...]


class EventsPart(Part, frozen=True, kw_only=True, array_like=True):
    """Durable events with their indexes, oldest first."""

    rows: tuple[ReplayedBatch, ...]


class CheckpointPart(Part, frozen=True, kw_only=True, array_like=True):
    """One checkpoint."""

    facts: CheckpointFacts
    body: bytes


class End(Part, frozen=True, kw_only=True, array_like=True):
    """Nothing follows; ``digest`` is the SHA-256 of all frames before."""

    parts: int
    digest: bytes


class Whole(msgspec.Struct, kw_only=True):
    """A session put together again from its parts."""

    header: Header
    snapshot: bytes = b""
    records: list[PastRecord] = msgspec.field(default_factory=list)
    commands: list[PastCommand] = msgspec.field(default_factory=list)
    events: list[ReplayedBatch] = msgspec.field(default_factory=list)
    checkpoints: list[CheckpointPart] = msgspec.field(default_factory=list)


_decoder: Final = msgspec.msgpack.Decoder(
    Header
    | PiecePart
    | SnapshotPart
    | RecordsPart
    | CommandsPart
    | EventsPart
    | CheckpointPart
    | End
)


class Seal:
    """The sum over a file's frames: for who writes them, and for who reads them."""

    def __init__(self) -> None:
        """Have seen none."""
        self.parts, self.size = 0, 0
        self._digest = hashlib.sha256()

    def add(self, frame: bytes) -> None:
        """Take the next frame into account."""
        self.parts += 1
        self.size += len(frame)
        self._digest.update(frame)

    def end(self) -> End:
        """Return what closes the file."""
        return End(parts=self.parts, digest=self._digest.digest())


def frame_of(part: Part) -> bytes:
    """Return a part as it stands in the file.

    Raises:
        UsageError: it is too large for a daemon to take.
    """
    body = msgspec.msgpack.encode(part)
    if len(body) > PART_BYTES_MAX:
        raise UsageError(
            f"a {type(part).__name__} takes {len(body):,} bytes, and at most {PART_BYTES_MAX:,} can"
            " be moved"
        )
    return len(body).to_bytes(_LENGTH) + zlib.crc32(body).to_bytes(_LENGTH) + body


def part_of(frame: bytes) -> Part:
    """Return the part that a frame holds.

    Raises:
        UsageError: it is damaged, or of another program.
    """
    length, sum_, body = frame[:_LENGTH], frame[_LENGTH : 2 * _LENGTH], frame[2 * _LENGTH :]
    if int.from_bytes(length) != len(body) or int.from_bytes(sum_) != zlib.crc32(body):
        raise UsageError("the file of the session is damaged: a part has another checksum")
    try:
        part: Part = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the file of the session cannot be read: {error}") from error
    if isinstance(part, Header) and not FORMAT_FIRST <= part.format <= FORMAT:
        raise UsageError(
            f"the file is of format {part.format}, and this program reads {FORMAT_FIRST} to"
            f" {FORMAT}: use the program that wrote it, or a newer one"
        )
    return part


def read_frames(file: BinaryIO) -> Iterator[bytes]:
    """Yield the frames of a file, as they stand in it.

    Raises:
        UsageError: it is no such file, or it is cut.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise UsageError("this is no file of a session: cmdc export writes one")
    while head := file.read(2 * _LENGTH):
        length = int.from_bytes(head[:_LENGTH])
        if len(head) < 2 * _LENGTH or length > PART_BYTES_MAX:
            raise UsageError("the file of the session is damaged: a part has no length")
        body = file.read(length)
        if len(body) < length:
            raise UsageError("the file of the session is cut: its last part is not complete")
        yield head + body


def in_pieces(body: bytes, last: Callable[[bytes], Part]) -> Iterator[Part]:
    """Yield the parts of a body: pieces of it as long as need be, and ``last`` with the rest."""
    done = max(0, len(body) - 1) // PART_BYTES * PART_BYTES
    for first in range(0, done, PART_BYTES):
        yield PiecePart(body=body[first : first + PART_BYTES])
    yield last(body[done:])


def rows_in_parts(rows: Iterable[Any], kind: Callable[..., Part]) -> Iterator[Part]:
    """Yield parts of ``kind`` that hold ``rows`` (Any: its own) in their order, of bounded size."""
    some: list[Any] = []  # Any: the rows of the kind
    size = 0
    for row in rows:
        length = len(msgspec.msgpack.encode(row))
        if some and size + length > PART_BYTES:
            yield kind(rows=tuple(some))
            some, size = [], 0
        some.append(row)
        size += length
    if some:
        yield kind(rows=tuple(some))


class Assembly:
    """Takes the parts of a file in their order; whatever is wrong with them shows here."""

    def __init__(self) -> None:
        """Have none."""
        self._seal = Seal()
        self._whole: Whole | None = None
        self._begun = bytearray()
        self._is_complete = False

    @property
    def taken(self) -> int:
        """How many were taken, the end included."""
        return self._seal.parts + self._is_complete

    def add(self, frame: bytes) -> None:
        """Take the next part.

        Raises:
            UsageError: it is damaged, out of its place, or too much.
        """
        part = part_of(frame)
        if self._is_complete:
            raise UsageError("the file of the session goes on behind its end")
        if isinstance(part, End):
            self._check_whole()
            if part != self._seal.end():
                raise UsageError("the file of the session is damaged: parts are missing or changed")
            self._is_complete = self._whole is not None
            return
        self._seal.add(frame)
        if self._seal.size > TRANSFER_BYTES_MAX:
            raise UsageError(f"the session takes more than {TRANSFER_BYTES_MAX:,} bytes")
        if isinstance(part, Header) != (self._whole is None):
            raise UsageError("the file of the session does not begin with its header")
        self._take(part)

    def _take(self, part: Part) -> None:
        if isinstance(part, Header):
            self._whole = Whole(header=part)
            return
        whole = self._whole
        assert whole is not None  # noqa: S101 - the header came first
        if isinstance(part, PiecePart):
            self._begun += part.body
            return
        if not isinstance(part, SnapshotPart | CheckpointPart):
            self._check_whole()
        begun, self._begun = bytes(self._begun), bytearray()
        match part:
            case SnapshotPart(body=body):
                whole.snapshot = begun + body
            case RecordsPart(rows=rows):
                whole.records += rows
            case CommandsPart(rows=rows):
                whole.commands += rows
            case EventsPart(rows=rows):
                whole.events += rows
            case CheckpointPart(facts=facts, body=body):
                whole.checkpoints.append(CheckpointPart(facts=facts, body=begun + body))
            case _:
                raise AssertionError(f"a part of no kind: {part!r}")  # the decoder's union is ours

    def _check_whole(self) -> None:
        if self._begun:
            raise UsageError("the file of the session is damaged: the end of a body is missing")

    def whole(self) -> Whole:
        """Return the session.

        Raises:
            UsageError: the file ended before its end.
        """
        if self._whole is None or not self._is_complete:
            raise UsageError("the file of the session is cut: its end is missing")
        return self._whole
