"""How one session is kept: the phase x input table of its supervisor. Pure.

A pair without a row changes nothing, so a late timer or a second exit notice is harmless.

To add an input: its class, its handlers and its rows. What a handler returns is done by
``supervisor/sessions.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import (
    AnyReason,
    Normal,
    PlainReason,
    RestartIntensityExceeded,
    Shutdown,
    StartFailed,
)
from cmdc_runtime.requests import Supervision
from supervisor.core.restart import Ending, GiveUp, History, LeaveDown, RestartAfter, decide

TERM_SHARE: Final = 0.5
"""After this share of the grace period SIGTERM follows the polite request."""


class Phase(StrEnum):
    """Where a session stands, as its supervisor sees it."""

    STARTING = "starting"  # a worker is asked for, or builds the agent
    UP = "up"
    RESTARTING = "restarting"  # the back-off runs
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Life:
    """What a session's supervisor remembers."""

    policy: Supervision
    incarnation: Incarnation = Incarnation(0)
    restarts: int = 0
    history: History = field(default_factory=History)
    was_up: bool = False
    last_reason: AnyReason | None = None


# --- inputs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the first process."""


@dataclass(frozen=True, slots=True)
class AgentUp:
    """The agent takes commands."""


@dataclass(frozen=True, slots=True)
class StartOverdue:
    """The agent was not up in time."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process is gone, or there never was one (a fork that failed)."""

    reason: PlainReason
    ending: Ending
    now_s: float


@dataclass(frozen=True, slots=True)
class DelayOver:
    """The back-off is over."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the session; ``grace_s`` None waits for ever, 0 kills at once."""

    reason: str
    grace_s: float | None


@dataclass(frozen=True, slots=True)
class TermDue:
    """The polite request had its time."""


@dataclass(frozen=True, slots=True)
class KillDue:
    """SIGTERM had its time."""


Input: TypeAlias = (
    Begin | AgentUp | StartOverdue | ProcessEnded | DelayOver | Stop | TermDue | KillDue
)


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Get a worker and make it the agent; ``StartOverdue`` in ``timeout_s``."""

    incarnation: Incarnation
    timeout_s: float


@dataclass(frozen=True, slots=True)
class AskToEnd:
    """Send the polite request; ``TermDue`` and ``KillDue`` at the given seconds, None: never."""

    reason: str
    term_s: float | None
    kill_s: float | None


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send SIGTERM."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL; ``blamed`` is the reason to report, None for the signal itself."""

    blamed: PlainReason | None = None


@dataclass(frozen=True, slots=True)
class WaitDelay:
    """Post ``DelayOver`` in ``delay_s`` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class TellUp:
    """The session takes commands: answer who waits for its start, deliver what is queued."""


@dataclass(frozen=True, slots=True)
class TellDown:
    """Notify the monitors."""

    reason: AnyReason
    incarnation: Incarnation
    restarting: bool


@dataclass(frozen=True, slots=True)
class TellEnded:
    """The session is over: answer everybody who waits, and forget it."""

    reason: AnyReason
    was_up: bool


Effect: TypeAlias = (
    StartProcess | AskToEnd | Terminate | Kill | WaitDelay | TellUp | TellDown | TellEnded
)


class Step(NamedTuple):
    """What one input does: the next phase, the next life, the work to do, in order."""

    phase: Phase
    life: Life
    effects: tuple[Effect, ...] = ()


# --- the table --------------------------------------------------------------------------------


def _start(_phase: Phase, life: Life, _input: Begin | DelayOver) -> Step:
    life = replace(life, incarnation=Incarnation(life.incarnation + 1))
    start = StartProcess(life.incarnation, life.policy.start_timeout)
    return Step(Phase.STARTING, life, (start,))


def _up(_phase: Phase, life: Life, _input: AgentUp) -> Step:
    return Step(Phase.UP, replace(life, was_up=True), (TellUp(),))


def _overdue(phase: Phase, life: Life, _input: StartOverdue) -> Step:
    message = f"the agent was not up within {life.policy.start_timeout:g} s"
    return Step(phase, life, (Kill(StartFailed(stage="handshake", message=message)),))


def _ended(_phase: Phase, life: Life, ended: ProcessEnded) -> Step:
    """Restart or give up; a first start that fails is the caller's error and never tried again."""
    if not life.was_up:
        return _over(life, ended.reason)
    life = replace(life, last_reason=ended.reason)
    match decide(life.policy, ended.ending, life.history, ended.now_s):
        case RestartAfter(delay_s=delay_s, history=history):
            told = TellDown(ended.reason, life.incarnation, restarting=True)
            life = replace(life, history=history, restarts=life.restarts + 1)
            if delay_s > 0:
                return Step(Phase.RESTARTING, life, (told, WaitDelay(delay_s)))
            again = _start(Phase.RESTARTING, life, DelayOver())
            return Step(again.phase, again.life, (told, *again.effects))
        case GiveUp(restarts=restarts):
            spent = RestartIntensityExceeded(
                restarts=restarts, seconds=life.policy.max_seconds, last=ended.reason
            )
            return _over(life, spent)
        case LeaveDown():  # pragma: no branch - the last of the union
            return _over(life, ended.reason)


