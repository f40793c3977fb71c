"""The list of cases and the tests that play them belong together."""

import pytest

from scripts.reference import conformance
from scripts.reference.conformance import cases, elsewhere, functions_in, plays

COUNTS = {"C": 72, "D": 10}
"""Of the contract; what is ours has as many as it has."""
APART = {"test_stage_services.py", "test_cases.py", "test_mutants.py"}
"""They test the cases, and play none."""


def test_the_list_is_complete():
    """Every case of the contract is on the list, once and in its order."""
    names = list(cases())
    ours = [name for name in names if name.startswith("X")]

    for kind, count in COUNTS.items():
        found = [name for name in names if name.startswith(kind)]
        assert found == [f"{kind}{number:02}" for number in range(1, count + 1)]
    assert ours == [f"X{number:02}" for number in range(1, len(ours) + 1)]


@pytest.mark.parametrize("name", cases())
def test_every_case_is_played(name):
    """A case without a test would hold by hope alone; a title says what holds."""
    row = cases()[name]
    found = [play for play in plays() if name in play.cases] + elsewhere(row)

    assert found != [], f"{name} has no test: {row['title']}"
    assert row["title"] == row["title"].strip(" .")
    assert set(row) <= {"name", "title", "note", "elsewhere"}


def test_every_test_plays_a_case():
    """A test names its cases, and all of them are on the list."""
    played = {(play.file, play.name) for play in plays()}
    unnamed = [
        f"{path.name}::{node.name}"
        for path in sorted(conformance.FOLDER.glob("test_*.py"))
        if path.name not in APART
        for node in functions_in(path)
        if (str(path.relative_to(conformance.ROOT)), node.name) not in played
    ]
    unknown = {name for play in plays() for name in play.cases} - set(cases())

    assert unnamed == []
    assert unknown == set()


def test_the_tests_of_other_folders_are_there():
    """What a case relies on elsewhere has not been renamed."""
    missing = [
        f"{play.file}::{play.name}"
        for row in cases().values()
        for play in elsewhere(row)
        if play.name not in [node.name for node in functions_in(conformance.ROOT / play.file)]
    ]

    assert missing == []


def test_the_page_is_of_a_run_of_these_tests(pytestconfig):
    """Whoever changes the list of cases, or their tests, plays them and makes the page anew."""
    if pytestconfig.getoption("--conformance"):
        pytest.skip("this run writes it")
    tests = {f"{play.file}::{play.name}" for play in plays()}
    tests |= {test for row in cases().values() for test in row.get("elsewhere", ())}

    assert set(conformance.played().tests) == tests, "run make conformance"


def test_whoever_needs_processes_says_so():
    """A test that takes real processes has the marker that the count is made from."""
    real = {"proc", "proc_in_cells", "own_daemon", "cmdc_session", "cmdc_daemon"}
    takes = {
        (str(path.relative_to(conformance.ROOT)), node.name): {one.arg for one in node.args.args}
        for path in conformance.FOLDER.glob("test_*.py")
        for node in functions_in(path)
    }
    silent = [
        play.name
        for play in plays()
        if takes[play.file, play.name] & real and not play.with_processes
    ]

    assert silent == []


def test_a_test_of_another_folder_is_real_where_it_says_so():
    """Threads alone are no processes; a mark of the whole file counts for each of its tests."""
    found = {play.name: play.with_processes for row in cases().values() for play in elsewhere(row)}

    assert found["test_nothing_is_heard_after_a_removal"] is False
    assert found["test_each_end_is_heard_once_whoever_dies"] is True
