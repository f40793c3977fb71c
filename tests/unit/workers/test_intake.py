"""Text from outside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.codec import encode
from workers.intake import fit


@given(st.text(st.characters(codec="utf-8")))
def test_good_text_stays_as_it_is(text):
    """Nothing is changed that could be sent."""
    assert fit(text) == text


@pytest.mark.parametrize(
    ("text", "right"), [("a\udcff.txt", "a?.txt"), ("\ud83d", "?"), ("\ude00é", "?é")]
)
def test_what_no_encoder_takes_is_marked(text, right):
    """Half of a pair, or a byte that was no UTF-8."""
    assert fit(text) == right
    assert encode(fit(text))
