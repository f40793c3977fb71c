"""How many processes become agents at a time, who is next, when a crowd is worth an alarm. Pure.

A start costs a processor some tenths of a second. Where hundreds are wanted together, each gets
slower with their number, and so does every session that is at work. So a few go at a time, and the
others wait: those that somebody waits for, and those that are restarted, in two queues that take
turns, each in its order.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

PLACES_MIN: Final = 4
"""One start waits for the journal, and another for the import of a plugin, now and then."""
PLACES_EACH: Final = 2
"""For each processor."""
CROWD_EACH: Final = 4
"""Starts that wait, for each that may go, from which on it is logged; it ends when none waits."""
PACE_WEIGHT: Final = 0.1
"""Of the newest start in what is remembered of how long they take."""
RETRY_S_MIN: Final = 1.0
"""Nobody is asked to come again earlier."""


def places_for(processors: int) -> int:
    """Return how many processes become agents at a time on such a machine."""
    return max(PLACES_MIN, PLACES_EACH * processors)


def paced(start_s: float, newest_s: float) -> float:
    """Return how long a start takes, in seconds, once one more is known."""
    return start_s + PACE_WEIGHT * (newest_s - start_s)


def retry_after_s(waiting: int, at_once: int, start_s: float) -> float:
    """Return in how many seconds all that wait now will have started, about."""
    return round(max(RETRY_S_MIN, waiting / at_once * start_s), 1)


@dataclass(slots=True)
class Places:
    """The places for starts; a ticket is the number of one that waits, by which it is called."""

    at_once: int
    taken: int = 0
    peak: int = 0
    """The most that were ever taken together."""
    _first: deque[int] = field(default_factory=deque)
    _again: deque[int] = field(default_factory=deque)
    _again_is_next: bool = False

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._first) + len(self._again)

    def ask(self, ticket: int, *, is_first: bool) -> bool:
        """Take a place, or have the ticket wait; say whether there was one."""
        if self.taken < self.at_once:
            self.taken += 1
            self.peak = max(self.peak, self.taken)
            return True
        (self._first if is_first else self._again).append(ticket)
        return False

    def free(self) -> int | None:
        """Give a place back; return the ticket that has it now, None where nobody waits."""
        queues = (self._again, self._first) if self._again_is_next else (self._first, self._again)
        queue = next((one for one in queues if one), None)
        if queue is None:
            self.taken -= 1
            return None
        self._again_is_next = queue is self._first
        return queue.popleft()

    def give_up(self, ticket: int) -> None:
        """Let a ticket wait no more."""
        for queue in (self._first, self._again):
            if ticket in queue:
                queue.remove(ticket)


@dataclass(slots=True)
class Alarm:
    """One alarm for a whole crowd: from ``begins`` on, until nobody waits."""

    begins: int
    is_on: bool = False
    count: int = 0
    """How often it went off."""

    def turns(self, waiting: int) -> bool:
        """Record how many wait; say whether the alarm goes on or off by that."""
        before = self.is_on
        self.is_on = waiting > 0 if self.is_on else waiting >= self.begins
        self.count += self.is_on and not before
        return self.is_on != before
