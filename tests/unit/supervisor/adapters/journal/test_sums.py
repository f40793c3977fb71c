"""The checksums of a file's pages: one wrong bit is found by them, and nothing is made of more."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.adapters.journal.repair.sums import PAGE_BYTES, PageSums

PLACES = PAGE_BYTES * 8
RIGHT = random.Random(1).randbytes(PAGE_BYTES)
places = st.integers(0, PLACES - 1)


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """The checksums of a file with one page."""
    folder = tmp_path_factory.mktemp("sums")
    journal = folder / "journal"
    journal.write_bytes(RIGHT)
    found = PageSums(folder / "sums", journal)
    with journal.open("rb") as file:
        found.rebuild(file)
    return found


def flipped(*places):
    """Return the page with these bits turned."""
    data = bytearray(RIGHT)
    for place in places:
        data[place // 8] ^= 1 << place % 8
    return bytes(data)


@pytest.mark.slow
def test_each_single_bit_is_found(sums):
    """Whichever of a page's 32,768 it is."""
    missed = [place for place in range(PLACES) if sums.repaired(1, flipped(place)) != RIGHT]

    assert missed == []


@given(place=places)
def test_a_flipped_bit_is_turned_back(sums, place):
    """The page is the one whose checksum was noted."""
    assert sums.repaired(1, flipped(place)) == RIGHT


@given(wrong=st.sets(places, min_size=2, max_size=2))
def test_two_flipped_bits_are_not_taken_for_one(sums, wrong):
    """CRC-32 distinguishes them up to 91,607 bits, so none of the two is guessed."""
    assert sums.repaired(1, flipped(*wrong)) is None


def test_what_is_right_or_cut_has_no_wrong_bit(sums):
    """There is nothing to turn back in a page that is right, and a part of one is none."""
    assert sums.repaired(1, RIGHT) is None
    assert sums.repaired(1, RIGHT[:-1]) is None
    assert sums.repaired(1, b"") is None
