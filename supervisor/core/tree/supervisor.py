"""One supervisor: what an exit, a timer or a call means, after OTP's own. Pure.

OTP's supervisor does one thing at a time. Where children are independent (one_for_one, dynamic)
this one is quicker: a child that is slow to start delays no other. Where they are not, a group
restart is one piece of work, ``GroupRestart``. Calls and exits that come meanwhile wait for its
end. A restart that is put off, for a back-off or because the last attempt failed, is no work:
calls and exits are handled until its timer goes off. A stop outranks all, and nothing is started
after it.

To add a call: its input in ``messages``, its method here, and its row in ``Tree.HANDLERS``.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import (
    AnyReason,
    RestartIntensityExceeded,
    Shutdown,
    Signal,
)
from cmdc_runtime.requests import RestartType
from supervisor.core.tree.children import (
    ALIVE,
    Children,
    Fact,
    GroupRestart,
    GroupStage,
    TreeChild,
    TreeStep,
    group_of,
    plain,
    unkillable,
)
from supervisor.core.tree.messages import (
    SUBTREE_SHARE,
    ChildState,
    End,
    Ending,
    Label,
    Outcome,
    SupervisorEnded,
    SupervisorPath,
    SupervisorPhase,
    SupervisorUp,
    TimerKind,
)
from supervisor.core.tree.specs import WORKER, AutoShutdown, Strategy, SupervisorSpec, delay_s

CALLS_WAITING_MAX: Final = 10_000
"""Calls that wait for a group restart; the next one is refused."""
SIBLING_ENDED: Final = "a sibling ended"
"""Why a child is stopped by a group restart."""
SIGKILL: Final = 9

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


@dataclass(frozen=True, slots=True)
class Signals:
    """What a supervisor causes outside of itself: it is up, it has ended, one below it begins."""

    on_up: Callable[[], None]
    on_end: Callable[[End], None]
    begin_below: Callable[[TreeChild, SupervisorSpec], "Supervisor"]


class Supervisor:
    """The children of one specification, kept by its flags."""

    def __init__(
        self, step: TreeStep, path: SupervisorPath, spec: SupervisorSpec, signals: Signals
    ) -> None:
        """Be about to start; ``begin`` starts the children."""
        self.step, self.path, self.spec, self.flags = step, path, spec, spec.flags
        self.children = Children(step, path, spec)
        self.below: dict[str, Supervisor] = {}
        """The supervisors among the children, by id, while they live."""
        self.phase = SupervisorPhase.STARTING
        self.work: GroupRestart | None = None
        self.put_off: str | None = None
        """Who waits to be restarted together with its group."""
        self._signals = signals
        self._deadline_s: float | None = None
        self._why = ""
        self._end: End | None = None
        self._to_stop: list[TreeChild] = []
        self._waiting: deque[tuple[Callable[[], None], object]] = deque()

    @property
    def is_leaving(self) -> bool:
        """Whether it ends or has ended: it takes no call."""
        return self.phase in {SupervisorPhase.STOPPING, SupervisorPhase.ENDED}

    @property
    def is_dynamic(self) -> bool:
        """Whether the children are of one kind, and ended together."""
        return self.flags.strategy is Strategy.DYNAMIC

    @property
    def is_grouped(self) -> bool:
        """Whether children depend on each other."""
        return self.flags.strategy in {Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE}

    @property
    def is_busy(self) -> bool:
        """Whether calls and exits have to wait."""
        return self.work is not None or self.phase is SupervisorPhase.STARTING

    # --- its own start and end --------------------------------------------------------------

    def begin(self) -> None:
        """Start the children, in order."""
        if self.phase is not SupervisorPhase.STARTING or self.work is not None:
            return  # it was stopped before it began, or it has begun
        if not self.flags.resumes:
            self.work = GroupRestart.start_of(self.children, is_first=True)
            self.go_on()
            return
        self._rise()
        if self.is_grouped:
            self.work = GroupRestart.start_of(self.children)
            self.go_on()
            return
        for child in list(self.children.values()):
            if child.state is ChildState.DOWN:
                self.launch(child)

    def stop(self, why: str, deadline_s: float | None) -> None:
        """End all children and then the supervisor, or hasten that."""
        if deadline_s is not None:
            self._deadline_s = min(
                deadline_s, math.inf if self._deadline_s is None else self._deadline_s
            )
        if self.phase is SupervisorPhase.STOPPING:
            for child in self._to_stop:
                if child.state is ChildState.STOPPING:
                    self.end(child, self._why, self._deadline_of(child))
            return
        stopped = Shutdown(detail=why)
        self.leave(End(stopped, stopped, Ending.NORMAL), why)

    def killed(self) -> None:
        """End as by SIGKILL: everything below is killed at once, nobody is asked."""
        reason = Signal(number=SIGKILL, name="SIGKILL")
        self._deadline_s = self.step.now_s
        self.leave(End(reason, reason, Ending.CRASH), "")
        for child in list(self.children.values()):
            below = self.below.get(child.spec.id)
            if below is not None:
                below.killed()
            elif child.state in ALIVE:
                self.end(child, "", self.step.now_s)

    def leave(self, end: End, why: str) -> None:
        """Begin to end: nothing is started any more."""
        if self.is_leaving:
            return
        self.phase, self._end, self._why = SupervisorPhase.STOPPING, end, why
        self.work = self.put_off = None
        waiting, self._waiting = self._waiting, deque()
        for _, call in waiting:
            if call is not None:
                self.children.reply(call, Outcome.NO_PROCESS)
        for child in list(self.children.values()):
            if child.state is ChildState.RESTARTING:
                self.call_off(child, why)
            self.children.let_down(child, why)
        self._to_stop = list(self.children.values())
        if self.is_dynamic:
            for child in self._to_stop:
                self._end_with_all(child)
        self._wind_down()

    def call_off(self, child: TreeChild, why: str) -> None:
        """Drop the restart of a child that was about to be restarted."""
        if self.put_off == child.spec.id:
            self.put_off = None
            for other in self.children.values():
                self.children.let_down(other, why)
        self.close(child, ChildState.DOWN)
        self.children.report_unjudged(child, restarting=False)
        self.children.let_down(child, why)
        self.children.answer_ends(child, Outcome.OK)
        self.forget_if_done(child)

    def forget_if_done(self, child: TreeChild) -> None:
        """Drop the specification of a child that is down and that nobody will start again."""
        is_one_off = child.spec.restart == "temporary" or self.is_dynamic
        if is_one_off and child.state is ChildState.DOWN and not child.is_kept:
            self.children.drop(child)

    def _rise(self) -> None:
        self.phase = SupervisorPhase.UP
        self.step.emit(SupervisorUp(self.path))
        self._signals.on_up()

    def _wind_down(self) -> None:
        """End the next child; the supervisor ends behind the last."""
        while self._to_stop:
            child = self._to_stop[-1]
            if child.state in ALIVE:
                self._end_with_all(child)
                return
            self._to_stop.pop()
        if self.phase is SupervisorPhase.STOPPING:
            assert self._end is not None  # noqa: S101 - set by ``leave``
            self.phase = SupervisorPhase.ENDED
            self.step.emit(SupervisorEnded(self.path, self._end.reason, self._end.cause))
            self._signals.on_end(self._end)

    def _end_with_all(self, child: TreeChild) -> None:
        if child.state in ALIVE:  # one that is being ended already may have to hurry
            why = self.flags.stop_reason or self._why
            self.end(child, why, self._deadline_of(child))

    def _deadline_of(self, child: TreeChild) -> float | None:
        """Return until when a child must be gone, so that those after it have a share."""
        deadline_s, now_s = self._deadline_s, self.step.now_s
        is_followed = not self.is_dynamic and child is not self._to_stop[0]
        if deadline_s is None or child.spec.type == WORKER or not is_followed:
            return deadline_s
        return now_s + (deadline_s - now_s) * SUBTREE_SHARE

    # --- processes and supervisors below ----------------------------------------------------

    def launch(self, child: TreeChild) -> None:
        """Start the child's next generation."""
        self.children.next_generation(child)
        if isinstance(child.spec.start, SupervisorSpec):
            self.below[child.spec.id] = self._signals.begin_below(child, child.spec.start)
        else:
            self.children.launch(child)

    def end(
        self, child: TreeChild, why: str, deadline_s: float | None, *, has_grace: bool = True
    ) -> None:
        """Begin to end a child, or hasten its end: within its grace and not after the deadline.

        Without its own grace the deadline alone counts.
        """
        if not self.children.hasten(child, deadline_s, has_grace=has_grace):
            return
        below = self.below.get(child.spec.id)
        if below is None:
            self.children.ask(child, why)
            return
        child.state = ChildState.STOPPING
        below.stop(why, None if child.kill_at_s == math.inf else child.kill_at_s)

    def close(self, child: TreeChild, state: ChildState) -> None:
        """Have the child be in a state in which nothing of it lives."""
        self.children.close(child, state)
        self.below.pop(child.spec.id, None)

    def reconfigure(self, spec: SupervisorSpec) -> None:
        """Have other flags and specifications; added children are not started."""
        self.spec, self.flags = spec, spec.flags
        self.children.reconfigure(spec)

    # --- work on a group --------------------------------------------------------------------

    def when_idle(self, work: Callable[[], None], call: object = None) -> bool:
        """Do ``work`` now or after the group restart under way; False: too many calls wait."""
        if not self.is_busy:
            work()
        elif call is not None and len(self._waiting) >= CALLS_WAITING_MAX:
            return False
        else:
            self._waiting.append((work, call))
        return True

    def regroup(self, child: TreeChild, put_off_s: float | None) -> None:
        """Restart the group of a child that is gone; who was put off before is part of it."""
        # A group that was to be started is part of this one now.
        others = () if self.work is None else self.work.to_start
        waiting = {child.spec.id, self.put_off, *others}
        members = group_of(self.flags.strategy, self.children, waiting)
        first = child
        if self.put_off in members and self.flags.strategy is Strategy.REST_FOR_ONE:
            # The group is known by the first who failed, or it would be smaller the next time.
            first = self.children[next(iter(members))]
        self.put_off = None
        self.children.forget_timers(first)
        for one in (self.children[name] for name in members):
            if one is not first and one.state is ChildState.RESTARTING and one.unjudged is None:
                self.close(one, ChildState.DOWN)  # it comes back with this group now
        self.work = GroupRestart(members, GroupStage.ENDING, first.spec.id, put_off_s)
        self.go_on()

    def go_on(self) -> None:
        """Do the next piece of what is under way."""
        if self.phase is SupervisorPhase.STOPPING:
            self._wind_down()
        work = self.work
        if work is None:
            return
        if work.stage is GroupStage.ENDING:
            self._end_members(work)
        if work.stage is not GroupStage.STARTING or work.is_waiting:
            return
        child = work.next_to_start(self.children)
        if child is not None:
            self.launch(child)
            return
        self.work = None
        if work.is_first:
            self._rise()
        self._serve()

    def _end_members(self, work: GroupRestart) -> None:
        """Ask the last member that lives to end; when none is left the next stage begins."""
        child = work.next_to_end(self.children, self._let_go)
        if child is not None:
            if child.state is not ChildState.STOPPING:
                self.end(child, self.flags.stop_reason or SIBLING_ENDED, None)
            return
        if work.put_off_s is None or work.failed is None:
            work.stage = GroupStage.STARTING
            return
        self.put_off, self.work = work.failed, None
        self.children.delay(self.children[work.failed], work.put_off_s)
        self._serve()

    def _let_go(self, bystander: TreeChild) -> None:
        """Let a temporary child go whose end nobody has judged: it is not started again."""
        if bystander.spec.restart == "temporary" and bystander.state is ChildState.RESTARTING:
            self.call_off(bystander, SIBLING_ENDED)

    def _serve(self) -> None:
        """Do what had to wait, until something is under way again."""
        while self._waiting and not self.is_busy and self.phase is SupervisorPhase.UP:
            work, _ = self._waiting.popleft()
            work()

    # --- calls ------------------------------------------------------------------------------

    def start(self, child: TreeChild, call: object, *, is_new: bool) -> None:
        """Start a child because a call asks for it; its failure is the caller's and no crash."""
        child.starts.append(call)
        child.is_new = is_new
        self._start_alone(child)

    def wake(self, child: TreeChild) -> None:
        """Start a child that hibernates; a start that fails is a crash like any other."""
        self._start_alone(child)

    def terminate(self, child: TreeChild, why: str, deadline_s: float | None) -> None:
        """End a child, or what would become of it; who waits for that is answered."""
        if child.state in ALIVE:
            self.end(child, why, deadline_s, has_grace=False)
        elif child.state is ChildState.RESTARTING:
            self.call_off(child, why)
        elif child.state is ChildState.UNKILLABLE:
            self.children.answer_ends(child, Outcome.ERROR, unkillable())
        else:
            self.children.answer_ends(child, Outcome.OK)
            self.forget_if_done(child)

    def _start_alone(self, child: TreeChild) -> None:
        if self.is_grouped:
            self.work = GroupRestart.start_of([child.spec.id])
            self.go_on()
        else:
            self.launch(child)

    # --- news of children -----------------------------------------------------------

    def up(self, child: TreeChild, handle: object, extra: object) -> None:
        """Handle that a child is ready."""
        if child.state is not ChildState.STARTING:
            return  # it is being ended; its exit follows
        self.children.forget_timers(child)
        child.state, child.handle, child.extra = ChildState.UP, handle, extra
        if child.is_new and child.spec.restart == "temporary" and child.spec.type == WORKER:
            # Nothing starts it again, and what it was started with may be large: OTP does the same.
            child.spec = replace(child.spec, start=None)
        self.children.report(Label.PROGRESS, "start", child)
        self.children.answer_starts(child, Outcome.OK, None)
        self.go_on()

    def ignored(self, child: TreeChild) -> None:
        """Handle that a child wants no process now, and has none."""
        match child.state:
            case ChildState.STARTING:
                self.close(child, ChildState.DOWN)
                self.children.let_down(child, IGNORED)
                self.children.answer_starts(child, Outcome.OK, None)
                self.forget_if_done(child)
                self.go_on()
            case ChildState.STOPPING | ChildState.UNKILLABLE:
                self.exited(child, Shutdown(detail=IGNORED), Ending.NORMAL)
            case _:
                self.children.report(Label.UNEXPECTED, "ignore", child)

    def exited(self, child: TreeChild, reason: AnyReason, ending: Ending) -> None:
        """Handle that a child's process is gone, whatever it was about to do."""
        match child.state:
            case ChildState.STARTING | ChildState.UP if self.phase is SupervisorPhase.STOPPING:
                self._stopped(child, reason)  # nothing is started any more, whatever it died of
            case ChildState.STARTING:
                self._not_started(child, reason, ending)
            case ChildState.UP if self._is_to_be_stopped(child):
                self._stopped(child, reason)  # it came before the request: no crash of its own
            case ChildState.UP if self.is_busy:
                child.unjudged = reason
                self.close(child, ChildState.RESTARTING)
                self.when_idle(lambda: self._judge_late(child, reason, ending))
            case ChildState.UP:
                self._judge(child, reason, ending)
            case ChildState.STOPPING:
                self._stopped(child, reason)
            case ChildState.UNKILLABLE:
                self.close(child, ChildState.DOWN)
                if child.is_new:
                    self.children.drop(child)
                self.forget_if_done(child)
            case _:
                self.children.report(Label.UNEXPECTED, "exit", child, Fact(reason))

    def due(self, child: TreeChild, kind: TimerKind) -> None:
        """Handle a timer of a child; a late one finds another state."""
        child.timers.discard(kind)
        match kind, child.state:
            case TimerKind.START, ChildState.STARTING if child.spec.start_timeout is not None:
                self.children.overdue(child)
            case TimerKind.DELAY, ChildState.RESTARTING:
                self._delay_over(child)
            case ((TimerKind.TERM | TimerKind.KILL), ChildState.STOPPING):
                self.children.next_signal(child, kind)
            case TimerKind.UNKILLABLE, (ChildState.STOPPING | ChildState.STARTING | ChildState.UP):
                self._give_up_on(child)
            case _:
                return

    # --- the end of a child that was up ------------------------------------------------------

    def _is_to_be_stopped(self, child: TreeChild) -> bool:
        work = self.work
        is_member = work is not None and child.spec.id in work.members
        return is_member and work is not None and work.stage is GroupStage.ENDING

    def _judge_late(self, child: TreeChild, reason: AnyReason, ending: Ending) -> None:
        if child.unjudged is reason and self.children.get(child.spec.id) is child:
            child.unjudged = None
            self._judge(child, reason, ending)

    def _judge(self, child: TreeChild, reason: AnyReason, ending: Ending) -> None:
        """Decide what becomes of a child that ended by itself, and of its supervisor."""
        if RESTARTS[child.spec.restart, ending]:
            self._crashed(child, reason, ending, Label.CHILD_TERMINATED)
            return
        if ending is not Ending.NORMAL:
            self.children.report(Label.CHILD_TERMINATED, "child_terminated", child, Fact(reason))
        self.close(child, ChildState.DOWN)
        self.children.report_gone(child, reason)
        self.forget_if_done(child)
        if ending is Ending.FINAL and child.spec.restart != "temporary":
            self.leave(End(Shutdown(detail=str(reason)), reason, Ending.NORMAL), SIBLING_ENDED)
        elif child.spec.significant and self._was_last_straw():
            shutdown = Shutdown(detail=f"significant child {child.spec.id} ended: {reason}")
            self.leave(End(shutdown, reason, Ending.NORMAL), SIBLING_ENDED)
        else:
            self.go_on()

    def _was_last_straw(self) -> bool:
        """Say whether the end of a significant child ends the supervisor."""
        if self.flags.auto_shutdown is not AutoShutdown.ALL_SIGNIFICANT:
            return self.flags.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT
        others = (one for one in self.children.values() if one.spec.significant)
        return not any(one.state in ALIVE or one.state is ChildState.RESTARTING for one in others)

    def _crashed(self, child: TreeChild, reason: AnyReason, ending: Ending, label: Label) -> None:
        """Charge a restart, or spare it, and begin it or give up."""
        now_s, window = self.step.now_s, self.children.window
        count = window.spare if ending is Ending.FELL else window.charge
        if not count(child.spec.id, now_s):
            self._give_up(child, reason, label)
            return
        earlier = self.children.window.of(child.spec.id, now_s) - 1
        wait_s = delay_s(child.spec.restart_delay, earlier)
        self.children.window.delayed(child.spec.id, wait_s)
        child.restarts += 1
        self.children.report(label, label.value, child, Fact(reason, next_attempt_s=wait_s))
        self.close(child, ChildState.RESTARTING)
        self.children.report_gone(child, reason, restarting=True, delay_s=wait_s)
        if self.is_grouped:
            is_retry = label is Label.START_ERROR
            self.regroup(child, wait_s if wait_s > 0 or is_retry else None)
            return
        if wait_s > 0:
            self.children.delay(child, wait_s)
        else:
            self.launch(child)
        self.go_on()

    def _give_up(self, child: TreeChild, reason: AnyReason, label: Label) -> None:
        spent = RestartIntensityExceeded(
            restarts=self.flags.max_restarts, seconds=self.flags.max_seconds, last=plain(reason)
        )
        self.children.report(label, label.value, child, Fact(reason))
        self.children.report(Label.SHUTDOWN, "reached_max_restart_intensity", child, Fact(spent))
        self.close(child, ChildState.DOWN)
        self.children.report_gone(child, spent)
        self.children.drop(child)
        self.leave(End(spent, spent, Ending.NORMAL), SIBLING_ENDED)

    # --- the end of a child that was not up, or not wanted ------------------------------------

    def _not_started(self, child: TreeChild, reason: AnyReason, ending: Ending) -> None:
        is_first = self.work is not None and self.work.is_first
        if not (is_first or child.starts):
            if ending is Ending.FINAL or child.spec.restart == "temporary":
                self._judge(child, reason, ending)
            else:
                self._crashed(child, reason, ending, Label.START_ERROR)
            return
        self.children.report(Label.START_ERROR, "start_error", child, Fact(reason))
        self.close(child, ChildState.DOWN)
        self.children.report_gone(child, reason)
        if child.is_new:
            self.children.drop(child)
        self.children.answer_starts(child, Outcome.ERROR, reason)
        if is_first:
            self.children.report(Label.SHUTDOWN, "failed_to_start_child", child, Fact(reason))
            self.leave(End(reason, reason, Ending.CRASH), SIBLING_ENDED)
        else:
            self.go_on()

    def _stopped(self, child: TreeChild, reason: AnyReason) -> None:
        """Handle that a child that was to end has ended."""
        was_killed = isinstance(reason, Signal) and reason.number == SIGKILL
        self.children.report_end(child, reason, was_expected=child.brutal and was_killed)
        was_asked = child.state is ChildState.STOPPING
        is_member = self._is_to_be_stopped(child)
        comes_back = is_member and child.spec.restart != "temporary" and not child.is_new
        self.close(child, ChildState.DOWN)
        self.children.report_gone(child, reason, restarting=comes_back, asked=was_asked)
        if child.is_new:
            self.children.drop(child)
        self.children.answer_starts(child, Outcome.ERROR, reason)
        self.children.answer_ends(child, Outcome.OK)
        if not comes_back:
            self.forget_if_done(child)
        self.go_on()

    def _give_up_on(self, child: TreeChild) -> None:
        """SIGKILL did not end it: go on without it, and start no other in its place."""
        reason, was_up = unkillable(), child.state is ChildState.UP
        self.children.report(Label.UNKILLABLE, "unkillable", child, Fact(reason))
        child.state = ChildState.UNKILLABLE
        self.children.report_gone(child, reason, asked=not was_up)
        is_new = child.is_new
        self.children.answer_starts(child, Outcome.ERROR, reason)
        child.is_new = is_new  # its specification goes when it does
        self.children.answer_ends(child, Outcome.ERROR, reason)
        if self.work is not None and self.work.is_first:
            self.leave(End(reason, reason, Ending.CRASH), SIBLING_ENDED)
        elif was_up and child.spec.restart != "temporary":
            # It hangs, nothing may take its place, and so its siblings are without it for good.
            self.leave(End(Shutdown(detail=str(reason)), reason, Ending.NORMAL), SIBLING_ENDED)
        self.go_on()

    def _delay_over(self, child: TreeChild) -> None:
        if self.put_off == child.spec.id:
            generation = child.generation
            self.when_idle(lambda: self._regroup_now(child, generation))
        else:
            self.launch(child)

    def _regroup_now(self, child: TreeChild, generation: Incarnation) -> None:
        if self.put_off == child.spec.id and child.generation == generation:
            # Who was started meanwhile by a call is ended again, as OTP does at its next try.
            self.regroup(child, None)
