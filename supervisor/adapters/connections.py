"""The connections that this process has accepted at a socket of the file system, and their ends.

ZeroMQ names its connections to nobody and closes none on request. They are descriptors of this
process, so they are found among all of them, by the path that they were accepted at; the kernel
says which process is at the other end. A shutdown ends one: ZeroMQ sees its end, as that of a peer
that has died, and frees what it kept for it. What had arrived whole is still handed over.

Everything is done on duplicates, since another thread may close a descriptor at any moment and get
its number for another one.
"""

import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

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
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            yield connection, _CREDENTIALS.unpack(told)[0]


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
