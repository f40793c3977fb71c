"""Whether and when a dead process comes back, held against OTP's own counting."""

from itertools import pairwise, product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.requests import RestartType, Supervision
from supervisor.core.restart import Ending, GiveUp, History, LeaveDown, RestartAfter, decide

NO_DELAY = (0.0, 0.0)
COMES_BACK = {
    ("permanent", Ending.NORMAL),
    ("permanent", Ending.CRASH),
    ("transient", Ending.CRASH),
}


class Reference:
    """OTP's ``supervisor:add_restart``: add now, drop what is too old, compare the count."""

    def __init__(self, intensity, period):
        self.intensity, self.period, self.restarts = intensity, period, []

    def may_restart(self, now):
        kept = [then for then in [now, *self.restarts] if then >= now - self.period]
        self.restarts = kept
        return len(kept) <= self.intensity


def crashes(policy, times):
    """Yield what is decided at each crash, up to the first that is final."""
    history = History()
    for now in times:
        decision = decide(policy, Ending.CRASH, history, now)
        yield decision
        if not isinstance(decision, RestartAfter):
            return
        history = decision.history


@pytest.mark.parametrize(("restart", "ending"), [*product(get_args(RestartType), Ending)])
def test_the_restart_type_decides(restart, ending):
    """OTP's table; options that can never work are never tried again."""
    decision = decide(Supervision(restart=restart), ending, History(), 0.0)

    assert isinstance(decision, RestartAfter) == ((restart, ending) in COMES_BACK)
    assert isinstance(decision, LeaveDown) == ((restart, ending) not in COMES_BACK)


@given(
    st.integers(0, 5),
    st.integers(1, 10),
    st.lists(st.integers(0, 4), max_size=30),
)
def test_the_window_is_the_one_of_otp(intensity, period, steps):
    """The same crashes at the same times end in the same decision, one by one."""
    policy = Supervision(max_restarts=intensity, max_seconds=period, restart_delay=NO_DELAY)
    times = [sum(steps[: at + 1]) for at in range(len(steps))]
    reference = Reference(intensity, period)
    for now, decision in zip(times, crashes(policy, times), strict=False):
        assert isinstance(decision, RestartAfter) == reference.may_restart(now)


@given(
    st.integers(0, 5),
    st.integers(1, 10),
    st.lists(st.integers(0, 4), max_size=30),
    st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_a_delay_hides_no_crash(intensity, period, lived, delay):
    """The same lives between the delays lead to the same decisions as without any delay."""
    policy = Supervision(max_restarts=intensity, max_seconds=period, restart_delay=delay)
    reference, now, up = Reference(intensity, period), 0.0, 0
    history = History()
    for seconds in lived:
        now, up = now + seconds, up + seconds
        decision = decide(policy, Ending.CRASH, history, now)

        assert isinstance(decision, RestartAfter) == reference.may_restart(up)
        if not isinstance(decision, RestartAfter):
            return
        now, history = now + decision.delay_s, decision.history


@pytest.mark.parametrize("intensity", [0, 1, 3])
def test_one_restart_too_many_ends_it(intensity):
    """Exactly ``max_restarts`` at one moment are allowed, and the end says how many there were."""
    policy = Supervision(max_restarts=intensity, restart_delay=NO_DELAY)
    decisions = list(crashes(policy, [1.0] * (intensity + 5)))

    assert len(decisions) == intensity + 1
    assert decisions[-1] == GiveUp(intensity)


def test_the_window_slides():
    """A restart that is as old as the window still counts; an older one does not."""
    policy = Supervision(max_restarts=1, max_seconds=5.0, restart_delay=NO_DELAY)

    assert list(crashes(policy, [0.0, 5.0]))[-1] == GiveUp(1)
    assert isinstance(list(crashes(policy, [0.0, 5.5]))[-1], RestartAfter)


def test_delays_double_up_to_their_bound():
    """None before the first restart of a row, and never more than the bound."""
    policy = Supervision(max_restarts=9, restart_delay=(0.5, 3.0))
    delays = [decision.delay_s for decision in crashes(policy, [0.0] * 6)]

    assert delays == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert all(one <= two for one, two in pairwise(delays))


def test_a_calm_time_makes_the_next_restart_immediate():
    """When no restart is left in the window the row of crashes is over."""
    policy = Supervision(max_restarts=3, max_seconds=5.0, restart_delay=(0.5, 3.0))
    *_, row, calm = crashes(policy, [0.0, 1.0, 2.0, 60.0])

    assert (row.delay_s, calm.delay_s) == (1.0, 0.0)
    assert len(calm.history.restarts_s) == 1


def test_a_long_row_does_not_overflow():
    """Thousands of allowed restarts keep to the bound."""
    history = History(restarts_s=(0.0,) * 5_000)
    decision = decide(Supervision(max_restarts=10_000), Ending.CRASH, history, 0.0)

    assert decision.delay_s == 5.0
