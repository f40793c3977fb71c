"""A provider that streams to many at once: paced for who measures delays, unpaced for a rate.

``python -m benchmarks.stream_server``. A request names its chunks and their interval, see
``chunk_format``. A paced chunk's text is the moment that it was sent. Each chunk is a write of its
own. Bytes that are sent on the loopback lie in the other's socket when the call returns.

A provider is elsewhere: no reader of its answers takes a processor from it. So it goes before all
others, where it may (root may), whoever reads.
"""

import contextlib
import os
import select
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from benchmarks.chunk_format import END_OF_HEAD, EVENT, HEAD, HOST, LAST, body_bytes, chunk, wanted
from benchmarks.pacer import ticks
from benchmarks.processes import serve
from benchmarks.stamps import stamp

BACKLOG: Final = 256
RECEIVE_BYTES: Final = 65_536
NICENESS: Final = -15


@dataclass(slots=True)
class Connection:
    """One client; ``left`` are the chunks that it has yet to get."""

    socket: socket.socket
    request: bytes = b""
    left: int = 0
    rest: bytes = field(default=b"")
    """What the last write did not take."""

    def take(self) -> bytes | None:
        """Receive; return the head of a request that is whole, and None of one that has gone."""
        data = self.socket.recv(RECEIVE_BYTES)
        self.request += data
        if not data:
            return None
        head, end, body = self.request.partition(END_OF_HEAD)
        if not end or len(body) < body_bytes(head):
            return b""
        self.request = b""
        return head

    def put(self) -> bool:
        """Write one more piece, as much as is taken; say whether that was the last one."""
        if not self.rest:
            self.left -= 1
            self.rest = EVENT if self.left >= 0 else LAST
        self.rest = self.rest[self.socket.send(self.rest) :]
        return self.left < 0 and not self.rest


class Server:
    """Answers on a port of the loopback, in a thread of its own."""

    def __init__(self) -> None:
        """Listen; the thread ends with the process."""
        self._listener = socket.create_server((HOST, 0), backlog=BACKLOG)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, Connection] = {}
        threading.Thread(target=self._serve, daemon=True).start()

    def port(self) -> int:
        """Return where it answers."""
        found: int = self._listener.getsockname()[1]
        return found

    def _serve(self) -> None:
        while True:
            for fd, flags in self._epoll.poll():
                try:
                    self._attend(fd, flags)
                except ConnectionError:
                    self._drop(fd)

    def _attend(self, fd: int, flags: int) -> None:
        connection = self._connections.get(fd)
        if connection is None:
            self._accept()
        elif flags & select.EPOLLOUT:
            if connection.put():
                self._epoll.modify(fd, select.EPOLLIN)
        elif (head := connection.take()) is None:
            self._drop(fd)
        elif head:
            self._begin(fd, connection, head)

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[accepted.fileno()] = Connection(accepted)
        self._epoll.register(accepted.fileno(), select.EPOLLIN)

    def _begin(self, fd: int, connection: Connection, head: bytes) -> None:
        chunks, interval_us = wanted(head)
        connection.socket.sendall(HEAD)
        if interval_us:
            _pace(connection.socket, chunks, interval_us)
            return
        connection.left = chunks
        self._epoll.modify(fd, select.EPOLLOUT)

    def _drop(self, fd: int) -> None:
        self._epoll.unregister(fd)
        self._connections.pop(fd).socket.close()


def _pace(connection: socket.socket, chunks: int, interval_us: int) -> None:
    """Send all of a paced answer; whoever measures delays is alone."""
    for _ in ticks(chunks, interval_us):
        connection.sendall(chunk(stamp(time.monotonic_ns())))
    connection.sendall(LAST)


def main() -> None:
    """Listen and serve."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    serve({"port": Server().port})


if __name__ == "__main__":
    main()
