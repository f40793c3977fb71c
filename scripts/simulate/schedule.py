"""One schedule: what is done to a tree at which moment of its life, until it has ended.

Everything is drawn from one source of chance, in the order in which it comes. To add an input at a
random moment: a method that gives it, and its row in ``_whims``.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from scripts.simulate.audit import Audit, Key
from scripts.simulate.fates import ENDS, Fate
from scripts.simulate.scenes import Scene
from scripts.simulate.world import INPUTS_MAX, Given, World
from supervisor.core.tree.messages import (
    Begin,
    DeleteChild,
    Due,
    HibernateChild,
    KillSupervisor,
    RestartChild,
    StartChild,
    Stop,
    SupervisorPath,
    TerminateChild,
    Timer,
    TimerKind,
    WakeChild,
)
from supervisor.core.tree.specs import WORKER, ChildSpec, SupervisorSpec
from supervisor.core.tree.tree import Tree

HORIZON_S: Final = 20.0
"""When the root is stopped at the latest."""
HURRY_S: Final = 300.0
"""When whoever waits for ever is hurried; everything else is over by then."""
WHIMS: Final = (8, 24)
"""Inputs at random moments, beside those that processes and timers make: at least, and at most."""
HALF: Final = 0.5
"""Of processes that die in a burst, and of ends with a deadline."""
DEADLINE_S_MAX: Final = 10.0
TAKEN_SHARE: Final = 0.2
"""Of children to be added, those whose id somebody has, or had."""
LATER_SHARE: Final = 0.1
"""Of calls to a tree that has ended, those that are made."""
_KINDS: Final = tuple(TimerKind)


class Schedule:
    """A world, and what is done to it."""

    def __init__(self, tree: Tree, scene: Scene, deck: tuple[Fate, ...], chance: Random) -> None:
        """Be about to play one life of ``tree``, which is that of the scene."""
        self.tree, self.audit = tree, Audit(tree, scene.spec)
        self.world = World(tree, self.audit, deck, chance)
        self._added = scene.added
        self._places, self._hosts = list(scene.places), list(scene.hosts)
        self._known = set(scene.places)
        self._random = chance.random
        self._calls = 0

    @property
    def inputs(self) -> int:
        """Return how many the tree was given."""
        return self.world.inputs

    def play(self) -> list[str]:
        """Play it to its end and return what was wrong."""
        push, draw = self.world.push, self._random
        push(0.0, self._begin, None)
        least, most = WHIMS
        whims = self._whims()
        for _ in range(least + int(draw() * (most - least + 1))):
            push(draw() * HORIZON_S, self._whim, whims[int(draw() * len(whims))])
        push((1.0 - draw() * HALF) * HORIZON_S, self._stop, None)
        push(HURRY_S, self._hurry, None)
        self.world.run()
        if self.inputs >= INPUTS_MAX:
            self.audit.wrong(f"no rest after {INPUTS_MAX} inputs")
        elif not self.audit.problems:
            self.audit.close()
        return self.audit.problems

    def _whims(self) -> tuple[Callable[[], Given], ...]:
        """Return what may be done, each as often as it stands here."""
        return (
            *[self._start_child] * 6,
            *[self._burst] * 4,
            *[self._terminate_child] * 2,
            *[self._hibernate_child] * 2,
            *[self._wake_child] * 2,
            *[self._restart_child] * 2,
            self._delete_child,
            self._kill_supervisor,
            self._stray,
        )

    def _whim(self, whim: Callable[[], Given]) -> Given:
        if self.audit.has_ended and self._random() >= LATER_SHARE:
            return None
        return whim()

    def _begin(self, _about: None) -> Given:
        return self.tree.handle(Begin(), self.world.now_s)

    def _stop(self, _about: None) -> Given:
        self.audit.rest()
        self.audit.stopped()
        return self.tree.handle(Stop("stop", self._soon_s()), self.world.now_s)

    def _hurry(self, _about: None) -> Given:
        if self.audit.has_ended:
            return None
        return self.tree.handle(Stop("hurry", self.world.now_s), self.world.now_s)

    def _soon_s(self) -> float | None:
        """Return a deadline, or none."""
        if self._random() < HALF:
            return None
        return self.world.now_s + self._random() * DEADLINE_S_MAX

    # --- at random moments --------------------------------------------------------------------

    def _burst(self) -> Given:
        """Have many die at one instant."""
        for process in self.world.processes.values():
            if process.is_live and self._random() < HALF:
                end = ENDS[int(self._random() * len(ENDS))]
                self.world.ends(process, self.world.now_s, end)
        return None

    def _stray(self) -> Given:
        """Report a timer that is not set."""
        timer = Timer(*self._place(), _KINDS[int(self._random() * len(_KINDS))])
        if timer in self.world.timers:
            return None
        effects = self.tree.handle(Due(timer), self.world.now_s)
        if effects:
            self.audit.wrong(f"{timer} is not set, and its going off led to {effects}")
        return effects

    def _kill_supervisor(self) -> Given:
        path = self._host() or self._host()  # the root is one of many, and all ends with it
        self.audit.killed(path)
        return self.tree.handle(KillSupervisor(path), self.world.now_s)

    def _start_child(self) -> Given:
        path = self._host()
        spec = self._added[int(self._random() * len(self._added))]
        if spec.type == WORKER and self._random() < TAKEN_SHARE:
            name = self._place()[1]
            if any(key == (path, name) for _, key in self.audit.calls.values()):
                return None  # it may come and go before this call has its turn
            spec = replace(spec, id=name, generation=self.audit.generation((path, name)))
        elif (path, spec.id) in self._known:
            spec = replace(spec, id=f"{spec.id}.{self._calls}")
        self._expect(path, spec)
        self.audit.expect(spec, path)
        self._calls += 1
        self.audit.called(self._calls, "start", (path, spec.id))
        return self.tree.handle(StartChild(path, spec, self._calls), self.world.now_s)

    def _expect(self, path: SupervisorPath, spec: ChildSpec) -> None:
        """Record who may be there from now on."""
        place = (path, spec.id)
        if place in self._known:
            return
        self._known.add(place)
        self._places.append(place)
        if isinstance(spec.start, SupervisorSpec):
            below = (*path, spec.id)
            self._hosts.append(below)
            for child in spec.start.children:
                self._expect(below, child)

    def _terminate_child(self) -> Given:
        (path, child), call = self._called("terminate")
        given = TerminateChild(path, child, call, "away", self._soon_s())
        return self.tree.handle(given, self.world.now_s)

    def _hibernate_child(self) -> Given:
        (path, child), call = self._called("hibernate")
        given = HibernateChild(path, child, call, "sleep", self._soon_s())
        return self.tree.handle(given, self.world.now_s)

    def _restart_child(self) -> Given:
        (path, child), call = self._called("restart")
        return self.tree.handle(RestartChild(path, child, call), self.world.now_s)

    def _wake_child(self) -> Given:
        (path, child), call = self._called("wake")
        return self.tree.handle(WakeChild(path, child, call), self.world.now_s)

    def _delete_child(self) -> Given:
        (path, child), call = self._called("delete")
        return self.tree.handle(DeleteChild(path, child, call), self.world.now_s)

    def _called(self, kind: str) -> tuple[Key, int]:
        self._calls += 1
        key = self._place()
        self.audit.called(self._calls, kind, key)
        return key, self._calls

    def _place(self) -> Key:
        return self._places[int(self._random() * len(self._places))]

    def _host(self) -> SupervisorPath:
        return self._hosts[int(self._random() * len(self._hosts))]
