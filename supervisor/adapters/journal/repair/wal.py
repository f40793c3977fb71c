"""A SQLite write-ahead log: its frames read, and the log that is open kept in memory as written.

https://www.sqlite.org/fileformat2.html#walformat: a header of 32 bytes, then frames of 24 bytes and
a page each. Each checksum goes on from the one before, so a damaged frame spoils all behind it for
SQLite, which takes the log up to there and says nothing. Here a frame is checked against what the
frame before it says, so those behind a damaged one can be distinguished from it. The checksum is
linear: a flipped bit changes it by an amount that names the bit.

What is committed since the last checkpoint stands in the log alone, and SQLite, which knows from
memory what is where in it, never looks at what it has written. So a log that somebody cuts or
overwrites in place takes commits without a word, and the next opening ends before the damage.
``LogCopy`` reads every commit back before anybody hears of it, and looks at the log before the next
one: where its file has changed since, it is compared, and written again.
``JOURNAL_WAL_BYTES_MAX`` and one group of writes bound it: nothing is written behind more than that
before it is in the journal's file.

A change within a commit of ours that keeps the size of the log and its newest page is found by
``check_whole`` at the checkpoint; before Linux 6.13, or where the file system has no fine times of
change, also one within the tick of the kernel's clock (4 ms) behind it.
"""

import os
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import structlog

from supervisor.adapters.journal.repair.sums import PAGE_BYTES
from supervisor.adapters.journal.repair.volume import JournalLostError

# --- frames ---------------------------------------------------------------------------------------

HEADER: Final = struct.Struct(">8I")
"""Magic, format, page size, checkpoint number, two salts, checksum."""
FRAME: Final = struct.Struct(">6I")
"""Page, size of the file in pages after a commit or 0, two salts, checksum."""
_MAGICS: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""With the byte order of the checksum."""
_CHECKED: Final = 8
"""Bytes of a frame's header that its checksum covers."""
GENERATIONS: Final = 2**16
"""So far apart, at most, are the first salts of logs that one file has had; one in 32,768 of salts
that are damaged looks so by chance."""
_WORD: Final = 0xFFFFFFFF
_BITS: Final = 32

Sum: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; ``is_whole`` says that its checksum follows from that of the frame before."""

    number: int
    page: int
    commit: int
    is_whole: bool
    is_ours: bool
    """Whether its salts are those of the log; else nothing in its header is to be believed."""
    offset: int
    """Of its page in the file."""


@dataclass(slots=True)
class Log:
    """What a log holds; ``frames`` end with the last one of its generation that was written.

    A frame in the midst that was never written (zeros, or left from another generation) is the mark
    of a power cut: what is not synced comes to the disk in any order, and was acknowledged to
    nobody who was promised that it outlives the power. ``has_rest``: there is more behind it.
    """

    page_size: int = 0
    frames: list[Frame] = field(default_factory=list)
    has_rest: bool = False
    repairs: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of bytes of which one bit is wrong, and which bit."""

    @property
    def good(self) -> int:
        """How many frames SQLite takes: those up to the last commit before a damaged frame."""
        last = 0
        for frame in self.frames:
            if not frame.is_whole:
                break
            if frame.commit:
                last = frame.number + 1
        return last

    @property
    def committed(self) -> int:
        """How many frames there are up to the last whole commit, whatever is before it."""
        commits = (one.number + 1 for one in self.frames if one.is_whole and one.commit)
        return max(commits, default=0)

    @property
    def lost_commits(self) -> int:
        """How many commits stand whole behind a damaged frame."""
        behind = self.frames[self.good : self.committed]
        return sum(1 for one in behind if one.is_whole and one.commit)

    def pages(self, count: int) -> dict[int, Frame]:
        """Return the newest frame of each page among the first ``count`` frames."""
        return {frame.page: frame for frame in self.frames[:count]}


