"""What the daemon reports to systemd about itself: ready, status, stopping, alive (sd_notify(3)).

The line that says how the daemon stands is shown by ``systemctl status``. Without ``NOTIFY_SOCKET``
every call is a no-op, so that nobody else has to ask. A message that cannot be sent is logged and
forgotten: the service goes on, and systemd acts by its own time-outs. Whether the service is alive
is decided elsewhere (``supervisor.upkeep.self_check``); here it is only reported.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Final, Self

import structlog

from supervisor.core.limits import STATUS_CHARS_MAX, STATUS_INTERVAL_S

log = structlog.get_logger(__name__)

VARIABLES: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
"""What a service manager passes to one process; its children must not inherit it."""


class Notifier:
    """One process's line to its service manager; use it as a context manager, or close it."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        """Speak to the datagram socket at ``address``, a path or ``@`` and an abstract name."""
        self.watchdog_s = watchdog_s
        self._address = address and (f"\0{address[1:]}" if address[0] == "@" else address)
        self._status = ""
        self._is_ready = False
        self._socket: socket.socket | None = None
        if self._address:
            kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            self._socket = socket.socket(socket.AF_UNIX, kind)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, pid: int) -> Self:
        """Return the notifier that the service manager asked this process for.

        ``WATCHDOG_PID`` names the process that is watched; another one must not answer for it.
        """
        watched = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
        interval_us = environ.get("WATCHDOG_USEC", "") if watched else ""
        watchdog_s = int(interval_us) / 1e6 if interval_us.isdecimal() else None
        return cls(environ.get("NOTIFY_SOCKET"), watchdog_s or None)

    def __enter__(self) -> Self:
        """Return the notifier itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def ready(self) -> None:
        """Report that the service takes calls."""
        self._is_ready = True
        self._send("READY=1")

    def status(self, status: str) -> None:
        """Report in one line what the service does; ``systemctl status`` shows it."""
        line = _one_line(status)
        if line != self._status and self._send(f"STATUS={line}"):
            self._status = line

    def stopping(self) -> None:
        """Report that the service is about to end, on purpose."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog: the service works now. Nothing is sent where nobody watches."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def reloading(self, at_us: int) -> None:
        """Report that the configuration is read again, since monotonic ``at_us``.

        Of a service of ``Type=notify-reload`` the time says which request this is the answer to.
        Before ``ready`` nothing is sent: what ends a reload would end the start.
        """
        if self._is_ready:
            self._send(f"RELOADING=1\nMONOTONIC_USEC={at_us}")

    def reloaded(self) -> None:
        """Report that what ``reloading`` began is done, with whatever result."""
        if self._is_ready:
            self._send("READY=1")

    async def keep_status(self, text: Callable[[], str]) -> None:
        """Report what ``text`` returns whenever it has changed, at most once a second.

        Returns at once if nobody asked for it. Cancel it to end.
        """
        if self._socket is None:
            return
        while True:
            self.status(text())
            await asyncio.sleep(STATUS_INTERVAL_S)

    def close(self) -> None:
        """Close the socket; what comes after it is not sent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.sendto(message.encode(), self._address or "")
        except OSError as error:
            log.warning("systemd.notification_lost", error=str(error))
            return False
        return True


def _one_line(text: str) -> str:
    return " ".join(text.split())[:STATUS_CHARS_MAX]
