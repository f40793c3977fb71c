"""The crash matrix: somebody is killed before or after each write, in each situation.

The short form plays a choice of the cells, another one for each seed; ``FAULT_FULL=1`` plays all.
What is checked of each cell stands in ``scripts/soak/life.py`` and ``scripts/matrix/play.py``.
"""

import asyncio
import os
from random import Random
from types import SimpleNamespace

import pytest

from cmdc_runtime.faults import AGENT
from scripts.matrix.cells import ABSENCES, NOT_REACHED, cells_of, missed
from scripts.matrix.play import GIVEN_UP, stage
from scripts.matrix.situations import SITUATIONS
from supervisor.processes.worker import (
    BOTH,
    CHILDREN_AND_DAEMON,
    DAEMON,
    FAMILY,
    HOST,
    HOST_AND_DAEMON,
    WITH_HOST,
)
from tests.fault.audit import Audit

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

IS_FULL = bool(os.environ.get("FAULT_FULL"))
SEED = os.environ.get("MATRIX_SEED", "1")
CHOSEN = {
    AGENT: 30,
    DAEMON: 4,
    HOST: 2,
    BOTH: 2,
    WITH_HOST: 1,
    FAMILY: 1,
    HOST_AND_DAEMON: 1,
    CHILDREN_AND_DAEMON: 1,
}
"""How many cells the short form plays of each victim; each zygote takes seconds to replace."""
ALWAYS = {"recovering", "killed twice by its cycle"}
"""Situations of which all cells are played in which agents die."""
LONG_S = 7200.0
SHORT_S = 600.0
"""Each dozen of cells ends with a daemon's death, and the next one gets warm before the others."""


def chosen(cells):
    """Return the cells that this run plays."""
    if IS_FULL:
        return cells
    found = [cell for cell in cells if cell.situation.name in ALWAYS and cell.victim == AGENT]
    rest = [
        cell
        for cell in cells
        if cell not in found
        and not cell.situation.is_early
        and not any(absence.has(cell.place) for absence in ABSENCES)
    ]
    shuffled = Random(SEED).sample(rest, len(rest))
    for victim, count in CHOSEN.items():
        found += [cell for cell in shuffled if cell.victim == victim][:count]
    return found


def journal_problems(daemon):
    """Return what the audit of fault cases finds in the journal of the stage."""
    own_daemon = SimpleNamespace(place=daemon.state_dir.parent)
    return Audit(own_daemon, None, None)._journal_problems()


async def play():
    """Return the cells that were played, and what else there is to complain of."""
    async with stage() as found:
        played = await found.play(chosen(await found.rehearse()))
        return played, journal_problems(found.house) + found.mind.problems


@pytest.fixture(scope="module")
def run():
    """All that this run plays, on one stage."""
    return asyncio.run(play())


def reached(played, name=None):
    """Return the cells in which somebody died, of all situations or of one."""
    return [
        one
        for one in played
        if one.outcome != NOT_REACHED and name in (None, one.cell.situation.name)
    ]


@pytest.mark.timeout(LONG_S if IS_FULL else SHORT_S)
def test_whoever_dies_at_a_write_nothing_is_lost(run):
    """History valid, prompts kept, write tools run once, indexes whole, one Down an end."""
    played, others = run
    wrong = [f"{one.cell.name}: {problem}" for one in played for problem in one.problems]

    assert wrong == [], "\n".join(wrong)
    assert others == []
    assert len(reached(played)) > len(played) // 2
    assert not IS_FULL or missed(played) == set()


def test_each_kind_of_death_is_played(run):
    """Of one alone, and of two together, the daemon among them or not."""
    assert {one.cell.victim for one in reached(run[0])} >= set(CHOSEN)


def test_a_recovery_dies_at_each_of_its_writes(run):
    """And comes to the same conversation as one that is left alone: a problem if it does not."""
    points = {one.cell.point for one in reached(run[0], "recovering")}

    assert {"began.before", "append.resumed.before", "append.resumed.after"} <= points


def test_a_cycle_that_kills_twice_is_given_up(run):
    """It ends as an abort; a prompt behind it that has no answer is a problem of its cell."""
    found = reached(run[0], "killed twice by its cycle")

    assert found != []
    kept = [one for one in found if GIVEN_UP not in one.outcome]
    assert [f"{one.cell.name}: {one.outcome}" for one in kept] == []


def named(name):
    """Return the situation of this name."""
    (found,) = [one for one in SITUATIONS if one.name == name]
    return found


def test_cells_are_those_of_the_passes():
    """A point that is passed twice has two cells; the agent's own are not the daemon's."""
    cells = cells_of(
        named("idle"), ["append.said.before", "append.said.before", "agent.said.after"]
    )
    found = [(one.point, one.number, one.victim) for one in cells]

    assert found == [
        ("append.said.before", 1, AGENT),
        ("append.said.before", 1, DAEMON),
        ("append.said.before", 2, AGENT),
        ("agent.said.after", 1, AGENT),
    ]
