"""Keeps a steady pace, for whoever else has to publish: one byte on a connection for each event.

A chunk of a model's answer reaches an agent the same way: a socket becomes readable. Both sides of
a comparison are paced by the same loop, in a process that does nothing else meanwhile.
"""

import socket
import time
from collections.abc import Iterator

from benchmarks.processes import serve

HOST = "127.0.0.1"


def ticks(count: int, interval_us: int) -> Iterator[None]:
    """Yield ``count`` times, one every ``interval_us``; what is late comes at once."""
    due = time.monotonic()
    for _ in range(count):
        due += interval_us / 1e6
        time.sleep(max(0.0, due - time.monotonic()))
        yield


class Pacer:
    """One listening socket on the loopback."""

    def __init__(self) -> None:
        """Listen."""
        self._socket = socket.create_server((HOST, 0))

    def port(self) -> int:
        """Return where it listens."""
        found: int = self._socket.getsockname()[1]
        return found

    def pace(self, events: int, interval_us: int) -> bool:
        """Send the next one who connects one byte for each event."""
        connection, _ = self._socket.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in ticks(events, interval_us):
                connection.sendall(b".")
        return True


def main() -> None:
    """Listen and serve."""
    pacer = Pacer()
    serve({"port": pacer.port, "pace": pacer.pace})


if __name__ == "__main__":
    main()
