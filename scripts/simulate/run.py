"""Many schedules by one seed, how fast they went, and what was wrong with which.

A schedule depends on the seed and its number alone, so one that was wrong is played again, with
everything that its tree is given written down.
"""

import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from scripts.simulate.fates import TEMPERS, Fate, deck
from scripts.simulate.scenes import Scene, Stock, stock
from scripts.simulate.schedule import Schedule
from supervisor.core.tree.recording import RecordedTree
from supervisor.core.tree.tree import Tree

NUMBERS: Final = 2**40
"""More than there are schedules of one seed."""
SHOWN_MAX: Final = 20
"""Schedules that are kept as wrong; all are counted."""
MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Violation:
    """A schedule that was wrong, and why."""

    number: int
    problems: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """What came of a run."""

    seed: int
    schedules: int = 0
    inputs: int = 0
    seconds: float = 0.0
    """Of one core, whatever else the machine did."""
    wrong: int = 0
    violations: list[Violation] = field(default_factory=list)

    @property
    def per_minute(self) -> float:
        """Return how many schedules one core plays in a minute."""
        return self.schedules / self.seconds * MINUTE_S if self.seconds else 0.0


class Simulation:
    """The stock of one seed, and schedules from it."""

    def __init__(self, seed: int) -> None:
        """Make the trees and the fates of a seed."""
        chance = Random(seed)  # noqa: S311 - to repeat a run, not to hide one
        self.seed = seed
        self._decks = [deck(temper, chance) for temper in TEMPERS]
        self._stock: Stock = stock(chance)

    def run(self, numbers: Iterable[int]) -> Result:
        """Play these schedules."""
        result = Result(self.seed)
        started_s = time.process_time()
        for number in numbers:
            self._play(number, result)
        result.seconds = time.process_time() - started_s
        return result

    def record(self, number: int, note: str = "") -> list[bytes]:
        """Play a schedule again and return everything that its tree was given, as lines."""
        scene, fates, chance = self._dealt(number)
        tree = RecordedTree(scene.spec)
        _problems(Schedule(tree, scene, fates, chance))
        return list(tree.recorder.lines(note))

    def _play(self, number: int, result: Result) -> None:
        scene, fates, chance = self._dealt(number)
        schedule = Schedule(Tree(scene.spec), scene, fates, chance)
        problems = _problems(schedule)
        result.schedules += 1
        result.inputs += schedule.inputs
        if problems:
            result.wrong += 1
            if len(result.violations) < SHOWN_MAX:
                result.violations.append(Violation(number, tuple(problems)))

    def _dealt(self, number: int) -> tuple[Scene, tuple[Fate, ...], Random]:
        """Return what one schedule begins with."""
        chance = Random(self.seed * NUMBERS + number)  # noqa: S311 - to repeat it
        scene = self._stock.scene(chance)
        return scene, self._decks[int(chance.random() * len(self._decks))], chance


def incident(simulation: Simulation, violation: Violation, folder: Path) -> Path:
    """Write down a schedule that was wrong and return where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"schedule-{simulation.seed}-{violation.number}.jsonl"
    lines = simulation.record(violation.number, violation.problems[0])
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def _problems(schedule: Schedule) -> list[str]:
    """Play a schedule; a tree that raises is wrong, whatever it raises."""
    try:
        return schedule.play()
    except Exception:  # noqa: BLE001 - as the first line says
        return [*schedule.audit.problems, traceback.format_exc()]
