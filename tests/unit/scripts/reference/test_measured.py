"""The page of measurements leaves no run out, and says how much stands behind a number."""

import json

import pytest

from benchmarks.report import RESULTS
from scripts.reference import measured

PAGE = measured.page()
RUNS = {
    f"{path.stem.split('-', 3)[3]} {run['at']}": run
    for path in sorted(RESULTS.glob("*.json"))
    for run in json.loads(path.read_text())
}
"""By subject and time, as notes name them."""


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_run_is_there(run):
    """The good and the bad, each by its time and commit."""
    assert run["at"].removesuffix("Z").replace("T", " ") in PAGE
    assert f"`{run['commit']}`" in PAGE


@pytest.mark.parametrize(
    ("samples", "mark"), [(1, "once"), (2, "few"), (99, "few"), (100, ""), (25_000, "")]
)
def test_few_samples_are_marked(samples, mark):
    """One sample is no median, and of a few the 99th percentile is the largest."""
    assert measured.mark(samples) == mark


def test_what_went_wrong_stands_beside_its_run():
    """The soak that lost a prompt says so, with what came of it."""
    (row,) = [line for line in PAGE.splitlines() if "lost acknowledged prompts 1," in line]

    assert "2026-11-22 16:32:19" in row
    assert "one transaction since" in row


def test_every_note_is_of_a_run():
    """A note whose run is not there would be shown nowhere."""
    assert measured.tomllib.loads(measured.NOTES.read_text()).keys() <= RUNS.keys()
