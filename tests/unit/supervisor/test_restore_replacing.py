"""How far a journal goes, and what one has that another has not."""

import sqlite3

import pytest

from supervisor.adapters.journal.schema import MIGRATIONS
from supervisor.restore import (
    Extent,
    extent_of,
    more_of,
    shown_time,
)

A, B = (b"a", 1), (b"b", 2)


def extent(**sessions):
    """Return an extent of sessions that were made at 1."""
    return Extent({(name.encode(), 1): far for name, far in sessions.items()}, 9)


@pytest.mark.parametrize(
    ("journal", "backup", "more"),
    [
        ({}, {}, (0, 0)),
        ({"a": (3, 3, 0, False)}, {"a": (3, 3, 0, False)}, (0, 0)),
        ({"a": (3, 3, 0, False)}, {"a": (4, 5, 1, True)}, (0, 0)),
        ({"a": (4, 3, 0, False)}, {"a": (3, 3, 0, False)}, (0, 1)),
        ({"a": (3, 4, 0, False)}, {"a": (3, 3, 0, False)}, (0, 1)),
        ({"a": (3, 3, 1, False)}, {"a": (3, 3, 0, False)}, (0, 1)),
        ({"a": (3, 3, 0, True)}, {"a": (3, 3, 0, False)}, (0, 1)),
        ({"a": (3, 3, 0, True), "b": (1, 1, 0, False)}, {"a": (9, 9, 0, True)}, (1, 0)),
        ({}, {"a": (3, 3, 0, False)}, (0, 0)),
    ],
)
def test_what_only_the_journal_has(journal, backup, more):
    """Sessions that the backup has not, and those of which it has less."""
    assert more_of(extent(**journal), extent(**backup)) == more


def test_an_id_that_was_used_again_is_another_session():
    """It was made at another time."""
    assert more_of(Extent({A: (1, 1, 0, False)}, 1), Extent({(b"a", 7): (9, 9, 9, True)}, 1)) == (
        1,
        0,
    )


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_the_extent_of_every_format(version):
    """A journal of an earlier release lacks tables."""
    db = sqlite3.connect(":memory:")
    for step in MIGRATIONS[:version]:
        for statement in step:
            db.execute(statement)
    db.execute("INSERT INTO sessions VALUES ('a', 1, x'', NULL, NULL, 1, 0, NULL, NULL)")
    db.execute("INSERT INTO sessions VALUES ('b', 2, x'', NULL, NULL, 1, 0, 70, x'')")
    db.execute("INSERT INTO commands VALUES ('a', 'c', 4, 60, x'', NULL)")
    db.execute("INSERT INTO records VALUES ('a', 5, 1, 'said', x'')")
    db.execute("INSERT INTO events VALUES ('a', 3, 4, x'')")
    found = extent_of(db)
    db.close()

    assert found.sessions == {A: (5, 6, 0, False), B: (0, 0, 0, True)}
    assert (found.live, found.last_ms) == (1, 70)


def test_numbers_that_are_none_are_no_reason_to_fail():
    """A row that somebody has edited."""
    db = sqlite3.connect(":memory:")
    for step in MIGRATIONS:
        for statement in step:
            db.execute(statement)
    db.execute("INSERT INTO sessions VALUES ('a', 'x', x'', NULL, NULL, 1, 0, 'never', NULL)")
    db.execute("INSERT INTO records VALUES (CAST(x'ff' AS TEXT), 'y', 1, 'said', x'')")
    found = extent_of(db)
    db.close()

    assert (len(found.sessions), found.last_ms) == (1, 0)


def test_a_wild_time_is_shown_as_the_number_it_is():
    """It comes from a file."""
    assert shown_time(0) == "1970-01-01 00:00:00Z"
    assert shown_time(2**63) == f"{2**63} ms since 1970"
