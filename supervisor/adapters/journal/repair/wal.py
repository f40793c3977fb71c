"""Reads a SQLite write-ahead log: which frames are whole, and which single bit of one is wrong.

https://www.sqlite.org/fileformat2.html#walformat: a header of 32 bytes, then frames of 24 bytes and
a page each. Each checksum goes on from the one before, so a damaged frame spoils all behind it for
SQLite, which takes the log up to there and says nothing. Here a frame is checked against what the
frame before it says, so those behind a damaged one can be told from it.

The checksum is linear: a flipped bit changes it by an amount that names the bit.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import BinaryIO, Final, TypeAlias

HEADER: Final = struct.Struct(">8I")
"""Magic, format, page size, checkpoint number, two salts, checksum."""
FRAME: Final = struct.Struct(">6I")
"""Page, size of the file in pages after a commit or 0, two salts, checksum."""
_MAGICS: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""With the byte order of the checksum."""
_CHECKED: Final = 8
"""Bytes of a frame's header that its checksum covers."""
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
    """What a log holds; ``frames`` end with the last one of the log's present generation."""

    page_size: int = 0
    frames: list[Frame] = field(default_factory=list)
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
        log.frames.append(frame)
    return log


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
        if not is_whole and (repair := self._repair(number, head, seed, right)) is not None:
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
        wrong = _one_bit((head[2], head[3]), self.salts)
        if wrong is not None:
            return (offset + 8 + wrong[0], wrong[1]) if right == stored else None
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


def _one_bit(found: Sum, wanted: Sum) -> tuple[int, int] | None:
    """Return the byte and the bit in which two numbers differ, where it is one of them."""
    differing = struct.pack(">2Q", *(one ^ other for one, other in zip(found, wanted, strict=True)))
    number = int.from_bytes(differing[4:8] + differing[12:], "big")
    if number == 0 or number & (number - 1):
        return None
    place = number.bit_length() - 1
    return 7 - place // 8, place % 8


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
