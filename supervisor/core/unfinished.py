"""Which growth of the daemon's memory is taken for messages that never end, and who is cut off.

ZeroMQ gives a message away, and counts it, when its last part is there; the parts before are kept
without a bound, and nobody says whose they are. They are gone when the connection is. Work grows
the memory as well: answers that wait for a crowd of readers, imports, states. They differ
in that somebody sends, and nothing of it is ever taken. So where the memory has grown,
who is seen to do that is cut. Only where it has grown by more than honest work needs, connections
are cut in steps, from those that have never said anything to all of them, until the growth is gone.
What stays after the last step is the daemon's own. Clients connect again and ask again, and lose
nothing. Times and sizes come in as arguments.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

LOOK_S: Final = 0.1
"""Between two looks: at the 1.6 GB/s that one process was seen to send, 160 MB."""
CLOSE_LOOK_S: Final = 0.02
"""The same while the memory has grown by more than ``CLOSE_BYTES``."""
SETTLE_S: Final = 0.1
"""For ZeroMQ to notice a cut and to free what it held: 5 GB/s were seen."""
CLOSE_BYTES: Final = 64 * 2**20
UNFINISHED_BYTES_MAX: Final = 192 * 2**20
"""Growth from which on who sends, and says nothing, is cut."""
OWN_BYTES_MAX: Final = 512 * 2**20
"""Growth from which on others are cut, too. A crowd of 12 that reads 15 MiB each takes 350 MiB."""
PIDS_MAX: Final = 100_256
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
        """Note that a message of a process was taken."""
        if pid is None:
            return
        self._at_s[pid] = now_s
        self._at_s.move_to_end(pid)
        if len(self._at_s) > PIDS_MAX:
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
    has_settled: bool = False
    """A growth for which somebody was cut is over: it is gone, or it is the daemon's own."""


@dataclass(slots=True)
class Growth:
    """The memory of one daemon, look by look, in bytes."""

    floor: int
    """The least that was seen since the last growth was settled."""
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
        has_settled, self._is_high, self._steps = self._is_high, False, 0
        if self.grown > CLOSE_BYTES:
            return Step(None, CLOSE_LOOK_S, has_settled)
        self.calm_s = now_s
        return Step(None, LOOK_S, has_settled)
