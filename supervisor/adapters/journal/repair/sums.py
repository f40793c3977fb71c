"""A checksum of every page of the journal's file, in a file of its own.

SQLite has none outside its write-ahead log, so a flipped bit inside a body would go unseen. Pages
come into the file by checkpoints only: what is about to come is read from the log, made durable
there, noted here, made durable too, and then it comes. So at a start a page is either in the log
still, or its checksum is right, or it is damaged.

The checksum is linear: a flipped bit changes it by an amount that names the bit, and two of them
by one that names none.

Where somebody else has written to the file since, which its time of change shows, SQLite's own
check is the judge.
"""

import errno
import functools
import os
import struct
import zlib
from array import array
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from supervisor.adapters.journal.progress import Progress

PAGE_BYTES: Final = 4096
"""SQLite's default since 2016, which every journal was made with."""
_HEADER: Final = struct.Struct("<8sQQI")
"""Magic, the file's time of change in ns and its size when it was last noted, checksum of these."""
_MAGIC: Final = b"cmdcsum1"
_BLOCK_BYTES: Final = 4096
"""After the header, too, checksums come in blocks, each with one of its own at its end."""
_BLOCK_SUMS: Final = _BLOCK_BYTES // 4 - 1
_CHUNK_PAGES: Final = 256
_SECTOR_BYTES: Final = 512
_POLYNOMIAL: Final = 0xEDB88320
"""Of CRC-32, reversed as zlib has it: what the last bit of a page does to its checksum."""