def _stop(_phase: Phase, life: Life, stop: Stop) -> Step:
    if stop.grace_s == 0:
        return Step(Phase.STOPPING, life, (Kill(),))
    term_s = None if stop.grace_s is None else stop.grace_s * TERM_SHARE
    return Step(Phase.STOPPING, life, (AskToEnd(stop.reason, term_s, stop.grace_s),))


def _stop_waiting(_phase: Phase, life: Life, stop: Stop) -> Step:
    """No process to end: the session just does not come back."""
    return _over(life, Normal() if stop.reason == "normal" else Shutdown(detail=stop.reason))


def _hasten(phase: Phase, life: Life, stop: Stop) -> Step:
    """Begin to stop anew: a second stop may be more impatient than the first."""
    return _stop(phase, life, stop)


def _term(phase: Phase, life: Life, _input: TermDue) -> Step:
    return Step(phase, life, (Terminate(),))


def _kill(phase: Phase, life: Life, _input: KillDue) -> Step:
    return Step(phase, life, (Kill(),))


def _stopped(_phase: Phase, life: Life, ended: ProcessEnded) -> Step:
    return _over(life, ended.reason)


def _over(life: Life, reason: AnyReason) -> Step:
    told = TellDown(reason, life.incarnation, restarting=False)
    life = replace(life, last_reason=reason)
    return Step(Phase.ENDED, life, (told, TellEnded(reason, life.was_up)))


Handler = Callable[[Phase, Life, Any], Step]  # Any: a handler takes the input of its own row
# fmt: off
TRANSITIONS: Final[Mapping[tuple[Phase, type], Handler]] = {
    (Phase.STARTING,   Begin):        _start,
    (Phase.STARTING,   AgentUp):      _up,
    (Phase.STARTING,   StartOverdue): _overdue,
    (Phase.STARTING,   ProcessEnded): _ended,
    (Phase.STARTING,   Stop):         _stop,
    (Phase.UP,         ProcessEnded): _ended,
    (Phase.UP,         Stop):         _stop,
    (Phase.RESTARTING, DelayOver):    _start,
    (Phase.RESTARTING, Stop):         _stop_waiting,
    (Phase.STOPPING,   TermDue):      _term,
    (Phase.STOPPING,   KillDue):      _kill,
    (Phase.STOPPING,   Stop):         _hasten,
    (Phase.STOPPING,   ProcessEnded): _stopped,
}
# fmt: on


def advance(phase: Phase, life: Life, given: Input) -> Step:
    """Return what ``given`` does in ``phase``."""
    handler = TRANSITIONS.get((phase, type(given)))
    return Step(phase, life) if handler is None else handler(phase, life, given)
