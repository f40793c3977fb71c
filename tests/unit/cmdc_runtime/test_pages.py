"""Answers in pages: all pages together are one answer, of the moment at which it was asked for."""

import tracemalloc

import msgspec
import pytest

from cmdc_runtime.pages import ANSWER_KEPT_S, ANSWERS_OPEN_MAX, PAGE_BYTES, Page, Pages

encode = msgspec.msgpack.encode


class Bed:
    """Pages by a clock that the test moves."""

    def __init__(self):
        self.now_s = 0.0
        self.pages = Pages(lambda: self.now_s, encode)

    def read(self, value):
        """Return the sizes of all pages of an answer, and what they hold."""
        body, name = self.pages.first(value)
        sizes, whole = [len(body)], body
        while name:
            page = self.pages.after(name, len(whole))
            assert not page.is_gone
            sizes.append(len(page.body))
            whole += page.body
            if page.is_last:
                break
        return sizes, msgspec.msgpack.decode(whole)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_a_list_is_what_the_codec_makes_of_it(count):
    """However many items it has."""
    value = list(range(count))

    assert Bed().read(tuple(value))[1] == value


@pytest.mark.parametrize(
    "value",
    [
        {"text": "x" * (3 * PAGE_BYTES)},
        ["x" * (5 * PAGE_BYTES)],
        ["x" * (PAGE_BYTES // 3)] * 20,
        ["small", "x" * (2 * PAGE_BYTES), "small"],
    ],
)
def test_no_page_is_longer_than_the_bound(value):
    """Also where one item is: a page may end in the middle of it."""
    sizes, whole = Bed().read(value)

    assert whole == value
    assert max(sizes) <= PAGE_BYTES
    assert len(sizes) > 1


def test_an_answer_that_fits_has_one_page_and_no_name():
    """Exactly one page is one page."""
    room = PAGE_BYTES - len(encode("x" * PAGE_BYTES)) + PAGE_BYTES
    body, name = Bed().pages.first("x" * room)

    assert (len(body), name) == (PAGE_BYTES, "")


def test_a_page_is_never_an_answer_of_pages():
    """Though with its envelope it is longer than one."""
    page = Page(body=b"x" * PAGE_BYTES)

    assert Bed().pages.first(page) == (encode(page), "")


def test_what_changes_meanwhile_does_not_show():
    """A page is made when it is asked for, of the value of then."""
    bed = Bed()
    value = ("x" * PAGE_BYTES, "y" * PAGE_BYTES)
    body, name = bed.pages.first(value)
    value = ("z",)
    other, _ = bed.pages.first(value)
    rest = bed.pages.after(name, len(body))
    last = bed.pages.after(name, len(body) + len(rest.body))

    assert msgspec.msgpack.decode(body + rest.body + last.body)[1] == "y" * PAGE_BYTES
    assert msgspec.msgpack.decode(other) == ["z"]


def test_a_page_can_be_asked_for_again():
    """Its answer may have been lost on the way; one that was passed is gone."""
    bed = Bed()
    body, name = bed.pages.first("x" * (4 * PAGE_BYTES))
    second = bed.pages.after(name, len(body))

    assert bed.pages.after(name, len(body)) == second
    assert not bed.pages.after(name, 2 * PAGE_BYTES).is_gone
    assert bed.pages.after(name, len(body)) == Page(is_gone=True)
    assert bed.pages.after(name, 2 * PAGE_BYTES + 1) == Page(is_gone=True)
    assert bed.pages.after("nobody's", 0) == Page(is_gone=True)


def test_what_is_kept_is_bounded_in_number_and_time():
    """The answer that nobody has asked for longest goes first, and one that is read stays."""
    bed = Bed()
    long = "x" * (2 * PAGE_BYTES)
    _, first = bed.pages.first(long)
    _, second = bed.pages.first(long)
    bed.pages.after(first, PAGE_BYTES)
    for _ in range(ANSWERS_OPEN_MAX - 1):
        bed.pages.first(long)

    assert not bed.pages.after(first, PAGE_BYTES).is_gone
    assert bed.pages.after(second, PAGE_BYTES).is_gone
    bed.now_s += ANSWER_KEPT_S
    assert bed.pages.after(first, PAGE_BYTES).is_gone


def test_what_nobody_reads_goes_by_itself():
    """Its reader may be dead, and nobody else may ask."""
    bed = Bed()
    bed.pages.first("x" * (2 * PAGE_BYTES))
    bed.now_s += ANSWER_KEPT_S - 1
    bed.pages.forget_old()
    before = bed.pages.has_any
    bed.now_s += 1
    bed.pages.forget_old()

    assert (before, bed.pages.has_any) == (True, False)


def test_a_value_that_is_one_piece_is_kept_once():
    """Neither the value itself nor all of its bytes stay beside what is left to be read."""
    bed = Bed()
    tracemalloc.start()
    try:
        bed.pages.first({"text": b"x" * (8 * PAGE_BYTES)})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 9 * PAGE_BYTES
