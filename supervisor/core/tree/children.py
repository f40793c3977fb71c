"""The children of one supervisor, each by itself: launch, end, timers, reports, views. Pure.

``supervisor`` decides what an exit means. An end has steps, each with its timer: the polite
request, SIGTERM after ``TERM_SHARE`` of the grace, SIGKILL at its end, and after
``UNKILLABLE_AFTER_S`` the place is given up. The end of the grace is a point in time; a later
input may bring it forward and never puts it off.

``GroupRestart`` holds how far a group restart is: some children end in reverse, then they start in
order; ``supervisor`` ends and starts who comes next.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import (
    AnyReason,
    Normal,
    Other,
    PlainReason,
    RestartIntensityExceeded,
    Shutdown,
    StartFailed,
    Unkillable,
)
from supervisor.core.tree.messages import (
    TERM_SHARE,
    UNKILLABLE_AFTER_S,
    Ask,
    CallResult,
    CancelTimer,
    ChildState,
    ChildView,
    Effect,
    Kill,
    Label,
    Launch,
    Outcome,
    ProcessEnded,
    Ref,
    Replied,
    Report,
    SetTimer,
    SupervisorPath,
    Terminate,
    Timer,
    TimerKind,
)
from supervisor.core.tree.specs import WORKER, ChildSpec, Strategy, SupervisorSpec, Window

# --- children -------------------------------------------------------------------------------------

ALIVE: Final = frozenset({ChildState.STARTING, ChildState.UP, ChildState.STOPPING})
"""A process is there, or about to be."""
DROPPED: Final = "its specification was deleted"
"""Why a child that was to come back does not."""


@dataclass(slots=True)
class TreeStep:
    """What the supervisors of one tree share while it handles an input."""

    now_s: float = field(init=False)
    """The time of the input."""
    effects: list[Effect] = field(default_factory=list)

    def emit(self, effect: Effect) -> None:
        """Add an effect behind the others."""
        self.effects.append(effect)

    def take(self) -> list[Effect]:
        """Return the effects of the step that is over."""
        effects, self.effects = self.effects, []
        return effects


@dataclass(frozen=True, slots=True)
class Fact:
    """What a report says beyond the child itself."""

    reason: AnyReason | None = None
    next_attempt_s: float | None = None


@dataclass(slots=True, eq=False)
class TreeChild:
    """One child as its supervisor knows it."""

    spec: ChildSpec
    generation: Incarnation
    restarts: int
    state: ChildState = ChildState.DOWN
    handle: object = None
    extra: object = None
    record: object = None
    """What the shell knows of the end of this generation, None before it."""
    past: "Mapping[str, TreeChild]" = field(default_factory=dict)
    """Of a supervisor that ended: the children whose generations the next one goes on with."""
    starts: list[object] = field(default_factory=list)
    """Calls that are answered when it is up or has failed."""
    ends: list[object] = field(default_factory=list)
    """Calls that are answered when it is gone."""
    is_new: bool = False
    """Made by the call that waits for it: a start that fails leaves nothing behind."""
    is_kept: bool = False
    """It only hibernates: its specification is kept whatever its restart type says."""
    unjudged: AnyReason | None = None
    """It ended by itself while the supervisor was at work: what becomes of it is not decided."""
    is_due_back: bool = False
    """``ProcessEnded`` said of its last process that another one follows."""
    kill_at_s: float = math.inf
    brutal: bool = field(init=False)
    """Its time was over when it was to be asked: each start says that it is not."""
    timers: set[TimerKind] = field(default_factory=set)

    @classmethod
    def of(cls, spec: ChildSpec) -> "TreeChild":
        """Return a child that has no process yet."""
        return cls(spec, generation=spec.generation, restarts=spec.restarts)


class Children(dict[str, TreeChild]):
    """All children of one supervisor by id, in the order of their start."""

    def __init__(self, step: TreeStep, path: SupervisorPath, spec: SupervisorSpec) -> None:
        """Have the children of ``spec``, none of them started."""
        self.step = step
        self.path = path
        self.window = Window(spec.flags.max_restarts, spec.flags.max_seconds)
        self._static = frozenset(one.id for one in spec.children)
        self._left: dict[str, TreeChild] = {}
        """Children that are gone: one of the same id counts on where it ended."""
        for one in spec.children:
            self.admit(one)

    # --- coming and going -------------------------------------------------------------------

    def admit(self, spec: ChildSpec) -> TreeChild:
        """Add a child that has no process yet."""
        child = self[spec.id] = TreeChild.of(spec)
        old = self._left.pop(spec.id, None)
        if old is not None:
            _succeed(child, old)
        return child

    def drop(self, child: TreeChild) -> None:
        """Forget a child."""
        self.let_down(child, DROPPED)
        self.pop(child.spec.id, None)
        if child.spec.id in self._static:
            self._left[child.spec.id] = child

    def inherit(self, past: Mapping[str, TreeChild]) -> None:
        """Go on where the supervisor before ended: no generation of a static child comes twice.

        A process that SIGKILL did not end keeps its place.
        """
        for name, old in past.items():
            if old.state is ChildState.UNKILLABLE:
                old.is_new |= name not in self._static  # then it is forgotten when it is gone
                self[name] = old
            elif name in self:
                _succeed(self[name], old)
            else:
                self._left[name] = old

    def reconfigure(self, spec: SupervisorSpec) -> None:
        """Have other limits and specifications; added children are not started."""
        self.window.max_restarts = spec.flags.max_restarts
        self.window.max_seconds = spec.flags.max_seconds
        self._static |= {one.id for one in spec.children}
        others = dict(self)
        self.clear()
        for one in spec.children:
            known = others.pop(one.id, None)
            if known is None:
                self.admit(one)
            else:
                known.spec = one
                self[one.id] = known
        self.update(others)

    def estate(self) -> Mapping[str, TreeChild]:
        """Return what the next supervisor in this place inherits."""
        return self._left | self

    # --- looking ----------------------------------------------------------------------------

    def views(self) -> list[ChildView]:
        """Return what ``which_children`` answers, in start order."""
        return [self.view(child) for child in self.values()]

    def view(self, child: TreeChild) -> ChildView:
        """Return one row of them."""
        return ChildView(
            id=child.spec.id,
            state=child.state,
            type=child.spec.type,
            restart=child.spec.restart,
            handle=child.handle,
            generation=child.generation,
            restarts=child.restarts,
        )

    def ref(self, child: TreeChild) -> Ref:
        """Return the name of the child's current process."""
        return Ref(self.path, child.spec.id, child.generation)

    # --- starting ---------------------------------------------------------------------------

    def next_generation(self, child: TreeChild) -> None:
        """Have the child be starting, as its next generation."""
        self.report_unjudged(child, restarting=True)
        child.generation = Incarnation(child.generation + 1)
        child.state, child.handle, child.extra = ChildState.STARTING, None, None
        child.record = None
        child.kill_at_s, child.brutal, child.is_kept = math.inf, False, False

    def launch(self, child: TreeChild) -> None:
        """Start the process of a worker that is starting."""
        self.step.emit(Launch(self.ref(child), child.spec.start))
        if child.spec.start_timeout is not None:
            self._set(child, TimerKind.START, child.spec.start_timeout)

    def overdue(self, child: TreeChild) -> None:
        """Kill a child that was not up in time."""
        message = f"not ready within {child.spec.start_timeout:g} s"
        self._kill(child, StartFailed(stage="handshake", message=message))

    # --- ending -----------------------------------------------------------------------------

    def hasten(self, child: TreeChild, deadline_s: float | None, *, has_grace: bool) -> bool:
        """Bring forward when a child is killed; False: it has to end earlier already.

        That is within its grace and not after the deadline; without its grace the deadline alone
        counts.
        """
        grace_s = child.spec.shutdown if has_grace or deadline_s is None else None
        kill_at_s = math.inf if grace_s is None else self.step.now_s + grace_s
        if deadline_s is not None:
            kill_at_s = min(kill_at_s, deadline_s)
        if TimerKind.UNKILLABLE in child.timers:  # SIGKILL is under way
            child.state = ChildState.STOPPING
            return False
        if child.state is ChildState.STOPPING and kill_at_s >= child.kill_at_s:
            return False
        child.kill_at_s = kill_at_s
        return True

    def ask(self, child: TreeChild, why: str) -> None:
        """Ask a worker's process to end, or ask it no more where its time is over."""
        is_first = child.state is not ChildState.STOPPING
        child.state = ChildState.STOPPING
        left_s = child.kill_at_s - self.step.now_s
        if left_s <= 0:
            child.brutal = is_first
            self._kill(child, None)
            return
        if is_first:
            self.forget_timers(child)
            self.step.emit(Ask(self.ref(child), why))
        if left_s < math.inf:
            self._set(child, TimerKind.TERM, left_s * TERM_SHARE)
            self._set(child, TimerKind.KILL, left_s)

    def next_signal(self, child: TreeChild, kind: TimerKind) -> None:
        """Send the signal of a timer of an end."""
        if kind is TimerKind.TERM:
            self.step.emit(Terminate(self.ref(child)))
        else:
            self._kill(child, None)

    def fail(self, child: TreeChild, reason: PlainReason) -> None:
        """Kill a child that nobody asked to end; the limit of SIGKILL holds for it too."""
        if (
            child.state in {ChildState.STARTING, ChildState.UP}
            and TimerKind.UNKILLABLE not in child.timers
        ):
            self._kill(child, reason)

    def _kill(self, child: TreeChild, reason: PlainReason | None) -> None:
        self.forget_timers(child)
        self.step.emit(Kill(self.ref(child), reason))
        self._set(child, TimerKind.UNKILLABLE, UNKILLABLE_AFTER_S)

    def close(self, child: TreeChild, state: ChildState) -> None:
        """Have the child be in a state in which it has no process."""
        self.forget_timers(child)
        child.state, child.handle, child.extra = state, None, None

    # --- timers -----------------------------------------------------------------------------

    def delay(self, child: TreeChild, delay_s: float) -> None:
        """Set the child's back-off."""
        self._set(child, TimerKind.DELAY, delay_s)

    def forget_timers(self, child: TreeChild) -> None:
        """Cancel what was set for the child."""
        if child.timers:
            for kind in sorted(child.timers):
                self.step.emit(CancelTimer(Timer(self.path, child.spec.id, kind)))
            child.timers.clear()

    def _set(self, child: TreeChild, kind: TimerKind, delay_s: float) -> None:
        child.timers.add(kind)
        self.step.emit(SetTimer(Timer(self.path, child.spec.id, kind), delay_s))

    # --- answers and reports ----------------------------------------------------------------

    def report_unjudged(self, child: TreeChild, *, restarting: bool) -> None:
        """Report an exit that was to be judged, since what came between has decided."""
        reason, child.unjudged = child.unjudged, None
        if reason is not None:
            self.report_end(child, reason, was_expected=False)
            self.report_gone(child, reason, restarting=restarting)

    def report_end(self, child: TreeChild, reason: AnyReason, *, was_expected: bool) -> None:
        """Report how a child ended that was to end, unless it ended as it should."""
        if not (was_expected or isinstance(reason, (Normal, Shutdown))):
            self.report(Label.SHUTDOWN_ERROR, "shutdown_error", child, Fact(reason))

    def report_gone(
        self,
        child: TreeChild,
        reason: AnyReason,
        *,
        restarting: bool = False,
        asked: bool = False,
        delay_s: float = 0.0,
    ) -> None:
        """Emit that a process of the child is gone; a supervisor does that itself."""
        child.is_due_back = restarting
        if child.spec.type == WORKER:
            self.step.emit(
                ProcessEnded(
                    ref=self.ref(child),
                    reason=reason,
                    restarting=restarting,
                    asked=asked,
                    restarts=child.restarts,
                    delay_s=delay_s,
                    record=child.record,
                )
            )

    def let_down(self, child: TreeChild, why: str) -> None:
        """Emit that a child that is down and was to come back does not."""
        if child.is_due_back and child.state is ChildState.DOWN:
            self.report_gone(child, Shutdown(detail=why), asked=True)

    def report(self, label: Label, context: str, child: TreeChild, fact: Fact = Fact()) -> None:
        """Report one fact about a child."""
        self.step.emit(
            Report(
                label=label,
                path=self.path,
                context=context,
                child=child.spec,
                reason=fact.reason,
                handle=child.handle,
                generation=child.generation,
                restarts=child.restarts,
                in_window=self.window.count(self.step.now_s),
                max_restarts=self.window.max_restarts,
                next_attempt_s=fact.next_attempt_s,
            )
        )

    def reply(self, call: object, outcome: Outcome, reason: AnyReason | None = None) -> None:
        """Answer a call that is about no process."""
        self.step.emit(Replied(call, CallResult(outcome, reason)))

    def answer_starts(self, child: TreeChild, outcome: Outcome, reason: AnyReason | None) -> None:
        """Answer the calls that wait for the child's start."""
        child.is_new = False
        if child.starts:
            starts, child.starts = child.starts, []
            answer = CallResult(outcome, reason, child.handle, child.extra)
            for call in starts:
                self.step.emit(Replied(call, answer))

    def answer_ends(
        self, child: TreeChild, outcome: Outcome, reason: AnyReason | None = None
    ) -> None:
        """Answer the calls that wait for the child's end."""
        if child.ends:
            ends, child.ends = child.ends, []
            for call in ends:
                self.reply(call, outcome, reason)


