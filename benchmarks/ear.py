"""A subscriber in its smallest form: one blocking SUB that hears the daemon's events.

It is used beside a ``Wire`` in one thread, so that a time from a command to its event has no other
thread in it.
"""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import zmq

from cmdc_runtime.events import Event
from cmdc_runtime.runtime_dir import EVENTS_SOCKET, socket_address
from cmdc_runtime.wire.codec import decode, decode_events
from cmdc_runtime.wire.frames import Events, Published
from cmdc_runtime.wire.sockets import Role, open_socket

HEARD_MS: Final = 30_000
GREETING_MS: Final = 50
GREETINGS: Final = 100

Wanted = Callable[[Event], bool]


class Ear:
    """Hears every event of one daemon."""

    def __init__(self, directory: Path) -> None:
        """Connect to the daemon of a runtime directory."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = open_socket(self._context, Role.SUBSCRIBER)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.connect(socket_address(directory, EVENTS_SOCKET))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the socket."""
        self._context.destroy(linger=0)

    def attune(self, greet: Callable[[], object]) -> None:
        """Return when the subscription has arrived: ``greet`` makes a session say something."""
        for _ in range(GREETINGS):
            greet()
            if self._socket.poll(GREETING_MS):
                return
        raise TimeoutError("the subscription did not arrive")

    def hear(self, wanted: Wanted, count: int = 1) -> list[Event]:
        """Return the next ``count`` events that are wanted; what comes before them is dropped."""
        found: list[Event] = []
        deadline_s = time.monotonic() + HEARD_MS / 1000
        while len(found) < count:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not self._socket.poll(round(left_s * 1000)):
                raise TimeoutError(f"{len(found)} of {count} events came in {HEARD_MS / 1000:g} s")
            found += filter(wanted, self._take())
        return found

    def forget(self) -> None:
        """Drop what has come, so that it need not be read later."""
        while self._socket.poll(0):
            self._socket.recv_multipart()

    def _take(self) -> list[Event]:
        parts = self._socket.recv_multipart()
        if not isinstance(decode(Published, parts[2]), Events):
            return []
        return [event for _, event in decode_events(parts[3])]
