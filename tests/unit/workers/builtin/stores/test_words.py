"""Text as words: what a word is, and that no text has too many of them."""

import pytest

from cmdc_runtime.extensions.memory import WORDS_MAX
from workers.builtin.stores._words import features_of, phrases_of, spaced


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("?! _ -", ""),
        ("Fix the parser: a_bug!", "fix the parser a bug"),
        ("Straße STRASSE", "strasse strasse"),
        ("ﬁne Ｗｉｄｅ", "fine wide"),  # noqa: RUF001 - letters of full width
        ("执行 code代码", "执 行 code 代 码"),
        ("カタカナ 한국", "カ タ カ ナ 한 국"),
        ("ภาษาไทย ๒๕", "ภ า ษ า ไ ท ย ๒ ๕"),
        ("ที่code น้ำ", "ท code น า"),
        ("ພາສາລາວ", "ພ າ ສ າ ລ າ ວ"),
        ("ភាសាខ្មែរ។", "ភ ស ខ ម រ"),
        ("မြန်မာ", "မ န မ"),
        ("\u0e48 a", "a"),
        ("x2 3.5", "x2 3 5"),
        ("\ud800a\0b", "a b"),
    ],
)
def test_words_are_runs_of_letters_and_digits(text, words):
    """In one case and one form; unspaced scripts by their characters."""
    assert spaced(text) == words


def test_an_unspaced_run_is_a_phrase():
    """Its characters are wanted one after the other; each run and word counts once."""
    assert phrases_of("执行 code 执行 CODE") == [("执", "行"), ("code",)]


def test_features_are_words_and_pairs():
    """A single character is its own pair."""
    assert list(features_of("执行码 a 是")) == [("执", "行"), ("行", "码"), ("a",), ("是",)]


def test_phrases_are_bounded():
    """By their words in all, the first ones; a phrase is cut at the bound."""
    many = [f"w{number}" for number in range(WORDS_MAX * 2)]
    found = phrases_of(" ".join(many))
    unspaced = phrases_of("a " + "".join(map(chr, range(0x4E00, 0x4E00 + WORDS_MAX * 2))))

    assert found == [(word,) for word in many[:WORDS_MAX]]
    assert [len(phrase) for phrase in unspaced] == [1, WORDS_MAX - 1]
