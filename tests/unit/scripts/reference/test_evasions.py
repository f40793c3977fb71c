"""The page of ways around the guards: what is counted, and how a case is shown."""

import pytest

from scripts.reference import evasions

CASES = [
    {"name": "a", "technique": "sh -c", "outcome": "blocked", "command": "x"},
    {"name": "b", "technique": "case", "outcome": "passes", "command": "x"},
    {"name": "c", "technique": "case", "outcome": "gets_through", "command": "x", "why": "so"},
    {"name": "d", "outcome": "passes", "command": "x"},
]


def test_cases_are_counted_by_technique_and_outcome():
    """What gets through stands second, and last what is harmless: a case without a technique."""
    lines = evasions._section("guard", {"case": CASES}).splitlines()

    assert lines[4:10] == [
        "| technique | blocked | gets through | passes |",
        "| --- | --- | --- | --- |",
        "| case |  | 1 | 1 |",
        "| sh -c | 1 |  |  |",
        "| harmless |  |  | 1 |",
        "| **all 4** | **1** | **1** | **2** |",
    ]
    assert lines[-1] == "| case | c | command `x` | so |"


def test_a_guard_that_stops_all_says_so():
    """There is no table of nothing."""
    assert evasions._section("guard", {"case": CASES[:1]}).endswith(
        "Of these, nothing gets through."
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"command": "ls -l"}, "command `ls -l`"),
        ({"command": "ls\n\x1b[2J"}, 'command `"ls\\n\\u001b[2J"`'),
        ({"text": "\u0455udo"}, 'text `"\\u0455udo"`'),
        ({"text": "a`b`"}, "text `` a`b` ``"),
        ({"tools": ["a"], "count": 2}, 'tools `["a"]`, count `2`'),
    ],
)
def test_each_character_of_a_case_is_seen(given, shown):
    """Text that looks like another one is distinguished."""
    assert evasions._tried({"name": "n", "technique": "t", "outcome": "o", **given}) == shown
