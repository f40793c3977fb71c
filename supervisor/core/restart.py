"""Whether a dead worker comes back, and when. Pure: time and history are arguments.

The words and the algorithm are those of Erlang/OTP's ``supervisor``: a sliding window of restart
times; the restart that would be one too many ends the child's supervisor instead. The back-off is
ours. The time that it adds does not count towards the window, so a delay never hides a crash.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from cmdc_runtime.requests import RestartType, Supervision


class Ending(StrEnum):
    """What a restart type has to know of an exit."""

    NORMAL = "normal"  # Normal or Shutdown
    CRASH = "crash"
    HOPELESS = "hopeless"  # the options can't work: a restart could only fail again
    CHOSEN = "chosen"  # the session's ``exit_on`` says that this is its end


_YES, _NO = True, False
# fmt: off
_RESTARTS: Final[Mapping[tuple[RestartType, Ending], bool]] = {
    ("permanent", Ending.NORMAL):   _YES,
    ("permanent", Ending.CRASH):    _YES,
    ("permanent", Ending.HOPELESS): _NO,
    ("permanent", Ending.CHOSEN):   _NO,
    ("transient", Ending.NORMAL):   _NO,
    ("transient", Ending.CRASH):    _YES,
    ("transient", Ending.HOPELESS): _NO,
    ("transient", Ending.CHOSEN):   _NO,
    ("temporary", Ending.NORMAL):   _NO,
    ("temporary", Ending.CRASH):    _NO,
    ("temporary", Ending.HOPELESS): _NO,
    ("temporary", Ending.CHOSEN):   _NO,
}
# fmt: on


@dataclass(frozen=True, slots=True)
class History:
    """Earlier restarts, oldest first, and how long we kept the child waiting for them."""

    restarts_s: tuple[float, ...] = ()
    delayed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Start the child again in ``delay_s`` seconds."""

    delay_s: float
    history: History


@dataclass(frozen=True, slots=True)
class LeaveDown:
    """The restart type says that the child stays down."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The budget is spent; ``restarts`` is how many there were in the window."""

    restarts: int


Decision: TypeAlias = RestartAfter | LeaveDown | GiveUp


def decide(policy: Supervision, ending: Ending, history: History, now_s: float) -> Decision:
    """Say what to do about one exit at ``now_s`` (monotonic seconds)."""
    if not _RESTARTS[policy.restart, ending]:
        return LeaveDown()
    lived_s = now_s - history.delayed_s
    recent = tuple(then for then in history.restarts_s if lived_s - then <= policy.max_seconds)
    if len(recent) >= policy.max_restarts:
        return GiveUp(len(recent))
    delay_s = _delay_s(policy.restart_delay, len(recent))
    return RestartAfter(delay_s, History((*recent, lived_s), history.delayed_s + delay_s))


def _delay_s(bounds: tuple[float, float], earlier: int) -> float:
    """None before the first restart, then ``bounds[0]`` doubling up to ``bounds[1]``."""
    if earlier == 0:
        return 0.0
    doublings = min(earlier - 1, 64)  # beyond it the power would only overflow
    return float(min(bounds[0] * 2.0**doublings, bounds[1]))
