"""A disk that fails or forgets: what the processes preload, and what a power cut leaves of a trace.

The order of writes and syncs is recorded by the process itself; a power cut at some point of it
keeps what was synced, and of the rest any part, in any order, in whole sectors.
"""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("storage_faults.c")
BUILD_S = 30.0
SECTOR_BYTES = 512
_ORDERS = struct.Struct("=4i")
_ENTRY = struct.Struct("=IIqq")
WRITE, SYNC, SIZE, REMOVE, RENAME = range(1, 6)


class FaultyDisk:
    """The disk under one folder, for processes started with its variables; it begins well."""

    def __init__(self, compiler, folder, place):
        """Build what the processes preload, into ``folder``; a C compiler has to be there."""
        self._path, library = folder / "orders", folder / "storage_faults.so"
        self.trace = folder / "trace"
        self.heal()
        words = ["-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl", "-lpthread"]
        subprocess.run([compiler, *words], check=True, timeout=BUILD_S)
        self.variables = {
            "LD_PRELOAD": str(library),
            "STORAGE_FAULTS_FILE": str(self._path),
            "STORAGE_FAULTS_FOLDER": str(place),
        }

    def heal(self):
        """Let everything succeed."""
        self._order(0, 0, 0, 0)

    def fail_syncs(self, number, after=0):
        """Let syncs fail with an error, after so many that succeed."""
        self._order(number, 0, 0, after)

    def fail_writes(self, number):
        """Let writes fail with an error."""
        self._order(0, number, 0, 0)

    def fail_reads(self, number):
        """Let reads fail with an error."""
        self._order(0, 0, number, 0)

    def _order(self, *numbers):
        data = _ORDERS.pack(*numbers)
        if self._path.exists():
            with self._path.open("r+b") as file:
                file.write(data)
        else:
            self._path.write_bytes(data)


@dataclass
class Entry:
    """One thing that was done to a file."""

    kind: int
    path: str
    offset: int
    data: bytes


def entries(trace):
    """Return what was recorded, in its order."""
    data, at, found = trace.read_bytes(), 0, []
    while at + _ENTRY.size <= len(data):
        kind, path_bytes, offset, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        path = data[at : at + path_bytes].decode()
        at += path_bytes
        size = size if kind in {WRITE, RENAME} else 0
        found.append(Entry(kind, path, offset, data[at : at + size]))
        at += size
    return found


class Remains:
    """What a power cut leaves, of files that are changed by entries in their order."""

    def __init__(self, chance):
        """Begin with nothing; ``chance`` says what of the unsynced is there."""
        self._chance = chance
        self._safe, self._open = {}, {}

    def apply(self, entry):
        """Take one entry.

        A new name and a removal are kept as soon as they are made: the file systems that matter
        write their own journal in order.
        """
        if entry.kind == SYNC:
            for change in self._open.pop(entry.path, []):
                self._change(entry.path, change)
        elif entry.kind == REMOVE:
            self._safe.pop(entry.path, None)
            self._open.pop(entry.path, None)
        elif entry.kind == RENAME:
            for files in (self._safe, self._open):
                files.pop(entry.data.decode(), None)
                if entry.path in files:
                    files[entry.data.decode()] = files.pop(entry.path)
        else:
            self._open.setdefault(entry.path, []).append(entry)

    def cut(self, folder):
        """Write what is left into ``folder``; any of what was not synced, sector by sector."""
        for path, changes in self._open.items():
            for change in changes:
                if self._chance.random() < 0.5:
                    self._change(path, change, is_torn=self._chance.random() < 0.3)
        folder.mkdir(mode=0o700)
        for path, data in self._safe.items():
            (folder / Path(path).name).write_bytes(data)

    def _change(self, path, change, *, is_torn=False):
        data = self._safe.setdefault(path, bytearray())
        if change.kind == SIZE:
            del data[change.offset :]
            data.extend(bytes(change.offset - len(data)))
            return
        if len(data) < change.offset + len(change.data):
            data.extend(bytes(change.offset + len(change.data) - len(data)))
        for at in range(0, len(change.data), SECTOR_BYTES):
            if is_torn and self._chance.random() < 0.5:
                continue
            part = change.data[at : at + SECTOR_BYTES]
            data[change.offset + at : change.offset + at + len(part)] = part
