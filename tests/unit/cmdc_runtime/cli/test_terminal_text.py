"""What others wrote comes out of here unable to command a terminal."""

import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmdc_runtime.cli.terminal import json_line, typed
from cmdc_runtime.lines import duration, neutral, one_line

HARMLESS = {"\n", "\t"}
BIDI = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
UNSEEN = {*"\u180e\u200b\u2060\u2064\u206a\ufeff\ufff9", "\U000e0001", "\U000e0041"}


def is_harmless(character):
    if character in HARMLESS:
        return True
    is_shown = unicodedata.category(character) not in {"Cc", "Zl", "Zp"}
    return is_shown and character not in BIDI | UNSEEN


@given(st.text())
def test_no_control_character_is_left(text):
    """Only newline and tab pass as they are."""
    assert all(map(is_harmless, neutral(text)))


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
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
        ("one\u2028two\u2029", "one\\u2028two\\u2029"),
        ("pay\u200bpal\ufeff", "pay\\u200bpal\\ufeff"),
        ("a\U000e0041", "a\\U000e0041"),
    ],
    ids=["escape", "c1", "delete", "carriage-return", "bidi", "breaks", "no-width", "tag"],
)
def test_control_characters_are_shown(text, found):
    """A reader sees what was there."""
    assert neutral(text) == found


@pytest.mark.parametrize(
    "text",
    ["👩\u200d🚀 ❤\ufe0f", "x\u200cy", "\u200f(\u05e9)\u200e", "\u061c\u0661", "co\u00adop"],
    ids=["emoji", "persian", "hebrew", "arabic", "hyphen"],
)
def test_what_scripts_and_emoji_are_written_with_stays(text):
    """Joiners, marks of direction and variants: without them another text would be shown."""
    assert neutral(text) == text
    assert text in json_line(text)


@given(st.text(), st.integers(min_value=1, max_value=200))
def test_a_line_is_one_short_line(text, chars_max):
    """Whatever is quoted fits into the line."""
    line = one_line(text, chars_max)

    assert (len(line) <= chars_max, len(line.splitlines()) <= 1) == (True, True)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
@example("one\u2028two\u2029three\x85\U000e0041")
def test_json_is_harmless_and_the_same(text):
    """A line of JSON holds no control character and decodes to what it was made from."""
    line = json_line({"text": text})

    assert all(map(is_harmless, line))
    assert line.splitlines() == [line]
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
