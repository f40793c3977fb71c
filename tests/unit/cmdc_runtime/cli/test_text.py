"""What others wrote comes out of here unable to command a terminal."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.cli.text import json_line, typed
from cmdc_runtime.lines import duration, neutral, one_line

HARMLESS = {"\n", "\t"}
BIDI = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def is_harmless(character):
    if character in HARMLESS:
        return True
    return unicodedata.category(character) != "Cc" and character not in BIDI


@given(st.text())
def test_no_control_character_is_left(text):
    """Only newline and tab pass as they are."""
    assert all(map(is_harmless, neutral(text)))


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs"])))
def test_plain_text_is_not_touched(text):
    """What commands nothing comes out as it was."""
    assert neutral(text) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\x1b[31m", "\u241b[31m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\x7fb", "a\u2421b"),
        ("one\r\ntwo", "one\ntwo"),
        ("\u202eabc", "\\u202eabc"),
    ],
    ids=["escape", "c1", "delete", "carriage-return", "bidi"],
)
def test_control_characters_are_shown(text, found):
    """A reader sees what was there."""
    assert neutral(text) == found


@given(st.text(), st.integers(min_value=1, max_value=200))
def test_a_line_is_one_short_line(text, chars_max):
    """Whatever is quoted fits into the line."""
    line = one_line(text, chars_max)

    assert (len(line) <= chars_max, len(line.splitlines()) <= 1) == (True, True)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_json_is_harmless_and_the_same(text):
    """A line of JSON holds no control character and decodes to what it was made from."""
    line = json_line({"text": text})

    assert all(map(is_harmless, line))
    assert json.loads(line) == {"text": text}


def test_argument_of_other_bytes_becomes_text():
    """Bytes that are no UTF-8 are replaced, since nothing could encode them again."""
    assert typed("caf\udce9") == "caf\ufffd"


@pytest.mark.parametrize(
    ("ms", "found"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (2100, "2.1 s"),
        (200_000, "3 min 20 s"),
        (7_260_000, "2 h 1 min"),
    ],
)
def test_durations_are_readable(ms, found):
    """The unit grows with the time."""
    assert duration(ms) == found
