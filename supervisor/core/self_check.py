"""How the daemon stands: which part answers, which has stalled, what a gap in time means.

An idle daemon does nothing, so counting what it did would take rest for death. Each part is asked
instead, round after round, and this file judges the answers. Times are monotonic seconds. The line
that ``systemctl status`` shows says it in a few words.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import get_args

from cmdc_runtime.requests import SessionPhase
from supervisor.core.limits import LOOP_STALL_S, PAUSE_S


@dataclass(frozen=True, slots=True)
class Silence:
    """A part that has not answered for this long."""

    part: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What one round has shown; only what changed is listed."""

    is_well: bool
    """Every part has answered."""
    stalled: tuple[Silence, ...] = ()
    recovered: tuple[Silence, ...] = ()


class PartStates:
    """The parts, and when each of them was heard last."""

    def __init__(self, parts: Iterable[str], at_s: float) -> None:
        """Begin with all of them well."""
        self._heard_s = dict.fromkeys(parts, at_s)
        self._stalled: set[str] = set()

    def judge(self, silent: Collection[str], at_s: float) -> Findings:
        """Take the round that ends at ``at_s``; ``silent`` are the parts that did not answer."""
        stalled, recovered = [], []
        for part, heard_s in self._heard_s.items():
            silence = Silence(part, at_s - heard_s)
            if part not in silent:
                self._heard_s[part] = at_s
                if part in self._stalled:
                    self._stalled.remove(part)
                    recovered.append(silence)
            elif part not in self._stalled:
                self._stalled.add(part)
                stalled.append(silence)
        return Findings(not self._stalled, tuple(stalled), tuple(recovered))


class Gap(Enum):
    """What the time since the loop's last sign of life means."""

    NONE = auto()
    BLOCKED = auto()  # the process ran and its loop did not turn
    PAUSED = auto()  # the process itself did not run, so its loop could not


def gap_of(*, loop_age_s: float, look_age_s: float) -> Gap:
    """Say what the ages of the loop's last beat and of the watching thread's last look mean.

    A thread that looks twice a second and did not get to it is no witness against the loop: the
    process was stopped, the machine slept, or something held the interpreter.
    """
    if look_age_s >= PAUSE_S:
        return Gap.PAUSED
    return Gap.BLOCKED if loop_age_s >= LOOP_STALL_S else Gap.NONE


def status_line(
    phases: Iterable[SessionPhase], spares: int, zygote: str, journal: str = "open"
) -> str:
    """Return one line: how many sessions there are and in which phases, and who serves them.

    A journal that is not open comes first: nothing matters more.
    """
    counts = Counter(phase for phase in phases if phase != "ended")
    phrase = _counted(counts.total(), "session")
    each = ", ".join(
        f"{counts[phase]} {phase}" for phase in get_args(SessionPhase) if counts[phase]
    )
    trouble = "" if journal == "open" else f"journal {journal}; "
    return f"{trouble}{phrase}{each and f' ({each})'}, {_counted(spares, 'spare')}, zygote {zygote}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
