"""Says which blocked pattern a path falls under, be it exact or with a shell's wildcards in it.

An exact path is looked at as it is written and as the file system resolves it, links included, the
folder's where the file does not exist. Wildcards are expanded in the file system; where that cannot
be done, as with a value that only the shell knows, the letters decide: see ``likeness``.

A shape is the names of a path from the root on. A name is a row of tokens; ``DEEP`` stands for any
number of names. Letters are folded, so that ways of writing that look alike are alike: case,
compatibility forms (NFKC), invisible characters, and Cyrillic or Greek letters that pass for Latin.
"""

import itertools
import os
import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

# --- shapes ---------------------------------------------------------------------------------------

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


# --- blocked paths --------------------------------------------------------------------------------

PATH_CHARS_MAX: Final = 4096
"""Linux opens no longer path."""
ENTRIES_MAX: Final = 50_000
"""Of folders, looked at for one call; it takes less than a second."""
MATCHES_MAX: Final = 1000
"""Of one pattern with wildcards; more are decided by their letters."""
LIKENESS_MIN: Final = 2
"""Letters that must speak for a blocked path where a value is not known."""
WILD_LIKENESS_MIN: Final = 3
"""The same where the file system is asked as well, which knows of files that are there."""
_ROOT_OF_ANY: Final = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/root(?=/)")
"""The root folder as a process sees it, whose link only its user may follow."""
NOT_SEARCHED: Final = frozenset({
    ".git", ".hg", ".svn", "node_modules", "vendor", "site-packages", ".venv", "venv",
    "__pycache__", ".tox", ".mypy_cache", "_build", "deps", "target", "testdata",
})  # fmt: skip
"""Folders of what others wrote, whose certificates are no secrets."""


WrittenName: TypeAlias = tuple[str, Name]
"""A name of a path as it is written, and what it may be."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A path that may not be touched."""

    path: str
    pattern: str
    """As the options have it."""


@dataclass(slots=True)
class EntryBudget:
    """How much may be looked at for one call."""

    entries: int = field(default_factory=lambda: ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class FolderSearch:
    """Files that are read because of the folder in which they lie."""

    folder: str
    with_hidden: bool = True
    reads: Callable[[str], bool] = lambda _: True
    """Whether a file is read, by its path below the folder."""


class BlockedPaths:
    """The patterns of one session, as they hold in its working folder."""

    def __init__(self, patterns: Sequence[str], working_dir: str, home: str) -> None:
        """Place the patterns that begin at the home or in the working folder."""
        self.home = home
        self._rules = [
            (pattern, shape, matcher(shape))
            for pattern in patterns
            for shape in _shapes(pattern, working_dir, home)
        ]

    def exact(self, path: str, base: str) -> Blocked | None:
        """Say what blocks a path as a program takes it, relative to the folder ``base``.

        Raises:
            ValueError: no file can have this path.
        """
        if "\0" in path or len(path) > PATH_CHARS_MAX:
            raise ValueError("no file can have this path")
        for absolute in _absolute_paths(path, base, self.home):
            for pattern, _, expression in self._rules:
                if expression.fullmatch(absolute):
                    return Blocked(path, pattern)
        return None

    def wild(
        self, path: Sequence[WrittenName], shown: str, budget: EntryBudget | None
    ) -> Blocked | None:
        """Say what blocks an absolute path of which something is not known.

        ``shown`` is how the path is named. Without a budget no file is looked at, since the path
        may begin elsewhere.
        """
        shape = tuple(name for _, name in path)
        is_open = any(name == DEEP or _has_unknown(name) for name in shape)
        found = None if is_open or budget is None else _expanded(path, budget)
        for one in found or ():
            if blocked := self.exact(one, "/"):
                return Blocked(shown, blocked.pattern)
        enough = LIKENESS_MIN if found is None else WILD_LIKENESS_MIN
        for pattern, rule, _ in self._rules:
            if likeness(shape, rule) >= enough:
                return Blocked(shown, pattern)
        return None

    def below(self, search: FolderSearch, base: str, budget: EntryBudget) -> Blocked | None:
        """Say which blocked file is read by a search that begins relative to ``base``."""
        root = posixpath.join(base, search.folder)
        for path in _files(root, budget, with_hidden=search.with_hidden):
            if search.reads(posixpath.relpath(path, root)) and (found := self.exact(path, "/")):
                return Blocked(posixpath.relpath(path, base), found.pattern)
        return None


def _shapes(pattern: str, working_dir: str, home: str) -> Iterator[Shape]:
    """Yield a pattern from the root on, below its folder's real name too."""
    rest = pattern.removesuffix("/**").rstrip("/")
    if "/" not in rest:
        rest = f"**/{rest}"
    if rest == "~" or rest.startswith("~/"):
        heads, rest = {home, posixpath.realpath(home)}, rest[1:]
    elif rest.startswith(("/", "**/")):
        heads = {""}
    else:
        heads = {posixpath.abspath(working_dir), posixpath.realpath(working_dir)}
    for head in sorted(heads):
        literal = tuple(letters(part) for part in head.split("/") if part)
        yield literal + shape_of(fold(rest))


def _absolute_paths(path: str, base: str, home: str) -> set[str]:
    """Return the absolute paths that ``path`` may be, folded."""
    if path == "~" or path.startswith("~"):
        head, slash, rest = path.partition("/")
        path = (home if head == "~" else posixpath.expanduser(head)) + slash + rest
    whole = posixpath.join(base, path)
    # Resolved name by name, so that a ``..`` behind a link goes up from where the link leads.
    written, real = posixpath.normpath(whole), posixpath.realpath(whole)
    found = {posixpath.normpath(fold(one)) for one in (written, real)}
    return found | {_ROOT_OF_ANY.sub("", one, count=1) for one in found}


def _has_unknown(name: Name) -> bool:
    return any(token.kind == "unknown" for token in name)


def _expanded(path: Iterable[WrittenName], budget: EntryBudget) -> list[str] | None:
    """Return the paths that exist, None where they are too many to look at."""
    found = ["/"]
    for text, name in path:
        if is_exact(name):
            found = [posixpath.join(folder, text) for folder in found]
            continue
        matches = name_matcher(name)
        entries = [(folder, entry) for folder in found for entry in _entries(folder, budget)]
        found = [posixpath.join(*entry) for entry in entries if matches(fold(entry[1]))]
        if len(found) > MATCHES_MAX or budget.entries <= 0:
            return None
    return found


def _entries(folder: str, budget: EntryBudget) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, budget.entries)]
    except (OSError, ValueError):  # it is not there, or nothing can have its name
        return []
    budget.entries -= len(names)
    return names


def _files(root: str, budget: EntryBudget, *, with_hidden: bool) -> Iterator[str]:
    """Yield the files below a folder, as many as are worth looking at."""
    if not _entries(root, budget):
        return
    for folder, folders, files in os.walk(root):
        names = [*files, *folders]
        budget.entries -= len(names)
        if budget.entries <= 0:
            return
        folders[:] = [name for name in folders if name not in NOT_SEARCHED]
        shown = names if with_hidden else [name for name in names if name[0] != "."]
        yield from (posixpath.join(folder, name) for name in shown)
