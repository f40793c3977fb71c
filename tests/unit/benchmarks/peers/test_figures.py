"""What the samples of the peers come to: metrics beside ours, and a row for each who plays."""

import msgspec

from benchmarks.peers.catalogue import CANDIDATES, CMDC
from benchmarks.peers.figures import (
    NEVER,
    NOT_PLAYED,
    UNITS,
    Findings,
    Kill,
    head,
    number,
    rows,
    text_table,
)


def record(findings, crowd=50):
    """Return a run as it is read from its file."""
    kills = list(findings.kills.values())
    found = {"crowd": crowd, "kills": kills, "metrics": findings.metrics()}
    return msgspec.json.decode(msgspec.json.encode(found))


def played():
    """Return what three peers have done: one goes on, one does not, one takes its script along."""
    findings = Findings()
    for measure in UNITS:
        findings.add(measure, CMDC, 10)
        if measure != "goes_on":
            findings.add(measure, "spawn", 20)
            findings.add(measure, "asyncio", 5)
    findings.kills = {
        CMDC: Kill(CMDC, goes_on=True, script_lives=True, history=6, kept=6),
        "spawn": Kill("spawn", goes_on=False, script_lives=True, history=6, kept=0),
        "asyncio": Kill("asyncio", goes_on=False, script_lives=False, history=6, kept=0),
    }
    return findings


def by_peer(run):
    return {row[0]: dict(zip(head(run), row, strict=True)) for row in rows(run)}


def test_a_peer_stands_beside_ours():
    """The baseline of each is this project's figure of the same run, which has none itself."""
    findings = Findings()
    for value in (3, 1, 2):
        findings.add("warm", CMDC, value)
    findings.add("warm", "ray", 8)

    ours, ray = findings.metrics()

    assert (ours.metric, ours.unit, ours.value, ours.baseline, ours.n) == (
        f"warm.{CMDC}",
        "ms",
        2,
        None,
        3,
    )
    assert (ray.metric, ray.value, ray.baseline, ray.ratio) == ("warm.ray", 8, 2, 4)


def test_a_peer_stands_alone_where_ours_was_not_played():
    """Nothing is compared with nothing."""
    findings = Findings()
    findings.add("cold", "ray", 8)

    [ray] = findings.metrics()

    assert (ray.baseline, ray.ratio) == (None, None)


def test_every_candidate_has_a_row_and_every_row_fits_its_head():
    """Who was not played too, which the row says."""
    run = record(played())
    found = by_peer(run)

    assert list(found) == [one.name for one in CANDIDATES]
    assert [name for name, row in found.items() if NOT_PLAYED in row.values()] == [
        "ray",
        "thespian",
        "forkserver",
    ]


def test_the_table_says_how_a_kill_ended():
    """With the time, or that nothing goes on, and what was kept of the history."""
    found = {
        peer: (row["goes on after kill -9 (ms)"], row["history kept"])
        for peer, row in by_peer(record(played())).items()
        if NOT_PLAYED not in row.values()
    }

    assert found == {
        CMDC: ("10", "6 of 6"),
        "spawn": (NEVER, "0 of 6"),
        "asyncio": (f"{NEVER}; the script died too", "0 of 6"),
    }


def test_the_size_of_the_crowd_is_named():
    """A smaller run has another head."""
    assert "7 agents answered (s)" in head(record(played(), crowd=7))


def test_the_table_of_a_terminal_has_a_column_for_each_candidate():
    """And a line for each measure, below the names."""
    lines = text_table(record(played())).splitlines()

    assert lines[0].split() == [one.name for one in CANDIDATES]
    assert len(lines) == len(head(record(played())))


def test_numbers_have_three_digits():
    """Larger ones are whole, and what is missing is empty."""
    assert [number(one) for one in (None, 0.01234, 12.345, 999.4, 1234.5)] == [
        "",
        "0.0123",
        "12.3",
        "999",
        "1234",
    ]
