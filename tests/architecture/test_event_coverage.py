"""Every event of the catalogue is emitted by a real agent in some end-to-end test.

While ``tests/e2e`` runs, a stream of all sessions notes the name of each event that the run's
daemon publishes (``tests/e2e/conftest.py``). The last test of the run compares them with the
catalogue. It needs the whole folder: with a part of it, or after a failure, it is skipped.

An event that no end-to-end test can bring about stands in ``NOT_EMITTED`` with the reason. To add
an event, add an end-to-end test in which an agent emits it; this test says which are missing.
"""

import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from cmdc_runtime.events import (
    AgentEnd,
    Event,
    EventsLost,
    UnknownEvent,
)
from scripts.reference.sources import declared

pytest_plugins = ["pytester"]

MADE_BY_THE_CLIENT: Final = frozenset({EventsLost, UnknownEvent})
NOT_EMITTED: Final[Mapping[type[Event], str]] = {}
"""Events without an end-to-end test, each with the reason."""
PARTS: Final = "LANE_PARTS"
HEARD_S: Final = 20.0
POLL_S: Final = 0.02


def catalogue():
    """Return the events that a session can publish."""
    return set(declared(Event)) - MADE_BY_THE_CLIENT


def problems(emitted):
    """Return a line for each event that is missing, and for each that is excused without need."""
    missing = {kind for kind in catalogue() - NOT_EMITTED.keys() if kind.__name__ not in emitted}
    excused = {kind for kind in NOT_EMITTED if kind.__name__ in emitted}
    return [
        *(f"{kind.__name__}: no end-to-end test brings it about" for kind in missing),
        *(f"{kind.__name__}: emitted, so take it out of NOT_EMITTED" for kind in excused),
    ]


def wait_for(condition):
    """Return whether the condition came true within the bound."""
    never = threading.Event()
    return any(condition() or never.wait(POLL_S) for _ in range(round(HEARD_S / POLL_S)))


def hear_all(cmdc_session, heard):
    """Return when all is heard: events arrive in their order, so a last session's come last."""
    last = cmdc_session(["Bye."])
    last.run("Hello.", timeout=HEARD_S)
    assert wait_for(lambda: "AgentEnd" in heard.get(last.id, ()))


@pytest.mark.process
@pytest.mark.slow
def test_every_event_is_emitted_by_some_test(whole_run, heard, request):
    """A class that nothing emits is a promise that nobody keeps."""
    if any(item.path.parent.name == "e2e" for item in request.session.items):
        hear_all(request.getfixturevalue("cmdc_session"), heard)
    emitted = set().union(*heard.values())

    assert problems(emitted) == [], "\n".join(sorted(problems(emitted)))


def test_an_event_that_nobody_emits_is_named():
    """The rest of the catalogue does not make up for it."""
    emitted = {kind.__name__ for kind in catalogue() - NOT_EMITTED.keys()}

    assert problems(emitted) == []
    assert problems(emitted - {"AgentEnd"}) == ["AgentEnd: no end-to-end test brings it about"]


def test_what_the_client_makes_is_no_agents_business():
    """A client reports a loss and what it does not know; no agent publishes that."""
    assert catalogue().isdisjoint(MADE_BY_THE_CLIENT)
    assert AgentEnd in catalogue()


@pytest.fixture
def small_run(pytester, monkeypatch):
    """Run a project of two end-to-end tests and a judge, with this project's own mechanism."""
    monkeypatch.delenv(PARTS, raising=False)  # these tests may be played in a lane themselves
    shutil.copy(Path(__file__).parents[1] / "conftest.py", pytester.path / "conftest.py")
    pytester.mkdir("e2e")
    for name in ("one", "two"):
        test = f"def test_{name}(heard):\n    heard['{name}'] = {{'{name}'}}\n"
        (pytester.path / "e2e" / f"test_{name}.py").write_text(test)
    judge = "def test_all(whole_run, heard):\n    assert set(heard) == {'one', 'two'}\n"
    pytester.makepyfile(test_a_judge=judge)
    return lambda *arguments: pytester.runpytest_inprocess(
        "--import-mode=importlib", "-p", "no:cacheprovider", "-rs", "-v", *arguments
    )


def test_the_judge_comes_last(small_run):
    """Its file is the first by name, and the last one that runs."""
    result = small_run()

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*test_one*", "*test_two*", "*test_a_judge*"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["e2e/test_one.py", "test_a_judge.py"], "test_two.py was not run"),
        (["-k", "not two"], "test_two.py was not run"),
        (["--deselect", "e2e/test_two.py::test_two"], "test_two.py was not run"),
        (["e2e", "test_a_judge.py::test_all"], "single tests were chosen"),
        (["test_a_judge.py"], "test_one.py was not run"),
    ],
)
def test_a_part_of_the_run_is_not_judged(small_run, arguments, reason):
    """Who runs one test alone gets no error for the others."""
    result = small_run(*arguments)

    assert result.parseoutcomes()["skipped"] == 1
    result.stdout.fnmatch_lines([f"*{reason}*"])


def test_a_part_of_a_file_is_not_judged(small_run, pytester):
    """A file with one test deselected is not the whole file."""
    with (pytester.path / "e2e" / "test_two.py").open("a") as file:
        file.write("def test_more():\n    assert True\n")
    result = small_run("-k", "not more")

    result.assert_outcomes(passed=2, skipped=1, deselected=1)
    result.stdout.fnmatch_lines(["*some were deselected*"])


def test_a_failed_run_is_not_judged(small_run, pytester):
    """What the failed test would have brought about is not known."""
    (pytester.path / "e2e" / "test_two.py").write_text("def test_two():\n    assert False\n")
    result = small_run()

    result.assert_outcomes(passed=1, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*a test has failed*"])


@pytest.mark.parametrize(
    ("lanes", "judged"),
    [
        (["e2e/test_one.py", "e2e/test_two.py"], {"passed": 1}),
        (["e2e/test_one.py"], {"skipped": 1}),
        (["e2e/test_one.py", "e2e/test_two.py::test_two"], {"skipped": 1}),
    ],
    ids=["all", "a part", "single tests"],
)
def test_lanes_are_one_run(small_run, pytester, monkeypatch, lanes, judged):
    """The judge is played behind them, and has what each of them has heard."""
    monkeypatch.setenv(PARTS, str(pytester.mkdir("parts")))
    for number, lane in enumerate(lanes):
        monkeypatch.setattr(os, "getpid", lambda number=number: number)
        small_run(lane).assert_outcomes(passed=1)

    small_run("test_a_judge.py").assert_outcomes(**judged)


def test_a_missing_event_fails_the_run(small_run, pytester):
    """When everything ran and something was not heard, the judge fails."""
    (pytester.path / "e2e" / "test_two.py").write_text("def test_two():\n    assert True\n")

    small_run().assert_outcomes(passed=2, failed=1)
