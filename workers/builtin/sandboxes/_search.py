"""Searches below one folder: files by a pattern of their paths, lines by a regular expression.

A walk names what there is; a file is opened in its folder, by its name alone and never by a link.
Binary files, links and what the walk passes by are not searched for lines.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from cmdc_runtime.beneath import Reach
from cmdc_runtime.extensions.sandbox import (
    FoundLines,
    FoundPaths,
    GrepSettings,
    LineMatch,
    PathMatch,
)
from workers.builtin.sandboxes._candidates import candidates
from workers.builtin.sandboxes._walk import DEPTH_MAX, Found, Walk, is_regular
from workers.builtin.tools._files import (
    BYTE_ORDER_MARK,
    FILE_BYTES_MAX,
    READING,
    compiled,
    shown,
    split,
    text_file,
    whole,
)

LINE_CHARS_MAX: Final = 400
"""Of a longer line the part around the match is shown."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK


# --- paths ----------------------------------------------------------------------------------------


def place_of(pattern: str, path: str) -> tuple[str, str]:
    """Return the folder in which every match is, and the pattern below it."""
    folder, rest = split(pattern.rstrip("/"))
    return str(Path(path, folder)), rest


def found_paths(reach: Reach, pattern: str, path: str, results_max: int) -> FoundPaths:
    """Return the files whose paths match, or folders with a "/" at the end of the pattern.

    Raises:
        OSError: the folder where the pattern begins can't be read.
        ValueError: it can't be reached, or the pattern means nothing.
    """
    base, rest = place_of(pattern, path)
    matches = compiled(rest).fullmatch
    is_deep = "**" in rest or "{" in rest
    wants_folders = pattern.endswith("/")
    folder = reach.open(base, _FOLDER)
    try:
        walk = Walk(folder, DEPTH_MAX if is_deep else rest.count("/"), _leads(reach, base))
        names = [
            one.path.rstrip("/")
            for one in walk
            if one.is_folder == wants_folders and matches(one.path.rstrip("/"))
        ]
    finally:
        os.close(folder)
    end = "/" if wants_folders else ""
    kept = tuple(
        PathMatch(
            path=shown(str(Path(base, name))) + end,
            type="directory" if wants_folders else "file",
        )
        for name in names[:results_max]
    )
    return FoundPaths(matches=kept, left_out=len(names) - len(kept), notes=walk.notes())


def _leads(reach: Reach, base: str) -> Callable[[str], bool]:
    def leads_to_folder(path: str) -> bool:
        return is_folder(reach, str(Path(base, path)))

    return leads_to_folder


def is_folder(reach: Reach, path: str) -> bool:
    """Say whether a folder is there, links followed."""
    try:
        os.close(reach.open(path, os.O_PATH | os.O_DIRECTORY))
    except (OSError, ValueError):
        return False
    return True


# --- lines ----------------------------------------------------------------------------------------


def found_lines(reach: Reach, pattern: str, path: str, settings: GrepSettings) -> FoundLines:
    """Return the lines that match, and those around them, of a file or of all in a folder.

    Raises:
        OSError: the place can't be read.
        ValueError: it can't be reached, is no text, or a pattern means nothing.
    """
    report = _Report(settings, _expression(pattern))
    chosen = _chooser(settings.include)
    if not is_folder(reach, path):
        report.add(str(Path(path)), _lines(whole(text_file(reach.open(path, READING)))))
        return report.result(())
    folder = reach.open(path, _FOLDER)
    try:
        walk, likely = Walk(folder), candidates(folder, pattern)
        for found in walk:
            if found.is_folder or not chosen(found):
                continue
            is_likely = likely is None or found.path in likely
            report.add(str(Path(path, found.path)), _lines_of(found, walk, is_likely=is_likely))
            if report.is_full:
                break
    finally:
        os.close(folder)
    return report.result(walk.notes())


class _Report:
    """What was found, as it grows."""

    def __init__(self, settings: GrepSettings, expression: re.Pattern[str]) -> None:
        self.is_full = False
        """Something more was found than was asked for."""
        self._expression = expression
        self._around = settings.context_lines
        self._left = settings.max_results
        self._found: list[LineMatch] = []

    def add(self, name: str, lines: Sequence[str]) -> None:
        """Take the matches of one file."""
        search = self._expression.search
        found = ((at, match) for at, line in enumerate(lines) if (match := search(line)))
        starts = {at: match.start() for at, match in islice(found, self._left + 1)}
        self.is_full = len(starts) > self._left
        if self.is_full:
            starts.popitem()
        self._left -= len(starts)
        self._found += self._passages(shown(name), lines, starts)

    def result(self, notes: tuple[str, ...]) -> FoundLines:
        """Return all of it."""
        return FoundLines(matches=tuple(self._found), is_cut=self.is_full, notes=notes)

    def _passages(
        self, file: str, lines: Sequence[str], starts: Mapping[int, int]
    ) -> Iterator[LineMatch]:
        """Yield the lines of each match and around it; ``starts`` has the columns by line."""
        after = 0
        for at in starts:
            first = max(at - self._around, after)
            after = min(at + self._around + 1, len(lines))
            for number in range(first, after):
                content = _clipped(lines[number], starts.get(number, 0))
                yield LineMatch(
                    file=file, line=number + 1, content=content, is_match=number in starts
                )


def _expression(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern is no regular expression: {error}") from error


def _chooser(include: str) -> Callable[[Found], bool]:
    matches = compiled(include).fullmatch
    is_path = "/" in include

    def chosen(found: Found) -> bool:
        return matches(found.path if is_path else found.name) is not None

    return chosen


def _lines_of(found: Found, walk: Walk, *, is_likely: bool) -> list[str]:
    """Return the lines of a file that was found, none where it is nothing to search.

    One that is not likely to have a match is not read.
    """
    try:
        status = is_regular(found)
        if status is None:
            return []
        if status.st_size <= FILE_BYTES_MAX and not is_likely:
            return []
        if status.st_size <= FILE_BYTES_MAX:
            descriptor = os.open(found.name, READING | os.O_NOFOLLOW, dir_fd=found.folder)
            return _lines(whole(text_file(descriptor)))
    except ValueError:  # binary
        return []
    except OSError:
        pass  # counted, as one that is too large
    walk.unread += 1
    return []


def _lines(content: bytes) -> list[str]:
    text = content.removeprefix(BYTE_ORDER_MARK).decode("utf-8", errors="replace")
    if not text:
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _clipped(line: str, start: int) -> str:
    """Return a line, of a long one the part where something was found."""
    if len(line) <= LINE_CHARS_MAX:
        return line
    first = max(0, min(start - LINE_CHARS_MAX // 4, len(line) - LINE_CHARS_MAX))
    last = first + LINE_CHARS_MAX
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"
