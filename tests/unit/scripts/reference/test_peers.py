"""The page of the peers is of the newest record, and says what stands behind it."""

import json

import pytest

from benchmarks.peers.catalogue import CANDIDATES, CMDC
from scripts.reference import peers


def run(at="2026-01-02T00:00:00Z", load=0.1):
    """Return a record in which one peer has played."""
    return {
        "at": at,
        "commit": "c0ffee",
        "crowd": 9,
        "firsts": 5,
        "kills": [
            {"peer": "ray", "goes_on": True, "script_lives": True, "history": 6, "kept": 0},
        ],
        "load_before": load,
        "machine": {"cpu": "x", "cores": 2},
        "metrics": [{"metric": "goes_on.ray", "value": 1500.0}],
        "nice": 19,
        "pages": 2,
        "peers": {"openai": "3", "ray": "2"},
        "rounds": 3,
        "versions": {"python": "3.11"},
    }


SCRIPTS = {
    "at": "2026-01-04T00:00:00Z",
    "commit": "c0ffee",
    "load_before": 3.0,
    "turns": 4,
    "metrics": [
        {"metric": "first.cmdc-runtime", "value": 1.25},
        {"metric": "real.cmdc-runtime", "value": 1.5},
        {"metric": "cpu.cmdc-runtime", "value": 0.75},
    ],
}


QUIET = SCRIPTS | {"load_before": 0.1}


def test_the_page_is_of_the_newest_run(tmp_path):
    """In whichever file of a day it stands."""
    old, new = run("2026-01-02T00:00:00Z"), run("2026-01-03T00:00:00Z")
    (tmp_path / "2026-01-03-peers.json").write_text(json.dumps([new]))
    (tmp_path / "2026-01-02-peers.json").write_text(json.dumps([old, old]))

    assert peers.newest(tmp_path) == new


def test_a_page_without_a_record_says_what_makes_one(tmp_path):
    """Nothing is made up."""
    with pytest.raises(LookupError, match="make bench-peers"):
        peers.newest(tmp_path)


def test_the_page_shows_every_candidate_twice():
    """Its figures, and what it is."""
    lines = peers.table_of(run(), SCRIPTS).splitlines()

    for one in CANDIDATES:
        count = sum(line.startswith(f"| {one.name} |") for line in lines)
        assert count == (3 if one.name == CMDC else 2)
    assert "| ray |  |  |  |  |  | 1500 | 0 of 6 |  |  |" in lines


def test_the_page_says_with_what_it_was_made():
    """Day, commit, machine, versions, sizes, and what else ran."""
    page = peers.table_of(run(), SCRIPTS)

    place = "2026-01-02 00:00:00, `c0ffee`, x, 2 cores, Python 3.11, openai 3, ray 2; 3 rounds;"
    assert f"{place} nice 19, load before 0.1." in page
    assert "*9 agents*" in page


def test_a_loaded_machine_is_reported():
    """Such figures have an order, and no digits."""
    assert "somebody else was working" not in peers.table_of(run(load=0.5), QUIET)
    assert "somebody else was working" in peers.table_of(run(load=0.6), QUIET)


def test_the_quickstarts_stand_side_by_side():
    """Each program of them has a row, who was left out too."""
    page = peers.table_of(run(), SCRIPTS)

    assert "2026-01-04 00:00:00, `c0ffee`; the median of 4 turns, load before 3: **somebody" in page
    assert "| cmdc-runtime | 1.25 | 1.5 | 0.75 |" in page
    assert "| OpenAI Agents | left out | left out | left out |" in page
