"""Says which blocked pattern a path falls under, be it exact or with a shell's wildcards in it.

An exact path is looked at as it is written and as the file system resolves it, links included, the
folder's where the file does not exist. Wildcards are expanded in the file system; where that cannot
be done, as with a value that only the shell knows, the letters decide: see ``likeness``.
"""

import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from workers.builtin.guarding.path_shapes import (
    DEEP,
    Name,
    Shape,
    fold,
    is_exact,
    letters,
    likeness,
    matcher,
    name_matcher,
    shape_of,
)

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
        for way in _ways(path, base, self.home):
            for pattern, _, expression in self._rules:
                if expression.fullmatch(way):
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


def _ways(path: str, base: str, home: str) -> set[str]:
    """Return the absolute paths that ``path`` may be, folded."""
    if path == "~" or path.startswith("~"):
        head, slash, rest = path.partition("/")
        path = (home if head == "~" else posixpath.expanduser(head)) + slash + rest
    whole = posixpath.join(base, path)
    # Resolved name by name, so that a ``..`` behind a link goes up from where the link leads.
    written, real = posixpath.normpath(whole), posixpath.realpath(whole)
    ways = {posixpath.normpath(fold(way)) for way in (written, real)}
    return ways | {_ROOT_OF_ANY.sub("", way, count=1) for way in ways}


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