def read_log(data: bytes) -> Log:
    """Return what a log holds, with the single bits that are wrong in it."""
    log = Log()
    header, repaired = _header(data)
    if header is None:
        return log
    if repaired is not None:
        log.repairs.append(repaired)
    magic, _, log.page_size, _, *salts, first, second = header
    order = _MAGICS[magic]
    size = FRAME.size + log.page_size
    seed = (first, second)
    found = list(_frames(data, size))
    ours = [number for number, one in enumerate(found) if list(one[2:4]) == salts]
    reader = _Reader(data, log, order, (salts[0], salts[1]))
    for number, head in enumerate(found[: max(ours, default=-1) + 1]):
        frame, seed = reader.read(number, head, seed)
        if not frame.is_ours and _is_unwritten((head[2], head[3]), reader.salts):
            log.has_rest = True
            break
        log.frames.append(frame)
    return log


def _is_unwritten(salts: Sum, ours: Sum) -> bool:
    """Say whether a frame with these salts is none of this generation, and not a damaged one.

    SQLite adds 1 to the first salt whenever it begins the log anew, and draws the second.
    """
    apart = (salts[0] - ours[0]) & _WORD
    return salts == (0, 0) or 0 < min(apart, _WORD + 1 - apart) < GENERATIONS


@dataclass(slots=True)
class _Reader:
    """Reads the frames of one log, and looks for what is wrong with a damaged one."""

    data: bytes
    log: Log
    order: str
    salts: Sum

    def read(self, number: int, head: tuple[int, ...], seed: Sum) -> tuple[Frame, Sum]:
        """Return a frame, and what the checksum of the next one goes on from."""
        offset = self._offset(number)
        page, commit, *salts, first, second = head
        stored, right = (first, second), checksum(self._body(number), seed, self.order)
        is_ours = tuple(salts) == self.salts
        is_whole = is_ours and right == stored
        if not is_ours and right == stored:  # which no frame of another log has
            is_ours = is_whole = True
            self.log.repairs += _bits(offset + 8, (salts[0], salts[1]), self.salts)
        elif not is_whole and (repair := self._repair(number, head, seed, right)) is not None:
            is_ours = is_whole = True
            self.log.repairs.append(repair)
            fixed = bytearray(self.data[offset : offset + FRAME.size])
            if (at := repair[0] - offset) < FRAME.size:
                fixed[at] ^= 1 << repair[1]
            page, commit, _, _, first, second = FRAME.unpack(fixed)
            stored = (first, second)
        page_at = offset + FRAME.size
        return Frame(number, page, commit, is_whole, is_ours, page_at), stored

    def _repair(
        self, number: int, head: tuple[int, ...], seed: Sum, right: Sum
    ) -> tuple[int, int] | None:
        """Return the offset of a byte and its bit that is wrong, where that is all, and certain."""
        offset, stored = self._offset(number), (head[4], head[5])
        if (head[2], head[3]) != self.salts:
            return None
        wrong = _one_bit(stored, right)
        if wrong is not None:  # the checksum, or the last word of the page: the next frame knows
            if self.follows(number + 1, right):
                return offset + 16 + wrong[0], wrong[1]
            if not self.follows(number + 1, stored):
                return None
        wrong = _wrong_bit(self._body(number), seed, stored, self.order)
        if wrong is None:
            return None
        at, bit = wrong
        return offset + at + (0 if at < _CHECKED else FRAME.size - _CHECKED), bit

    def follows(self, number: int, seed: Sum) -> bool:
        """Say whether the checksum of this frame goes on from ``seed``."""
        body = self._body(number)
        if len(body) < _CHECKED + self.log.page_size:
            return False
        head = FRAME.unpack_from(self.data, self._offset(number))
        return checksum(body, seed, self.order) == head[4:6]

    def _body(self, number: int) -> bytes:
        offset = self._offset(number)
        page_at = offset + FRAME.size
        page = self.data[page_at : page_at + self.log.page_size]
        return self.data[offset : offset + _CHECKED] + page

    def _offset(self, number: int) -> int:
        return HEADER.size + number * (FRAME.size + self.log.page_size)


def _bits(at: int, found: Sum, wanted: Sum) -> list[tuple[int, int]]:
    """Return the bytes and bits in which two numbers differ that stand at ``at``."""
    pairs = zip(struct.pack(">2I", *found), struct.pack(">2I", *wanted), strict=True)
    return [
        (place, bit)
        for place, (one, other) in enumerate(pairs, at)
        for bit in range(8)
        if (one ^ other) >> bit & 1
    ]


