"""The work of one supervisor on several children at once, and its own start and end. Pure.

OTP's supervisor does one thing at a time. Where children are independent (one_for_one, dynamic)
this one is quicker: a child that is slow to start holds up nobody. Where they are not, a group
restart is one piece of work, ``Regroup``: end them in reverse, start them in order. Calls and exits
that come meanwhile wait for the end of it. A restart that is put off, for a back-off or because the
last attempt failed, is no work: calls and exits are served until its timer goes off. A stop
outranks all, and nothing is started after it.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cmdc_runtime.reasons import AnyReason, Shutdown, Signal
from supervisor.core.tree.messages import (
    SUBTREE_SHARE,
    Ending,
    Outcome,
    Path,
    State,
    SupervisorEnded,
    SupervisorUp,
)
from supervisor.core.tree.roster import ALIVE, Child, House, Roster
from supervisor.core.tree.specs import Strategy, SupervisorSpec

CALLS_WAITING_MAX: Final = 10_000
"""Calls that wait for a group restart; the next one is refused."""
SIBLING_ENDED: Final = "a sibling ended"
"""Why a child is stopped by a group restart."""
SIGKILL: Final = 9


class Mode(StrEnum):
    """Where the supervisor itself stands."""

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    ENDED = "ended"


class Stage(StrEnum):
    """How far a group restart is."""

    ENDING = "ending"
    STARTING = "starting"


@dataclass(frozen=True, slots=True)
class End:
    """How a supervisor ends; ``cause`` is the last word of the child that it ends for."""

    reason: AnyReason
    cause: AnyReason
    ending: Ending


@dataclass(slots=True)
class Regroup:
    """A group restart, or the start of some children, which has nothing to end.

    Each member is looked at once to be ended and once to be started, so that the work grows with
    their number and not with its square.
    """

    members: dict[str, None]
    """In start order."""
    stage: Stage = Stage.STARTING
    failed: str | None = None
    """Whose exit it is for."""
    put_off_s: float | None = None
    """How long to wait between the two stages; with 0 the calls that wait have their turn."""
    is_first: bool = False
    """The supervisor's own start: one child that fails fails it."""
    current: Child | None = None
    """Who was started last; the next one follows when it is up."""
    to_end: list[str] = field(init=False)
    to_start: deque[str] = field(init=False)

    def __post_init__(self) -> None:
        """Have everything to do."""
        self.to_end, self.to_start = list(self.members), deque(self.members)

    @classmethod
    def start_of(cls, names: Iterable[str], *, is_first: bool = False) -> "Regroup":
        """Return the start of these children in their order."""
        return cls(dict.fromkeys(names), is_first=is_first)


