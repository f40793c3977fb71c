"""The heartbeat table: memory for each worker, which the worker writes and the daemon reads.

Each slot is memory of its own without a file (memfd_create(2)), of one page. Its descriptor goes to
its worker and to nobody else, so that a worker reaches no slot but its own: ``lend`` is for one
that is about to be forked, and a worker that outlives its daemon brings the memory that it has to
the next one, which takes it by ``attach``. A file could be cut short by anybody who can open it, or
find its disk full, and either ends whoever touches the memory next by SIGBUS; a heartbeat could
also wait for the disk. This memory's size is sealed, and a slot has its memory before it is handed
out.

``HeartbeatWatch`` looks at the heartbeat table, and reports who is silent;
``supervisor.core.heartbeats`` judges.
"""

import asyncio
import fcntl
import mmap
import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

from cmdc_runtime.errors import Overloaded
from cmdc_runtime.heartbeats import (
    HEARTBEAT_WORD,
    READS_MAX,
    SLOT_BYTES,
    SLOT_MEMORY_BYTES,
    WORD_BYTES,
    Activity,
    Heartbeat,
    read,
)
from supervisor.adapters.accept_gate import check_descriptors
from supervisor.core.heartbeats import AskForStack, Judge, Judgement

# --- the heartbeat table --------------------------------------------------------------------------

_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_MODE: Final = 0o600
_NO_WORDS: Final = (0,) * (HEARTBEAT_WORD + 1)
"""Of a slot without memory."""
_EMPTY: Final = bytes(SLOT_BYTES)
_ORDER: Final = sys.byteorder


