"""The children of one supervisor, one by one: started, asked to end, timed, looked at.

What an end means, and for whom, is decided in ``supervisor``. An end has rungs, each with its
timer: the polite request, SIGTERM after ``TERM_SHARE`` of the grace, SIGKILL at its end, and after
``UNKILLABLE_AFTER_S`` the place is given up. The end of the grace is a point in time that no level
of the tree may move back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from cmdc_runtime.ids import Incarnation
from cmdc_runtime.reasons import AnyReason, Normal, PlainReason, Shutdown, StartFailed
from supervisor.core.tree.intensity import Window
from supervisor.core.tree.messages import (
    TERM_SHARE,
    UNKILLABLE_AFTER_S,
    Answer,
    Ask,
    CancelTimer,
    ChildView,
    Counts,
    Departed,
    Effect,
    Kill,
    Kind,
    Label,
    Launch,
    Outcome,
    Path,
    Ref,
    Replied,
    Report,
    SetTimer,
    State,
    Terminate,
    Timer,
)
from supervisor.core.tree.specs import WORKER, ChildSpec, SupervisorSpec

if TYPE_CHECKING:
    from supervisor.core.tree.supervisor import Supervisor

ALIVE: Final = frozenset({State.STARTING, State.UP, State.STOPPING})
"""A process is there, or about to be."""
DROPPED: Final = "its specification was deleted"
"""Why a child that was to come back does not."""


class House(Protocol):
    """What a supervisor needs of the tree."""

    now_s: float

    def emit(self, effect: Effect) -> None:
        """Have something done."""

    def employ(self, parent: "Roster", child: "Child", spec: SupervisorSpec) -> "Supervisor":
        """Return a supervisor below ``parent``, which begins when this step is over."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What a report tells beyond the child itself."""

    reason: AnyReason | None = None
    handle: object = None
    next_attempt_s: float | None = None


@dataclass(slots=True, eq=False)
class Child:
    """One child as its supervisor knows it."""

    spec: ChildSpec
    generation: Incarnation
    restarts: int
    state: State = State.DOWN
    handle: object = None
    extra: object = None
    below: "Supervisor | None" = None
    past: "Mapping[str, Child]" = field(default_factory=dict)
    """Of a supervisor that ended: the children whose generations the next one goes on with."""
    starts: list[object] = field(default_factory=list)
    """Calls that are answered when it is up or has failed."""
    ends: list[object] = field(default_factory=list)
    """Calls that are answered when it is gone."""
    is_new: bool = False
    """Made by the call that waits for it: a start that fails leaves nothing behind."""
    is_kept: bool = False
    """It only rests: its specification is kept whatever its restart type says."""
    unjudged: AnyReason | None = None
    """It ended by itself while the supervisor was at work: what becomes of it is not decided."""
    is_due_back: bool = False
    """It ended, and who watches was told that another process follows, which is not up yet."""
    kill_at_s: float = math.inf
    brutal: bool = False
    timers: set[Kind] = field(default_factory=set)

    @classmethod
    def of(cls, spec: ChildSpec) -> "Child":
        """Return a child that has no process yet."""
        return cls(spec, generation=spec.generation, restarts=spec.restarts)


