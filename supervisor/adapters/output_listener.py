"""The socket that workers connect their stdout and stderr to: who is let in, and how many.

Only processes of this user are. Whoever can't be is closed and counted and never left to wait: a
worker whose output nobody takes up would stand still as soon as the socket's buffer is full. So
when the daemon has no descriptor left, one that was kept for it takes the connection and closes it.
"""

import contextlib
import errno
import os
import socket
import struct
from pathlib import Path
from typing import Final

from supervisor.adapters.endpoint import private_umask

BACKLOG: Final = 1024
"""Connections that wait to be accepted; the nursery forks a worker in some 5 ms."""
ACCEPTED_MAX: Final = 256
"""At once, so that those who are connected have their turn."""

_PEER: Final = struct.Struct("iII")
_OUT_OF_FDS: Final = (errno.EMFILE, errno.ENFILE)


class OutputListener:
    """Listens at a path from the beginning to ``close``."""

    def __init__(self, path: Path) -> None:
        """Bind the socket, in place of one that a killed daemon left; raises OSError."""
        self._path = path
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with private_umask():
                self.sock.bind(os.fspath(path))
            self.sock.listen(BACKLOG)
        except OSError:
            self.sock.close()
            raise
        self.sock.settimeout(0)
        self._reserve = _reserve()
        self.turned_away = 0
        """Connections that were closed at once."""

    def accept(self) -> tuple[list[tuple[socket.socket, int]], bool]:
        """Return connections with their process, and whether these were all that waited."""
        accepted: list[tuple[socket.socket, int]] = []
        for _ in range(ACCEPTED_MAX):
            try:
                sock = self._next()
            except OSError:
                return accepted, True
            if sock is None:
                continue
            peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            pid, uid, _ = _PEER.unpack(peer)
            if uid != os.geteuid():
                self._turn_away(sock)
                continue
            sock.settimeout(0)
            accepted.append((sock, pid))
        return accepted, False

    def close(self) -> None:
        """Stop listening and remove the file; one that stays is replaced by the next listener."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self.give_up()

    def give_up(self) -> None:
        """Stop listening; what is at the path is another listener's."""
        self.sock.close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _turn_away(self, sock: socket.socket) -> None:
        sock.close()
        self.turned_away += 1

    def _next(self) -> socket.socket | None:
        """Return the next connection, None for one that was turned away.

        Raises:
            OSError: nobody waits, or there is no descriptor to turn anybody away with.

        """
        try:
            return self.sock.accept()[0]
        except OSError as error:
            if error.errno not in _OUT_OF_FDS or not self._has_reserve():
                raise
        return self._next_with_reserve()

    def _next_with_reserve(self) -> socket.socket | None:
        """Accept with the descriptor that was kept, and close what came if there is no other.

        There may be one again by now: who ran out of them and who gives them back are others.
        """
        assert self._reserve is not None  # noqa: S101 - the caller has looked
        os.close(self._reserve)
        self._reserve = None
        sock, _ = self.sock.accept()
        if self._has_reserve():
            return sock
        self._turn_away(sock)
        self._has_reserve()
        return None

    def _has_reserve(self) -> bool:
        if self._reserve is None:
            self._reserve = _reserve()
        return self._reserve is not None


def _reserve() -> int | None:
    """Return a descriptor to give back when there is no other left, or None."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
