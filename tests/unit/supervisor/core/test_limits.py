"""Bounds are numbers that bound something."""

from supervisor.core import limits

BOUNDS = {name: value for name, value in vars(limits).items() if name.isupper()}


def test_every_bound_is_a_positive_number():
    """A bound of zero or less would stop the part that it belongs to."""
    wrong = {name for name, value in BOUNDS.items() if not value > 0}

    assert wrong == set()
