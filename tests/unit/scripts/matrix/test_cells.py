"""Where nobody died, it is kept apart from where nobody is to die, and needs a reason."""

from collections import Counter

import pytest

from cmdc_runtime.faults import AGENT
from scripts.matrix import page
from scripts.matrix.cells import (
    ABSENCES,
    NOT_REACHED,
    Absence,
    Cell,
    Place,
    Played,
    absences_in,
    branches_wrong,
    cells_of,
    merged,
    missed,
    places_of,
    unplayed,
)
from scripts.matrix.situations import DAEMON, HOST, SITUATIONS
from scripts.soak.wrongs import Problem, Wrong

IDLE = next(one for one in SITUATIONS if one.name == "idle")
SAID = "append.said.after"
LOST = Problem(Wrong.OTHER, "lost")


def played(point, victim, outcome, number=1, problems=()):
    return Played(Cell(IDLE, point, number, victim), outcome, problems)


def row_of(text, written):
    (found,) = [one for one in text.splitlines() if one.startswith(f"| `{written}`")]
    return [one.strip() for one in found.strip("|").split("|")][1:]


def test_one_pass_that_is_reached_reaches_its_place():
    """The passes of a write stand in one place, each outcome once."""
    found = places_of(
        [
            played(SAID, AGENT, NOT_REACHED),
            played(SAID, AGENT, "idle", 2),
            played(SAID, AGENT, "idle", 3),
            played(SAID, DAEMON, NOT_REACHED),
        ]
    )

    assert found == {
        Place("idle", "said", AGENT, "after"): ["idle"],
        Place("idle", "said", DAEMON, "after"): [],
    }


def test_what_is_not_reached_without_a_reason_is_missed():
    """A reason is for a victim and a write, and may be for one situation only."""
    places = places_of(
        [
            played("create.before", AGENT, NOT_REACHED),
            played("create.before", DAEMON, NOT_REACHED),
            played(SAID, HOST, "goes on"),
        ]
    )
    mine = Place("idle", "create", AGENT, "before")
    daemons = mine._replace(victim=DAEMON)

    assert absences_in(places, [Absence((AGENT,), ("create",), "why")]) == {
        mine: "why",
        daemons: "",
    }
    assert absences_in(places, [Absence((AGENT,), ("create",), "why", "ending")]) == {
        mine: "",
        daemons: "",
    }


def test_a_matrix_that_misses_a_place_is_wrong():
    """What nothing explains is named, what a reason is written for is not."""
    found = missed([played("create.before", AGENT, NOT_REACHED), played(SAID, AGENT, NOT_REACHED)])

    assert [str(place) for place in found] == ["idle / agent / after said"]


def test_reasons_are_about_what_is_written():
    """An entry for a write that is gone would hide nothing, and is gone with it."""
    writes = {write for one in ABSENCES for write in one.writes}
    names = {one.name for one in SITUATIONS}

    assert page.written_in(writes) <= set(page.required())
    assert {one.situation for one in ABSENCES} <= {"", *names}
    assert all(one.reason for one in ABSENCES)


def test_what_is_played_again_keeps_its_problems():
    """The later outcome counts, and nothing that was ever wrong is forgotten."""
    first = [
        played(SAID, AGENT, NOT_REACHED, problems=(LOST,)),
        played(SAID, DAEMON, "goes on"),
    ]
    again = [played(SAID, AGENT, "idle")]

    assert merged(first, again) == [
        played(SAID, AGENT, "idle", problems=(LOST,)),
        played(SAID, DAEMON, "goes on"),
    ]


def test_a_cell_is_at_a_write():
    """A step of rebuilding is none, and its number may be another one in each run."""
    assert [one.point for one in cells_of(IDLE, ["agent.rebuild.5", SAID])] == [SAID, SAID]


def test_a_run_of_branches_has_a_cell_for_each_pass():
    """Each is another step of it; elsewhere the first ones must do."""
    (run,) = [one for one in SITUATIONS if one.branches]
    found = cells_of(run, [SAID] * 9)

    assert [one.number for one in found if one.victim == DAEMON] == list(range(1, 10))
    assert len([one for one in cells_of(IDLE, [SAID] * 9) if one.victim == DAEMON]) == 1


def test_branches_are_counted():
    """One answer more than there are branches is one that was paid twice."""

    def counted(thoughts, paid):
        return Counter(reasoning_thought=thoughts, answers_below=paid)

    assert branches_wrong(9, counted(9, 9)) is None
    assert branches_wrong(9, counted(9, 8)) is None  # one of them has failed
    assert branches_wrong(9, counted(9, 10)) is not None
    assert branches_wrong(9, counted(8, 8)) is not None
    assert branches_wrong(0, counted(1, 2)) is None


def test_planned_and_played_are_compared():
    """A cell that nobody played is named."""
    cells = cells_of(IDLE, [SAID])
    done = [Played(cells[0], "idle", ())]

    assert unplayed(cells, done) == cells[1:]
    assert len(cells) == 2


def test_the_page_distinguishes_three_kinds_of_cells():
    """A death, a play without one and no cell at all."""
    text = page.full(
        [
            played("create.before", AGENT, NOT_REACHED),
            played("create.after", AGENT, NOT_REACHED),
            played("create.before", DAEMON, "goes on"),
            played(SAID, AGENT, NOT_REACHED),
        ]
    )

    none = page._NONE
    assert row_of(text, "create") == [none, none, NOT_REACHED, NOT_REACHED, "goes on", none]
    assert row_of(text, "said") == [none, none, none, NOT_REACHED, none, none]
    assert "4 cells were played: 1 deaths, 3 not reached." in text
    assert "4 places of the tables: 3 not reached." in text
    assert "| idle / agent / before create | the session has no process yet |" in text
    assert "| idle / agent / after said | none is known |" in text
    assert "`not reached` is a cell that was played" in text
    assert page.writes_reached(text) == {"create"}


@pytest.mark.parametrize(
    ("outcomes", "shown"),
    [
        ((), page._NONE),
        ((NOT_REACHED,), "not reached 1"),
        (("idle", NOT_REACHED, "idle"), "idle 2; not reached 1"),
    ],
)
def test_the_short_table_counts_what_is_not_reached(outcomes, shown):
    """Behind what came back."""
    assert page._tally(played(SAID, AGENT, one) for one in outcomes) == shown
