"""What yields is known, in whatever form it is given."""

import functools

import pytest

from cmdc_runtime.plain import yield_problem


def _one(*_given):
    yield 1


class _Many:
    def __call__(self):
        yield 1


@pytest.mark.parametrize("function", [_one, functools.partial(_one, 1), _Many(), _Many().__call__])
def test_what_yields_is_known_in_each_form(function):
    """A function, a partial of one, an object that is called, and its method."""
    assert yield_problem(function).startswith("it yields")


@pytest.mark.parametrize("function", [len, functools.partial(len, "a"), str, 3, None, _Many])
def test_what_returns_has_no_problem(function):
    """What is called for what it makes, and what is never called."""
    assert yield_problem(function) is None