class HeartbeatTable:
    """The slots of one daemon's workers.

    Agents that were started by an earlier release look for a file at a path. For them there is one,
    from the first ``take_by_path`` until the last of them is gone; it is never mapped here.

    A slot belongs to one process from its taking to ``release``, and is released only when that
    process has ended. All of it runs in one thread, and nothing waits.
    """

    def __init__(self, path: Path, slots: int) -> None:
        """Have so many slots and no memory yet; what lies at ``path`` is removed.

        Raises:
            OSError: it can't be.
            ValueError: there are no slots.
        """
        if slots <= 0:
            raise ValueError(f"a heartbeat table of {slots} slots is empty")
        self._path, self._slots = path, slots
        path.unlink(missing_ok=True)  # of an earlier daemon
        self._free = list(range(slots - 1, -1, -1))  # the lowest is taken first
        self._taken: set[int] = set()
        self._memory: dict[int, mmap.mmap] = {}
        self._words: list[Sequence[int]] = []
        """Of each slot that was ever taken; of one without memory all are 0."""
        self._lent: dict[int, int] = {}
        """Descriptors that were not asked for yet."""
        self._by_path: set[int] = set()
        self._file: int | None = None
        """The file for those slots."""

    def take(self) -> int:
        """Return the number of a slot that is all zeros and nobody else's.

        Raises:
            Overloaded: all are taken.
            OSError: the machine has no memory or descriptor for another one.
        """
        slot = self._next()
        check_descriptors()
        fd = _new_memory()
        try:
            self._map(slot, fd)
        except BaseException:
            os.close(fd)
            raise
        self._lent[slot] = fd
        self._take(slot)
        return slot

    def lend(self, slot: int) -> int:
        """Return the descriptor of a slot that was just taken, once; the caller closes it."""
        return self._lent.pop(slot)

    def take_empty(self) -> int:
        """Return the number of a slot whose memory its process brings; raises Overloaded."""
        slot = self._next()
        self._take(slot)
        return slot

    def attach(self, slot: int, fd: int) -> None:
        """Take the memory that a process has brought for its slot; closes ``fd`` in any case.

        Raises:
            OSError: it can't be mapped.
            ValueError: it is no memory of a slot, or could be cut short.
        """
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)  # only of memory, else OSError
            size = os.fstat(fd).st_size
            if seals & _SEALS != _SEALS or size != SLOT_MEMORY_BYTES:
                raise ValueError(
                    f"{size} bytes with seals {seals:#x} are no slot of a heartbeat table"
                )
            os.posix_fallocate(fd, 0, SLOT_MEMORY_BYTES)  # a hole in it could end us
            self._forget(slot)
            self._map(slot, fd)
        finally:
            os.close(fd)

    def take_by_path(self) -> int:
        """Return the number of a slot that its process finds in the file at the table's path.

        Raises:
            Overloaded: all are taken, or there is no room for the file.
        """
        slot = self._next()
        try:
            if self._file is None:
                self._file = self._new_file()
            # Here an error; where the process writes it would be SIGBUS.
            os.posix_fallocate(self._file, slot * SLOT_BYTES, SLOT_BYTES)
            os.pwrite(self._file, _EMPTY, slot * SLOT_BYTES)
        except OSError as error:
            raise Overloaded(
                f"no room for slot {slot} of the heartbeat table at {self._path}: {error}"
            ) from error
        self._take(slot)
        self._by_path.add(slot)
        return slot

    def release(self, slot: int) -> None:
        """Give a slot back whose process has ended; read it before, if it is of interest."""
        self._taken.remove(slot)
        self._forget(slot)
        self._free.append(slot)

    def read(self, slot: int) -> Heartbeat:
        """Return what stands in a slot, whatever it is."""
        found = self._read(slot)
        for _ in range(READS_MAX - 1 if slot in self._by_path else 0):
            if found.activity != Activity():
                break
            found = self._read(slot)  # it was being written, or there is none
        return found

    def times(self) -> list[int]:
        """Return the time of each slot's last heartbeat in nanoseconds."""
        found = [words[HEARTBEAT_WORD] for words in self._words]
        for slot in self._by_path:
            found[slot] = int.from_bytes(self._bytes(slot, WORD_BYTES), _ORDER)
        return found

    def close(self) -> None:
        """Unmap the memory and remove the file; workers keep theirs. Idempotent."""
        for slot in {*self._memory, *self._by_path}:
            self._forget(slot)

    def _next(self) -> int:
        if not self._free:
            raise Overloaded(f"the heartbeat table is full: {self._slots} processes have a slot")
        return self._free[-1]

    def _take(self, slot: int) -> None:
        self._taken.add(self._free.pop())
        self._words += [_NO_WORDS] * (slot + 1 - len(self._words))

    def _map(self, slot: int, fd: int) -> None:
        memory = mmap.mmap(fd, SLOT_MEMORY_BYTES, access=mmap.ACCESS_READ)
        self._words += [_NO_WORDS] * (slot + 1 - len(self._words))
        self._memory[slot], self._words[slot] = memory, memoryview(memory).cast("Q")

    def _forget(self, slot: int) -> None:
        """Give back what a slot has."""
        words, memory = self._words[slot], self._memory.pop(slot, None)
        self._words[slot] = _NO_WORDS
        if isinstance(words, memoryview):
            words.release()
        if memory is not None:
            memory.close()
        if (fd := self._lent.pop(slot, None)) is not None:
            os.close(fd)
        self._by_path.discard(slot)
        if not self._by_path and self._file is not None:
            os.close(self._file)
            self._file = None
            with suppress(OSError):  # the next table removes what stays
                self._path.unlink(missing_ok=True)

    def _read(self, slot: int) -> Heartbeat:
        if slot in self._by_path:
            return read(memoryview(self._bytes(slot, SLOT_BYTES)), time.monotonic_ns())
        memory = self._memory.get(slot)
        if memory is None:
            return read(memoryview(_EMPTY), time.monotonic_ns())
        with memoryview(memory) as whole, whole[:SLOT_BYTES] as part:
            return read(part, time.monotonic_ns())

    def _bytes(self, slot: int, size: int) -> bytes:
        """Return the beginning of a slot of the file, zeros where somebody has cut it."""
        found = b"" if self._file is None else os.pread(self._file, size, slot * SLOT_BYTES)
        return found.ljust(size, b"\0")

    def _new_file(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self._path, flags, _MODE)
        try:
            os.ftruncate(fd, -(-self._slots * SLOT_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _new_memory() -> int:
    """Return a descriptor of sealed memory for one slot; raises OSError."""
    fd = os.memfd_create("cmdc-heartbeats", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(fd, _MODE)
        os.ftruncate(fd, SLOT_MEMORY_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        os.posix_fallocate(fd, 0, SLOT_MEMORY_BYTES)
    except BaseException:
        os.close(fd)
        raise
    return fd


# --- the look at it -------------------------------------------------------------------------------

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)


class HeartbeatWatch(Generic[K]):
    """Watches processes by their slots; ``key`` is the owner's name for a process.

    A look is one pass over memory. It runs in the daemon's loop, so a daemon that is blocked does
    not look, and the judge takes that into account. A callback that raises is logged, and costs
    nobody else a look.
    """

    def __init__(
        self,
        heartbeats: HeartbeatTable,
        on_stack: Callable[[K], None],
        on_silent: Callable[[K, int], None],
    ) -> None:
        """Watch nobody yet.

        ``on_stack`` is called for a process that should write its stacks, ``on_silent`` a moment
        later, with the milliseconds, for one that must be killed: once each, in the loop, and
        neither may block. A process that beats in between is forgiven, and may be reported again.
        """
        self._table = heartbeats
        self._on_stack = on_stack
        self._on_silent = on_silent
        self._judge: Judge[K] = Judge()
        self._is_wanted = asyncio.Event()

    def watch(self, key: K, slot: int, limit_s: float) -> None:
        """Expect a heartbeat of the process in ``slot`` every ``limit_s`` seconds, from now on.

        One that is watched already is judged anew, by these numbers.
        """
        self._judge.watch(key, slot, limit_s, time.monotonic_ns())
        self._is_wanted.set()

    def unwatch(self, key: K) -> None:
        """Expect nothing more; to be called before the slot is released. Idempotent."""
        self._judge.unwatch(key)
        if not len(self._judge):
            self._is_wanted.clear()

    async def run(self) -> None:
        """Look again and again, until cancelled; while nobody is watched, wait."""
        while True:
            await self._is_wanted.wait()
            self._look()
            await asyncio.sleep(self._judge.interval_s)

    def _look(self) -> None:
        now_ns = (
            time.monotonic_ns()
        )  # before the heartbeats: what is written in between is no older
        for judgement in self._judge.look(now_ns, self._table.times()):
            try:
                self._report(judgement)
            except Exception:
                log.exception("verdict.not_reported", verdict=type(judgement).__name__)

    def _report(self, judgement: Judgement[K]) -> None:
        if isinstance(judgement, AskForStack):
            self._on_stack(judgement.key)
        else:
            self._on_silent(judgement.key, judgement.silent_ms)
