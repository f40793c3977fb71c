"""Text as it is compared: without the differences that a reader does not see, or looks past.

A ``Fold`` turns each character by itself into none, one or more, so that a text may be folded in
pieces. What needs to know the neighbours is out of reach: letters that are spaced out, entities,
encodings, other spellings.
"""

# ruff: noqa: RUF001 - it is about letters that look like others

import unicodedata
from collections.abc import Callable
from typing import Final

import regex

CACHED_MAX: Final = 4096
"""Characters whose folding is remembered; few texts have more."""
MARKS: Final = frozenset("*_~`\\")
"""What markdown takes out of a word, and the sign that keeps it from doing so."""

_INVISIBLE: Final = regex.compile(r"\p{Default_Ignorable_Code_Point}")
_ACCENT: Final = regex.compile(r"(?![\u3099\u309A])(?=\p{M})\p{Script=Inherited}")
"""A mark that goes with letters of any script; the two of Japanese make another letter."""

_ALIKE_PAIRS: Final = (
    ("АВЕЗКМНОРСТУХІЈЅҮԌԜ", "abe3kmhopctyxijsygw"),  # Cyrillic
    ("аеорсухіјѕһԁԛԝүѵӏ", "aeopcyxijshdqwyvl"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "abezhikmnoptyx"),  # Greek
    ("αικνορυχ", "aikvopux"),
    ("օսոհց", "ounhg"),  # Armenian
    ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz"),  # small capitals
    ("ıɑɡ", "iag"),
)
_ALIKE: Final = {
    ord(one): latin
    for ours, theirs in _ALIKE_PAIRS
    for one, latin in zip(ours, theirs, strict=True)
}
"""Letters that look like plain Latin ones: the commonest of Unicode's table of confusables."""


class Fold:
    """A way to fold text, one character at a time."""

    def __init__(self, character: Callable[[str], str]) -> None:
        """Fold each character as ``character`` says."""
        self._table = _Table(character)

    def __call__(self, text: str) -> str:
        """Return ``text`` folded."""
        return text.translate(self._table)

    def origins(self, text: str) -> list[int]:
        """Return where in ``text`` each character of the folded text comes from."""
        table = self._table
        return [at for at, one in enumerate(text) for _ in table[ord(one)]]


class _Table(dict[int, str]):
    """What each character becomes, worked out when it is first met."""

    def __init__(self, character: Callable[[str], str]) -> None:
        super().__init__()
        self._character = character

    def __missing__(self, code: int) -> str:
        if len(self) >= CACHED_MAX:
            self.clear()
        folded = self[code] = self._character(chr(code))
        return folded


def _as_seen(one: str) -> str:
    return "" if _INVISIBLE.match(one) else unicodedata.normalize("NFKC", one)


def _letters(one: str) -> str:
    parts = unicodedata.normalize("NFKD", "" if _INVISIBLE.match(one) else one).casefold()
    plain = unicodedata.normalize("NFKD", parts)
    return "".join(" " if part.isspace() else part for part in plain if not _ACCENT.match(part))


def _words(one: str) -> str:
    return "".join(letter for letter in _letters(one) if letter not in MARKS)


def _alike(one: str) -> str:
    return _words(one.translate(_ALIKE))


AS_SEEN: Final = Fold(_as_seen)
"""Nothing invisible, and plain characters for those that are variants: wide, bold, circled."""
LETTERS: Final = Fold(_letters)
"""As seen, and without case and accents; white space is blanks."""
WORDS: Final = Fold(_words)
"""Letters without markdown's marks."""
ALIKE: Final = Fold(_alike)
"""Words, with Latin letters for those of other alphabets that look like them."""
