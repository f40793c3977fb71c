"""Which refused frames are told in the log: every kind of trouble soon, a flood not line by line.

Counting is complete; telling is bounded twice: of one peer the 1st, 2nd, 4th, 8th … refusal is
told, and of all peers together ``LINES_MAX`` within ``WINDOW_S``. What is not told line by line
shows in the numbers of the next line. Times come in as arguments.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

LINES_MAX: Final = 20
"""Lines within one window: enough to see a pattern, few enough not to bury what else is told."""
WINDOW_S: Final = 10.0
"""How long a window lasts."""
PEERS_MAX: Final = 1_024
"""Peers whose refusals are counted one by one; the one refused longest ago is forgotten first."""


@dataclass(slots=True)
class Refusals:
    """The refusals at one socket."""

    total: int = 0
    """How many there were, of all peers."""
    _by_peer: OrderedDict[bytes, int] = field(default_factory=OrderedDict)
    _window_ends_s: float = 0.0
    _lines: int = 0

    def count(self, peer: bytes, now_s: float) -> int | None:
        """Count one of ``peer``; return its how manyth it is where a line is due, else None."""
        self.total += 1
        of_peer = self._by_peer.pop(peer, 0) + 1
        self._by_peer[peer] = of_peer
        if len(self._by_peer) > PEERS_MAX:
            self._by_peer.popitem(last=False)
        if of_peer & (of_peer - 1):
            return None
        if now_s >= self._window_ends_s:
            self._window_ends_s, self._lines = now_s + WINDOW_S, 0
        self._lines += 1
        return of_peer if self._lines <= LINES_MAX else None
