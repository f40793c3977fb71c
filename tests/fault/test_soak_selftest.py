"""A soak finds what is planted: the short form of ``make soak-selftest``."""

import pytest

from scripts.soak_selftest.__main__ import UNSEEN, all_bugs, chosen, play
from workers.core.records import RECORDS

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

SEED = 1
QUICK = chosen((), is_short=True)


def test_each_kind_of_record_is_dropped_once():
    """A new kind joins by itself, and no two bugs have one name."""
    names = [bug.name for bug in all_bugs()]

    assert len(set(names)) == len(names)
    assert {f"record {one.__struct_config__.tag} is dropped" for one in RECORDS} <= set(names)
    assert set(UNSEEN) <= set(names)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("bug", QUICK, ids=[bug.name.replace(" ", "-") for bug in QUICK])
def test_a_bug_that_is_planted_is_found(bug):
    """By some check, within its number of lives."""
    played = play(bug, SEED)

    assert played.by, f"{played.lives} lives, and nothing was found"
