"""Which tests are asked first."""

from collections import Counter

import pytest

from scripts.mutants.operators import mutants_of
from scripts.mutants.run import FOREMOST, Task, foremost

MUTANT = next(mutants_of("def f(a):\n    return not a\n"))


@pytest.mark.parametrize(
    ("noticed", "order"),
    [
        ({}, "abcd"),
        ({"c": 2, "d": 3, "b": 1, "": 9}, "dcba"),
        ({"x": 2, "d": 1}, "dabc"),
    ],
    ids=["none has noticed anything", "most has", "one of another function has"],
)
def test_tests_that_have_noticed_most_come_first(noticed, order):
    """The others stay behind them, the quickest first; each is asked once."""
    task = Task(0, MUTANT, list("abcd"), 1.0, runs_at_import=False)

    assert "".join(foremost(task, Counter(noticed)).tests) == order


def test_only_some_of_them_come_first():
    """What has noticed least so far is no better than a quick one."""
    names = [f"t{number}" for number in range(FOREMOST + 5)]
    noticed = Counter({name: number for number, name in enumerate(names, 1)})
    task = Task(0, MUTANT, names, 1.0, runs_at_import=False)

    assert foremost(task, noticed).tests == [*reversed(names[5:]), *names[:5]]
