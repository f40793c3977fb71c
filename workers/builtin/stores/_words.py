"""Text as words, one way for all stores, so that they agree on what a word is.

A word is a run of letters and digits, compatibility forms unified and case folded. Scripts that put
no space between words have no words that a rule could see: each of their characters is one, a run
of them is a phrase, and what a text is about are the pairs of neighbours. Marks above, below and
beside a character do not count there: FTS5 takes none as a word.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, TypeAlias

from cmdc_runtime.extensions.memory import WORDS_MAX

Phrase: TypeAlias = tuple[str, ...]
"""Words that follow one another."""

# Thai and Lao, Myanmar, Khmer: their letters and digits, and the marks that belong to letters.
_SOUTHEASTERN: Final = "".join(
    letter
    for first, last in ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF))
    for letter in map(chr, range(first, last + 1))
    if unicodedata.category(letter)[0] in "LMN"
)
# Kana, Han and Hangul.
_EASTERN: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_EASTERN_RARE: Final = r"\U00020000-\U0003fffd"
_UNSPACED: Final = f"{_SOUTHEASTERN}{_EASTERN}{_EASTERN_RARE}"
_RUN: Final = re.compile(rf"([{_UNSPACED}]+)|([^\W_{_UNSPACED}]+)")


def spaced(text: str) -> str:
    """Return the words of a text with one blank between them."""
    return " ".join(word for phrase in phrases_in(text) for word in phrase)


def phrases_of(text: str) -> list[Phrase]:
    """Return what has to occur for a text to be found, at most ``WORDS_MAX`` words in all."""
    found: list[Phrase] = []
    left = WORDS_MAX
    for phrase in dict.fromkeys(phrases_in(text)):
        if left <= 0:
            break
        found.append(phrase[:left])
        left -= len(phrase)
    return found


def features_of(text: str) -> dict[Phrase, None]:
    """Return what a text has in common with others: words, and pairs where words are unspaced."""
    return dict.fromkeys(pair for phrase in phrases_in(text) for pair in pairs_of(phrase))


def pairs_of(phrase: Phrase) -> Iterator[Phrase]:
    """Yield the neighbours in a phrase; one word is its own."""
    if len(phrase) == 1:
        yield phrase
    yield from itertools.pairwise(phrase)


def phrases_in(text: str) -> Iterator[Phrase]:
    """Yield the words of a text one by one, unspaced runs as phrases."""
    for run in _RUN.finditer(unicodedata.normalize("NFKC", text).casefold()):
        phrase = tuple(filter(str.isalnum, run[1])) if run[1] else (run[2],)
        if phrase:
            yield phrase
