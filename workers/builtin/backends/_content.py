"""What backends do with a file's content: pages of it, edits, and lines that match.

Decisions about bytes that are at hand, the same for every backend. A refusal is a ``RefusedError``.
"""

import io
import time
from collections.abc import Callable, Iterator
from typing import Final

from cmdc_runtime.extensions.backend import (
    FILE_BYTES_MAX,
    MATCH_CHARS_MAX,
    GrepMatch,
    ReadResult,
)
from workers.builtin.tools._files import PATTERN_CHARS_MAX, compiled

SEARCH_TIMEOUT_S: Final = 10.0
"""A search ends here whatever its pattern does; some regular expressions never end."""
TOO_LARGE: Final = f"the file is larger than {FILE_BYTES_MAX} bytes"
_TOO_SLOW: Final = f"the search took longer than {SEARCH_TIMEOUT_S:g} s"
_TICK_S: Final = 0.001
"""The shortest limit of one match: none at all would mean no limit."""
_BINARY: Final = "the file is binary: download_files takes it as it is"
_BINARY_PROBE_BYTES: Final = 8192


class RefusedError(Exception):
    """An operation can't be done; the text is the ``error`` of its result."""


class GrepSearch:
    """One ``grep``: its expression, and the time that is left for it."""

    def __init__(self, pattern: str) -> None:
        """Begin; the time runs from here.

        Raises:
            Refused: the pattern is no regular expression.
        """
        import regex  # noqa: PLC0415 - takes a while to load, and most sessions search nothing

        if len(pattern) > PATTERN_CHARS_MAX:
            raise RefusedError(f"the pattern is longer than {PATTERN_CHARS_MAX} characters")
        try:
            self._expression = regex.compile(pattern)
        except (regex.error, OverflowError, RecursionError) as error:
            raise RefusedError(f"the pattern is no regular expression: {error}") from error
        self._until_s = time.monotonic() + SEARCH_TIMEOUT_S

    def matches(self, path: str, content: bytes) -> Iterator[GrepMatch]:
        """Yield the lines of a text file that match, none of a binary one.

        Raises:
            Refused: the time is up.
        """
        if not content or _is_binary(content):
            return
        text = content.decode("utf-8", errors="replace").removesuffix("\n")
        for number, line in enumerate(text.split("\n"), 1):
            if time.monotonic() > self._until_s:
                raise RefusedError(_TOO_SLOW)
            bare = line.removesuffix("\r")
            if (start := self._found(bare)) is not None:
                yield GrepMatch(path=path, line=number, text=_clipped(bare, start))

    def _found(self, line: str) -> int | None:
        left_s = max(self._until_s - time.monotonic(), _TICK_S)
        try:
            match = self._expression.search(line, timeout=left_s, concurrent=True)
        except TimeoutError as error:
            raise RefusedError(_TOO_SLOW) from error
        return None if match is None else match.start()


def page(content: bytes, offset: int, limit: int) -> ReadResult:
    """Return ``limit`` lines from line ``offset`` on.

    Raises:
        Refused: there are no such lines, or this is no text.
    """
    if offset < 1 or limit < 1:
        raise RefusedError(f"offset and limit are 1 or more, got {offset} and {limit}")
    if _is_binary(content):
        raise RefusedError(_BINARY)
    lines = io.BytesIO(content).readlines()
    if offset > max(len(lines), 1):
        raise RefusedError(f"the file has {len(lines)} lines, and none at offset {offset}")
    after = offset - 1 + limit
    text = b"".join(lines[offset - 1 : after]).decode("utf-8", errors="replace")
    return ReadResult(content=text, next_offset=after + 1 if after < len(lines) else None)


def edited(content: bytes, old: str, new: str, *, replace_all: bool) -> tuple[bytes, int]:
    """Return the content with ``new`` in place of ``old``, and how often.

    Raises:
        Refused: ``old`` is not there, or not once where it has to be.
    """
    if not old or old == new:
        raise RefusedError("the text to replace must not be empty, nor equal to the new one")
    if _is_binary(content):
        raise RefusedError(_BINARY)
    before, after = encoded(old), encoded(new)
    count = content.count(before)
    if count == 0:
        raise RefusedError("the text to replace does not occur in the file")
    if count > 1 and not replace_all:
        raise RefusedError(
            f"the text to replace occurs {count} times: give more of it, or replace all"
        )
    if len(content) + count * (len(after) - len(before)) > FILE_BYTES_MAX:
        raise RefusedError(TOO_LARGE)
    return content.replace(before, after), count


def encoded(text: str) -> bytes:
    """Return a text as it is kept.

    Raises:
        Refused: half a character can't be kept.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RefusedError("the text has half of a surrogate pair, which is no UTF-8") from error


def chosen(pattern: str) -> Callable[[str], bool]:
    """Return what says whether a path, relative to where a search began, fits a ``glob``.

    Raises:
        Refused: the pattern is none.
    """
    if not pattern or len(pattern) > PATTERN_CHARS_MAX:
        raise RefusedError(f"a glob pattern has 1 to {PATTERN_CHARS_MAX} characters")
    try:
        fits = compiled(pattern.removeprefix("/")).fullmatch
    except ValueError as error:
        raise RefusedError(str(error)) from error
    return lambda path: fits(path) is not None


def chosen_by_name(pattern: str | None) -> Callable[[str], bool]:
    """Return the same for the files of a ``grep``: without "/" the name alone has to fit.

    Raises:
        Refused: the pattern is none.
    """
    if pattern is None:
        return lambda _: True
    fits = chosen(pattern)
    return fits if "/" in pattern else lambda path: fits(path.rpartition("/")[2])


def _is_binary(content: bytes) -> bool:
    return b"\0" in content[:_BINARY_PROBE_BYTES]


def _clipped(line: str, start: int) -> str:
    """Return a line, of a long one the part where something was found."""
    first = max(0, min(start - MATCH_CHARS_MAX // 4, len(line) - MATCH_CHARS_MAX))
    return line[first : first + MATCH_CHARS_MAX]
