"""How many restarts are too many: OTP's sliding window, and the back-off that it sees through.

From ``supervisor:add_restart/1``: forget what is older than the period (an entry exactly as old
still counts), add now, and it is too much when there are more entries than ``max_restarts``. The
window is the supervisor's, shared by all its children.

A child that waits for its next start makes its own entries no older: the time that we added
ourselves hides no crash.
"""

from dataclasses import dataclass, field
from typing import Final

DOUBLINGS_MAX: Final = 64
"""Of a back-off; beyond it the power would only overflow."""


@dataclass(slots=True)
class Window:
    """The restarts of one supervisor that still count."""

    max_restarts: int
    max_seconds: float
    _entries: list[tuple[float, str]] = field(default_factory=list)

    def charge(self, child_id: str, now_s: float) -> bool:
        """Count one restart that ``child_id`` asks for; False: it is one too many."""
        self._forget(now_s)
        self._entries.append((now_s, child_id))
        return len(self._entries) <= self.max_restarts

    def count(self, now_s: float) -> int:
        """Return how many count now."""
        self._forget(now_s)
        return len(self._entries)

    def of(self, child_id: str, now_s: float) -> int:
        """Return how many of them are this child's."""
        self._forget(now_s)
        return sum(owner == child_id for _, owner in self._entries)

    def delayed(self, child_id: str, delay_s: float) -> None:
        """Make this child's entries younger by the time that it was kept waiting."""
        self._entries = [
            (then + delay_s if owner == child_id else then, owner) for then, owner in self._entries
        ]

    def _forget(self, now_s: float) -> None:
        # An entry may lie ahead of now: it was pushed there by a delay that is not over yet.
        if self._entries:
            self._entries = [one for one in self._entries if now_s - one[0] <= self.max_seconds]


def delay_s(bounds: tuple[float, float], earlier: int) -> float:
    """Return the back-off after ``earlier`` restarts: none, then the first bound, doubling."""
    if earlier == 0:
        return 0.0
    return float(min(bounds[0] * 2.0 ** min(earlier - 1, DOUBLINGS_MAX), bounds[1]))
