"""A module that got a mutant's code in place behaves as one that was imported with it."""

import sys
from types import ModuleType

import pytest

from scripts.mutants.operators import mutants_of
from scripts.mutants.swapping import swaps

SOURCE = """
import contextlib
import functools
from dataclasses import dataclass

LIMIT = 3
AT_ONCE = {"a": 1, "b": 2}


def plain(n, least=0):
    return n > least


def outer(n):
    def inner():
        return n > 1
    return inner()


@functools.cache
def kept(n):
    return n > 2


@contextlib.contextmanager
def around(n):
    yield n > 3


@dataclass(slots=True)
class Thing:
    n: int
    size: int = 4

    def method(self):
        return self.n > 5

    @property
    def large(self):
        return self.n > 6

    @staticmethod
    def static(n):
        return n > 7

    @classmethod
    def made(cls, n):
        return cls(n).n > 8


class Sub(Thing):
    def method(self):
        return super().method() and self.n > 9

    @functools.cached_property
    def late(self):
        return self.n > 10
"""
WHOLE = {
    "plain": lambda it: it.plain(0),
    "outer.inner": lambda it: it.outer(1),
    "kept": lambda it: it.kept(2),
    "around": lambda it: it.around(3).__enter__(),
    "Thing.method": lambda it: it.Thing(5).method(),
    "Thing.large": lambda it: it.Thing(6).large,
    "Thing.static": lambda it: it.Thing.static(7),
    "Thing.made": lambda it: it.Thing.made(8),
    "Sub.method": lambda it: it.Sub(9).method(),
    "Sub.late": lambda it: it.Sub(10).late,
}
"""By function: what a ``>`` that should be ``>=`` changes there."""


@pytest.fixture
def module(monkeypatch):
    made = ModuleType("given")
    monkeypatch.setitem(sys.modules, "given", made)
    exec(compile(SOURCE, "given.py", "exec"), vars(made))
    return made


def swapped(module, mutant):
    right, wrong = (compile(code, "given.py", "exec") for code in (SOURCE, mutant.tree()))
    found = swaps(module, right, wrong)
    for function, code in found:
        function.__code__ = code
    return bool(found)


def mutant_of(function, what):
    named = [one for one in mutants_of(SOURCE) if one.place.function == function]
    return next(one for one in named if what in one.name)


@pytest.mark.parametrize("function", WHOLE)
def test_a_function_does_what_its_mutant_does(module, function):
    """However it is kept: by itself, in a class, behind a decorator."""
    before = WHOLE[function](module)
    vars(module)["kept"].cache_clear()

    assert swapped(module, mutant_of(function, "with GtE"))
    assert (before, WHOLE[function](module)) == (False, True)


def test_the_rest_stays_as_it_is(module):
    """A swap is of one function."""
    swapped(module, mutant_of("plain", "with GtE"))
    others = [name for name in WHOLE if name != "plain"]

    assert [WHOLE[name](module) for name in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("function", "what"), [("<table>", "'a' left out"), ("Thing", "4 as 5"), ("plain", "0 as 1")]
)
def test_what_an_import_has_made_is_not_swapped(module, function, what):
    """A table, the default of a field and of an argument are there by then."""
    assert not swapped(module, mutant_of(function, what))
    assert (len(module.AT_ONCE), module.Thing(1).size, module.plain(1)) == (2, 4, True)
