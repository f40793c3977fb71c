"""What each process follows at the socket of events: topics are memory, so they are bounded.

ZeroMQ keeps a node for each byte of a topic, about 80 bytes with what is around it, and has no
limit. It names the process with each subscription; an unsubscription comes without a name when the
last subscriber of a topic has gone. Until then a topic may count for one that has left it, so who
is over a bound is cut off, waits until he is let in again, and is counted anew by what he follows.
What all follow together is bounded as well; beyond that the process that follows most is cut off.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

TOPICS_MAX: Final = 20_000
"""Of one process: five times what the most sessions by default need, each with its group."""
TOPICS_BYTES_MAX: Final = 2**20
"""Of one process's topics together: 5,000 of the longest ids, 50,000 of those that we make."""
REPEATS_MAX: Final = 500_000
"""Of one process: a topic that it follows already, by another connection, costs 100 bytes."""
ALL_TOPICS_MAX: Final = 25_000
"""Of all processes together; what several follow counts once, as ZeroMQ keeps it."""
ALL_TOPICS_BYTES_MAX: Final = 5 * 2**18
"""The same in bytes. With the topics that cost most, some 120 MB by the size of a node."""
BARRED_S: Final = 5.0
"""How long who was cut off is not let in again."""
PIDS_MAX: Final = 4_096
"""Processes that are counted; the one that subscribed longest ago is counted anew."""


@dataclass(slots=True)
class _Followed:
    topics: set[bytes] = field(default_factory=set)
    size: int = 0
    repeats: int = 0

    @property
    def is_too_much(self) -> bool:
        return (
            len(self.topics) > TOPICS_MAX
            or self.size > TOPICS_BYTES_MAX
            or self.repeats > REPEATS_MAX
        )


@dataclass(slots=True)
class Subscriptions:
    """The topics of each process, by its pid."""

    _by_pid: OrderedDict[int, _Followed] = field(default_factory=OrderedDict)
    _pids: dict[bytes, set[int]] = field(default_factory=dict)
    _size: int = 0
    """Bytes of all topics, each counted once."""

    def add(self, pid: int, topic: bytes) -> int | None:
        """Count a topic; return the process that follows more than it may by now, if one does."""
        followed = self._by_pid.get(pid)
        if followed is None:
            followed = self._by_pid[pid] = _Followed()
            if len(self._by_pid) > PIDS_MAX:
                self.forget(next(iter(self._by_pid)))
        self._by_pid.move_to_end(pid)
        if topic in followed.topics:
            followed.repeats += 1
        else:
            followed.topics.add(topic)
            followed.size += len(topic)
            if topic not in self._pids:
                self._size += len(topic)
            self._pids.setdefault(topic, set()).add(pid)
        if followed.is_too_much:
            return pid
        if len(self._pids) > ALL_TOPICS_MAX or self._size > ALL_TOPICS_BYTES_MAX:
            return max(self._by_pid, key=lambda one: self._by_pid[one].size)
        return None

    def remove(self, topic: bytes) -> None:
        """Take back a topic that nobody follows any more."""
        pids = self._pids.pop(topic, set())
        self._size -= len(topic) if pids else 0
        for pid in pids:
            followed = self._by_pid[pid]
            followed.topics.discard(topic)
            followed.size -= len(topic)
            if not followed.topics:
                del self._by_pid[pid]

    def forget(self, pid: int) -> None:
        """Count what a process follows anew."""
        followed = self._by_pid.pop(pid, None)
        for topic in () if followed is None else followed.topics:
            others = self._pids[topic]
            others.discard(pid)
            if not others:
                del self._pids[topic]
                self._size -= len(topic)

    def __len__(self) -> int:
        """Return how many topics are counted."""
        return len(self._pids)


@dataclass(slots=True)
class Barred:
    """Processes that are not let in for a while, by when that ends; others may ask."""

    _until_s: OrderedDict[int, float] = field(default_factory=OrderedDict)

    def add(self, pid: int, now_s: float) -> None:
        """Let a process wait for ``BARRED_S``; of too many the first ones wait no longer."""
        self._until_s[pid] = now_s + BARRED_S
        self._until_s.move_to_end(pid)
        if len(self._until_s) > PIDS_MAX:
            self._until_s.popitem(last=False)

    def holds(self, pid: int | None, now_s: float) -> bool:
        """Say whether a process must still wait."""
        return pid is not None and now_s < self._until_s.get(pid, now_s)
