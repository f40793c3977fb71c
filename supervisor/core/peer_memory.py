"""What peers make the daemon remember: topics, and messages that never end; who is cut off. Pure.

What each process follows at the socket of events is memory, so it is bounded. ZeroMQ keeps a node
for each byte of a topic, about 80 bytes with what is around it, and has no limit. It names the
process with each subscription; an unsubscription comes without a name when the last subscriber of a
topic has gone. Until then a topic may count for one that has left it, so a process that is over a
bound is cut off, waits until it is let in again, and is counted anew by what it follows. What all
follow together is bounded as well; beyond that the process that follows most is cut off.

ZeroMQ gives a message away, and counts it, when its last part is there; the parts before are kept
without a bound, and nobody says whose they are. They are gone when the connection is. Work grows
the memory as well: answers that wait for a crowd of readers, imports, states. They differ in that
somebody sends, and nothing of it is ever taken. So where the memory has grown, a process that is
seen to do that is cut. Only where it has grown by more than honest work needs, connections are cut
in steps, from those that have never said anything to all of them, until the growth is gone. What
stays after the last step is the daemon's own. Clients connect again and ask again, and lose
nothing. Times and sizes come in as arguments.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

# --- topics ---------------------------------------------------------------------------------------

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
FOLLOWERS_MAX: Final = 4_096
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
            if len(self._by_pid) > FOLLOWERS_MAX:
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
        if len(self._until_s) > FOLLOWERS_MAX:
            self._until_s.popitem(last=False)

    def holds(self, pid: int | None, now_s: float) -> bool:
        """Say whether a process must still wait."""
        return pid is not None and now_s < self._until_s.get(pid, now_s)


# --- messages that never end ----------------------------------------------------------------------

LOOK_S: Final = 0.1
"""Between two looks: at the 1.6 GB/s that one process was seen to send, 160 MB."""
CLOSE_LOOK_S: Final = 0.02
"""The same while the memory has grown by more than ``CLOSE_BYTES``."""
FREED_S: Final = 0.1
"""For ZeroMQ to notice a cut and to free what it held: 5 GB/s were seen."""
CLOSE_BYTES: Final = 64 * 2**20
UNFINISHED_BYTES_MAX: Final = 192 * 2**20
"""Growth from which on who sends, and says nothing, is cut."""
OWN_BYTES_MAX: Final = 512 * 2**20
"""Growth from which on others are cut, too. A crowd of 12 that reads 15 MiB each takes 350 MiB."""
HEARD_MAX: Final = 100_256
"""Processes of which is known when they said something last: as many as there can be agents."""


class Whom(IntEnum):
    """Whose connections are cut, in the order of the steps; of each only those that may be."""

    SENDING = 0  # none was taken since the memory began to grow, and more of theirs waits
    STRANGERS = 1  # no message of theirs was ever taken
    SILENT = 2  # none was since the memory began to grow
    ALL = 3


@dataclass(slots=True)
class Heard:
    """When each process last sent something that was taken; any thread may ask."""

    _at_s: OrderedDict[int, float] = field(default_factory=OrderedDict)

    def note(self, pid: int | None, now_s: float) -> None:
        """Remember that a message of a process was taken."""
        if pid is None:
            return
        self._at_s[pid] = now_s
        self._at_s.move_to_end(pid)
        if len(self._at_s) > HEARD_MAX:
            self._at_s.popitem(last=False)

    def is_meant(self, pid: int, whom: Whom, since_s: float, *, is_sending: bool) -> bool:
        """Say whether a process is one of these; ``is_sending``: more of it waits to be read."""
        last_s = self._at_s.get(pid)
        is_silent = last_s is None or last_s < since_s
        match whom:
            case Whom.SENDING:
                return is_silent and is_sending
            case Whom.STRANGERS:
                return last_s is None
            case Whom.SILENT:
                return is_silent
            case Whom.ALL:
                return True


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done now: whom to cut, if anybody, and when to look again if nobody was."""

    cut: Whom | None
    again_s: float
    has_ended: bool = False
    """A growth for which somebody was cut is over: it is gone, or it is the daemon's own."""


@dataclass(slots=True)
class Growth:
    """The memory of one daemon, look by look, in bytes."""

    floor: int
    """The least that was seen since the last growth was over."""
    grown: int = 0
    """By how much it was above that at the last look."""
    calm_s: float = 0.0
    """When it was last seen not to have grown much."""
    _steps: int = 0
    """Those that were taken against this growth, beyond ``OWN_BYTES_MAX``."""
    _is_high: bool = False
    """Somebody was to be cut for it."""

    def look(self, used: int, now_s: float) -> Step:
        """Judge what is in use now."""
        self.floor = min(self.floor, used)
        self.grown = used - self.floor
        if self.grown > OWN_BYTES_MAX and self._steps < len(Whom):
            self._steps, self._is_high = self._steps + 1, True
            return Step(Whom(self._steps - 1), 0.0)
        if self.grown > OWN_BYTES_MAX:
            self.floor, self.grown = used, 0
        elif self.grown > UNFINISHED_BYTES_MAX:
            self._is_high = True
            return Step(Whom.SENDING, CLOSE_LOOK_S)
        has_ended, self._is_high, self._steps = self._is_high, False, 0
        if self.grown > CLOSE_BYTES:
            return Step(None, CLOSE_LOOK_S, has_ended)
        self.calm_s = now_s
        return Step(None, LOOK_S, has_ended)