class PageSums:
    """The checksums of one file; on the writer's thread only."""

    def __init__(self, path: Path, journal: Path, progress: Progress | None = None) -> None:
        """Prepare; nothing is read. ``progress`` hears how far the file is read."""
        self._path, self._journal = path, journal
        self._progress = progress or Progress()
        self._sums: array[int] = array("I")
        self.is_known = False
        """Whether there are any to go by."""
        self.is_untouched = False
        """Whether nobody but us has written to the file since, as far as its time shows."""

    def load(self) -> bool:
        """Read them; False where there are none to go by."""
        try:
            data = self._path.read_bytes()
            found = self._journal.stat()
        except OSError:
            return False
        if len(data) < _BLOCK_BYTES or len(data) % _BLOCK_BYTES:
            return False
        magic, at_ns, size, check = _HEADER.unpack_from(data)
        if magic != _MAGIC or check != zlib.crc32(data[: _HEADER.size - 4]):
            return False
        self.is_untouched = (at_ns, size) == (found.st_mtime_ns, found.st_size)
        count, self._sums = size // PAGE_BYTES, array("I")
        for at in range(_BLOCK_BYTES, len(data), _BLOCK_BYTES):
            block = data[at : at + _BLOCK_BYTES]
            if block[-4:] != _check(block[:-4]):
                return False
            self._sums.frombytes(block[:-4])
        if len(self._sums) < count:
            return False
        while self._sums and not self._sums[-1]:  # what no page has had yet
            self._sums.pop()
        self.is_known = True
        return True

    def __len__(self) -> int:
        """Return how many pages the file has."""
        return len(self._sums)

    def wrong(self, skip: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the pages whose checksum is wrong, except ``skip``, as they were read.

        One at a time: of an edited file all may be. A page that is missing or cannot be read comes
        as what there is of it. One that was never written (SQLite leaves one out at 1 GiB) has no
        checksum, which is 0.
        """
        with self._journal.open("rb", buffering=0) as file:
            yield from (one for one in self.differing(file) if one[0] not in skip)

    def differing(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yield the pages of the file, which comes open, whose checksum is wrong, as ``wrong``."""
        for page, data in enumerate(self._pages(file), 1):
            if (sum_ := self._sums[page - 1]) and zlib.crc32(data) != sum_:
                yield page, data

    def wrong_among(self, file: BinaryIO, pages: range) -> set[int]:
        """Return those of neighbouring pages of the file, which comes open, whose sum is wrong."""
        known = self._sums[pages.start - 1 : pages.stop - 1]
        chunk = read_what_is_there(file, (pages.start - 1) * PAGE_BYTES, len(known) * PAGE_BYTES)
        return {
            page
            for at, (page, sum_) in enumerate(zip(pages, known, strict=False))
            if sum_ and zlib.crc32(chunk[at * PAGE_BYTES : (at + 1) * PAGE_BYTES]) != sum_
        }

    def repaired(self, page: int, data: bytes) -> bytes | None:
        """Return a page put right, where a single bit of it is wrong."""
        if len(data) != PAGE_BYTES:
            return None
        place = _places().get(zlib.crc32(data) ^ self._sums[page - 1])
        if place is None:
            return None
        right = bytearray(data)
        right[place // 8] ^= 1 << place % 8
        return bytes(right)

    def note(self, pages: Mapping[int, int]) -> None:
        """Write down the checksums of pages that are about to come, durably."""
        if not pages:
            return
        self._sums.extend(0 for _ in range(max(pages) - len(self._sums)))
        for page, sum_ in pages.items():
            self._sums[page - 1] = sum_
        with self._open() as file:
            for block in sorted({(page - 1) // _BLOCK_SUMS for page in pages}):
                first = block * _BLOCK_SUMS
                sums = self._sums[first : first + _BLOCK_SUMS].tobytes()
                data = sums.ljust(_BLOCK_BYTES - 4, b"\0")
                file.seek(_BLOCK_BYTES * (block + 1))
                file.write(data + _check(data))
            file.flush()
            os.fdatasync(file.fileno())

    def note_all(self) -> None:
        """Write all of them down again, where their file is gone."""
        self.note(dict(enumerate(self._sums, 1)))

    def note_file(self) -> None:
        """Remember when the file was changed last, and how large it is."""
        found = self._journal.stat()
        head = _HEADER.pack(_MAGIC, found.st_mtime_ns, found.st_size, 0)
        with self._open() as file:
            file.seek(0)
            file.write((head[:-4] + _check(head[:-4])).ljust(_BLOCK_BYTES, b"\0"))

    def rebuild(self, file: BinaryIO) -> None:
        """Take the file to be right as it is.

        It comes open: closing a file of ours drops the locks that SQLite has on it.
        """
        self.drop()
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        self._progress.begin("noting the checksums of all pages", size)
        sums: dict[int, int] = {}
        for page, data in enumerate(iter(lambda: file.read(PAGE_BYTES), b""), 1):
            sums[page] = zlib.crc32(data)
            self._progress.done_bytes += PAGE_BYTES
        self.note(sums)
        self.note_file()
        self.is_known = True

    def drop(self) -> None:
        """Forget them, and remove their file."""
        self._path.unlink(missing_ok=True)
        self._sums = array("I")
        self.is_known = False

    def _pages(self, file: BinaryIO) -> Iterator[bytes]:
        self._progress.begin("checking all pages", len(self._sums) * PAGE_BYTES)
        for first in range(0, len(self._sums), _CHUNK_PAGES):
            count = min(_CHUNK_PAGES, len(self._sums) - first)
            offset = first * PAGE_BYTES
            chunk = read_what_is_there(file, offset, count * PAGE_BYTES)
            for at in range(0, count * PAGE_BYTES, PAGE_BYTES):
                yield chunk[at : at + PAGE_BYTES]
            self._progress.done_bytes += count * PAGE_BYTES

    def _open(self) -> BinaryIO:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        return os.fdopen(fd, "r+b")


def read_what_is_there(file: BinaryIO, offset: int, size: int) -> bytes:
    """Return bytes of a file; sectors that the disk does not give come as zeros."""
    try:
        return os.pread(file.fileno(), size, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        if size <= _SECTOR_BYTES:
            return bytes(size)
    half = size // 2
    before = read_what_is_there(file, offset, half)
    return before.ljust(half, b"\0") + read_what_is_there(file, offset + half, size - half)


@functools.cache
def _places() -> dict[int, int]:
    """Return by what each bit of a page changes its checksum, with the bit's place.

    Walks backwards from the last bit: each one before it goes through one more step of the CRC.
    """
    places: dict[int, int] = {}
    change = _POLYNOMIAL
    for place in reversed(range(PAGE_BYTES * 8)):
        places[change] = place
        change = change >> 1 ^ (_POLYNOMIAL if change & 1 else 0)
    return places


def _check(data: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(data))
