"""A session as a file: what moves from one daemon to another.

The file is a line that says what it is, then frames: length and CRC-32, both big-endian and of four
bytes, and a part in MessagePack. The first part is the ``Header``, the last one the ``End`` with
the SHA-256 of all before it. So a file that was cut, or changed anywhere, is known for it. A change
that an older program must not read is a new ``FORMAT``.

Before any of a file is kept it is checked: numbers, order, ids and bodies (``check_whole``). Who
reads a file asks here, the program that sends it and the daemon that takes it alike. What passes
can be written to a journal and taken over from it. What only the agent knows, whether a record
or a command means something to it, is left to the agent: every body is one whole value in
MessagePack, so it harms nobody but the session that it is of.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from cmdc_runtime.checked_struct import (
    COUNT_MAX,
    INCARNATION_MAX,
    INDEX_MAX,
    NAME_CHARS_MAX,
    TIME_MS_MAX,
)
from cmdc_runtime.checkpoints import CHECKPOINTS_MAX, CheckpointFacts, facts_problem
from cmdc_runtime.errors import ProtocolError, UsageError
from cmdc_runtime.ids import EventIndex, Incarnation, SessionId, is_session_id
from cmdc_runtime.message_parts import SESSION_PARTS_BYTES_MAX, SESSION_PARTS_MAX, size_problem
from cmdc_runtime.plain import packed_problem, text_problem, whole_problem
from cmdc_runtime.reasons import snake
from cmdc_runtime.requests import Origin, PastCommand, PastRecord, ReplayedBatch, StartSession
from cmdc_runtime.wire.codec import decode_as, is_answer
from cmdc_runtime.wire.frames import FRAME_BYTES_MAX

# --- the file -------------------------------------------------------------------------------------

FORMAT: Final = 2
"""With images and files; a session that has none is written as ``FORMAT_FIRST``, for who reads
nothing newer."""
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


class BlobPart(Part, frozen=True, kw_only=True, array_like=True):
    """The bytes of one image or file, by their SHA-256 in hex."""

    digest: str
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
    blobs: list[BlobPart] = msgspec.field(default_factory=list)


_decoder: Final = msgspec.msgpack.Decoder(
    Header
    | PiecePart
    | SnapshotPart
    | RecordsPart
    | CommandsPart
    | EventsPart
    | CheckpointPart
    | BlobPart
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
        if not isinstance(part, SnapshotPart | CheckpointPart | BlobPart):
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
            case BlobPart(digest=digest, body=body):
                whole.blobs.append(BlobPart(digest=digest, body=begun + body))
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


# --- checks ---------------------------------------------------------------------------------------

VALUES_MAX: Final = 2_000_000
"""Of one body, such as a snapshot of 8 MiB; looking at so many takes about a second."""
_HEADER: Final = (
    ("exported_ms", 0, TIME_MS_MAX),
    ("created_ms", 0, TIME_MS_MAX),
    ("incarnation", 1, INCARNATION_MAX),
    ("restarts", 0, INCARNATION_MAX),
    ("last_index", 0, INDEX_MAX),
    ("snapshot_seq", 0, INDEX_MAX),
)
_BATCH: Final = (("first", 1, INDEX_MAX), ("count", 1, COUNT_MAX))


def check_whole(whole: Whole) -> StartSession:
    """Return the definition of the session of a file that may be kept.

    Raises:
        UsageError: it may not; the message names the first thing that is wrong, and its place.
    """
    problem = next(_problems(whole), None)
    if problem is not None:
        raise UsageError(f"the file's session cannot be kept: {problem}")
    return _spec_of(whole.header.spec)


def _problems(whole: Whole) -> Iterator[str]:
    header = whole.header
    yield from _header_problems(header)
    if not whole.snapshot and header.snapshot_seq:
        yield f"header: snapshot_seq: {header.snapshot_seq}, and there is no snapshot"
    yield from _record_problems(whole.records, header)
    yield from _command_problems(whole.commands)
    yield from _order_problems(whole)
    yield from _event_problems(whole.events, header)
    yield from _checkpoint_problems(whole.checkpoints)
    yield from _blob_problems(whole.blobs)
    yield from _body_problems(whole)


def _header_problems(header: Header) -> Iterator[str]:
    if not is_session_id(header.session_id):
        yield f"header: session_id: no session can be called {header.session_id[:80]!r}"
    yield from _number_problems(header, _HEADER, "header")
    try:
        spec = _spec_of(header.spec)
    except UsageError as error:
        yield f"header: {error}"
        return
    yield from _spec_problems(spec, header)


def _spec_problems(spec: StartSession, header: Header) -> Iterator[str]:
    """Yield what is wrong with a definition; whose child it was is no matter: it becomes a root."""
    origin = Origin(session_id=spec.session_id) if spec.origin is None else spec.origin
    named = (("parent_id", spec.parent_id), ("origin", origin.session_id))
    for name, session_id in (("session_id", spec.session_id), *named):
        if session_id is not None and not is_session_id(session_id):
            yield f"header: spec: {name}: no session can be called {session_id[:80]!r}"
    if spec.session_id != header.session_id:
        yield f"header: spec: session_id: {spec.session_id!r}, and the file is of another session"
    names = (
        ("group_id", spec.group_id),
        ("start_id", spec.start_id or None),
        ("origin", origin.checkpoint_id),
    )
    for name, value in names:
        if value is not None and (wrong := _name_problem(value)) is not None:
            yield f"header: spec: {name}: {wrong}"
    if spec.keys:
        yield "header: spec: keys: a file has none; who imports it gives them when he resumes"
    if spec.parent_incarnation is not None:
        wrong = whole_problem(spec.parent_incarnation, 1, INCARNATION_MAX)
        if wrong is not None:
            yield f"header: spec: parent_incarnation: {wrong}"


def _spec_of(data: bytes) -> StartSession:
    try:
        spec: StartSession = decode_as(StartSession, data)
    except ProtocolError as error:
        raise UsageError(f"spec: the session's definition cannot be read here: {error}") from error
    return spec


def _record_problems(records: Sequence[PastRecord], header: Header) -> Iterator[str]:
    ranges = (("seq", header.snapshot_seq + 1, INDEX_MAX), ("incarnation", 0, header.incarnation))
    for at, one in enumerate(records):
        yield from _number_problems(one, ranges, f"records[{at}]")
        if (wrong := _name_problem(one.kind)) is not None:
            yield f"records[{at}]: kind: {wrong}"


def _command_problems(commands: Sequence[PastCommand]) -> Iterator[str]:
    seen: set[str] = set()
    for at, one in enumerate(commands):
        place = f"commands[{at}]"
        yield from _number_problems(one, (("seq", 1, INDEX_MAX), ("at_ms", 0, TIME_MS_MAX)), place)
        if (wrong := _name_problem(one.id)) is not None:
            yield f"{place}: id: {wrong}"
        if one.id in seen:
            yield f"{place}: id: {one.id[:80]!r} is that of an earlier one"
        seen.add(one.id)
        if one.answer is not None and not is_answer(one.answer, one.id):
            yield f"{place}: answer: it is no answer to this command"


def _order_problems(whole: Whole) -> Iterator[str]:
    """Yield where records and commands do not count as one, each from one to the next."""
    for name, rows in (("records", whole.records), ("commands", whole.commands)):
        yield from _unordered((one.seq for one in rows), name)
    shared = {one.seq for one in whole.records} & {one.seq for one in whole.commands}
    if shared:
        yield f"commands: seq: {min(shared)} is that of a record, too"


def _unordered(numbers: Iterable[int], name: str) -> Iterator[str]:
    before = 0
    for at, number in enumerate(numbers):
        if number <= before:
            yield f"{name}[{at}]: seq: {number} comes behind {before}"
        before = number


def _event_problems(events: Sequence[ReplayedBatch], header: Header) -> Iterator[str]:
    last = 0
    for at, one in enumerate(events):
        place = f"events[{at}]"
        yield from _number_problems(one, _BATCH, place)
        if one.first <= last:
            yield f"{place}: first: {one.first} comes behind {last}"
        last = one.first + one.count - 1
        if last > header.last_index:
            yield f"{place}: it ends with {last}, and last_index is {header.last_index}"


def _checkpoint_problems(parts: Sequence[CheckpointPart]) -> Iterator[str]:
    if len(parts) > CHECKPOINTS_MAX:
        yield f"checkpoints: {len(parts):,} of them, and a session has {CHECKPOINTS_MAX:,} at most"
    for at, one in enumerate(parts):
        if (wrong := facts_problem(one.facts, one.body)) is not None:
            yield f"checkpoints[{at}]: {wrong}"


def _blob_problems(blobs: Sequence[BlobPart]) -> Iterator[str]:
    total = sum(len(one.body) for one in blobs)
    if len(blobs) > SESSION_PARTS_MAX or total > SESSION_PARTS_BYTES_MAX:
        yield (
            f"blobs: {len(blobs):,} of {total:,} bytes, and a session has at most"
            f" {SESSION_PARTS_MAX:,} of {SESSION_PARTS_BYTES_MAX:,}"
        )
    for at, one in enumerate(blobs):
        if (wrong := size_problem(len(one.body))) is not None:
            yield f"blobs[{at}]: {wrong}"
        if hashlib.sha256(one.body).hexdigest() != one.digest:
            yield f"blobs[{at}]: digest: it is that of other bytes"


def _body_problems(whole: Whole) -> Iterator[str]:
    for place, body in _bodies(whole):
        if (wrong := packed_problem(body, values_max=VALUES_MAX)) is not None:
            yield f"{place}: {wrong}"


def _bodies(whole: Whole) -> Iterator[tuple[str, bytes]]:
    """Yield everything that only an agent opens, with its place."""
    yield "header: spec", whole.header.spec
    if whole.snapshot:
        yield "snapshot", whole.snapshot
    rows: tuple[tuple[str, Sequence[Any]], ...] = (  # Any: each has a body
        ("records", whole.records),
        ("commands", whole.commands),
        ("events", whole.events),
        ("checkpoints", whole.checkpoints),
    )
    for name, holders in rows:
        yield from ((f"{name}[{at}]: body", one.body) for at, one in enumerate(holders))


def _number_problems(
    holder: object, ranges: Iterable[tuple[str, int, int]], place: str
) -> Iterator[str]:
    for name, low, high in ranges:
        if (wrong := whole_problem(getattr(holder, name), low, high)) is not None:
            yield f"{place}: {name}: {wrong}"


def _name_problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    return text_problem(name, chars_max=NAME_CHARS_MAX, one_line=True)
