"""The cells of the crash matrix, and which of them must be reached.

A cell is one play: somebody dies at a pass of a point. Where the plays are shown, all passes of a
write stand in one place of a table. A place whose plays all end without the death is not reached,
and then says nothing. That is right only where nobody can be there, for one of the reasons in
``ABSENCES``: every other one is played again, alone, and is a mistake if that does not reach it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cmdc_runtime.faults import AGENT, MOMENTS, FaultStep
from scripts.matrix.situations import Situation
from scripts.soak.wrongs import Problem, Wrong
from supervisor.processes.worker import (
    ALL,
    BOTH,
    BRANCH,
    CHILDREN_AND_DAEMON,
    DAEMON,
    FAMILY,
    HOST,
    HOST_AND_DAEMON,
    WITH_HOST,
    WITH_ZYGOTE,
)

PASSES_MAX: Final = {
    AGENT: 2,
    DAEMON: 1,
    BOTH: 1,
    WITH_ZYGOTE: 1,
    HOST_AND_DAEMON: 1,
    CHILDREN_AND_DAEMON: 1,
}
"""Of one point that are played in a situation: for a daemon it is always a new one."""
NOT_REACHED: Final = "not reached"
SENDS: Final = "sends"
"""The agent at a point that it passes itself."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Somebody dies at a pass of a point in a situation."""

    situation: Situation
    point: str
    number: int
    victim: str

    @property
    def name(self) -> str:
        """How a person names it."""
        return f"{self.situation.name} / {self.victim} / {self.point}:{self.number}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The steps of its plan behind those of the situation."""
        return (str(FaultStep(self.point, self.number, self.victim)), *self.situation.then)

    @property
    def place(self) -> "Place":
        """Where it is shown."""
        written, moment, is_agents = parts(self.point)
        return Place(self.situation.name, written, SENDS if is_agents else self.victim, moment)


class Place(NamedTuple):
    """One field of a situation's table: all passes of a write, one victim, one moment."""

    situation: str
    written: str
    victim: str
    moment: str

    def __str__(self) -> str:
        """Return how a person names it."""
        return f"{self.situation} / {self.victim} / {self.moment} {self.written}"


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a cell: what comes back, in a few words, and what is wrong."""

    cell: Cell
    outcome: str
    problems: tuple[Problem, ...]

    @property
    def is_reached(self) -> bool:
        """Whether somebody died at it."""
        return self.outcome != NOT_REACHED


@dataclass(frozen=True, slots=True)
class Absence:
    """Why the victims are not there at these writes, in one situation or in any."""

    victims: Collection[str]
    writes: Collection[str]
    reason: str
    situation: str = ""

    def has(self, place: Place) -> bool:
        """Say whether it is about this place."""
        is_here = self.situation in ("", place.situation)
        return is_here and place.victim in self.victims and place.written in self.writes


ABSENCES: Final = (
    Absence((AGENT,), ("create", "restore"), "the session has no process yet"),
    Absence((AGENT,), ("note_down", "ended"), "its process has ended: that is what is written"),
    Absence(
        (HOST, WITH_HOST, HOST_AND_DAEMON),
        ("accept", "cycle_started+outcome", "said+turn_spent", "tool_started"),
        "no call runs yet, so there is no tool host",
    ),
    Absence(
        (BRANCH, FAMILY, ALL, CHILDREN_AND_DAEMON),
        ("accept", "cycle_started+outcome", "said+turn_spent", "tool_started", "subagent_spawned"),
        "no subagent runs yet",
    ),
    Absence(
        (BRANCH, FAMILY, ALL, CHILDREN_AND_DAEMON),
        (
            *("subagent_spent", "tool_ended", "said+turn_spent+cycle_ended"),
            *("said+turn_spent+cycle_started", "said+turn_spent+cycle_ended+cycle_started"),
        ),
        "no subagent runs any more",
    ),
    Absence(
        (AGENT, DAEMON),
        ("tool_started",),
        "its process was killed behind the write before; whether it had sent this is chance",
        "killed twice by its cycle",
    ),
)


def cells_of(situation: Situation, passed: Sequence[str]) -> list[Cell]:
    """Return the cells of a situation that passes these points: one at a write for each pass."""
    count: Counter[str] = Counter()
    cells = []
    for point in passed:
        if parts(point)[1] not in MOMENTS:  # a step of rebuilding, which writes nothing
            continue
        count[point] += 1
        is_agents = point.startswith(f"{AGENT}.")
        cells += [
            Cell(situation, point, count[point], victim)
            for victim in situation.victims
            if (situation.branches or count[point] <= PASSES_MAX.get(victim, 2))
            and (victim == AGENT or not is_agents)
        ]
    return cells


def branches_wrong(wanted: int, counts: Mapping[str, int]) -> Problem | None:
    """Return what is wrong with a run of so many branches, by what was counted; 0: any will do.

    Each comes to one thought. One that was under way when its parent died is asked again, as
    another subagent; one that has answered is not, or it would be paid twice.
    """
    thoughts, paid = counts["reasoning_thought"], counts["answers_below"]
    if not wanted or (thoughts == wanted and paid <= wanted):
        return None
    return Problem(Wrong.OTHER, f"{thoughts} thoughts and {paid} answers in place of {wanted}")


def parts(point: str) -> tuple[str, str, bool]:
    """Return what is written at a point, the moment, and whether the agent itself passes it."""
    rest, _, moment = point.rpartition(".")
    process, _, kinds = rest.partition(".")
    return kinds or process, moment, process == AGENT


def places_of(played: Iterable[Played]) -> dict[Place, list[str]]:
    """Return what came of each place, each outcome once; nothing where it was not reached."""
    found: dict[Place, list[str]] = {}
    for one in played:
        outcomes = found.setdefault(one.cell.place, [])
        if one.is_reached and one.outcome not in outcomes:
            outcomes.append(one.outcome)
    return found


def absences_in(
    places: Mapping[Place, Collection[str]], absences: Sequence[Absence] = ABSENCES
) -> dict[Place, str]:
    """Return the places that were not reached, each with the reason; "" where there is none."""
    return {
        place: next((one.reason for one in absences if one.has(place)), "")
        for place, outcomes in places.items()
        if not outcomes
    }


def missed(played: Iterable[Played]) -> set[Place]:
    """Return the places that were not reached though nothing says why."""
    return {place for place, reason in absences_in(places_of(played)).items() if not reason}


def unplayed(cells: Iterable[Cell], played: Iterable[Played]) -> list[Cell]:
    """Return the planned cells that were not played."""
    names = {one.cell.name for one in played}
    return [cell for cell in cells if cell.name not in names]


def merged(played: Iterable[Played], again: Iterable[Played]) -> list[Played]:
    """Return what came of all plays: of a cell that was played again the later, all problems."""
    later = {one.cell.name: one for one in again}

    def both(one: Played) -> Played:
        newer = later.get(one.cell.name)
        if newer is None:
            return one
        return Played(one.cell, newer.outcome, one.problems + newer.problems)

    return [both(one) for one in played]
