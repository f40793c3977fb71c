"""How one session is kept: the phase x input table of its supervisor. Pure.

A pair without a row changes nothing, so a late timer or a second exit notice is harmless.

A session and its children are kept as OTP's ``rest_for_one`` keeps them: whenever its process is
gone, for whatever reason, its children are ended before anything else becomes of it. A session
that dozes off has none, and to everybody else its process did not end at all.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.process import HIBERNATE
from cmdc_runtime.reasons import (
    AnyReason,
    Normal,
    PlainReason,
    RestartIntensityExceeded,
    Shutdown,
    StartFailed,
)
from supervisor.core.lifecycle import (
    AgentUp,
    AskToEnd,
    AwaitChildren,
    Begin,
    ChildrenGone,
    DelayOver,
    Doze,
    EndChildren,
    Input,
    Kill,
    KillDue,
    Life,
    Phase,
    ProcessEnded,
    StartOverdue,
    StartProcess,
    Step,
    Stop,
    TellDown,
    TellEnded,
    TellUp,
    TermDue,
    Terminate,
    WaitDelay,
    Wanted,
)
from supervisor.core.restart import GiveUp, LeaveDown, RestartAfter, decide

TERM_SHARE: Final = 0.5
"""After this share of the grace period SIGTERM follows the polite request."""
DOZE_GRACE_S: Final = 5.0
"""For an idle process to end when it is given up; it has nothing to do, so this is ample."""


def _start(_phase: Phase, life: Life, _input: Begin | DelayOver) -> Step:
    return _started(life)


def _started(life: Life) -> Step:
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
        return _over(life, ended.reason, EndChildren())
    match decide(life.policy, ended.ending, life.history, ended.now_s):
        case RestartAfter(delay_s=delay_s, history=history):
            told = TellDown(ended.reason, life.incarnation, restarting=True)
            life = replace(
                life,
                last_reason=ended.reason,
                history=history,
                delay_s=delay_s,
                restarts=life.restarts + 1,
            )
            return Step(Phase.CLEARING, life, (told, EndChildren(), AwaitChildren()))
        case GiveUp(restarts=restarts):
            spent = RestartIntensityExceeded(
                restarts=restarts, seconds=life.policy.max_seconds, last=ended.reason
            )
            return _over(life, spent, EndChildren())
        case LeaveDown():  # pragma: no branch - the last of the union
            return _over(life, ended.reason, EndChildren())


def _restart(_phase: Phase, life: Life, _input: ChildrenGone) -> Step:
    if life.delay_s > 0:
        return Step(Phase.RESTARTING, life, (WaitDelay(life.delay_s),))
    return _started(life)


# --- sleep -------------------------------------------------------------------------------------


def _doze(phase: Phase, life: Life, doze: Doze) -> Step:
    """Give the process up unless somebody depends on it: it asks again when it is idle again."""
    if doze.commands_pending or doze.children:
        return Step(phase, life)
    ask = AskToEnd(HIBERNATE, DOZE_GRACE_S * TERM_SHARE, DOZE_GRACE_S)
    return Step(Phase.DOZING, replace(life, is_wanted=False), (ask,))


def _want(phase: Phase, life: Life, _input: Wanted) -> Step:
    return Step(phase, replace(life, is_wanted=True))


def _dozed_off(_phase: Phase, life: Life, _input: ProcessEnded) -> Step:
    """However it ended: it was idle, so all that it did is in the journal."""
    life = replace(life, last_reason=None)
    return _started(life) if life.is_wanted else Step(Phase.HIBERNATED, life)


def _wake(_phase: Phase, life: Life, _input: Wanted) -> Step:
    return _started(life)


# --- the end -----------------------------------------------------------------------------------


def _stop(_phase: Phase, life: Life, stop: Stop) -> Step:
    end_children = EndChildren(stop.grace_s)
    if stop.grace_s == 0:
        return Step(Phase.STOPPING, life, (Kill(), end_children))
    term_s = None if stop.grace_s is None else stop.grace_s * TERM_SHARE
    ask = AskToEnd(stop.reason, term_s, stop.grace_s)
    return Step(Phase.STOPPING, life, (ask, end_children))


def _stop_dozing(phase: Phase, life: Life, stop: Stop) -> Step:
    """Stop a process that is on its way out for another reason: the caller's is the one to tell."""
    return _stop(phase, replace(life, asked_reason=_asked(stop)), stop)


