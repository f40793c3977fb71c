"""The page of measurements leaves no run out, and says how much stands behind a number."""

import json

import pytest

from benchmarks.report import RESULTS
from scripts.proofs.ledger import ALIKE, NEVER, proofs
from scripts.reference import measured

PAGE = measured.page()
RUNS = {
    f"{path.stem.split('-', 3)[3]} {run['at']}": run
    for path in sorted(RESULTS.glob("*.json"))
    for run in json.loads(path.read_text())
    if "mutants" not in run
}
"""By subject and time, as notes name them; mutants are many runs of one thing."""


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
    """One whose run is not there is shown nowhere, but one about a proof: its row says it."""
    noted = measured.tomllib.loads(measured.NOTES.read_text()).keys()
    of_proofs = {NEVER.format(name) for name in proofs()}
    of_proofs |= {ALIKE.format(name, proof.digest()) for name, proof in proofs().items()}

    assert noted <= RUNS.keys() | of_proofs


def test_the_mutants_of_all_modules_are_one_row(tmp_path, monkeypatch):
    """Each module counts by its newest run, and one that is gone no longer."""
    place = {"commit": "c", "load_before": 1, "machine": {"cpu": "x", "cores": 2}}
    place |= {"versions": {"python": "3"}}
    runs = [
        ("2026-01-02T00:00:00Z", "supervisor/sessions/tree_runtime.py", 10, ["a"]),
        ("2026-01-01T00:00:00Z", "supervisor/sessions/tree_runtime.py", 9, ["a", "b", "c"]),
        ("2026-01-01T00:00:00Z", "supervisor/sessions/session.py", 5, []),
        ("2026-01-03T00:00:00Z", "supervisor/gone.py", 7, []),
    ]
    named = ("at", "module", "mutants", "survivors")
    kept = [place | dict(zip(named, run, strict=True)) for run in runs]
    (tmp_path / "2026-01-03-mutants.json").write_text(json.dumps(kept))
    monkeypatch.setattr(measured, "RESULTS", tmp_path)

    rows = [line for line in measured.page().splitlines() if line.startswith("| 2026")]

    place = "2026-01-02 00:00:00 | `c` | x, 2 cores, Python 3 | 1"
    assert rows == [f"| {place} | 14 of 15 mutants of 2 modules killed |"]
