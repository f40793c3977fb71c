"""The heartbeat board's memory: made by the daemon, mapped by each worker, read at any time.

It is memory without a file (memfd_create(2)), and ``path`` is a link to it, by which workers open
it. A file could be cut short by anybody who can open it, or find its disk full, and either ends
whoever touches the memory next by SIGBUS; a beat could also wait for the disk. This memory's size
is sealed, a slot has its memory before it is handed out, and nothing is left of it when the daemon
dies but a link to nowhere, which the next daemon replaces.

A slot belongs to one process from ``take`` to ``release``, and is released only when that process
has ended: a dead process cannot write, so what the next one finds in the slot are zeros and its own
words. All of it runs in one thread, and nothing waits.
"""

import fcntl
import mmap
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from cmdc_runtime.board import BEAT_WORD, SLOT_BYTES, WORD_BYTES, Beat, read
from cmdc_runtime.errors import Overloaded

_SLOT_WORDS: Final = SLOT_BYTES // WORD_BYTES
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_MODE: Final = 0o600


class Board:
    """The slots of one daemon's workers."""

    def __init__(self, path: Path, memory_fd: int, slots: int) -> None:
        """Take over the memory, and map it; ``create`` is the way to a board."""
        self._path, self._fd, self._slots = path, memory_fd, slots
        self._map = mmap.mmap(memory_fd, _whole_pages(slots * SLOT_BYTES))
        self._memory = memoryview(self._map)
        self._words = self._memory.cast("Q")
        self._free = list(range(slots - 1, -1, -1))  # the lowest is taken first
        self._taken: set[int] = set()
        self._used = 0
        """How many slots, from the first one on, were ever taken: the others have no memory yet."""

    @classmethod
    def create(cls, path: Path, slots: int) -> Self:
        """Make a board of so many slots that workers find at ``path``.

        What an earlier daemon has left there is replaced; its workers, if any live, keep theirs.

        Raises:
            OSError: there is no such folder, or no memory.
        """
        fd = os.memfd_create("cmdc-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(fd, _MODE)
            os.ftruncate(fd, _whole_pages(slots * SLOT_BYTES))
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            board = cls(path, fd, slots)
        except BaseException:
            os.close(fd)
            raise
        try:
            board.show()
        except BaseException:
            board.close()
            raise
        return board

    def show(self) -> None:
        """Let workers find it at its path, in place of whatever is there; raises OSError."""
        self._path.unlink(missing_ok=True)
        self._path.symlink_to(f"/proc/{os.getpid()}/fd/{self._fd}")

    def take(self) -> int:
        """Return the number of a slot that is all zeros and nobody else's.

        Raises:
            Overloaded: all are taken, or the machine has no memory for another one.
        """
        if not self._free:
            raise Overloaded(f"the heartbeat board is full: {self._slots} processes have a slot")
        slot = self._free[-1]
        start = slot * SLOT_BYTES
        try:
            # Here an error; at the first write it would be SIGBUS.
            os.posix_fallocate(self._fd, start, SLOT_BYTES)
        except OSError as error:
            raise Overloaded(
                f"no memory for slot {slot} of the heartbeat board: {error}"
            ) from error
        self._taken.add(self._free.pop())
        self._used = max(self._used, slot + 1)
        self._memory[start : start + SLOT_BYTES] = bytes(SLOT_BYTES)
        return slot

    def release(self, slot: int) -> None:
        """Give a slot back whose process has ended; read it before, if it is of interest."""
        self._taken.remove(slot)
        self._free.append(slot)

    def read(self, slot: int) -> Beat:
        """Return what stands in a slot, whatever it is."""
        start = slot * SLOT_BYTES
        with self._memory[start : start + SLOT_BYTES] as memory:
            return read(memory, time.monotonic_ns())

    def beats(self) -> list[int]:
        """Return the time of each slot's last beat in nanoseconds, in one pass over the memory."""
        return self._words[BEAT_WORD : self._used * _SLOT_WORDS : _SLOT_WORDS].tolist()

    def close(self) -> None:
        """Unmap the memory and remove the way to it; workers keep theirs. Idempotent."""
        if self._map.closed:
            return
        self._words.release()
        self._memory.release()
        self._map.close()
        os.close(self._fd)
        with suppress(OSError):  # the next board replaces what stays
            self._path.unlink(missing_ok=True)


def _whole_pages(size: int) -> int:
    """Round up to what a worker maps, which is pages."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
