"""A backup as a file: the pages of a SQLite database, and behind them a seal.

The seal has the CRC-32 of each page, so that whatever has changed in the file since is found.
SQLite goes by the size in its own header and passes over what is behind the last page, so a backup
can be opened to look into it; whoever writes to it breaks the seal.
"""

import os
import sqlite3
import struct
import zlib
from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

from supervisor.adapters.journal.repair.sums import PAGE_BYTES

_MAGIC: Final = b"cmdcbak1"
_SEAL: Final = struct.Struct("<QII8s")
"""When it was made, wall time in ms; how many pages; checksum of the seal up to here; magic."""
_SUM_BYTES: Final = 4
_CHUNK_BYTES: Final = 256 * PAGE_BYTES


@dataclass(slots=True)
class Seal:
    """What stands behind the pages."""

    made_ms: int
    sums: "array[int]" = field(default_factory=lambda: array("I"))

    @property
    def pages(self) -> int:
        """How many there are."""
        return len(self.sums)

    def encode(self) -> bytes:
        """Return it as it stands in the file."""
        sums = self.sums.tobytes()
        check = _check(sums, self.made_ms)
        return sums + _SEAL.pack(self.made_ms, self.pages, check, _MAGIC)


def read_seal(file: BinaryIO) -> Seal | None:
    """Return the seal of a backup, None where there is none or it is broken."""
    size = file.seek(0, os.SEEK_END)
    if size < _SEAL.size:
        return None
    file.seek(size - _SEAL.size)
    made_ms, pages, check, magic = _SEAL.unpack(file.read(_SEAL.size))
    if magic != _MAGIC or size != pages * (PAGE_BYTES + _SUM_BYTES) + _SEAL.size:
        return None
    file.seek(pages * PAGE_BYTES)
    seal = Seal(made_ms)
    seal.sums.frombytes(file.read(pages * _SUM_BYTES))
    return seal if _check(seal.sums.tobytes(), made_ms) == check else None


def is_backup(path: Path) -> bool:
    """Say whether a file has the seal of a backup; of its pages nothing is looked at.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        return read_seal(file) is not None


def write_sealed(source: BinaryIO, target: BinaryIO, made_ms: int) -> Seal:
    """Write the pages of a database and their seal, from the beginning of both files."""
    seal = Seal(made_ms)
    for page in _pages(source):
        seal.sums.append(zlib.crc32(page))
        target.write(page)
    target.write(seal.encode())
    return seal


def copy_pages(source: BinaryIO, seal: Seal, target: BinaryIO) -> list[int]:
    """Write the pages of a backup without its seal; return those that are damaged."""
    damaged = []
    for number, (page, sum_) in enumerate(zip(_pages(source), seal.sums, strict=False), 1):
        if zlib.crc32(page) != sum_:
            damaged.append(number)
        target.write(page)
    return damaged


def damage_of(path: Path) -> str | None:
    """Return what SQLite finds wrong with a database that nobody has open, None for nothing.

    Each page is read, and each entry of an index compared with its row.
    """
    try:
        with closing(open_to_read(path)) as db:
            (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if verdict == "ok" else str(verdict)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection to a database that has no log, and that nobody writes to meanwhile."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)


def _pages(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        for at in range(0, len(chunk), PAGE_BYTES):
            yield chunk[at : at + PAGE_BYTES]


def _check(sums: bytes, made_ms: int) -> int:
    return zlib.crc32(struct.pack("<Q", made_ms), zlib.crc32(sums))