def _stop_waiting(_phase: Phase, life: Life, stop: Stop) -> Step:
    """No process to end: the session just does not come back."""
    return _over(life, _asked(stop), EndChildren(stop.grace_s))


def _hasten(phase: Phase, life: Life, stop: Stop) -> Step:
    """Begin to stop anew: a second stop may be more impatient than the first."""
    return _stop(phase, life, stop)


def _hasten_children(phase: Phase, life: Life, stop: Stop) -> Step:
    return Step(phase, life, (EndChildren(stop.grace_s),))


def _term(phase: Phase, life: Life, _input: TermDue) -> Step:
    return Step(phase, life, (Terminate(),))


def _kill(phase: Phase, life: Life, _input: KillDue) -> Step:
    return Step(phase, life, (Kill(),))


def _stopped(_phase: Phase, life: Life, ended: ProcessEnded) -> Step:
    return _over(life, life.asked_reason or ended.reason)  # its children were asked to end with it


def _unborn(_phase: Phase, life: Life, _input: Begin) -> Step:
    return _over(life, Shutdown(detail="it was stopped before it was started"))


def _over(life: Life, reason: AnyReason, *more: EndChildren) -> Step:
    told = TellDown(reason, life.incarnation, restarting=False)
    return Step(Phase.ENDING, replace(life, last_reason=reason), (told, *more, AwaitChildren()))


def _end(_phase: Phase, life: Life, _input: ChildrenGone) -> Step:
    assert life.last_reason is not None  # noqa: S101 - set by ``_over``
    return Step(Phase.ENDED, life, (TellEnded(life.last_reason, life.was_up),))


def _asked(stop: Stop) -> PlainReason:
    return Normal() if stop.reason == "normal" else Shutdown(detail=stop.reason)


Handler = Callable[[Phase, Life, Any], Step]  # Any: a handler takes the input of its own row
# fmt: off
TRANSITIONS: Final[Mapping[tuple[Phase, type], Handler]] = {
    (Phase.STARTING,   Begin):        _start,
    (Phase.STARTING,   AgentUp):      _up,
    (Phase.STARTING,   StartOverdue): _overdue,
    (Phase.STARTING,   ProcessEnded): _ended,
    (Phase.STARTING,   Stop):         _stop,
    (Phase.UP,         ProcessEnded): _ended,
    (Phase.UP,         Doze):         _doze,
    (Phase.UP,         Stop):         _stop,
    (Phase.CLEARING,   ChildrenGone): _restart,
    (Phase.CLEARING,   Stop):         _stop_waiting,
    (Phase.RESTARTING, DelayOver):    _start,
    (Phase.RESTARTING, Stop):         _stop_waiting,
    (Phase.DOZING,     Wanted):       _want,
    (Phase.DOZING,     TermDue):      _term,
    (Phase.DOZING,     KillDue):      _kill,
    (Phase.DOZING,     ProcessEnded): _dozed_off,
    (Phase.DOZING,     Stop):         _stop_dozing,
    (Phase.HIBERNATED, Wanted):       _wake,
    (Phase.HIBERNATED, Stop):         _stop_waiting,
    (Phase.STOPPING,   Begin):        _unborn,
    (Phase.STOPPING,   TermDue):      _term,
    (Phase.STOPPING,   KillDue):      _kill,
    (Phase.STOPPING,   Stop):         _hasten,
    (Phase.STOPPING,   ProcessEnded): _stopped,
    (Phase.ENDING,     ChildrenGone): _end,
    (Phase.ENDING,     Stop):         _hasten_children,
}
# fmt: on


def advance(phase: Phase, life: Life, given: Input) -> Step:
    """Return what ``given`` does in ``phase``."""
    handler = TRANSITIONS.get((phase, type(given)))
    return Step(phase, life) if handler is None else handler(phase, life, given)
