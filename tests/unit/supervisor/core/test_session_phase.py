"""The phases of a session: each of them has a way for all that can happen."""

import pytest

from supervisor.core.session_phase import _NEXT, SHOWN, Happening, Phase, after

WAYS = {
    "a life": (
        ("launched", Phase.STARTING),
        ("came_up", Phase.UP),
        ("restarted", Phase.RESTARTING),
        ("launched", Phase.STARTING),
        ("came_up", Phase.UP),
        ("not_restarted", Phase.ENDING),
        ("over", Phase.ENDED),
    ),
    "sleep": (
        ("came_up", Phase.UP),
        ("idled", Phase.HIBERNATING),
        ("asked", Phase.HIBERNATING),
        ("not_restarted", Phase.HIBERNATING),
        ("hibernated", Phase.HIBERNATED),
        ("wanted", Phase.STARTING),
    ),
    "no sleep": (
        ("came_up", Phase.UP),
        ("idled", Phase.HIBERNATING),
        ("not_hibernated", Phase.STOPPING),
    ),
    "a stop": (
        ("stopped", Phase.STOPPING),
        ("stopped", Phase.STOPPING),
        ("came_up", Phase.STOPPING),
        ("idled", Phase.STOPPING),
        ("not_restarted", Phase.ENDING),
        ("stopped", Phase.ENDING),
        ("over", Phase.ENDED),
    ),
}


@pytest.mark.parametrize("phase", Phase)
def test_each_phase_has_a_cell_for_all_that_can_happen(phase):
    """A new phase needs a row in ``_NEXT``, something new that can happen a column."""
    assert len(_NEXT[phase]) == len(Happening)
    assert phase in SHOWN


@pytest.mark.parametrize("happening", Happening)
def test_what_is_over_stays_over(happening):
    """And whatever a session is at, it may be over."""
    assert after(Phase.ENDED, happening) is Phase.ENDED
    assert {after(phase, Happening.OVER) for phase in Phase} == {Phase.ENDED}


@pytest.mark.parametrize("name", WAYS)
def test_a_way(name):
    """From the beginning of a session."""
    phase = Phase.STARTING
    for happening, there in WAYS[name]:
        phase = after(phase, Happening(happening))
        assert phase is there, happening


def test_only_what_starts_comes_up_and_only_what_is_up_falls_asleep():
    """Words of a process that has lost its place change nothing."""
    ways = [(phase, one) for phase in Phase for one in (Happening.CAME_UP, Happening.IDLED)]

    assert {way for way in ways if after(*way) is not way[0]} == {
        (Phase.STARTING, Happening.CAME_UP),
        (Phase.UP, Happening.IDLED),
    }


def test_what_is_about_to_end_is_stopped_no_more():
    """A second stop is more impatient, and gives no other reason."""
    deaf = {phase for phase in Phase if after(phase, Happening.STOPPED) is phase}

    assert deaf == {Phase.STOPPING, Phase.ENDING, Phase.ENDED}
