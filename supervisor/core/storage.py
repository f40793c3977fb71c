"""What becomes of a write when the disk is full or broken: the tables, pure.

A full disk passes. A reserve is kept for it: the first part lets running work come to its end, the
last one is for ends that somebody is notified of. What would begin something new is refused at
once, and what is under way waits when the first part is spent. A broken disk does not pass: after a
failed fsync nobody knows what is stored (the kernel may drop the pages and say yes the next time),
so nothing is tried again and the daemon ends; the next one reads what is really there.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final


class Condition(StrEnum):
    """How a store stands."""

    OPEN = "open"
    FULL = "full"
    FAILED = "failed"


class Trouble(StrEnum):
    """What an error of a store means."""

    PASSING = "passing"
    """This one operation failed; the next one may go."""
    NO_ROOM = "no room"
    BROKEN = "broken"


class Level(IntEnum):
    """What room there is."""

    PLENTY = 0
    RESERVE = 1
    """The first part of the reserve is being spent."""
    LAST = 2
    """The last part of it is."""
    NONE = 3
    AWAY = 4
    """The store is out of reach, and may be back at any moment."""


class Need(StrEnum):
    """What a write is for."""

    NEW = "new"
    """It begins something, and its caller can do without."""
    WORK = "work"
    """It belongs to what is under way, and cannot be left out."""
    END = "end"
    """It records an end."""


class Fate(StrEnum):
    """What becomes of a write."""

    GO = "go"
    WAIT = "wait"
    REFUSE = "refuse"


_G, _W, _R = Fate.GO, Fate.WAIT, Fate.REFUSE
# fmt: off
_FATES: Final[Mapping[Need, tuple[Fate, ...]]] = {
    #          plenty  reserve  last  none  away
    Need.NEW:  (_G,    _R,      _R,   _R,   _R),
    Need.WORK: (_G,    _G,      _W,   _W,   _W),
    Need.END:  (_G,    _G,      _G,   _R,   _W),
}
# fmt: on
FATES: Final[Mapping[tuple[Need, Level], Fate]] = {
    (need, level): fate
    for need, row in _FATES.items()
    for level, fate in zip(Level, row, strict=True)
}
