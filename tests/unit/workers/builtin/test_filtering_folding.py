"""Text as it is compared: what each fold looks past, and what it keeps."""

# ruff: noqa: RUF001 - it is about letters that look like others

import pytest

from workers.builtin import filtering as module
from workers.builtin.filtering import ALIKE, AS_SEEN, LETTERS, WORDS, Fold


@pytest.mark.parametrize(
    ("text", "seen", "letters", "words", "alike"),
    [
        ("A b", "A b", "a b", "a b", "a b"),
        ("ＡＢ１", "AB1", "ab1", "ab1", "ab1"),
        ("a\u200bb\u00adc\ufe0f", "abc", "abc", "abc", "abc"),
        ("é e\u0301", "é e\u0301", "e e", "e e", "e e"),
        ("s\u0336", "s\u0336", "s", "s", "s"),
        ("ﬁ ẞ İ", "fi ẞ İ", "fi ss i", "fi ss i", "fi ss i"),
        ("a\u00a0\t\u3000\n", "a \t \n", "a    ", "a    ", "a    "),
        ("**a_b**`~\\", "**a_b**`~\\", "**a_b**`~\\", "ab", "ab"),
        ("ѕесrеt", "ѕесrеt", "ѕесrеt", "ѕесrеt", "secret"),
        ("СОР", "СОР", "сор", "сор", "cop"),
        ("ꜱᴇᴄʀᴇᴛ", "ꜱᴇᴄʀᴇᴛ", "ꜱᴇᴄʀᴇᴛ", "ꜱᴇᴄʀᴇᴛ", "secret"),
        ("か\u3099", "か\u3099", "か\u3099", "か\u3099", "か\u3099"),
        ("", "", "", "", ""),
    ],
)
def test_folds(text, seen, letters, words, alike):
    """Each looks past what the one before it does, and more."""
    assert (AS_SEEN(text), LETTERS(text), WORDS(text), ALIKE(text)) == (seen, letters, words, alike)


def test_kinds_of_japanese_letters_stay_apart():
    """Their marks make other letters."""
    assert WORDS("か") != WORDS("が") == WORDS("か\u3099")


def test_origins_are_where_characters_come_from():
    """One for each character of the folded text."""
    assert AS_SEEN.origins("a\u200bﬁb") == [0, 2, 2, 3]


def test_a_text_may_be_folded_in_pieces():
    """No fold looks at neighbours."""
    text = "Aé\u200bﬁe\u0301か\u3099_ß"

    for fold in (AS_SEEN, LETTERS, WORDS, ALIKE):
        assert "".join(map(fold, text)) == fold(text)


def test_what_is_remembered_is_bounded(monkeypatch):
    """A text of many characters makes room for its own."""
    monkeypatch.setattr(module, "CACHED_MAX", 3)
    asked = []
    fold = Fold(lambda one: asked.append(one) or one)

    assert fold("aabcaabcd") == "aabcaabcd"
    assert asked == list("abcd")
    assert len(fold._table) == 1
