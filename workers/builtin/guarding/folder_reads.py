"""Which folders a command reads as a whole, and what of them it leaves out.

To teach it a program, add a row to ``_READERS``.
"""

import fnmatch
import functools
import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from workers.builtin.guarding.blocked_paths import FolderSearch

_UNHIDING: Final = re.compile(r"--hidden|--no-ignore|--unrestricted|-[a-z]*[u.][a-z]*")


@dataclass(frozen=True, slots=True)
class _Reader:
    """How a program is told to read a folder."""

    when: str
    """What its options are to match; "" is always."""
    patterns: int = 0
    """How many of its operands are no paths."""
    is_here: bool = False
    """It reads the working folder if it is given none."""
    with_hidden: bool = True


# fmt: off
_RECURSIVE: Final = r"-[A-Za-z]*[rR].*|--(?:dereference-)?recursive"
_COPIES: Final = r"-[A-Za-z]*[rRa].*|--recursive|--archive"
_READERS: Final[dict[str, _Reader]] = {
    "grep":  _Reader(_RECURSIVE, 1, is_here=True),
    "egrep": _Reader(_RECURSIVE, 1, is_here=True),
    "fgrep": _Reader(_RECURSIVE, 1, is_here=True),
    "rgrep": _Reader("", 1, is_here=True),
    "rg":    _Reader("", 1, is_here=True, with_hidden=False),
    "ag":    _Reader("", 1, is_here=True, with_hidden=False),
    "ack":   _Reader("", 1, is_here=True),
    "cp":    _Reader(_COPIES),
    "scp":   _Reader(_COPIES),
    "rsync": _Reader(_COPIES),
    "zip":   _Reader(_RECURSIVE),
    "tar":   _Reader(r"-?[a-zA-Z]*[cru][a-zA-Z]*|--create|--append|--update"),
}
# fmt: on


def searches_of(program: str, texts: Sequence[str]) -> Iterator[FolderSearch]:
    """Yield the folders that a program with these arguments reads, among what is none."""
    reader = _READERS.get(program)
    if reader is None or not (not reader.when or any(re.fullmatch(reader.when, t) for t in texts)):
        return
    operands = [text for text in texts if not text.startswith("-")]
    has_pattern = any(re.fullmatch(r"-[A-Za-z]*[ef].*|--(?:regexp|file).*", text) for text in texts)
    operands = operands[0 if has_pattern else reader.patterns :]
    if not operands and reader.is_here:
        operands = ["."]
    with_hidden = reader.with_hidden or any(map(_UNHIDING.fullmatch, texts))
    for folder in operands:
        yield FolderSearch(folder, with_hidden, _choice(texts))


def _choice(options: Sequence[str]) -> Callable[[str], bool]:
    """Return which files the options of a search leave in."""
    chosen: list[str] = []
    left_out: list[str] = []
    for option, following in itertools.pairwise([*options, ""]):
        name, _, attached = option.partition("=")
        value = attached or following
        if name in ("--include", "-g", "--glob", "--iglob"):
            (left_out if value.startswith("!") else chosen).append(value.lstrip("!"))
        elif name in ("--exclude", "--exclude-dir", "--ignore", "--ignore-dir", "-x"):
            left_out.append(value)
    return functools.partial(is_read, chosen, left_out)


def is_read(chosen: Sequence[str], left_out: Sequence[str], path: str) -> bool:
    """Say whether a file's path fits one of ``chosen``, if there are any, and no ``left_out``."""
    names = path.split("/")
    if any(_fits(name, pattern) for pattern in left_out for name in [path, *names]):
        return False
    return not chosen or any(_fits(one, pattern) for pattern in chosen for one in (path, names[-1]))


def _fits(name: str, pattern: str) -> bool:
    plain = posixpath.normpath(pattern.removeprefix("**/")) if pattern else ""
    return fnmatch.fnmatchcase(name, plain)
