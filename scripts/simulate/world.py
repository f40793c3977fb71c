"""A tree on a virtual clock, with processes that do what their fates say.

All that is to come stands in one heap, ordered by time and then by when it was put there. So the
same seed plays the same schedule, whatever the machine does meanwhile.

What is done to the tree at random moments stands in ``schedule``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, TypeAlias

from cmdc_runtime.ids import Incarnation
from scripts.simulate.audit import Audit, Key
from scripts.simulate.fates import KILLED, TERMINATED, End, Fate, Rung, Start
from supervisor.core.tree.messages import (
    Ask,
    CancelTimer,
    ChildExited,
    Due,
    Effect,
    Ending,
    Ignored,
    Kill,
    Launch,
    Ref,
    SetTimer,
    Terminate,
    Timer,
    Up,
)
from supervisor.core.tree.tree import Tree

INPUTS_MAX: Final = 1_000
"""Of one schedule; with more it would never come to rest."""
LATE_SHARE: Final = 0.1
"""Of timers, which go off when the machine finds the time."""
LATE_S_MAX: Final = 1.0

Given: TypeAlias = list[Effect] | None
"""What came of an input; None where there was none."""


@dataclass(slots=True, eq=False)
class Process:
    """One process as the operating system knows it."""

    ref: Ref
    fate: Fate
    is_live: bool = True
    is_killed: bool = False
    ends_s: float = float("inf")


class World:
    """A tree, its processes, its timers and what is done to it."""

    def __init__(self, tree: Tree, audit: Audit, deck: tuple[Fate, ...], chance: Random) -> None:
        """Be about to begin; ``deck`` is what its processes are dealt from."""
        self.tree, self.audit, self.deck = tree, audit, deck
        self.inputs = 0
        self.random = chance.random
        self.now_s = 0.0
        # Any: what is due then, and what it is about
        self._heap: list[tuple[float, int, Callable[[Any], Given], Any]] = []
        self._pushed = 0
        self.processes: dict[Key, Process] = {}
        self.timers: dict[Timer, int] = {}
        performed: dict[type[Any], Callable[[Any], None]] = {  # Any: each its own class
            Launch: self._launch,
            Ask: self._ask,
            Terminate: self._terminate,
            Kill: self._kill,
            SetTimer: self._set,
            CancelTimer: self._cancel,
        }
        self._acts = {
            kind: (see, performed[kind]) if kind in performed else (see,)
            for kind, see in audit.see.items()
        }
        """Who gets an effect, by its class: the audit first."""

    def run(self) -> None:
        """Do what is due, in its order, until nothing is left or something is wrong."""
        heap, audit, acts, problems = self._heap, self.audit, self._acts, self.audit.problems
        while heap and self.inputs < INPUTS_MAX and not problems:
            self.now_s, _, given, about = heappop(heap)
            audit.now_s = self.now_s
            effects = given(about)
            if effects is None:
                continue
            self.inputs += 1
            for effect in effects:
                for act in acts[type(effect)]:
                    act(effect)
            if audit.enders:
                audit.note_enders()

    def push(self, at_s: float, given: Callable[[Any], Given], about: object) -> int:
        """Have an input given at a time, and return its number."""
        self._pushed += 1
        heappush(self._heap, (at_s, self._pushed, given, about))
        return self._pushed

    # --- effects ----------------------------------------------------------------------------

    def _launch(self, effect: Launch) -> None:
        ref = effect.ref
        fate = self.deck[int(self.random() * len(self.deck))]
        process = self.processes[ref[:2]] = Process(ref, fate)
        at_s = self.now_s + fate.start_s
        match fate.start:
            case Start.UP:
                self.push(at_s, self._up, process)
                if fate.life_s is not None:
                    self.ends(process, at_s + fate.life_s, fate.end)
            case Start.FAILS:
                self.ends(process, at_s, fate.failure)
            case Start.IGNORES:
                self.push(at_s, self._ignored, process)
            case Start.HANGS:
                pass

    def _ask(self, effect: Ask) -> None:
        self._asked(effect.ref, Rung.ASK, None)

    def _terminate(self, effect: Terminate) -> None:
        self._asked(effect.ref, Rung.TERM, TERMINATED)

    def _kill(self, effect: Kill) -> None:
        fail_reason = effect.fail_reason
        self._asked(
            effect.ref, Rung.KILL, KILLED if fail_reason is None else (fail_reason, Ending.CRASH)
        )

    def _asked(self, ref: Ref, rung: Rung, end: End | None) -> None:
        process = self.processes.get(ref[:2])
        if process is None or process.ref != ref or not process.is_live:
            return  # the audit says that
        process.is_killed |= rung is Rung.KILL
        fate = process.fate
        if fate.yields_to <= rung:
            self.ends(process, self.now_s + fate.obeys_s, end or fate.farewell)

    def ends(self, process: Process, at_s: float, end: End) -> None:
        """Have a process end at a time, unless it ends before."""
        if at_s < process.ends_s:
            process.ends_s = at_s
            self.push(at_s, self._exited, (process, end))

    def _set(self, effect: SetTimer) -> None:
        at_s = self.now_s + effect.delay_s
        if self.random() < LATE_SHARE:
            at_s += self.random() * LATE_S_MAX
        self.timers[effect.timer] = self.push(at_s, self._due, (effect.timer, self._pushed + 1))

    def _cancel(self, effect: CancelTimer) -> None:
        self.timers.pop(effect.timer, None)

    # --- what processes and timers report -----------------------------------------------------

    def _up(self, process: Process) -> Given:
        if not process.is_live:
            return None
        self.audit.ready(process.ref)
        return self.tree.handle(Up(process.ref, "handle"), self.now_s)

    def _ignored(self, process: Process) -> Given:
        if not process.is_live or process.is_killed:
            return None
        process.is_live = False
        self.audit.ignored(process.ref)
        return self.tree.handle(Ignored(process.ref), self.now_s)

    def _exited(self, about: tuple[Process, End]) -> Given:
        process, (reason, ending) = about
        if not process.is_live:
            return None
        process.is_live = False
        ref = process.ref
        fate = process.fate
        if fate.is_doubled:
            self.push(self.now_s + fate.obeys_s, self._again, (ref, reason, ending))
        if fate.is_confused:
            before = ref._replace(generation=Incarnation(ref.generation - 1))
            self.push(self.now_s, self._again, (before, reason, ending))
        record = f"record of {ref}"
        self.audit.gone(ref, record)
        return self.tree.handle(ChildExited(ref, reason, ending, record), self.now_s)

    def _again(self, fact: tuple[Ref, Any, Ending]) -> Given:
        """Report an end that was reported before, or one of long ago."""
        ref, reason, ending = fact
        return self.tree.handle(ChildExited(ref, reason, ending, record="late"), self.now_s)

    def _due(self, about: tuple[Timer, int]) -> Given:
        timer, number = about
        if self.timers.get(timer) != number:
            return None
        del self.timers[timer]
        self.audit.timers.discard(timer)
        return self.tree.handle(Due(timer), self.now_s)
