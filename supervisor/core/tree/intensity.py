"""How many restarts are too many: OTP's sliding window, and the back-off that it sees through.

From ``supervisor:add_restart/1``: forget what is older than the period (an entry exactly as old
still counts), add now, and it is too much when there are more entries than ``max_restarts``. The
window is the supervisor's, shared by all its children.

A child that waits for its next start makes its own entries no older: the time that we added
ourselves hides no crash.

A restart may be spared: it is an entry, so that the next back-off is longer, and counts for nothing
else. Who spares has a bound of its own on how many.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

DOUBLINGS_MAX: Final = 64
"""Of a back-off; beyond it the power would only overflow."""
SPREAD: Final = 0.2
"""How much longer than it says a back-off may be: who fell together should not come back so."""


class Entry(NamedTuple):
    """One restart."""

    then_s: float
    owner: str
    is_charged: bool


@dataclass(slots=True)
class Window:
    """The restarts of one supervisor that still count."""

    max_restarts: int
    max_seconds: float
    _entries: list[Entry] = field(default_factory=list)

    def charge(self, child_id: str, now_s: float) -> bool:
        """Count one restart that ``child_id`` asks for; False: it is one too many."""
        self._forget(now_s)
        self._entries.append(Entry(now_s, child_id, is_charged=True))
        return self._charged <= self.max_restarts

    def spare(self, child_id: str, now_s: float) -> bool:
        """Note one restart that is not counted; False: this supervisor restarts nothing at all."""
        self._forget(now_s)
        self._entries.append(Entry(now_s, child_id, is_charged=False))
        return self.max_restarts > 0

    def count(self, now_s: float) -> int:
        """Return how many count now."""
        self._forget(now_s)
        return self._charged

    def of(self, child_id: str, now_s: float) -> int:
        """Return how many restarts of this child the back-off goes by, spared ones included."""
        self._forget(now_s)
        return sum(entry.owner == child_id for entry in self._entries)

    def delayed(self, child_id: str, delay_s: float) -> None:
        """Make this child's entries younger by the time that it was kept waiting."""
        self._entries = [
            one._replace(then_s=one.then_s + delay_s) if one.owner == child_id else one
            for one in self._entries
        ]

    @property
    def _charged(self) -> int:
        return sum(entry.is_charged for entry in self._entries)

    def _forget(self, now_s: float) -> None:
        # An entry may lie ahead of now: it was pushed there by a delay that is not over yet.
        if self._entries:
            self._entries = [one for one in self._entries if now_s - one.then_s <= self.max_seconds]


def delay_s(bounds: tuple[float, float], earlier: int) -> float:
    """Return the back-off after ``earlier`` restarts: none, then the first bound, doubling."""
    if earlier == 0:
        return 0.0
    return float(min(bounds[0] * 2.0 ** min(earlier - 1, DOUBLINGS_MAX), bounds[1]))


def spread(delay_s: float, chance: float) -> float:
    """Return a back-off that is up to ``SPREAD`` longer, by ``chance`` from 0 to 1.

    What has killed many at once would otherwise meet all of them again at once.
    """
    return delay_s * (1.0 + SPREAD * chance)
