"""Paths that may have wildcards, and whether two of them can be the same path.

A shape is the names of a path from the root on. A name is a row of tokens; ``DEEP`` stands for any
number of names. Letters are folded, so that ways of writing that look alike are alike: case,
compatibility forms (NFKC), invisible characters, and Cyrillic or Greek letters that pass for Latin.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

PieceKind: TypeAlias = Literal["char", "one", "many", "set", "unknown"]
"""A character, ``?``, ``*``, ``[..]``, or any characters at all, a leading dot too."""

NAME_CHARS_MAX: Final = 255
"""Of a name in Linux's file systems; a longer one is no file."""
SHARED_CACHED_MAX: Final = 4096
"""Comparisons of names that are kept: the folders above are the same in every path."""
STARS_MAX: Final = 3
"""Of a name; with more, a regular expression may take for ever."""
_LATIN: Final = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0458\u0455\u0501\u0261\u04bb\u051d\u03bf"
    "\u03bd\u03b5\u03b1\u03b9\u03ba\u03c1\u03c4\u0475\u043a\u043c\u0442\u2024\u3002\u2215\u2044",
    "aeopcxyijsdghwoveaikptvkmt..//",
)
"""Letters, dots and slashes that look like others, as the Unicode confusables table has them."""


class Token(NamedTuple):
    """A piece of a name."""

    kind: PieceKind
    text: str = ""


Name: TypeAlias = tuple[Token, ...]
DEEP: Final[Name] = (Token("many", "**"),)
"""Any number of names, none too."""
Shape: TypeAlias = tuple[Name, ...]


def fold(text: str) -> str:
    """Return what ``text`` looks like."""
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    plain = unicodedata.normalize("NFKC", visible).casefold().translate(_LATIN)
    return unicodedata.normalize("NFKC", plain)


def letters(text: str) -> Name:
    """Return the tokens of exact text."""
    return tuple(Token("char", char) for char in fold(text))


def wildcards(text: str) -> Name:
    """Return the tokens of text in which ``*``, ``?`` and ``[..]`` are wildcards."""
    tokens: list[Token] = []
    for piece in re.findall(r"\[[!^]?\]?[^]/]*\]|.", text, re.DOTALL):
        if len(piece) > 1:
            tokens.append(one_of(piece))
        else:
            kind = {"*": Token("many"), "?": Token("one")}.get(piece)
            tokens += [kind] if kind else letters(piece)
    return tuple(tokens)


def one_of(bracket: str) -> Token:
    """Return the token of ``[..]``; of a lone ``[``, that of any characters."""
    inner = bracket[1:-1]
    if not inner:
        return Token("unknown")
    if inner[0] in "!^" or "[:" in inner:
        return Token("one")
    members = "".join(_spread(low, high) for low, high in re.findall(r"(.)(?:-(.))?", inner))
    return Token("char", fold(members)) if len(members) == 1 else Token("set", fold(members))


def _spread(low: str, high: str) -> str:
    if not high:
        return low
    last = min(ord(high), ord(low) + NAME_CHARS_MAX)
    return "".join(chr(code) for code in range(ord(low), last + 1))


def shape_of(path: str) -> Shape:
    """Return the shape of an absolute path, or of a pattern with wildcards."""
    return tuple(DEEP if name == "**" else wildcards(name) for name in path.split("/") if name)


def is_exact(name: Name) -> bool:
    """Say whether a name has no wildcard."""
    return all(token.kind == "char" for token in name)


def matcher(shape: Shape) -> re.Pattern[str]:
    """Return what fully matches the folded absolute paths of a shape and all below them."""
    names = ("(?:/[^/]+)*" if name == DEEP else "/" + _expression(name) for name in shape)
    return re.compile(f"{''.join(names)}(?:/.*)?", re.DOTALL)


def name_matcher(name: Name) -> Callable[[str], object]:
    """Return what is true of the folded names that a shell's wildcards mean."""
    if sum(token.kind == "many" for token in name) > STARS_MAX:
        return lambda text: shared_letters(name, letters(text)) >= 0
    is_open = bool(name) and name[0].kind in ("char", "unknown")
    return re.compile(("" if is_open else r"(?!\.)") + _expression(name), re.DOTALL).fullmatch


def _expression(name: Name) -> str:
    return "".join(_EXPRESSIONS.get(token.kind) or _members(token) for token in name)


_EXPRESSIONS: Final[dict[str, str]] = {"one": "[^/]", "many": "[^/]*", "unknown": "[^/]*"}


def _members(token: Token) -> str:
    if token.kind == "char":
        return re.escape(token.text)
    return f"[{''.join(map(re.escape, token.text))}]"


def likeness(word: Shape, pattern: Shape) -> int:
    """Return how many letters speak for ``word`` being, or being below, a path of ``pattern``.

    -1 means that nothing does. A wildcard can be anything, so a name of ``word`` that shares no
    letter with one of ``pattern`` does not count as that name, nor does ``DEEP`` as the last one.
    """
    # Row by row from the end: row[at] is the likeness of the rests of both.
    rest = [0 if all(name == DEEP for name in pattern[at:]) else -1 for at in range(len(pattern))]
    rest.append(0)
    for name in reversed(word):
        row = [-1] * len(pattern) + [0]
        for at in range(len(pattern) - 1, -1, -1):
            row[at] = _best(name, pattern[at], rest[at : at + 2], row[at + 1])
            if name == DEEP and pattern[at] != DEEP and at == len(pattern) - 1:
                row[at] = rest[at]
        rest = row
    return rest[0]


def _best(name: Name, other: Name, rest: Sequence[int], after: int) -> int:
    if DEEP in (other, name):
        return max(after, rest[0])
    shared = shared_letters(name, other)
    return -1 if shared < 1 or rest[1] < 0 else shared + rest[1]


@lru_cache(maxsize=SHARED_CACHED_MAX)
def shared_letters(name: Name, other: Name) -> int:
    """Return the most letters that two names have in common in one place, -1 if they never meet."""
    if not name or (other[:1] == (Token("char", "."),) and name[0].kind in ("one", "many", "set")):
        return -1  # a shell's wildcard takes no leading dot
    rest = [-1] * len(other) + [0]
    for at in range(len(other) - 1, -1, -1):
        rest[at] = 0 if _may_be_empty(other[at]) and rest[at + 1] == 0 else -1
    for token in reversed(name):
        row = [-1] * (len(other) + 1)
        row[len(other)] = rest[len(other)] if _may_be_empty(token) else -1
        for at in range(len(other) - 1, -1, -1):
            row[at] = _best_token(token, other[at], rest, row, at)
        rest = row
    return rest[0]


def _best_token(
    token: Token, other: Token, rest: Sequence[int], row: Sequence[int], at: int
) -> int:
    if _may_be_empty(token) or _may_be_empty(other):
        return max(rest[at], row[at + 1])
    shared = _shared(token, other)
    return -1 if shared < 0 or rest[at + 1] < 0 else shared + rest[at + 1]


def _may_be_empty(token: Token) -> bool:
    return token.kind in ("many", "unknown")


def _shared(token: Token, other: Token) -> int:
    """Return 1 for the same letter, 0 where a wildcard allows it, -1 for different ones."""
    if "one" in (token.kind, other.kind):
        return 0
    if token.kind == other.kind == "char":
        return 1 if token.text == other.text else -1
    return 0 if set(token.text) & set(other.text) else -1