class Roster:
    """All children of one supervisor in the order of their start."""

    def __init__(self, house: House, path: Path, spec: SupervisorSpec) -> None:
        """Have the children of ``spec``, none of them started."""
        self.house = house
        self.path = path
        self.spec = spec
        self.flags = spec.flags
        self.window = Window(spec.flags.max_restarts, spec.flags.max_seconds)
        self.children: dict[str, Child] = {}
        self._static = frozenset(one.id for one in spec.children)
        self._left: dict[str, Child] = {}
        """Children that are gone: one of the same id counts on where it ended."""
        for one in spec.children:
            self.admit(one)

    # --- coming and going -------------------------------------------------------------------

    def admit(self, spec: ChildSpec) -> Child:
        """Add a child that has no process yet."""
        child = self.children[spec.id] = Child.of(spec)
        old = self._left.pop(spec.id, None)
        if old is not None:
            _succeed(child, old)
        return child

    def drop(self, child: Child) -> None:
        """Forget a child."""
        self.let_down(child, DROPPED)
        self.children.pop(child.spec.id, None)
        if child.spec.id in self._static:
            self._left[child.spec.id] = child

    def inherit(self, past: Mapping[str, Child]) -> None:
        """Go on where the supervisor before ended: no generation of a static child comes twice.

        A process that SIGKILL did not end keeps its place.
        """
        for name, old in past.items():
            if old.state is State.UNKILLABLE:
                old.is_new |= name not in self._static  # then it is forgotten when it is gone
                self.children[name] = old
            elif name in self.children:
                _succeed(self.children[name], old)
            else:
                self._left[name] = old

    def reconfigure(self, spec: SupervisorSpec) -> None:
        """Have other flags and specifications; who was added is not started."""
        self.spec, self.flags = spec, spec.flags
        self.window.max_restarts = spec.flags.max_restarts
        self.window.max_seconds = spec.flags.max_seconds
        self._static |= {one.id for one in spec.children}
        others = dict(self.children)
        self.children.clear()
        for one in spec.children:
            known = others.pop(one.id, None)
            if known is None:
                self.admit(one)
            else:
                known.spec = one
                self.children[one.id] = known
        self.children |= others

    def estate(self) -> Mapping[str, Child]:
        """Return what the next supervisor in this place inherits."""
        return self._left | self.children

    # --- looking ----------------------------------------------------------------------------

    def views(self) -> list[ChildView]:
        """Return what ``which_children`` answers, in start order."""
        return [self.view(child) for child in self.children.values()]

    def view(self, child: Child) -> ChildView:
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

    def counts(self) -> Counts:
        """Return what ``count_children`` answers."""
        supervisors = sum(child.spec.type == "supervisor" for child in self.children.values())
        return Counts(
            specs=len(self.children),
            active=sum(child.state in ALIVE for child in self.children.values()),
            supervisors=supervisors,
            workers=len(self.children) - supervisors,
        )

    def ref(self, child: Child) -> Ref:
        """Return the name of the child's current process."""
        return Ref(self.path, child.spec.id, child.generation)

    # --- starting ---------------------------------------------------------------------------

    def launch(self, child: Child) -> None:
        """Start the child's next generation."""
        self.forget_timers(child)
        self.settle(child, restarting=True)
        child.generation = Incarnation(child.generation + 1)
        child.state, child.handle, child.extra = State.STARTING, None, None
        child.kill_at_s, child.brutal, child.is_kept = math.inf, False, False
        if isinstance(child.spec.start, SupervisorSpec):
            child.below = self.house.employ(self, child, child.spec.start)
            return
        self.house.emit(Launch(self.ref(child), child.spec.start))
        if child.spec.start_timeout is not None:
            self._set(child, Kind.START, child.spec.start_timeout)

    def overdue(self, child: Child) -> None:
        """Kill a child that was not up in time."""
        message = f"not ready within {child.spec.start_timeout:g} s"
        self._kill(child, StartFailed(stage="handshake", message=message))

    # --- ending -----------------------------------------------------------------------------

    def end(
        self, child: Child, why: str, deadline_s: float | None, *, has_grace: bool = True
    ) -> None:
        """Begin to end a child, or hasten its end: within its grace and not after the deadline.

        Without its own grace the deadline alone counts.
        """
        grace_s = child.spec.shutdown if has_grace or deadline_s is None else None
        kill_at_s = math.inf if grace_s is None else self.house.now_s + grace_s
        if deadline_s is not None:
            kill_at_s = min(kill_at_s, deadline_s)
        is_first = child.state is not State.STOPPING
        if Kind.UNKILLABLE in child.timers:  # SIGKILL is under way
            child.state = State.STOPPING
            return
        if not is_first and kill_at_s >= child.kill_at_s:
            return
        child.state, child.kill_at_s = State.STOPPING, kill_at_s
        if child.below is not None:
            child.below.stop(why, None if kill_at_s == math.inf else kill_at_s)
            return
        left_s = kill_at_s - self.house.now_s
        if left_s <= 0:
            child.brutal = is_first
            self._kill(child, None)
            return
        if is_first:
            self.forget_timers(child)
            self.house.emit(Ask(self.ref(child), why))
        if left_s < math.inf:
            self._set(child, Kind.TERM, left_s * TERM_SHARE)
            self._set(child, Kind.KILL, left_s)

    def rung(self, child: Child, kind: Kind) -> None:
        """Take the next rung of an end."""
        if kind is Kind.TERM:
            self.house.emit(Terminate(self.ref(child)))
        else:
            self._kill(child, None)

    def fail(self, child: Child, reason: PlainReason) -> None:
        """Kill a child that nobody asked to end; the limit of SIGKILL holds for it too."""
        if child.state in {State.STARTING, State.UP} and Kind.UNKILLABLE not in child.timers:
            self._kill(child, reason)

    def _kill(self, child: Child, blamed: PlainReason | None) -> None:
        self.forget_timers(child)
        self.house.emit(Kill(self.ref(child), blamed))
        self._set(child, Kind.UNKILLABLE, UNKILLABLE_AFTER_S)

    def clear(self, child: Child, state: State) -> None:
        """Take note that the child has no process any more."""
        self.forget_timers(child)
        child.state, child.handle, child.extra, child.below = state, None, None, None

    # --- timers -----------------------------------------------------------------------------

    def delay(self, child: Child, delay_s: float) -> None:
        """Set the child's back-off."""
        self._set(child, Kind.DELAY, delay_s)

    def forget_timers(self, child: Child) -> None:
        """Cancel what was set for the child."""
        if child.timers:
            for kind in sorted(child.timers):
                self.house.emit(CancelTimer(Timer(self.path, child.spec.id, kind)))
            child.timers.clear()

    def _set(self, child: Child, kind: Kind, delay_s: float) -> None:
        child.timers.add(kind)
        self.house.emit(SetTimer(Timer(self.path, child.spec.id, kind), delay_s))

    # --- answers and reports ----------------------------------------------------------------

    def settle(self, child: Child, *, restarting: bool) -> None:
        """Tell of an end that was to be judged, since what came between has decided."""
        reason, child.unjudged = child.unjudged, None
        if reason is not None:
            self.report_end(child, reason, was_expected=False)
            self.depart(child, reason, restarting=restarting)

    def report_end(self, child: Child, reason: AnyReason, *, was_expected: bool) -> None:
        """Have told how a child ended that was to end, unless it ended as it should."""
        if not (was_expected or isinstance(reason, (Normal, Shutdown))):
            self.report(Label.SHUTDOWN_ERROR, "shutdown_error", child, Fact(reason))

    def depart(
        self,
        child: Child,
        reason: AnyReason,
        *,
        restarting: bool = False,
        asked: bool = False,
        delay_s: float = 0.0,
    ) -> None:
        """Tell that a process of the child is gone; a supervisor tells that itself."""
        child.is_due_back = restarting
        if child.spec.type == WORKER:
            self.house.emit(
                Departed(
                    ref=self.ref(child),
                    reason=reason,
                    restarting=restarting,
                    asked=asked,
                    restarts=child.restarts,
                    delay_s=delay_s,
                )
            )

    def let_down(self, child: Child, why: str) -> None:
        """Tell that a child that is down and was to come back does not."""
        if child.is_due_back and child.state is State.DOWN:
            self.depart(child, Shutdown(detail=why), asked=True)

    def report(self, label: Label, context: str, child: Child, fact: Fact = Fact()) -> None:
        """Have one fact about a child told."""
        self.house.emit(
            Report(
                label=label,
                path=self.path,
                context=context,
                child=child.spec,
                reason=fact.reason,
                handle=child.handle if fact.handle is None else fact.handle,
                generation=child.generation,
                restarts=child.restarts,
                in_window=self.window.count(self.house.now_s),
                max_restarts=self.window.max_restarts,
                next_attempt_s=fact.next_attempt_s,
            )
        )

    def reply(self, call: object, outcome: Outcome, reason: AnyReason | None = None) -> None:
        """Answer a call without a process to tell of."""
        self.house.emit(Replied(call, Answer(outcome, reason)))

    def answer_starts(self, child: Child, outcome: Outcome, reason: AnyReason | None) -> None:
        """Answer who waits for the child's start."""
        child.is_new = False
        if child.starts:
            starts, child.starts = child.starts, []
            answer = Answer(outcome, reason, child.handle, child.extra)
            for call in starts:
                self.house.emit(Replied(call, answer))

    def answer_ends(self, child: Child, outcome: Outcome, reason: AnyReason | None = None) -> None:
        """Answer who waits for the child's end."""
        if child.ends:
            ends, child.ends = child.ends, []
            for call in ends:
                self.reply(call, outcome, reason)


def _succeed(child: Child, old: Child) -> None:
    """Have a child count on from an earlier one of its id."""
    child.generation = max(child.generation, old.generation)
    child.past = old.past
