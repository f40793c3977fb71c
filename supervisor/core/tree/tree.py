"""The whole tree: who is where, calls by path, and one step at a time. Pure.

``handle`` takes one input with the monotonic time and returns the effects in the order in which
they are to be performed. Signals between supervisors are handled within the same step.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.reasons import Other
from supervisor.core.tree.children import ALIVE, TreeChild, TreeStep
from supervisor.core.tree.messages import (
    Begin,
    CallResult,
    ChildExited,
    ChildState,
    ChildView,
    DeleteChild,
    Due,
    Effect,
    End,
    Fail,
    HibernateChild,
    Ignored,
    Input,
    KillSupervisor,
    Label,
    Outcome,
    Reconfigure,
    Ref,
    Replied,
    Report,
    RestartChild,
    StartChild,
    Stop,
    SupervisorPath,
    TerminateChild,
    Up,
    WakeChild,
)
from supervisor.core.tree.specs import (
    ChildSpec,
    Strategy,
    SupervisorSpec,
    child_problems,
    significance_problems,
    spec_problems,
)
from supervisor.core.tree.supervisor import CALLS_WAITING_MAX, Signals, Supervisor

ROOT: Final[SupervisorPath] = ()


class Tree:
    """A supervisor and all that is below it."""

    def __init__(self, spec: SupervisorSpec) -> None:
        """Be the tree of ``spec``, not yet started.

        Raises:
            InvalidOptions: with one line for each problem.
        """
        problems = spec_problems(spec)
        if problems:
            raise InvalidOptions(problems)
        self._current = TreeStep()
        self.end: End | None = None
        """How the root ended, None while it has not."""
        self._signals: deque[Callable[[], None]] = deque()
        self._supervisors: dict[SupervisorPath, Supervisor] = {}
        signals = Signals(lambda: None, self._root_ended, partial(self._begin_below, ROOT))
        self._supervisors[ROOT] = Supervisor(self._current, ROOT, spec, signals)

    # --- inputs -----------------------------------------------------------------------------

    def handle(self, given: Input, now_s: float) -> list[Effect]:
        """Take one input at the monotonic time ``now_s`` and return what is to be done.

        Raises:
            InvalidOptions: with one line for each problem of a specification in it; nothing was
                changed.
        """
        return self.HANDLERS[type(given)](self, given, now_s)

    def _begin(self, _given: Begin, now_s: float) -> list[Effect]:
        return self._step(now_s, self._supervisors[ROOT].begin)

    def _up(self, given: Up, now_s: float) -> list[Effect]:
        handle, extra = given.handle, given.extra
        return self._about(given.ref, now_s, lambda sup, child: sup.up(child, handle, extra))

    def _ignored(self, given: Ignored, now_s: float) -> list[Effect]:
        return self._about(given.ref, now_s, lambda sup, child: sup.ignored(child))

    def _exited(self, given: ChildExited, now_s: float) -> list[Effect]:
        def work(supervisor: Supervisor, child: TreeChild) -> None:
            if child.state in ALIVE:  # a second exit of it is none of its own
                child.record = given.record
            supervisor.exited(child, given.reason, given.ending)

        left = self._left_behind(given.ref)
        if left is not None:
            left.state = ChildState.DOWN
            return []
        return self._about(given.ref, now_s, work)

    def _fail(self, given: Fail, now_s: float) -> list[Effect]:
        return self._about(
            given.ref, now_s, lambda sup, child: sup.children.fail(child, given.reason)
        )

    def _due(self, given: Due, now_s: float) -> list[Effect]:
        timer = given.timer
        supervisor = self._supervisors.get(timer.path)
        child = supervisor.children.get(timer.child) if supervisor is not None else None
        if supervisor is None or child is None or timer.kind not in child.timers:
            return []
        return self._step(now_s, lambda: supervisor.due(child, timer.kind))

    def _stop(self, given: Stop, now_s: float) -> list[Effect]:
        root = self._supervisors[ROOT]
        return self._step(now_s, lambda: root.stop(given.why, given.deadline_s))

    def _kill(self, given: KillSupervisor, now_s: float) -> list[Effect]:
        supervisor = self._supervisors.get(given.path)
        return [] if supervisor is None else self._step(now_s, supervisor.killed)

    # --- calls: each is answered by one ``Replied`` -----------------------------------------

    def _start_child(self, given: StartChild, now_s: float) -> list[Effect]:
        spec, call = given.spec, given.call
        supervisor = self._supervisors.get(given.path)
        problems = child_problems(spec)
        if supervisor is not None:
            problems += significance_problems(supervisor.flags, spec)
        if problems:
            raise InvalidOptions(problems)
        return self._call(given.path, call, now_s, lambda sup: self._add(sup, spec, call))

    def _terminate_child(self, given: TerminateChild, now_s: float) -> list[Effect]:
        def work(supervisor: Supervisor) -> None:
            child = supervisor.children.get(given.child)
            if child is None:
                supervisor.children.reply(given.call, Outcome.NOT_FOUND)
                return
            child.is_kept = False
            child.ends.append(given.call)
            supervisor.terminate(child, given.why, given.deadline_s)

        return self._call(given.path, given.call, now_s, work)

    def _hibernate_child(self, given: HibernateChild, now_s: float) -> list[Effect]:
        def work(supervisor: Supervisor) -> None:
            child = supervisor.children.get(given.child)
            if child is None or child.state is not ChildState.UP:
                outcome = Outcome.NOT_FOUND if child is None else Outcome.RESTARTING
                supervisor.children.reply(given.call, outcome)
                return
            if child.spec.start is None:
                cause = Other(
                    detail="a temporary child that was added is not kept: it can't hibernate"
                )
                supervisor.children.reply(given.call, Outcome.ERROR, cause)
                return
            child.is_kept = True
            child.ends.append(given.call)
            supervisor.terminate(child, given.why, given.deadline_s)

        return self._call(given.path, given.call, now_s, work)

    def _restart_child(self, given: RestartChild, now_s: float) -> list[Effect]:
        return self._restart(given, now_s, is_woken=False)

    def _wake_child(self, given: WakeChild, now_s: float) -> list[Effect]:
        return self._restart(given, now_s, is_woken=True)

    def _delete_child(self, given: DeleteChild, now_s: float) -> list[Effect]:
        def work(supervisor: Supervisor) -> None:
            child = supervisor.children.get(given.child)
            outcome = _presence(child)
            if child is not None and outcome is Outcome.OK:
                supervisor.children.drop(child)
            supervisor.children.reply(given.call, outcome)

        return self._call(given.path, given.call, now_s, work)

    def _reconfigure(self, given: Reconfigure, now_s: float) -> list[Effect]:
        path, spec = given.path, given.spec
        problems = spec_problems(spec)
        supervisor = self._supervisors.get(path)
        if supervisor is None or supervisor.is_leaving:
            problems.append(f"there is no supervisor at {'/'.join(path) or 'the root'}")
        else:
            problems += _change_problems(supervisor, spec)
        if problems or supervisor is None:
            raise InvalidOptions(problems)
        spec = replace(spec, flags=replace(spec.flags, resumes=supervisor.flags.resumes))
        if path:
            self._hand_up(path, spec)
        return self._step(now_s, lambda: supervisor.reconfigure(spec))

    # --- views ------------------------------------------------------------------------------

    def which_children(self, path: SupervisorPath = ROOT) -> list[ChildView] | None:
        """Return the children of a supervisor in start order, None where there is none."""
        supervisor = self._supervisors.get(path)
        return None if supervisor is None else supervisor.children.views()

    def child(self, path: SupervisorPath, child_id: str) -> ChildView | None:
        """Return one child of a supervisor."""
        supervisor = self._supervisors.get(path)
        child = None if supervisor is None else supervisor.children.get(child_id)
        return None if supervisor is None or child is None else supervisor.children.view(child)

    # --- supervisors below supervisors ------------------------------------------------------

    def _begin_below(
        self, above_path: SupervisorPath, child: TreeChild, spec: SupervisorSpec
    ) -> Supervisor:
        """Return the supervisor of ``child``, which begins within this step."""
        path = (*above_path, child.spec.id)
        generation = child.generation
        above = self._supervisors[above_path]

        def signal(work: Callable[[], None]) -> None:
            self._signals.append(lambda: work() if child.generation == generation else None)

        def on_end(end: End) -> None:
            child.past = self._supervisors.pop(path).children.estate()
            signal(lambda: above.exited(child, end.reason, end.ending))

        signals = Signals(
            lambda: signal(lambda: above.up(child, None, None)),
            on_end,
            partial(self._begin_below, path),
        )
        below = Supervisor(self._current, path, spec, signals)
        below.children.inherit(child.past)
        child.past = {}
        self._supervisors[path] = below
        self._signals.append(below.begin)
        return below

    # --- steps ------------------------------------------------------------------------------

    def _step(self, now_s: float, work: Callable[[], None]) -> list[Effect]:
        self._current.now_s = now_s
        work()
        while self._signals:
            self._signals.popleft()()
        return self._current.take()

    def _about(
        self, ref: Ref, now_s: float, work: Callable[[Supervisor, TreeChild], None]
    ) -> list[Effect]:
        supervisor = self._supervisors.get(ref.path)
        child = supervisor.children.get(ref.child) if supervisor is not None else None
        if supervisor is None or child is None or child.generation != ref.generation:
            return [
                Report(
                    label=Label.UNEXPECTED,
                    path=ref.path,
                    context=f"{ref.child}, generation {ref.generation}, is not known",
                    child=None if child is None else child.spec,
                    generation=ref.generation,
                )
            ]
        return self._step(now_s, lambda: work(supervisor, child))

    def _hand_up(self, path: SupervisorPath, spec: SupervisorSpec) -> None:
        """Have a specification hold when its supervisor, or one above it, is restarted."""
        above = self._supervisors[path[:-1]]
        child = above.children[path[-1]]
        child.spec = replace(child.spec, start=spec)
        children = tuple(child.spec if one.id == path[-1] else one for one in above.spec.children)
        above.spec = replace(above.spec, children=children)
        if path[:-1]:
            self._hand_up(path[:-1], above.spec)

    def _left_behind(self, ref: Ref) -> TreeChild | None:
        """Return the child of a process that SIGKILL did not end, while its supervisor is gone."""
        depth = len(ref.path)
        while ref.path[:depth] not in self._supervisors:
            depth -= 1
        if depth == len(ref.path):
            return None
        children = self._supervisors[ref.path[:depth]].children.estate()
        for name in ref.path[depth:]:
            above = children.get(name)
            children = {} if above is None else above.past
        child = children.get(ref.child)
        if child is None or child.generation != ref.generation:
            return None
        return child if child.state is ChildState.UNKILLABLE else None

    def _call(
        self, path: SupervisorPath, call: object, now_s: float, work: Callable[[Supervisor], None]
    ) -> list[Effect]:
        supervisor = self._supervisors.get(path)
        if supervisor is None or supervisor.is_leaving:
            return [Replied(call, CallResult(Outcome.NO_PROCESS))]
        busy = Other(detail=f"{CALLS_WAITING_MAX} calls wait for a group restart already")

        def ask() -> None:
            if not supervisor.when_idle(lambda: work(supervisor), call):
                supervisor.children.reply(call, Outcome.ERROR, busy)

        return self._step(now_s, ask)

    def _add(self, supervisor: Supervisor, spec: ChildSpec, call: object) -> None:
        known = supervisor.children.get(spec.id)
        bound = supervisor.flags.max_children
        if known is not None:
            is_there = known.state is not ChildState.DOWN
            outcome = Outcome.ALREADY_STARTED if is_there else Outcome.ALREADY_PRESENT
            self._current.emit(Replied(call, CallResult(outcome, handle=known.handle)))
        elif bound is not None and len(supervisor.children) >= bound:
            supervisor.children.reply(call, Outcome.MAX_CHILDREN)
        else:
            supervisor.start(supervisor.children.admit(spec), call, is_new=True)

    def _restart(
        self, given: RestartChild | WakeChild, now_s: float, *, is_woken: bool
    ) -> list[Effect]:
        def work(supervisor: Supervisor) -> None:
            child = supervisor.children.get(given.child)
            outcome = _presence(child)
            if child is None or outcome is not Outcome.OK:
                supervisor.children.reply(given.call, outcome)
            elif is_woken:
                supervisor.wake(child)
                supervisor.children.reply(given.call, Outcome.OK)
            else:
                supervisor.start(child, given.call, is_new=False)

        return self._call(given.path, given.call, now_s, work)

    def _root_ended(self, end: End) -> None:
        self.end = end

    # fmt: off
    # Any: each handler takes the class of input that is its key.
    HANDLERS: ClassVar[Mapping[type[Input], Callable[["Tree", Any, float], list[Effect]]]] = {
        Begin:          _begin,
        Up:             _up,
        Ignored:        _ignored,
        ChildExited:    _exited,
        Fail:           _fail,
        Due:            _due,
        Stop:           _stop,
        KillSupervisor: _kill,
        StartChild:     _start_child,
        TerminateChild: _terminate_child,
        HibernateChild: _hibernate_child,
        RestartChild:   _restart_child,
        WakeChild:      _wake_child,
        DeleteChild:    _delete_child,
        Reconfigure:    _reconfigure,
    }
    # fmt: on
    """What each input does."""


def _presence(child: TreeChild | None) -> Outcome:
    """Return OK for a child that is down, and what it is otherwise."""
    if child is None:
        return Outcome.NOT_FOUND
    if child.state is ChildState.DOWN:
        return Outcome.OK
    return Outcome.RESTARTING if child.state is ChildState.RESTARTING else Outcome.RUNNING


def _change_problems(supervisor: Supervisor, spec: SupervisorSpec) -> Iterator[str]:
    """Yield what of ``spec`` no running supervisor can become."""
    if (spec.flags.strategy is Strategy.DYNAMIC) is not supervisor.is_dynamic:
        yield f"strategy: {supervisor.flags.strategy} can't become {spec.flags.strategy}"
    for one in spec.children:
        known = supervisor.children.get(one.id)
        if known is not None and known.spec.type != one.type:
            yield f"child {one.id!r}: a {known.spec.type} can't become a {one.type}"
