"""Two deaths at one step of rebuilding have it left out; more than enough of them end the tries."""

from cmdc_runtime.board import DROPPED_STEP, RESUME_STEP
from supervisor.core.falls import DEATHS_MAX, STEPS_MAX, Falls


def fallen(*steps):
    falls = Falls()
    for step in steps:
        falls.note(step)
    return falls


def test_a_step_is_left_out_after_its_second_death():
    """One death may be anything's doing."""
    assert fallen(3).doomed == ()
    assert fallen(3, 4).doomed == ()
    assert fallen(3, 4, 3).doomed == (3,)
    assert fallen(4, 3, 4, 3).doomed == (3, 4)


def test_a_process_that_came_through_clears_the_list():
    """What was left out is in the journal by then, and the steps may have other numbers."""
    assert fallen(3, 3, None).doomed == ()
    assert fallen(3, None, 3).doomed == ()


def test_the_tries_have_an_end():
    """A journal that kills at every step is given up."""
    steps = [step for step in range(STEPS_MAX) for _ in range(DEATHS_MAX)]

    assert fallen(*steps).may_try_again
    assert not fallen(*steps, 99).may_try_again


def test_a_cycle_that_was_dropped_is_not_blamed_on_the_next():
    """Who dies behind the giving up has gone on with another cycle, which has its own tries."""
    falls = Falls()
    for _ in range(DEATHS_MAX):
        falls.note(RESUME_STEP)
    assert RESUME_STEP in falls.doomed

    falls.note(DROPPED_STEP)

    assert RESUME_STEP not in falls.doomed
