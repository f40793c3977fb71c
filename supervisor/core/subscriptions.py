"""What each process follows at the socket of events: topics are memory, so they are bounded.

ZeroMQ keeps a node for each byte of a topic, about 80 bytes with what is around it, and has no
limit. It names the process with each subscription; an unsubscription comes without a name when the
last subscriber of a topic has gone. Until then a topic may count for one that has left it, so who
is over a bound is cut off, connects again and is counted anew by what he really follows.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

TOPICS_MAX: Final = 20_000
"""Of one process: five times what the most sessions by default need, each with its group."""
TOPICS_BYTES_MAX: Final = 2**20
"""Of one process's topics together: 5,000 of the longest ids, 50,000 of those that we make."""
PIDS_MAX: Final = 4_096
"""Processes that are counted; the one that subscribed longest ago is counted anew."""


@dataclass(slots=True)
class _Followed:
    topics: set[bytes] = field(default_factory=set)
    size: int = 0


@dataclass(slots=True)
class Subscriptions:
    """The topics of each process, by its pid."""

    _by_pid: OrderedDict[int, _Followed] = field(default_factory=OrderedDict)
    _pids: dict[bytes, set[int]] = field(default_factory=dict)

    def add(self, pid: int, topic: bytes) -> bool:
        """Count a topic; False means that this is more than a process may follow."""
        followed = self._by_pid.get(pid)
        if followed is None:
            followed = self._by_pid[pid] = _Followed()
            if len(self._by_pid) > PIDS_MAX:
                self.forget(next(iter(self._by_pid)))
        self._by_pid.move_to_end(pid)
        if topic not in followed.topics:
            followed.topics.add(topic)
            followed.size += len(topic)
            self._pids.setdefault(topic, set()).add(pid)
        return len(followed.topics) <= TOPICS_MAX and followed.size <= TOPICS_BYTES_MAX

    def remove(self, topic: bytes) -> None:
        """Take back a topic that nobody follows any more."""
        for pid in self._pids.pop(topic, ()):
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

    def __len__(self) -> int:
        """Return how many topics are counted."""
        return len(self._pids)