def _succeed(child: TreeChild, old: TreeChild) -> None:
    """Have a child count on from an earlier one of its id."""
    child.generation = max(child.generation, old.generation)
    child.past = old.past


def unkillable() -> Unkillable:
    """Return why the place of a process is given up."""
    return Unkillable(seconds=UNKILLABLE_AFTER_S)


def plain(reason: AnyReason) -> PlainReason:
    """Return ``reason`` as one that another one may hold."""
    if isinstance(reason, RestartIntensityExceeded):
        return Other(detail=str(reason))
    return reason


# --- a group restart ------------------------------------------------------------------------------


class GroupStage(StrEnum):
    """How far a group restart is."""

    ENDING = "ending"
    STARTING = "starting"


@dataclass(slots=True)
class GroupRestart:
    """A group restart, or the start of some children, which has nothing to end.

    Each member is looked at once to be ended and once to be started, so that the work grows with
    their number and not with its square.
    """

    members: dict[str, None]
    """In start order."""
    stage: GroupStage = GroupStage.STARTING
    failed: str | None = None
    """Whose exit it is for."""
    put_off_s: float | None = None
    """How long to wait between the two stages; with 0 the calls that wait have their turn."""
    is_first: bool = False
    """The supervisor's own start: one child that fails fails it."""
    current: TreeChild | None = None
    """Who was started last; the next one follows when it is up."""
    to_end: list[str] = field(init=False)
    to_start: deque[str] = field(init=False)

    def __post_init__(self) -> None:
        """Have everything to do."""
        self.to_end, self.to_start = list(self.members), deque(self.members)

    @classmethod
    def start_of(cls, names: Iterable[str], *, is_first: bool = False) -> "GroupRestart":
        """Return the start of these children in their order."""
        return cls(dict.fromkeys(names), is_first=is_first)

    @property
    def is_waiting(self) -> bool:
        """Whether the child that was started last is not up yet."""
        return self.current is not None and self.current.state is ChildState.STARTING

    def next_to_end(
        self, children: Mapping[str, TreeChild], let_go: Callable[[TreeChild], None]
    ) -> TreeChild | None:
        """Return the last member that lives; ``let_go`` has each that ended before its turn."""
        while self.to_end:
            child = children.get(self.to_end[-1])
            if child is not None and child.state in ALIVE:
                return child
            if self.to_end.pop() != self.failed and child is not None:
                let_go(child)
        return None

    def next_to_start(self, children: Mapping[str, TreeChild]) -> TreeChild | None:
        """Return the next member that is to be started; None: nothing is left to do."""
        while self.to_start:
            child = children.get(self.to_start.popleft())
            if child is not None and child.state in {ChildState.DOWN, ChildState.RESTARTING}:
                self.current = child
                return child
        return None


def group_of(
    strategy: Strategy, children: Iterable[str], waiting: Collection[str | None]
) -> dict[str, None]:
    """Return who is restarted together, in start order; ``waiting`` has who failed."""
    if strategy is Strategy.ONE_FOR_ALL:
        return dict.fromkeys(children)
    return dict.fromkeys(itertools.dropwhile(lambda name: name not in waiting, children))
