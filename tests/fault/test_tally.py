"""The count of named cases: what passes one, what shows it in part, and which run is judged."""

import os

import pytest

from tests.fault.tally import PARTS, Count, Tally, count, main

pytest_plugins = ["pytester"]
OK, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED

GOOD = """
import pytest

@pytest.mark.some_case("A1", "A2")
def test_good():
    pass
"""
OTHER = """
import pytest

@pytest.mark.some_case("A2")
def test_other():
    pass

@pytest.mark.some_case("A2")
def test_skipped():
    pytest.skip("not here")
"""
BAD = """
import pytest

@pytest.fixture
def audit():
    yield
    assert False

@pytest.mark.some_case("A1")
def test_with_an_audit(audit):
    pass
"""
FILES = {"cases/test_good.py": GOOD, "more/test_other.py": OTHER}


def test_a_case_passes_by_all_of_its_tests():
    """One that failed or did not run makes it missing, one that was skipped shows it in part."""
    plays = {
        "whole": {"A1"},
        "whole too": {"A1", "A2"},
        "skipped": {"A2", "A3"},
        "failed": {"A4"},
        "good": {"A4", "A5"},
        "not run": {"A5"},
    }
    outcomes = {
        "whole": "passed",
        "whole too": "passed",
        "skipped": "skipped",
        "failed": "failed",
        "good": "passed",
    }
    found = count(["A1", "A2", "A3", "A4", "A5", "A6"], plays, outcomes)

    assert found == Count(passed=("A1",), partly=("A2",), missing=("A3", "A4", "A5", "A6"))
    assert found.line("some") == ("some cases: 1 of 6 passed; A2 in part; without A3, A4, A5, A6")


@pytest.fixture
def small_run(pytester, monkeypatch):
    """Run files of tests in two folders, of which one has the table."""
    monkeypatch.delenv(PARTS, raising=False)  # these tests may be played in a lane themselves

    def run(files, *arguments, known=("A1", "A2")):
        for path, text in files.items():
            file = pytester.path / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        table = pytester.path / "cases" / "cases.toml"
        table.write_text("".join(f'{name} = "what it is"\n' for name in known))
        pytester.makeini("[pytest]\nmarkers = some_case(*names)")
        tally = Tally("some", "some_case", table)
        return pytester.runpytest_inprocess(
            "-p", "no:cacheprovider", "--import-mode=importlib", *arguments, plugins=[tally]
        )

    return run


@pytest.fixture
def play_lanes(small_run, pytester, monkeypatch):
    """Run lanes one after the other, and return the results."""

    def play(lanes, known):
        monkeypatch.setenv(PARTS, str(pytester.mkdir("parts")))
        results = []
        for number, lane in enumerate(lanes):
            monkeypatch.setattr(os, "getpid", lambda number=number: number)
            results.append(small_run(FILES, lane, known=known))
        return results

    return play


@pytest.mark.parametrize(
    ("arguments", "known", "counted", "status"),
    [
        ((), ("A1", "A2"), "1 of 2 passed; A2 in part", OK),
        ((), ("A1", "A2", "A3"), "1 of 3 passed; A2 in part; without A3", FAILED),
        (("--collect-only",), ("A1", "A2", "A3"), None, OK),
        (("more",), ("A1", "A2", "A3"), "0 of 3 passed; A2 in part; without A1, A3", OK),
        (("-k", "skipped or good"), ("A1", "A3"), "1 of 2 passed; without A3", OK),
        (("cases/test_good.py::test_good", "more"), ("A3",), "0 of 1 passed; without A3", OK),
    ],
    ids=["all", "one missing", "nothing run", "a folder", "a choice", "a test"],
)
def test_a_run_of_all_cases_has_none_missing(small_run, arguments, known, counted, status):
    """A run of a part says what it is without, and is no failure for that."""
    result = small_run(FILES, *arguments, known=known)

    assert counted_by(result) == counted
    assert result.ret == status


def test_a_case_fails_by_the_audit_after_one_of_its_tests(small_run):
    """Though the test itself has passed, and another one of the case altogether."""
    result = small_run(FILES | {"more/test_bad.py": BAD})

    assert counted_by(result) == "0 of 2 passed; A2 in part; without A1"
    assert result.ret == FAILED


@pytest.mark.parametrize(
    ("lanes", "known", "judged"),
    [
        (("cases", "more"), ("A1", "A2"), ("1 of 2 passed; A2 in part", 0)),
        (("cases", "more"), ("A1", "A2", "A3"), ("1 of 3 passed; A2 in part; without A3", 1)),
        (("cases",), ("A1", "A2", "A3"), ("2 of 3 passed; without A3", 0)),
    ],
    ids=["all", "one missing", "a part"],
)
def test_lanes_are_one_run(play_lanes, capsys, lanes, known, judged):
    """None of them reports its part or is judged by it; what they make together is."""
    results = play_lanes(lanes, known)
    capsys.readouterr()

    assert [(counted_by(result), result.ret) for result in results] == [(None, OK)] * len(lanes)
    status = main()
    assert (capsys.readouterr().out.removeprefix("some cases: ").strip(), status) == judged


def counted_by(result):
    """Return what the last line of the count says, None where there is none."""
    lines = [line for line in result.outlines if line.startswith("some cases: ")]
    return lines[-1].removeprefix("some cases: ") if lines else None
