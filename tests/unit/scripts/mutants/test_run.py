"""Which tests are asked first, and what a time that is over says of a mutant."""

import signal
from collections import Counter

import pytest

from scripts.mutants import run
from scripts.mutants.belongs import Module
from scripts.mutants.operators import mutants_of
from scripts.mutants.run import FOREMOST, TIMES, Task, foremost

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


LIMIT_S = 0.2
TIMED = Task(0, MUTANT, ["t"], LIMIT_S, runs_at_import=False)


def by(play):
    """Return what has noticed a mutant whose tests are played so."""
    found = run._in_a_fork(lambda: run._play_all(Module("m.py", (), ()), [TIMED], play))
    return found[0][0]


def test_a_mutant_that_makes_tests_last_is_noticed():
    """With right code they end in their time."""

    def play(_task, shown, _folder, mutant):
        shown.put("t")
        if mutant:
            signal.pause()
        return 0

    assert by(play) == "t: its time was over"


def test_a_busy_machine_notices_nothing():
    """Where right code is too slow as well, the mutant gets more time, and lives."""

    def play(task, _shown, _folder, _mutant):
        if task.limit_s < TIMES * LIMIT_S:
            signal.pause()
        return 0

    assert by(play) == ""
