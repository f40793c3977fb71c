"""Where a text in Markdown stands, however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.core.tags import PREFIX_CHARS_MAX, TextPlace

PARTS = ("`", "```", "~", "~~~", "\n", " ", "\t", "> ", "- ", "12. ", "x", "<", ">", "é")


def place_of(*texts):
    place = TextPlace()
    for text in texts:
        place = place.after(text)
    return place.after_run()


@pytest.mark.parametrize(
    ("text", "is_code"),
    [
        ("", False), ("x", False), ("`x", True), ("`x`", False), ("``x`", True), ("``x``", False),
        ("```", True), ("```\nx", True), ("```\nx\n```", True), ("```\nx\n```\n", False),
        ("```\nx\n``\n", True), ("```\nx\n````\n", False), ("```\nx\n``` y\n", True),
        ("```\nx\n```  \n", False), ("```\nx\n~~~\n", True), ("~~~\nx\n~~~\n", False),
        ("x ~~~\n", False), ("x ```\n", True), ("x ```\n\n", False), ("``` a ```\n", False),
        ("``` a `\n", True), ("~~~ a ~~~\n", True), ("- ```\n", True), ("1. > ~~~\n", True),
        (" " * PREFIX_CHARS_MAX + "~~~\n", True), (" " * (PREFIX_CHARS_MAX + 1) + "~~~\n", False),
        ("~~\n", False), ("`\n\n", False), ("`\n>\n", False), ("`\nx", True),
        ("    x", True), ("   x", False), ("\tx", True), ("  \tx", True), ("    x\ny", False),
        ("a\n\n    x <", True), (">     x", True), (">    x", False), ("-     x", True),
        ("-    x", False), ("- \tx", False), ("1.     x", True), ("    `a`", True),
        ("x     y", False), ("```\n\nx", True), ("```\n\n\n", True), ("- \t x", False),
    ],
)  # fmt: skip
def test_code_is_known(text, is_code):
    """Fences, code in a line, and what is neither."""
    assert place_of(text).is_code is is_code


@given(st.lists(st.sampled_from(PARTS), max_size=20).map("".join))
def test_the_cuts_change_nothing(text):
    """Letter by letter it is the same place."""
    assert place_of(*text) == place_of(text)
