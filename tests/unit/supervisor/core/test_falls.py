"""Two deaths at one step of rebuilding have it left out; more than enough of them end the tries."""

import pytest

from cmdc_runtime.heartbeats import DROPPED_STEP, RESUME_STEP, greeting_step, packed_step
from supervisor.core.falls import DEATHS_MAX, SPARED_MAX, STEPS_MAX, Falls


def fallen(*steps):
    falls = Falls()
    for step in steps:
        falls.note(step)
    return falls


def test_a_step_is_left_out_after_its_second_death():
    """One death may be anything's doing."""
    assert fallen(3).set_aside == ()
    assert fallen(3, 4).set_aside == ()
    assert fallen(3, 4, 3).set_aside == (3,)
    assert fallen(4, 3, 4, 3).set_aside == (3, 4)


def test_a_process_that_came_through_clears_the_list():
    """What was left out is in the journal by then, and the steps may have other numbers."""
    assert fallen(3, 3, None).set_aside == ()
    assert fallen(3, None, 3).set_aside == ()


TRAP, OTHER = packed_step("00" * 32), packed_step("ff" * 32)
GREETING = greeting_step("00" * 32)


def test_who_was_up_and_died_of_a_parcel_came_through_but_for_parcels():
    """A record, a greeting and a command have nothing to do with those of the next process."""
    falls = fallen(3, 3, GREETING, GREETING, RESUME_STEP + 1, RESUME_STEP + 1, OTHER, OTHER, TRAP)
    falls.note(TRAP, was_up=True)

    assert falls.set_aside == (TRAP, OTHER)
    assert falls.total == 10  # the tries have their end all the same


@pytest.mark.parametrize(("step", "was_up"), [(TRAP, False), (RESUME_STEP, True), (3, False)])
def test_others_that_died_at_a_step_had_not_come_through(step, was_up):
    """What was left out is not written down before the session goes on."""
    falls = fallen(3, 3, GREETING, GREETING)
    falls.note(step, was_up=was_up)

    assert {3, GREETING} <= set(falls.set_aside)


def test_the_tries_have_an_end():
    """A journal that kills at every step is given up."""
    steps = [step for step in range(STEPS_MAX) for _ in range(DEATHS_MAX)]

    assert fallen(*steps).may_try_again
    assert not fallen(*steps, 99).may_try_again


def test_a_step_is_spared_twice():
    """That is how often it takes to have it left out; a third death shows that this is no help."""
    falls, spared = Falls(), []
    for step in (3, 4, 3, 4, 3, 5):
        falls.note(step)
        spared.append(falls.spares(step))

    assert spared == [True, True, True, True, False, True]


def test_a_death_at_no_step_is_not_spared():
    """It is a crash like any other."""
    falls = fallen(3, None)

    assert not falls.spares(None)


@pytest.mark.parametrize("often", range(1, DEATHS_MAX + 1))
@pytest.mark.parametrize("before", [(), (None,), (1, 2, None)])
def test_who_falls_at_ever_new_steps_is_spared_only_so_often(before, often):
    """Between two deaths that are charged; however many steps there are, and whatever was."""
    falls, spared = fallen(*before), 0
    for step in [step for step in range(10 * STEPS_MAX) for _ in range(often)]:
        falls.note(step)
        spared += falls.spares(step)

    assert spared == SPARED_MAX


def test_a_cycle_that_kills_as_it_is_dropped_is_not_spared_for_ever():
    """The dropping is a step as well, whose deaths go on being counted."""
    falls, spared = Falls(), 0
    for step in [RESUME_STEP, RESUME_STEP, DROPPED_STEP] * 100:
        falls.note(step)
        spared += falls.spares(step)

    assert spared <= SPARED_MAX


def test_a_cycle_that_was_dropped_is_not_blamed_on_the_next():
    """Who dies behind the giving up has gone on with another cycle, which has its own tries."""
    falls = Falls()
    for _ in range(DEATHS_MAX):
        falls.note(RESUME_STEP)
    assert RESUME_STEP in falls.set_aside

    falls.note(DROPPED_STEP)

    assert RESUME_STEP not in falls.set_aside


def test_a_start_that_dies_of_a_parcel_has_come_through_nothing():
    """Unless it is said to have been up, steps before it count still."""
    falls = fallen(3, TRAP)

    assert falls.deaths == {3: 1, TRAP: 1}
