"""What the daemon tells systemd about itself: ready, status, stopping, alive (sd_notify(3)).

Without ``NOTIFY_SOCKET`` every call is a no-op, so that nobody else has to ask. A message that
cannot be sent is logged and forgotten: the service goes on, and systemd acts by its own time-outs.
"""

import asyncio
import socket
from collections.abc import Mapping
from typing import Final, Self

import structlog

log = structlog.get_logger(__name__)

_BEATS_PER_INTERVAL: Final = 2
"""sd_watchdog_enabled(3) advises half of the interval."""


class Notifier:
    """One process's line to its service manager; use it as a context manager, or close it."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        """Speak to the datagram socket at ``address``, a path or ``@`` and an abstract name."""
        self.watchdog_s = watchdog_s
        self._address = address and (f"\0{address[1:]}" if address[0] == "@" else address)
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

    def ready(self, status: str) -> None:
        """Tell that the service takes calls; ``status`` is shown by ``systemctl status``."""
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, status: str) -> None:
        """Tell in one line what the service does."""
        self._send(f"STATUS={_one_line(status)}")

    def stopping(self) -> None:
        """Tell that the service is about to end, on purpose."""
        self._send("STOPPING=1")

    async def keep_alive(self) -> None:
        """Tell twice per watchdog interval that the loop turns; returns at once if nobody asks.

        It runs in the loop that it speaks for, so a loop that hangs falls silent. Cancel it to end.
        """
        if self._socket is None or self.watchdog_s is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / _BEATS_PER_INTERVAL)

    def close(self) -> None:
        """Close the socket; what comes after it is not sent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(message.encode(), self._address or "")
        except OSError as error:
            log.warning("systemd.notification_lost", error=str(error))


def _one_line(text: str) -> str:
    return " ".join(text.split())
