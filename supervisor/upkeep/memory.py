"""Keeps the daemon's memory within bounds: what peers can make it remember, and what malloc holds.

A thread looks at the first (see ``core.peer_memory``), because one that floods the loop can hold it
up while the memory grows. It cuts connections and nothing else: an agent's is never cut, and a
client connects again and asks again.

ZeroMQ names its connections to nobody and closes none on request. They are descriptors of this
process, so they are found among all of them, by the path that they were accepted at; the kernel
says which process is at the other end. A shutdown ends one: ZeroMQ sees its end, as that of a peer
that has died, and frees what it kept for it. What had arrived whole is still handed over.
Everything is done on duplicates, since another thread may close a descriptor at any moment and get
its number for another one.
"""

import ctypes
import fcntl
import os
import resource
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import structlog

from supervisor.core.peer_memory import FREED_S, LOOK_S, Growth, Heard, Whom

# --- the allocator --------------------------------------------------------------------------------

# The names of malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

ARENAS_MAX: Final = 2
"""Under the interpreter's lock one thread allocates at a time; the other is SQLite or ZeroMQ."""
LARGE_BLOCK_BYTES: Final = 2**20
"""What is as large as this is given back to the kernel when it is freed."""


def bound_arenas() -> None:
    """Have malloc keep few arenas, and no large blocks in them; another libc is left as it is.

    Meant for the start of a process: an arena that there is stays.

    glibc gives each thread an arena of its own, and after the first large block that was freed it
    takes blocks of that size from the arenas too (mallopt(3), the dynamic threshold). What then
    grows now and then and moves, like the table of interned strings, leaves a hole of megabytes in
    one arena after the other. A daemon that had nothing more to remember grew by 2 kB for each
    session, for as long as there were arenas without a hole.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return
    libc.mallopt(_M_ARENA_MAX, ARENAS_MAX)
    libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, LARGE_BLOCK_BYTES)


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def used_bytes() -> int:
    """Return what is in use of malloc's memory; of another libc, what the process has in RAM.

    It takes a microsecond, and may be asked for in any thread.
    """
    libc = _libc()
    if not hasattr(libc, "mallinfo2"):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    found = libc.mallinfo2()
    return int(found.uordblks) + int(found.hblkhd)


def give_back() -> None:
    """Give what was freed back to the kernel, also from between what is in use."""
    libc = _libc()
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallinfo2"):
        libc.mallinfo2.restype = _MallInfo
    return libc


# --- connections ----------------------------------------------------------------------------------

SENDING_BYTES_MIN: Final = 16 * 1024
"""Unread of who sends faster than it is read; a busy loop leaves some topics unread of others."""
_COUNT: Final = struct.Struct("i")
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


def cut(path: str, is_meant: Callable[[int, bool], bool]) -> list[int]:
    """End connections at ``path``; return the pid of each.

    ``is_meant`` gets a peer's pid, and whether ``SENDING_BYTES_MIN`` of it wait to be read.
    Those of this process itself are left. May be called in any thread; 1,000 descriptors take some
    milliseconds.
    """
    found: list[int] = []
    for connection, pid in _accepted(path):
        if pid != os.getpid() and is_meant(pid, _unread_bytes(connection) >= SENDING_BYTES_MIN):
            with suppress(OSError):  # it has ended by itself
                connection.shutdown(socket.SHUT_RDWR)
                found.append(pid)
    return found


def _accepted(path: str) -> Iterator[tuple[socket.socket, int]]:
    for entry in list(Path("/proc/self/fd").iterdir()):
        connection = _duplicate(int(entry.name))
        if connection is None:
            continue
        with closing(connection), suppress(OSError):
            if connection.family != socket.AF_UNIX or connection.getsockname() != path:
                continue
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            yield connection, _CREDENTIALS.unpack(peer)[0]


def _unread_bytes(connection: socket.socket) -> int:
    try:
        return int(_COUNT.unpack(fcntl.ioctl(connection, termios.FIONREAD, bytes(_COUNT.size)))[0])
    except OSError:  # it has ended by itself
        return 0


def _duplicate(number: int) -> socket.socket | None:
    """Return a duplicate of a descriptor, None where it is no socket, or is gone."""
    try:
        copy = os.dup(number)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


# --- the watch ------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)

STOP_S: Final = 5.0
"""For the thread to end."""
PIDS_SHOWN_MAX: Final = 20
"""Of one line in the log."""


@dataclass(frozen=True, slots=True)
class WatchedSocket:
    """A listening socket whose peers are watched."""

    socket: str
    path: str
    heard: Heard
    spared: Callable[[], frozenset[int]] = frozenset
    """Returns the processes that are never cut; called in the thread."""

    def cut(self, whom: Whom, since_s: float) -> list[int]:
        """Cut the connections of these, and return the pid of each."""
        spared = self.spared()
        return cut(
            self.path,
            lambda pid, is_sending: (
                pid not in spared and self.heard.is_meant(pid, whom, since_s, is_sending=is_sending)
            ),
        )


class MemoryWatch:
    """A thread that looks ten times a second, or more often while the memory grows."""

    def __init__(self, places: Sequence[WatchedSocket]) -> None:
        """Prepare; ``start`` begins to look."""
        self.cut = 0
        """How many connections were cut."""
        self._places = places
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; without one nothing."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    # Everything below runs on the thread.

    def _watch(self) -> None:
        growth = Growth(used_bytes(), calm_s=time.monotonic())
        wait_s = LOOK_S
        while not self._is_over.wait(wait_s):
            try:
                wait_s = self._look(growth)
            except Exception:
                log.exception("memory.not_watched")
                wait_s = LOOK_S

    def _look(self, growth: Growth) -> float:
        """Look, and cut who is to be cut; return how long to wait."""
        step = growth.look(used_bytes(), time.monotonic())
        if step.has_ended:
            give_back()
            log.info("memory.growth_ended", used=growth.floor + growth.grown)
        is_any = step.cut is not None and self._cut(step.cut, growth)
        return FREED_S if is_any else step.again_s

    def _cut(self, whom: Whom, growth: Growth) -> bool:
        """Cut those that are meant; say whether there was one."""
        is_any = False
        for place in self._places:
            pids = place.cut(whom, growth.calm_s)
            if not pids:
                continue
            is_any = True
            self.cut += len(pids)
            log.warning(
                "connection.cut",
                socket=place.socket,
                whom=whom.name.lower(),
                connections=len(pids),
                pids=sorted(set(pids))[:PIDS_SHOWN_MAX],
                grown=growth.grown,
            )
        return is_any
