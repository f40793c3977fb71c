"""How a metric is held against its bar: by the ratio, by the difference, or by the value itself."""

import pytest

from benchmarks.metrics import (
    at_least,
    at_most,
    at_most_more,
    measured,
    no_less_than,
    no_more_than,
    tail,
)


@pytest.mark.parametrize(
    ("bar", "text", "within", "beyond"),
    [
        (at_most(0.5), "ratio <= 0.5", 5.0, 5.1),
        (at_least(2), "ratio >= 2", 20.0, 19.9),
        (at_most_more(1), "difference <= 1", 11.0, 11.1),
        (no_more_than(8), "value <= 8", 8.0, 8.1),
        (no_less_than(8), "value >= 8", 8.0, 7.9),
    ],
)
def test_a_bar_is_met_up_to_its_limit(bar, text, within, beyond):
    """Beside a baseline of 10; the report has the bar as a person writes it."""
    met = measured("x", "ms", [within], baseline=[10.0], bar=bar)
    missed = measured("x", "ms", [beyond], baseline=[10.0], bar=bar)

    assert (met.bar, met.met, missed.met) == (text, True, False)


@pytest.mark.parametrize("bar", [at_most(1), at_least(1), at_most_more(1)])
def test_without_a_baseline_nothing_is_judged_by_it(bar):
    """It is neither met nor missed."""
    assert measured("x", "ms", [1.0], bar=bar).met is None


def test_a_difference_is_judged_beside_a_baseline_of_nothing():
    """Where a ratio is none."""
    assert measured("x", "ms", [0.5], baseline=[0.0], bar=at_most_more(1)).met is True
    assert measured("x", "ms", [0.5], baseline=[0.0], bar=at_most(1)).met is None


def test_a_tail_without_a_bar_is_beside_the_tail_of_its_baseline():
    """As one with a bar."""
    found = tail("x_p99", "ms", [1.0, 9.0], baseline=[1.0, 3.0])

    assert (found.value, found.baseline, found.ratio) == (9.0, 3.0, 3.0)
    assert (found.bar, found.met) == (None, None)