class Crew(Roster):
    """Children that are started, restarted and ended together."""

    def __init__(
        self,
        house: House,
        path: Path,
        spec: SupervisorSpec,
        on_up: Callable[[], None],
        on_end: Callable[[End], None],
    ) -> None:
        """Be about to start; ``begin`` starts the children."""
        super().__init__(house, path, spec)
        self.mode = Mode.STARTING
        self.work: Regroup | None = None
        self.put_off: str | None = None
        """Who waits to be restarted together with its group."""
        self._on_up, self._on_end = on_up, on_end
        self._deadline_s: float | None = None
        self._why = ""
        self._end: End | None = None
        self._to_stop: list[Child] = []
        self._waiting: deque[tuple[Callable[[], None], object]] = deque()

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
        return self.work is not None or self.mode is Mode.STARTING

    # --- its own start and end --------------------------------------------------------------

    def begin(self) -> None:
        """Start the children, in order."""
        if self.mode is not Mode.STARTING or self.work is not None:
            return  # it was stopped before it began, or it has begun
        if not self.flags.resumes:
            self.work = Regroup.start_of(self.children, is_first=True)
            self.go_on()
            return
        self._rise()
        if self.is_grouped:
            self.work = Regroup.start_of(self.children)
            self.go_on()
            return
        for child in list(self.children.values()):
            if child.state is State.DOWN:
                self.launch(child)

    def stop(self, why: str, deadline_s: float | None) -> None:
        """End all children and then the supervisor, or hasten that."""
        if deadline_s is not None:
            self._deadline_s = min(
                deadline_s, math.inf if self._deadline_s is None else self._deadline_s
            )
        if self.mode is Mode.STOPPING:
            for child in self._to_stop:
                if child.state is State.STOPPING:
                    self.end(child, self._why, self._deadline_of(child))
            return
        stopped = Shutdown(detail=why)
        self.leave(End(stopped, stopped, Ending.NORMAL), why)

    def killed(self) -> None:
        """End as by SIGKILL: everything below is killed at once, nobody is asked."""
        reason = Signal(number=SIGKILL, name="SIGKILL")
        self._deadline_s = self.house.now_s
        self.leave(End(reason, reason, Ending.CRASH), "")
        for child in list(self.children.values()):
            if child.below is not None:
                child.below.killed()
            elif child.state in ALIVE:
                self.end(child, "", self.house.now_s)

    def leave(self, end: End, why: str) -> None:
        """Begin to end: nothing is started any more."""
        if self.mode in {Mode.STOPPING, Mode.ENDED}:
            return
        self.mode, self._end, self._why = Mode.STOPPING, end, why
        self.work = self.put_off = None
        waiting, self._waiting = self._waiting, deque()
        for _, call in waiting:
            if call is not None:
                self.reply(call, Outcome.NO_PROCESS)
        for child in list(self.children.values()):
            if child.state is State.RESTARTING:
                self.call_off(child, why)
            self.let_down(child, why)
        self._to_stop = list(self.children.values())
        if self.is_dynamic:
            for child in self._to_stop:
                self._end_with_all(child)
        self._wind_down()

    def call_off(self, child: Child, why: str) -> None:
        """Let a child that was to be restarted be."""
        if self.put_off == child.spec.id:
            self.put_off = None
            for other in self.children.values():
                self.let_down(other, why)
        self.clear(child, State.DOWN)
        self.settle(child, restarting=False)
        self.let_down(child, why)
        self.answer_ends(child, Outcome.OK)
        self.forget_if_done(child)

    def forget_if_done(self, child: Child) -> None:
        """Drop the specification of a child that is down and that nobody will start again."""
        is_one_off = child.spec.restart == "temporary" or self.is_dynamic
        if is_one_off and child.state is State.DOWN and not child.is_kept:
            self.drop(child)

    def _rise(self) -> None:
        self.mode = Mode.UP
        self.house.emit(SupervisorUp(self.path))
        self._on_up()

    def _wind_down(self) -> None:
        """End the next child; the supervisor ends behind the last."""
        while self._to_stop:
            child = self._to_stop[-1]
            if child.state in ALIVE:
                self._end_with_all(child)
                return
            self._to_stop.pop()
        if self.mode is Mode.STOPPING:
            assert self._end is not None  # noqa: S101 - set by ``leave``
            self.mode = Mode.ENDED
            self.house.emit(SupervisorEnded(self.path, self._end.reason, self._end.cause))
            self._on_end(self._end)

    def _end_with_all(self, child: Child) -> None:
        if child.state in ALIVE:  # one that is being ended already may have to hurry
            why = self.flags.stop_reason or self._why
            self.end(child, why, self._deadline_of(child))

    def _deadline_of(self, child: Child) -> float | None:
        """Return until when a child must be gone, so that those after it have a share."""
        deadline_s, now_s = self._deadline_s, self.house.now_s
        is_followed = not self.is_dynamic and child is not self._to_stop[0]
        if deadline_s is None or child.below is None or not is_followed:
            return deadline_s
        return now_s + (deadline_s - now_s) * SUBTREE_SHARE

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

    def group_of(self, child: Child) -> tuple[str, ...]:
        """Return who is restarted with a child, in start order."""
        ids = tuple(self.children)
        if self.flags.strategy is Strategy.ONE_FOR_ALL:
            return ids
        # A group that was to be started is part of this one now.
        others = () if self.work is None else self.work.to_start
        waiting = {child.spec.id, self.put_off, *others}
        return tuple(itertools.dropwhile(lambda name: name not in waiting, ids))

    def regroup(self, child: Child, put_off_s: float | None) -> None:
        """Restart the group of a child that is gone; who was put off before is part of it."""
        members = dict.fromkeys(self.group_of(child))
        first = child
        if self.put_off in members and self.flags.strategy is Strategy.REST_FOR_ONE:
            # The group is known by the first who failed, or it would be smaller the next time.
            failed = (child.spec.id, self.put_off)
            first = self.children[next(name for name in members if name in failed)]
        self.put_off = None
        self.forget_timers(first)
        for one in (self.children[name] for name in members):
            if one is not first and one.state is State.RESTARTING and one.unjudged is None:
                self.clear(one, State.DOWN)  # it comes back with this group now
        self.work = Regroup(members, Stage.ENDING, first.spec.id, put_off_s)
        self.go_on()

    def go_on(self) -> None:
        """Do the next piece of what is under way."""
        if self.mode is Mode.STOPPING:
            self._wind_down()
        work = self.work
        if work is None:
            return
        if work.stage is Stage.ENDING:
            self._end_members(work)
        if work.stage is not Stage.STARTING or self._start_next(work):
            return
        self.work = None
        if work.is_first:
            self._rise()
        self._serve()

    def _end_members(self, work: Regroup) -> None:
        """Ask the last member that lives to end; when none is left the next stage begins."""
        while work.to_end:
            child = self.children.get(work.to_end[-1])
            if child is not None and child.state in ALIVE:
                if child.state is not State.STOPPING:
                    self.end(child, self.flags.stop_reason or SIBLING_ENDED, None)
                return
            if work.to_end.pop() != work.failed and child is not None:
                self._dismiss(child)
        if work.put_off_s is None or work.failed is None:
            work.stage = Stage.STARTING
            return
        self.put_off, self.work = work.failed, None
        self.delay(self.children[work.failed], work.put_off_s)
        self._serve()

    def _dismiss(self, bystander: Child) -> None:
        """Let a temporary child go whose end nobody has judged: it is not started again."""
        if bystander.spec.restart == "temporary" and bystander.state is State.RESTARTING:
            self.call_off(bystander, SIBLING_ENDED)

    def _start_next(self, work: Regroup) -> bool:
        """Start the next member once the one before is up; False: nothing is left to do."""
        if work.current is not None and work.current.state is State.STARTING:
            return True
        while work.to_start:
            child = self.children.get(work.to_start.popleft())
            if child is not None and child.state in {State.DOWN, State.RESTARTING}:
                work.current = child
                self.launch(child)
                return True
        return False

    def _serve(self) -> None:
        """Do what had to wait, until something is under way again."""
        while self._waiting and not self.is_busy and self.mode is Mode.UP:
            work, _ = self._waiting.popleft()
            work()
