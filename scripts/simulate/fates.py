"""What becomes of one process: when it is up, when and how it ends, and what it makes of an end.

A fate is drawn once and dealt many times: a deck of them is made by the seed of a run, a process
gets one of its deck. A deck is a temper; each schedule has one.

To add a fault: a field of ``Fate``, its share in ``Temper``, and what ``World`` makes of it.
"""

from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import Final, TypeAlias

from cmdc_runtime.reasons import (
    AnyReason,
    MaxTurnsExceeded,
    Normal,
    NurseryLost,
    Shutdown,
    Signal,
    StartFailed,
)
from cmdc_runtime.reasons import Exception as Raised
from supervisor.core.tree.messages import Ending

DECK: Final = 1_000
"""Fates of one temper: enough that no two processes of a schedule are alike."""
START_S: Final = 0.4
LIFE_S: Final = 3.0
"""Mean life of a process that ends by itself; the window of most supervisors is 5 s."""
OBEYS_S: Final = 0.3
SLOW: Final = 20.0
"""How much longer a slow one takes."""
LATE_S: Final = 60.0
"""Of the end of a process that SIGKILL did not end; it is over long before."""

End: TypeAlias = tuple[AnyReason, Ending]

KILLED: Final[End] = (Signal(number=9, name="SIGKILL"), Ending.CRASH)
TERMINATED: Final[End] = (Signal(number=15, name="SIGTERM"), Ending.CRASH)
OBEYED: Final[End] = (Shutdown(detail="asked"), Ending.NORMAL)
RAISED: Final[End] = (Raised(type="RuntimeError", message="bad luck"), Ending.CRASH)
HOPELESS: Final[End] = (MaxTurnsExceeded(max_turns=7), Ending.FINAL)
ENDS: Final[tuple[End, ...]] = (
    KILLED,
    KILLED,
    RAISED,
    RAISED,
    RAISED,
    KILLED,
    KILLED,
    (NurseryLost(), Ending.CRASH),
    (Normal(), Ending.NORMAL),
    (Shutdown(detail="planned"), Ending.NORMAL),
    HOPELESS,
)
"""How a process ends by itself."""
FAILURES: Final[tuple[End, ...]] = (
    (StartFailed(stage="load", message="no such module"), Ending.CRASH),
    RAISED,
    RAISED,
    KILLED,
    KILLED,
    (StartFailed(stage="load", message="wrong options"), Ending.FINAL),
)
"""How a process ends before it is up."""


class Start(IntEnum):
    """What comes of a start."""

    UP = 0
    FAILS = 1
    IGNORES = 2
    HANGS = 3


class Rung(IntEnum):
    """What of an end a process can't withstand."""

    ASK = 0
    TERM = 1
    KILL = 2
    NONE = 3


@dataclass(frozen=True, slots=True)
class Fate:
    """One process, times in seconds."""

    start: Start
    start_s: float
    failure: End
    life_s: float | None
    end: End
    yields_to: Rung
    """What of an end it can't withstand; ``obeys_s`` later it is gone."""
    obeys_s: float
    farewell: End
    """How it ends when it is asked."""
    is_doubled: bool
    """Its end is reported twice."""
    is_confused: bool
    """It is also reported in the name of the process before it."""


@dataclass(frozen=True, slots=True)
class Temper:
    """How often what happens, as shares of processes."""

    fails: float
    dies: float
    stubborn: float
    slow: float = 0.05
    odd: float = 0.05


TEMPERS: Final = (
    Temper(fails=0.02, dies=0.4, stubborn=0.05),
    Temper(fails=0.05, dies=0.8, stubborn=0.1),
    Temper(fails=0.3, dies=0.6, stubborn=0.1),
    Temper(fails=0.05, dies=0.5, stubborn=0.6),
    Temper(fails=0.1, dies=0.6, stubborn=0.2, slow=0.5, odd=0.3),
)
"""Calm, flaky, hard to start, hard to end, and slow."""


def deck(temper: Temper, chance: Random) -> tuple[Fate, ...]:
    """Return the fates of one temper."""
    return tuple(_fate(temper, chance) for _ in range(DECK))


def _fate(temper: Temper, chance: Random) -> Fate:
    def is_one(share: float) -> bool:
        return chance.random() < share

    def takes(mean_s: float) -> float:
        if is_one(temper.odd):
            return 0.0  # at once, and so before or after whatever else is due then
        return chance.expovariate(1.0 / mean_s) * (SLOW if is_one(temper.slow) else 1.0)

    start = Start.UP
    if is_one(temper.fails):
        start = chance.choice((Start.FAILS, Start.FAILS, Start.IGNORES, Start.HANGS))
    yields_to = Rung.ASK
    if is_one(temper.stubborn):
        yields_to = chance.choice((Rung.TERM, Rung.KILL, Rung.KILL, Rung.NONE))
    return Fate(
        start=start,
        start_s=takes(START_S),
        failure=chance.choice(FAILURES),
        life_s=chance.expovariate(1.0 / LIFE_S) if is_one(temper.dies) else None,
        end=chance.choice(ENDS),
        yields_to=yields_to,
        obeys_s=takes(OBEYS_S),
        farewell=RAISED if is_one(temper.odd) else OBEYED,
        is_doubled=is_one(temper.odd),
        is_confused=is_one(temper.odd),
    )
