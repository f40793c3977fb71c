"""One supervisor: what the end of a child, a timer or a call means, after OTP's own. Pure.

To add a call: its method here, and its row in ``tree``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import (
    AnyReason,
    Other,
    PlainReason,
    RestartIntensityExceeded,
    Shutdown,
    Signal,
    Unkillable,
)
from cmdc_runtime.requests import RestartType
from supervisor.core.tree.crew import SIBLING_ENDED, SIGKILL, Crew, End, Mode, Regroup, Stage
from supervisor.core.tree.intensity import delay_s
from supervisor.core.tree.messages import UNKILLABLE_AFTER_S, Ending, Kind, Label, Outcome, State
from supervisor.core.tree.roster import ALIVE, Child, Fact
from supervisor.core.tree.specs import AutoShutdown

# fmt: off
RESTARTS: Final[Mapping[tuple[RestartType, Ending], bool]] = {
    ("permanent", Ending.NORMAL): True,
    ("permanent", Ending.CRASH):  True,
    ("permanent", Ending.FELL):   True,
    ("permanent", Ending.FINAL):  False,
    ("transient", Ending.NORMAL): False,
    ("transient", Ending.CRASH):  True,
    ("transient", Ending.FELL):   True,
    ("transient", Ending.FINAL):  False,
    ("temporary", Ending.NORMAL): False,
    ("temporary", Ending.CRASH):  False,
    ("temporary", Ending.FELL):   False,
    ("temporary", Ending.FINAL):  False,
}
# fmt: on
"""Who is started again after what."""

IGNORED: Final = "it ignored its start"
"""The detail of the Shutdown of a child that was to come back, or to end, and wants no process."""


class Supervisor(Crew):
    """The children of one specification, kept by its flags."""

    # --- calls ------------------------------------------------------------------------------

    def start(self, child: Child, call: object, *, is_new: bool) -> None:
        """Start a child because a call asks for it; its failure is the caller's and no crash."""
        child.starts.append(call)
        child.is_new = is_new
        self._start_alone(child)

    def wake(self, child: Child) -> None:
        """Start a child that rested; a start that fails is a crash like any other."""
        self._start_alone(child)

    def terminate(self, child: Child, why: str, deadline_s: float | None) -> None:
        """End a child, or what would become of it; who waits for that is answered."""
        if child.state in ALIVE:
            self.end(child, why, deadline_s, has_grace=False)
        elif child.state is State.RESTARTING:
            self.call_off(child, why)
        elif child.state is State.UNKILLABLE:
            self.answer_ends(child, Outcome.ERROR, unkillable())
        else:
            self.answer_ends(child, Outcome.OK)
            self.forget_if_done(child)

    def _start_alone(self, child: Child) -> None:
        if self.is_grouped:
            self.work = Regroup.start_of([child.spec.id])
            self.go_on()
        else:
            self.launch(child)

    # --- what is told of children -----------------------------------------------------------

    def up(self, child: Child, handle: object, extra: object) -> None:
        """Take note that a child is ready."""
        if child.state is not State.STARTING:
            return  # it is being ended; its exit follows
        self.forget_timers(child)
        child.state, child.handle, child.extra = State.UP, handle, extra
        child.is_due_back = False
        if child.is_new and child.spec.restart == "temporary" and child.below is None:
            # Nothing starts it again, and what it was started with may be large: OTP does the same.
            child.spec = replace(child.spec, start=None)
        self.report(Label.PROGRESS, "start", child)
        self.answer_starts(child, Outcome.OK, None)
        self.go_on()

    def ignored(self, child: Child) -> None:
        """Take note that a child wants no process now, and has none."""
        match child.state:
            case State.STARTING:
                self.clear(child, State.DOWN)
                self.let_down(child, IGNORED)
                self.answer_starts(child, Outcome.OK, None)
                self.forget_if_done(child)
                self.go_on()
            case State.STOPPING | State.UNKILLABLE:
                self.exited(child, Shutdown(detail=IGNORED), Ending.NORMAL)
            case _:
                self.report(Label.UNEXPECTED, "ignore", child)

    def exited(self, child: Child, reason: AnyReason, ending: Ending) -> None:
        """Take note that a child's process is gone, whatever it was about to do."""
        match child.state:
            case State.STARTING | State.UP if self.mode is Mode.STOPPING:
                self._stopped(child, reason)  # nothing is started any more, whatever it died of
            case State.STARTING:
                self._not_started(child, reason, ending)
            case State.UP if self._is_to_be_stopped(child):
                self._stopped(child, reason)  # it came before the request: no crash of its own
            case State.UP if self.is_busy:
                child.unjudged = reason
                self.clear(child, State.RESTARTING)
                self.when_idle(lambda: self._judge_late(child, reason, ending))
            case State.UP:
                self._judge(child, reason, ending)
            case State.STOPPING:
                self._stopped(child, reason)
            case State.UNKILLABLE:
                self.clear(child, State.DOWN)
                if child.is_new:
                    self.drop(child)
                self.forget_if_done(child)
            case _:
                self.report(Label.UNEXPECTED, "exit", child, Fact(reason))

    def due(self, child: Child, kind: Kind) -> None:
        """Take note that a timer of a child went off; a late one finds another state."""
        child.timers.discard(kind)
        match kind, child.state:
            case Kind.START, State.STARTING if child.spec.start_timeout is not None:
                self.overdue(child)
            case Kind.DELAY, State.RESTARTING:
                self._delay_over(child)
            case ((Kind.TERM | Kind.KILL), State.STOPPING):
                self.rung(child, kind)
            case Kind.UNKILLABLE, (State.STOPPING | State.STARTING | State.UP):
                self._give_up_on(child)
            case _:
                return

    # --- the end of a child that was up ------------------------------------------------------

    def _is_to_be_stopped(self, child: Child) -> bool:
        work = self.work
        is_member = work is not None and child.spec.id in work.members
        return is_member and work is not None and work.stage is Stage.ENDING

    def _judge_late(self, child: Child, reason: AnyReason, ending: Ending) -> None:
        if child.unjudged is reason and self.children.get(child.spec.id) is child:
            child.unjudged = None
            self._judge(child, reason, ending)

    def _judge(self, child: Child, reason: AnyReason, ending: Ending) -> None:
        """Decide what becomes of a child that ended by itself, and of its supervisor."""
        if RESTARTS[child.spec.restart, ending]:
            self._crashed(child, reason, ending, Label.CHILD_TERMINATED)
            return
        if ending is not Ending.NORMAL:
            self.report(Label.CHILD_TERMINATED, "child_terminated", child, Fact(reason))
        self.clear(child, State.DOWN)
        self.depart(child, reason)
        self.forget_if_done(child)
        if ending is Ending.FINAL and child.spec.restart != "temporary":
            self.leave(End(Shutdown(detail=str(reason)), reason, Ending.NORMAL), SIBLING_ENDED)
        elif child.spec.significant and self._was_last_straw():
            told = Shutdown(detail=f"significant child {child.spec.id} ended: {reason}")
            self.leave(End(told, reason, Ending.NORMAL), SIBLING_ENDED)
        else:
            self.go_on()

    def _was_last_straw(self) -> bool:
        """Say whether the end of a significant child ends the supervisor."""
        if self.flags.auto_shutdown is not AutoShutdown.ALL_SIGNIFICANT:
            return self.flags.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT
        others = (one for one in self.children.values() if one.spec.significant)
        return not any(one.state in ALIVE or one.state is State.RESTARTING for one in others)

    def _crashed(self, child: Child, reason: AnyReason, ending: Ending, label: Label) -> None:
        """Charge a restart, or spare it, and begin it or give up."""
        now_s, window = self.house.now_s, self.window
        count = window.spare if ending is Ending.FELL else window.charge
        if not count(child.spec.id, now_s):
            self._give_up(child, reason, label)
            return
        earlier = self.window.of(child.spec.id, now_s) - 1
        wait_s = delay_s(child.spec.restart_delay, earlier)
        self.window.delayed(child.spec.id, wait_s)
        child.restarts += 1
        self.report(label, label.value, child, Fact(reason, next_attempt_s=wait_s))
        self.clear(child, State.RESTARTING)
        self.depart(child, reason, restarting=True, delay_s=wait_s)
        if self.is_grouped:
            is_retry = label is Label.START_ERROR
            self.regroup(child, wait_s if wait_s > 0 or is_retry else None)
            return
        if wait_s > 0:
            self.delay(child, wait_s)
        else:
            self.launch(child)
        self.go_on()

    def _give_up(self, child: Child, reason: AnyReason, label: Label) -> None:
        spent = RestartIntensityExceeded(
            restarts=self.flags.max_restarts, seconds=self.flags.max_seconds, last=plain(reason)
        )
        self.report(label, label.value, child, Fact(reason))
        self.report(Label.SHUTDOWN, "reached_max_restart_intensity", child, Fact(spent))
        self.clear(child, State.DOWN)
        self.depart(child, spent)
        self.drop(child)
        self.leave(End(spent, spent, Ending.NORMAL), SIBLING_ENDED)

    # --- the end of a child that was not up, or not wanted ------------------------------------

    def _not_started(self, child: Child, reason: AnyReason, ending: Ending) -> None:
        is_first = self.work is not None and self.work.is_first
        if not (is_first or child.starts):
            if ending is Ending.FINAL or child.spec.restart == "temporary":
                self._judge(child, reason, ending)
            else:
                self._crashed(child, reason, ending, Label.START_ERROR)
            return
        self.report(Label.START_ERROR, "start_error", child, Fact(reason))
        self.clear(child, State.DOWN)
        self.depart(child, reason)
        if child.is_new:
            self.drop(child)
        self.answer_starts(child, Outcome.ERROR, reason)
        if is_first:
            self.report(Label.SHUTDOWN, "failed_to_start_child", child, Fact(reason))
            self.leave(End(reason, reason, Ending.CRASH), SIBLING_ENDED)
        else:
            self.go_on()

    def _stopped(self, child: Child, reason: AnyReason) -> None:
        """Take note that a child that was to end has ended."""
        was_killed = isinstance(reason, Signal) and reason.number == SIGKILL
        self.report_end(child, reason, was_expected=child.brutal and was_killed)
        was_asked = child.state is State.STOPPING
        is_member = self._is_to_be_stopped(child)
        comes_back = is_member and child.spec.restart != "temporary" and not child.is_new
        self.clear(child, State.DOWN)
        self.depart(child, reason, restarting=comes_back, asked=was_asked)
        if child.is_new:
            self.drop(child)
        self.answer_starts(child, Outcome.ERROR, reason)
        self.answer_ends(child, Outcome.OK)
        if not comes_back:
            self.forget_if_done(child)
        self.go_on()

    def _give_up_on(self, child: Child) -> None:
        """SIGKILL did not end it: go on without it, and start no other in its place."""
        reason, was_up = unkillable(), child.state is State.UP
        self.report(Label.UNKILLABLE, "unkillable", child, Fact(reason))
        self.forget_timers(child)
        child.state = State.UNKILLABLE
        self.depart(child, reason, asked=not was_up)
        is_new = child.is_new
        self.answer_starts(child, Outcome.ERROR, reason)
        child.is_new = is_new  # its specification goes when it does
        self.answer_ends(child, Outcome.ERROR, reason)
        if self.work is not None and self.work.is_first:
            self.leave(End(reason, reason, Ending.CRASH), SIBLING_ENDED)
        elif was_up and child.spec.restart != "temporary":
            # It hangs, nothing may take its place, and so its siblings are without it for good.
            self.leave(End(Shutdown(detail=str(reason)), reason, Ending.NORMAL), SIBLING_ENDED)
        self.go_on()

    def _delay_over(self, child: Child) -> None:
        if self.put_off == child.spec.id:
            generation = child.generation
            self.when_idle(lambda: self._regroup_now(child, generation))
        else:
            self.launch(child)

    def _regroup_now(self, child: Child, generation: Incarnation) -> None:
        if self.put_off == child.spec.id and child.generation == generation:
            # Who was started meanwhile by a call is ended again, as OTP does at its next try.
            self.regroup(child, None)


def plain(reason: AnyReason) -> PlainReason:
    """Return ``reason`` as one that another one may hold."""
    if isinstance(reason, RestartIntensityExceeded):
        return Other(detail=str(reason))
    return reason


def unkillable() -> Unkillable:
    """Return why the place of a process is given up."""
    return Unkillable(seconds=UNKILLABLE_AFTER_S)
