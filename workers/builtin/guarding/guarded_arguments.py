"""Judges the arguments of a tool that are paths, and says which are.

An argument sounds like a path by the last word of its name: ``path``, ``target_file``,
``outputDir``; one that sounds like a patch has the paths that it names. A new word is an entry of
``_PATH_WORDS``.
"""

import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from workers.builtin.guarding.blocked_paths import (
    DEEP,
    Blocked,
    BlockedPaths,
    EntryBudget,
    FolderSearch,
    Name,
    Token,
    WrittenName,
    letters,
    wildcards,
)
from workers.builtin.guarding.guarded_shell import Finding
from workers.builtin.guarding.shell_paths import is_read
from workers.builtin.patches.reading import paths_of
from workers.builtin.shell.words import Part, TooManyWordsError, braced

NESTING_MAX: Final = 8
"""Of lists and objects in arguments; what lies deeper is not looked at."""
_PATH_WORDS: Final = frozenset({
    "path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "dir",
    "dirs", "directory", "directories", "folder", "folders", "pathname", "workdir", "cwd", "root",
    "roots", "src", "dst", "dest", "destination", "source", "target", "uri", "url", "location",
})  # fmt: skip
_PATCH_WORDS: Final = frozenset({"patch", "diff"})
_COMMAND_WORDS: Final = frozenset({"command", "commands", "cmd", "cmdline", "script"})
_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_FILE_URL: Final = re.compile(r"file:(?://[^/]*)?", re.IGNORECASE)
_PATTERN_ARGUMENTS: Final = {"glob": "pattern", "grep": "include"}
"""Of built-in tools, which argument is a pattern of paths."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A text that a tool is given."""

    text: str
    is_command: bool


def arguments_of(
    args: Any,  # Any: JSON
    more: Collection[str],
    depth: int = 0,
) -> Iterator[Argument]:
    """Yield every argument that is a path or a command, ``more`` being names of paths."""
    if depth > NESTING_MAX:
        return
    if isinstance(args, Mapping):
        for name, inner in args.items():
            yield from _named(str(name), inner, more)
            yield from arguments_of(inner, more, depth + 1)
    elif isinstance(args, list | tuple):
        for inner in args:
            yield from arguments_of(inner, more, depth + 1)


def _named(name: str, value: Any, more: Collection[str]) -> Iterator[Argument]:  # Any: JSON
    last = (_WORDS.findall(name) or [""])[-1].lower()
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [text for text in texts if isinstance(text, str)]
    if last in _COMMAND_WORDS:
        is_row = isinstance(value, list) and last in ("command", "cmd")
        rows = [shlex.join(texts)] if is_row and texts else texts
        yield from (Argument(text, is_command=True) for text in rows)
    elif last in _PATCH_WORDS:
        named = (path for text in texts for path in paths_of(text))
        yield from (Argument(path, is_command=False) for path in named)
    elif last in _PATH_WORDS or name in more:
        yield from (Argument(text, is_command=False) for text in texts)


class PathGuard:
    """Judges paths as tools take them."""

    def __init__(self, paths: BlockedPaths, working_dir: str, *, guards_searches: bool) -> None:
        """Take what is blocked; relative paths begin in ``working_dir``."""
        self._paths = paths
        self._working_dir = working_dir
        self._guards_searches = guards_searches

    def judge(self, path: str) -> Finding | None:
        """Say why a path is blocked, None if it is not."""
        plain = unquote(_FILE_URL.sub("", path, count=1)) if _FILE_URL.match(path) else path
        ways = {plain, plain.strip(), posixpath.expandvars(plain)}
        for way in sorted(ways):
            try:
                found = self._paths.exact(way, self._working_dir)
            except ValueError as error:
                return Finding("unreadable", repr(path)[:80], str(error))
            if found is not None:
                return Finding("path", found.path, found.pattern)
        return None

    def of_search(self, tool: str, args: Mapping[str, Any]) -> Finding | None:  # Any: JSON
        """Say why a search by the built-in tools is blocked, None if it is not."""
        pattern = args.get(_PATTERN_ARGUMENTS.get(tool, ""))
        folder = args.get("path", ".")
        if tool not in _PATTERN_ARGUMENTS or not isinstance(folder, str):
            return None
        pattern = pattern if isinstance(pattern, str) else "*"
        base = posixpath.normpath(posixpath.join(self._working_dir, folder))
        try:
            found = self._of_pattern(pattern, base, tool)
        except TooManyWordsError:
            return Finding("unreadable", repr(pattern)[:80], "it stands for too many patterns")
        if found is None and tool == "grep" and self._guards_searches:
            found = self._of_folder(pattern, base)
        return found

    def _of_pattern(self, pattern: str, base: str, tool: str) -> Finding | None:
        for one in _alternatives(pattern):
            is_deep = tool == "grep" and "/" not in one
            names = _names(f"**/{one}" if is_deep else one, base)
            if (found := self._paths.wild(names, one, None)) is not None:
                return Finding("path", one, found.pattern)
        return None

    def _of_folder(self, include: str, base: str) -> Finding | None:
        chosen = _alternatives(include)
        search = FolderSearch(base, reads=lambda path: is_read(chosen, (), path))
        found: Blocked | None = self._paths.below(search, base, EntryBudget())
        if found is None:
            return None
        return Finding(
            "path",
            found.path,
            f"{found.pattern}; this search would read it, so narrow path or include",
        )


def _alternatives(pattern: str) -> list[str]:
    """Return the patterns that ``{a,b}`` in one stands for."""
    parts = [Part("brace" if char in "{,}" else "text", char) for char in pattern]
    return [word.text for word in braced(parts)]


def _names(pattern: str, base: str) -> list[WrittenName]:
    names = (
        [] if pattern.startswith("/") else [(one, letters(one)) for one in base.split("/") if one]
    )
    for text in pattern.split("/"):
        if text == "..":
            names = names[:-1]
        elif text not in ("", "."):
            names.append((text, DEEP if text == "**" else _with_dots(wildcards(text))))
    return names


def _with_dots(name: Name) -> Name:
    """Return a name whose ``*`` takes a leading dot, as the tools' own wildcards do."""
    return tuple(Token("unknown") if token.kind == "many" else token for token in name)