def _one_bit(found: Sum, wanted: Sum) -> tuple[int, int] | None:
    """Return the byte and the bit in which two numbers differ, where it is one of them."""
    bits = _bits(0, found, wanted)
    return bits[0] if len(bits) == 1 else None


def sums_in(file: BinaryIO, end: int) -> tuple[dict[int, int], int]:
    """Return the CRC of each page that a log holds, up to the last commit, and how many frames.

    For a log of our own which is known to be whole up to byte ``end``: only the salts are looked
    at. It is read a frame at a time, since it comes again and again and may be large.
    """
    header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        return {}, 0
    _, _, page_size, _, *salts, _, _ = HEADER.unpack(header)
    size = FRAME.size + page_size
    found: dict[int, int] = {}
    fresh: dict[int, int] = {}
    count = 0
    for number in range((end - HEADER.size) // size):
        frame = file.read(size)
        if len(frame) < size:
            break
        page, commit, *frame_salts, _, _ = FRAME.unpack_from(frame)
        if frame_salts != salts:
            break
        fresh[page] = zlib.crc32(memoryview(frame)[FRAME.size :])
        if commit:
            found |= fresh
            fresh.clear()
            count = number + 1
    return found, count


def chained(log: bytes, frames: bytes) -> int:
    """Return how many bytes of ``frames`` are whole commits that go on from the end of ``log``."""
    magic, _, page_size, _, _, _, *seed = HEADER.unpack_from(log)
    if len(log) > HEADER.size:
        *_, first, second = FRAME.unpack_from(log, len(log) - FRAME.size - page_size)
        seed = [first, second]
    good, size = 0, FRAME.size + page_size
    for at in range(0, len(frames) - size + 1, size):
        head = FRAME.unpack_from(frames, at)
        body = frames[at : at + _CHECKED] + frames[at + FRAME.size : at + size]
        if checksum(body, (seed[0], seed[1]), _MAGICS[magic]) != head[4:6]:
            break
        seed = list(head[4:6])
        good = at + size if head[1] else good
    return good


def checksum(data: bytes, seed: Sum, order: str) -> Sum:
    """Return the checksum of ``data`` after ``seed``."""
    first, second = seed
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = first + one + second & _WORD
        second = second + other + first & _WORD
    return first, second


def _frames(data: bytes, size: int) -> Iterator[tuple[int, ...]]:
    for offset in range(HEADER.size, len(data) - size + 1, size):
        yield FRAME.unpack_from(data, offset)


def _header(data: bytes) -> tuple[tuple[int, ...] | None, tuple[int, int] | None]:
    """Return the header, put right where one bit of it is wrong; None where it is no log's."""
    start = data[: HEADER.size]
    if len(start) < HEADER.size:
        return None, None
    if _is_header(start):
        return HEADER.unpack(start), None
    for at in range(HEADER.size):
        for bit in range(8):
            other = bytearray(start)
            other[at] ^= 1 << bit
            if _is_header(bytes(other)) and _begins(data, HEADER.unpack(other)):
                return HEADER.unpack(other), (at, bit)
    return None, None


def _begins(data: bytes, header: tuple[int, ...]) -> bool:
    """Say whether the first frame goes on from a header."""
    log = Log(header[2])
    reader = _Reader(data, log, _MAGICS[header[0]], (header[4], header[5]))
    return reader.follows(0, (header[6], header[7]))


def _is_header(start: bytes) -> bool:
    magic, _, page_size, _, _, _, first, second = HEADER.unpack(start)
    order = _MAGICS.get(magic)
    if order is None or page_size < 512 or page_size & (page_size - 1):  # noqa: PLR2004 - SQLite's
        return False
    return checksum(start[:24], (0, 0), order) == (first, second)


def _wrong_bit(body: bytes, seed: Sum, stored: Sum, order: str) -> tuple[int, int] | None:
    """Return the byte and the bit of ``body`` with which the checksum would be right."""
    found = checksum(body, seed, order)
    wanted = (stored[0] - found[0] & _WORD, stored[1] - found[1] & _WORD)
    words = struct.unpack(f"{order}{len(body) // 4}I", body)
    found_bits = [
        (place, bit)
        for place, bit, was_set in _turns(len(words)).get(wanted, ())
        if words[place] >> bit & 1 == was_set
    ]
    # High bits count the same at several places: then it is not known which one it was.
    if len(found_bits) != 1:
        return None
    place, bit = found_bits[0]
    byte = bit // 8 if order == "<" else 3 - bit // 8
    return place * 4 + byte, bit % 8


@lru_cache(maxsize=1)  # a log has pages of one size; of 4 KiB the table takes some 15 MiB
def _turns(count: int) -> Mapping[Sum, Sequence[tuple[int, int, bool]]]:
    """Return what turning a bit of one of ``count`` words adds to the checksum.

    By the sum: in which word, which bit, and whether it was set. A log may be ruined from end to
    end, and is looked through for a wrong bit before anybody knows.
    """
    found: defaultdict[Sum, list[tuple[int, int, bool]]] = defaultdict(list)
    for place, (one, other) in enumerate(_weights(count)):
        for bit in range(_BITS):
            change = 1 << bit
            found[one * change & _WORD, other * change & _WORD].append((place, bit, False))
            found[-one * change & _WORD, -other * change & _WORD].append((place, bit, True))
    return found


def _weights(count: int) -> list[Sum]:
    """Return by how much a word at each place counts in the two halves of the checksum."""
    found: list[Sum] = []
    one, other = (1, 1), (0, 1)  # of the last two words
    for _ in range(count // 2):
        found += [other, one]
        one, other = _next(one), _next(other)
    return found[::-1]


def _next(weight: Sum) -> Sum:
    """Return what a weight becomes when another pair of words follows."""
    first, second = weight
    return first + second & _WORD, first + 2 * second & _WORD


# --- the log in memory ----------------------------------------------------------------------------

log = structlog.get_logger(__name__)

FRAME_BYTES: Final = FRAME.size + PAGE_BYTES
_READ_BYTES: Final = 6 * FRAME_BYTES
"""What a lone accept has as a rule, and the frame before it; then as much again as was read."""
_NO_COMMIT: Final = bytes(4)
_SALTS: Final = slice(16, 24)

Stamp: TypeAlias = tuple[int, int]


def stamp_of(found: os.stat_result) -> Stamp:
    """Return what of a file changes whenever anybody writes to it: its size and time of change."""
    return found.st_size, found.st_ctime_ns


class LogCopy:
    """The log of one open journal; on the writer's thread only."""

    def __init__(self, path: Path) -> None:
        """Prepare; ``open`` reads what is in the log at ``path``."""
        self._path = path
        self._fd = -1
        self._data = bytearray()
        self._seen: Stamp | None = None
        self._in_file = 0
        """How many of its bytes a checkpoint has brought into the journal's file."""

    def __len__(self) -> int:
        """Return how many bytes are kept."""
        return len(self._data)

    @property
    def fresh_bytes(self) -> int:
        """How many bytes were written since the last checkpoint."""
        return len(self._data) - self._in_file

    @property
    def may_begin_anew(self) -> bool:
        """Whether the log may begin anew: all that is here is in the journal's file."""
        return self.fresh_bytes == 0

    @property
    def data(self) -> bytes:
        """The log, as far as it is committed."""
        return bytes(self._data)

    def pages(self) -> dict[int, bytes]:
        """Return the newest content of each page that is in the log."""
        found = {}
        for at in range(HEADER.size, len(self._data), FRAME_BYTES):
            page = int.from_bytes(self._data[at : at + 4], "big")
            found[page] = bytes(self._data[at + FRAME.size : at + FRAME_BYTES])
        return found

    def open(self) -> None:
        """Take what is in the log up to its last whole commit."""
        self.close()
        self._fd = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._seen = stamp_of(os.fstat(self._fd))
        data = _read(self._fd, 0, os.fstat(self._fd).st_size)
        found = read_log(data)
        self._data = bytearray(
            data[: HEADER.size + found.good * FRAME_BYTES] if found.good else b""
        )

    def close(self) -> None:
        """Forget it."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._data, self._seen = -1, bytearray(), None
        self._in_file = 0

    def sync(self) -> None:
        """Have the disk store what is in the log."""
        os.fsync(self._fd)

    def checkpointed(self, *, is_empty: bool) -> None:
        """Record that all of it is in the journal's file; ``is_empty``: and the log is cut."""
        if is_empty:
            self._data = bytearray()
            self._seen = stamp_of(os.fstat(self._fd))
        self._in_file = len(self._data)

    def follow(self, status: os.stat_result | None, *, has_written: bool, is_unsure: bool) -> None:
        """Take what a commit has written, before anybody gets its result.

        ``status`` is how the log stood at its path behind the commit, None: it is not there.
        ``has_written`` is what SQLite says; a row that stays as it was is no write, though.
        ``is_unsure``: frames of a commit that failed may stand behind those of this one.

        Raises:
            JournalLostError: it is not there. What was there before stands in the log again.
        """
        seen = stamp_of(os.fstat(self._fd) if status is None else status)
        has_written = has_written and seen != self._seen
        if self.may_begin_anew:
            head = os.pread(self._fd, HEADER.size, 0)
            if head != self._data[: HEADER.size] and read_log(head).page_size:
                self._data, self._in_file = bytearray(head), len(head)
        begin = max(len(self._data) - FRAME_BYTES, 0)
        tail, fresh = self._read_on(begin)
        if is_unsure:
            fresh = fresh[: chained(bytes(self._data), fresh)]
        is_whole = tail == self._data[begin:]
        if has_written and not fresh:
            self._write_again()
            raise JournalLostError(f"{self._path} does not have what was just written to it")
        self._data += fresh
        self._seen = seen
        if not is_whole:
            self._write_again()

    def check(self, found: os.stat_result | None = None) -> None:
        """Put the log right where its file has changed since the last commit.

        Raises:
            JournalLostError: it can't be.
        """
        found = os.fstat(self._fd) if found is None else found
        if stamp_of(found) != self._seen:
            self.check_whole()

    def check_whole(self) -> None:
        """Compare every byte, and put the log right.

        Raises:
            JournalLostError: it can't be.
        """
        seen = stamp_of(os.fstat(self._fd))
        if self._is_whole():
            self._seen = seen
        else:
            self._write_again()

    def _is_whole(self) -> bool:
        known, end = self._data, len(self._data)
        for at in range(0, end, _READ_BYTES):
            size = min(_READ_BYTES, end - at)
            found = _read(self._fd, at, size)
            # Views are compared byte by byte, which takes ten times as long.
            if len(found) < size or not known.startswith(found, at):
                return False
        return True

    def _read_on(self, begin: int) -> tuple[bytes, bytes]:
        """Return what stands in the log from ``begin`` up to what is known, and what is behind.

        Behind it are whole commits of the same log.
        """
        known, salts = len(self._data) - begin, self._data[_SALTS]
        good, at = known, known
        found = os.pread(self._fd, _READ_BYTES, begin)
        is_all = len(found) < _READ_BYTES or len(salts) < _SALTS.stop - _SALTS.start
        while True:
            while at + FRAME_BYTES <= len(found):
                if found[at + 8 : at + 16] != salts:
                    return found[:known], found[known:good]
                if found[at + 4 : at + 8] != _NO_COMMIT:
                    good = at + FRAME_BYTES
                at += FRAME_BYTES
            if is_all:
                return found[:known], found[known:good]
            chunk = _read(self._fd, begin + len(found), len(found))
            is_all = len(chunk) < len(found)
            found += chunk

    def _write_again(self) -> None:
        data = bytes(self._data)
        log.error("journal.log_overwritten", path=str(self._path), bytes=len(data))
        at = 0
        while at < len(data):
            at += os.pwrite(self._fd, data[at:], at)
        os.fsync(self._fd)
        self._seen = stamp_of(os.fstat(self._fd))
        if not self._is_whole():
            raise JournalLostError(f"{self._path} does not keep what is written to it")
        log.warning("journal.log_written_again", path=str(self._path), bytes=len(data))


def _read(fd: int, at: int, size: int) -> bytes:
    """Return bytes of a file, fewer where it ends before."""
    found = bytearray()
    while len(found) < size and (chunk := os.pread(fd, size - len(found), at + len(found))):
        found += chunk
    return bytes(found)
