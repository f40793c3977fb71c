"""The words of a shell command, as far as reading alone shows their values.

A word is a row of parts. What stands there in so many characters is text, quoted or not; the rest
is what the shell replaces when the command runs.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

BRACE_WORDS_MAX: Final = 256
"""More words than any honest ``{1..n}`` of a command that a model writes out."""

PartKind: TypeAlias = Literal["text", "glob", "expansion", "tilde", "brace", "blank"]
"""What a part is: exact text; ``*``, ``?`` or ``[..]``; something computed; a leading ``~`` or
``~user``. No word has parts of the last two kinds, an unquoted ``{``, ``,``, ``}`` or later ``~``,
and ``$IFS``: words are made of them."""

_NUMBERS: Final = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?")
_HOME: Final = re.compile(r"~[A-Za-z0-9._+-]*(?=[/:]|$)")
_LETTERS: Final = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d{1,9}))?")


class TooManyWordsError(Exception):
    """Braces stand for more words than are worth reading."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word."""

    kind: PartKind
    text: str
    """Of text its value, of all else what is written: ``$HOME``, ``$(date)``, ``[a-z]``."""
    name: str = ""
    """Of an expansion of a variable, which one."""
    default: str | None = None
    """What the expansion may give instead of the variable's value, as in ``${name:-default}``."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command, quotes and backslashes taken off."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The word; what is not known stands there as it is written."""
        return "".join(part.text for part in self.parts)

    @property
    def is_literal(self) -> bool:
        """Whether ``text`` is certainly what the program gets."""
        return all(part.kind == "text" for part in self.parts)

    def from_(self, start: int) -> "Word":
        """Return the word without its first ``start`` characters, which are text."""
        if not self.parts or start == 0:
            return self
        first, *rest = self.parts
        return word_of([Part(first.kind, first.text[start:], first.name, first.default), *rest])


UNKNOWN: Final = Word((Part("expansion", "$@", "@"),))
"""Any number of words that come when the command runs, as the arguments of ``xargs`` do."""


def literal(text: str) -> Word:
    """Return a word whose value is ``text``."""
    return Word((Part("text", text),))


def word_of(parts: Iterable[Part]) -> Word:
    """Return a word in which texts that touch are one part."""
    joined: list[Part] = []
    for part in parts:
        if part.kind == "text" and joined and joined[-1].kind == "text":
            joined[-1] = Part("text", joined[-1].text + part.text)
        elif part.text or part.kind != "text":
            joined.append(part)
    return Word(tuple(joined))


def braced(parts: Sequence[Part]) -> list[Word]:
    """Return the words that ``parts`` are after brace expansion, left to right as bash does it.

    A word that braces leave empty is none.

    Raises:
        TooManyWordsError: they are more than ``BRACE_WORDS_MAX``.
    """
    braces = sum(part.kind == "brace" and part.text != "~" for part in parts)
    if not braces:
        return [word_of(_plain(parts))]
    if braces > BRACE_WORDS_MAX:
        raise TooManyWordsError
    if [part.text for part in parts[:2] if part.kind == "brace"] == ["{", "}"]:
        parts = [Part("text", "{"), *parts[1:]]  # for ``find``
    words = (_with_tilde(row) for row in _rows(list(parts)))
    return [word for word in words if word.parts]


def _rows(parts: list[Part]) -> list[list[Part]]:
    next_at = 0
    for start, part in enumerate(parts):
        if start < next_at or not _is_brace(part, "{"):
            continue
        if (end := _closing(parts, start)) is None:
            continue
        inner = parts[start + 1 : end]
        if (choices := _choices(inner)) is not None:
            middles = [row for choice in choices for row in _rows(choice)]
        else:  # bash drops the braces of what is no sequence, but has some in it
            middles = _rows(inner)
        if choices is not None or len(middles) > 1:
            return _product([parts[:start]], middles, _rows(parts[end + 1 :]))
        next_at = end + 1
    return [parts]


def _with_tilde(row: list[Part]) -> Word:
    """Return a word that braces made; a ``~`` that has come to its front is a tilde."""
    if not row or not _is_brace(row[0], "~"):
        return word_of(_plain(row))
    word = word_of(_plain(row))
    found = _HOME.match(word.parts[0].text)
    if not found:
        return word
    return word_of([Part("tilde", found[0]), *word.from_(found.end()).parts])


def _product(*rows: list[list[Part]]) -> list[list[Part]]:
    count = 1
    for row in rows:
        count *= len(row)
    if count > BRACE_WORDS_MAX:
        raise TooManyWordsError
    return [list(itertools.chain(*chosen)) for chosen in itertools.product(*rows)]


def _closing(parts: Sequence[Part], start: int) -> int | None:
    """Return where the brace at ``start`` ends: before a comma or ``..`` none ends it."""
    depth = 0
    has_choices = False
    for at in range(start + 1, len(parts)):
        if depth == 0 and has_choices and _is_brace(parts[at], "}"):
            return at
        depth = _depth(depth, parts[at])
        has_choices |= depth == 0 and (_is_brace(parts[at], ",") or _has_dots(parts[at : at + 3]))
    return None


def _has_dots(parts: Sequence[Part]) -> bool:
    """Say whether these begin with the ``..`` of a sequence."""
    dots = [part.text for part in parts[:2] if part.kind == "text"]
    return dots == [".", "."] and not any(_is_brace(part, "}") for part in parts[2:])


def _depth(depth: int, part: Part) -> int:
    """Return how many braces are open behind a part; one too many closes nothing."""
    return max(0, depth + _is_brace(part, "{") - _is_brace(part, "}"))


def _choices(inner: list[Part]) -> list[list[Part]] | None:
    """Return what stands between the commas, or the members of a sequence; None if neither."""
    found: list[list[Part]] = [[]]
    depth = 0
    for part in inner:
        depth = _depth(depth, part)
        if depth == 0 and _is_brace(part, ","):
            found.append([])
        else:
            found[-1].append(part)
    if len(found) > 1:
        if len(found) > BRACE_WORDS_MAX:
            raise TooManyWordsError
        return found
    if any(part.kind != "text" for part in inner):
        return None
    members = _sequence("".join(part.text for part in inner))
    return None if members is None else [[Part("text", member)] for member in members]


def _sequence(text: str) -> list[str] | None:
    if found := _NUMBERS.fullmatch(text):
        low, high = int(found[1]), int(found[2])
        width = max(len(found[1]), len(found[2])) if _is_padded(found[1], found[2]) else 0
        return [f"{number:0{width}d}" for number in _steps(low, high, found[3])]
    if found := _LETTERS.fullmatch(text):
        return [chr(code) for code in _steps(ord(found[1]), ord(found[2]), found[3])]
    return None


def _is_padded(*numbers: str) -> bool:
    return any(len(digits) > 1 and digits[0] == "0" for digits in (n.lstrip("-") for n in numbers))


def _steps(low: int, high: int, step: str | None) -> Iterator[int]:
    stride = abs(int(step or 1)) or 1
    if abs(high - low) // stride >= BRACE_WORDS_MAX:
        raise TooManyWordsError
    sign = 1 if high >= low else -1
    return iter(range(low, high + sign, sign * stride))


def _plain(parts: Iterable[Part]) -> list[Part]:
    return [Part("text", part.text) if part.kind == "brace" else part for part in parts]


def _is_brace(part: Part, char: str) -> bool:
    return part.kind == "brace" and part.text == char
