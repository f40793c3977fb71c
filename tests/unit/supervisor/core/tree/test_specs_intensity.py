"""The window of restarts, and the back-off that it sees through."""

import pytest

from supervisor.core.tree.specs import DOUBLINGS_MAX, Window, delay_s, spread


def test_a_window_takes_as_many_as_it_may():
    """The one after the last that is allowed is one too many."""
    window = Window(max_restarts=2, max_seconds=5.0)

    assert [window.charge("a", 0.0) for _ in range(4)] == [True, True, False, False]


def test_nothing_is_allowed_where_nothing_may_be():
    """With 0 restarts the first one is too many."""
    assert Window(max_restarts=0, max_seconds=5.0).charge("a", 1.0) is False


@pytest.mark.parametrize(("then_s", "is_taken"), [(4.999, False), (5.0, False), (5.001, True)])
def test_what_is_exactly_as_old_as_the_period_counts(then_s, is_taken):
    """OTP drops what is older than the period, and only that."""
    window = Window(max_restarts=1, max_seconds=5.0)
    window.charge("a", 0.0)

    assert window.charge("a", then_s) is is_taken


def test_old_restarts_are_forgotten():
    """A window slides: what has left it is not counted and takes no room."""
    window = Window(max_restarts=9, max_seconds=5.0)
    for second in range(100):
        window.charge("a", float(second))

    assert window.count(99.0) == 6
    assert window.count(200.0) == 0
    assert window._entries == []


def test_old_spared_restarts_take_no_room():
    """A child that is put off for days makes one every minute."""
    window = Window(max_restarts=9, max_seconds=5.0)
    for second in range(100):
        window.spare("a", float(second))

    assert len(window._entries) == 6


def test_restarts_are_kept_apart_by_child():
    """The budget is shared, but each child has its own series."""
    window = Window(max_restarts=9, max_seconds=5.0)
    for child in "aab":
        window.charge(child, 1.0)

    assert (window.of("a", 1.0), window.of("b", 1.0), window.of("z", 1.0)) == (2, 1, 0)
    assert window.count(1.0) == 3


def test_a_spared_restart_counts_for_the_next_delay_alone():
    """Nothing of the budget goes for it, and it is forgotten like the others."""
    window = Window(max_restarts=1, max_seconds=5.0)
    spared = [window.spare("a", 0.0) for _ in range(9)]

    assert spared == [True] * 9
    assert (window.count(0.0), window.of("a", 0.0), window.of("b", 0.0)) == (0, 9, 0)
    assert [window.charge("a", 0.0) for _ in range(2)] == [True, False]
    assert (window.of("a", 5.1), window._entries) == (0, [])


def test_nothing_is_spared_where_nothing_may_be():
    """With 0 restarts there is none that costs nothing, either."""
    assert Window(max_restarts=0, max_seconds=5.0).spare("a", 1.0) is False


def test_a_delay_makes_the_restarts_of_its_child_no_older():
    """The time that was added by waiting hides nothing; a sibling's entries age as they do."""
    window = Window(max_restarts=9, max_seconds=5.0)
    window.charge("a", 0.0)
    window.charge("b", 0.0)
    window.delayed("a", 30.0)

    assert (window.of("a", 4.0), window.of("b", 4.0)) == (1, 1)
    assert (window.of("a", 35.0), window.of("b", 35.0)) == (1, 0)
    assert window.count(35.1) == 0


@pytest.mark.parametrize("wait_s", [0.0, 0.1, 5.0, 3600.0])
def test_whoever_fails_at_once_is_given_up_however_long_the_delays_are(wait_s):
    """A child that is put off after each failure spends the same budget as one that is not."""
    window = Window(max_restarts=3, max_seconds=5.0)
    now_s, taken = 0.0, 0
    while window.charge("a", now_s):
        taken += 1
        window.delayed("a", wait_s)
        now_s += wait_s

    assert taken == 3


def test_a_delay_begins_with_none_and_doubles_to_its_bound():
    """The first restart of a series is at once."""
    waits = [delay_s((0.1, 5.0), earlier) for earlier in range(9)]

    assert waits == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


@pytest.mark.parametrize("bounds", [(0.0, 0.0), (0.0, 5.0), (5.0, 0.0), (1e308, 1e308)])
def test_any_bounds_and_any_number_of_crashes_have_a_delay(bounds):
    """It is never more than its bound, however large the numbers."""
    for earlier in (0, 1, 2, DOUBLINGS_MAX, DOUBLINGS_MAX + 1, 10**9):
        assert 0.0 <= delay_s(bounds, earlier) <= bounds[1]


@pytest.mark.parametrize(("chance", "right"), [(0.0, 2.0), (0.5, 2.2), (1.0, 2.4)])
def test_a_back_off_is_never_shorter_than_it_says(chance, right):
    """By up to a fifth longer, so that those who fell together do not come back together."""
    assert spread(2.0, chance) == pytest.approx(right)
    assert spread(0.0, chance) == 0.0
