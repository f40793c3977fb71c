"""A backend over anything that keeps bytes by path: what ``StateFiles`` and ``Filesystem`` share.

The storage raises ``RefusedError`` or ``OSError``; here both become the error of a result. A
storage that fits ``Storage`` makes a backend by ``class Mine(Stored)``. What is done with a file's
content (pages of it, edits, lines that match) is decided about bytes that are at hand, the same for
every backend.
"""

import contextlib
import errno
import heapq
import io
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol

from cmdc_runtime.extensions.backend import (
    ENTRIES_MAX,
    FILE_BYTES_MAX,
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    LINES_MAX,
    MATCH_CHARS_MAX,
    MATCHES_MAX,
    NOT_A_DIRECTORY,
    PERMISSION_DENIED,
    TRANSFER_BYTES_MAX,
    TRANSFER_FILES_MAX,
    Backend,
    EditResult,
    Entry,
    FileDownload,
    FileUpload,
    GlobResult,
    GrepMatch,
    GrepResult,
    InvalidPathError,
    LsResult,
    ReadResult,
    WriteResult,
    path_parts,
)
from workers.builtin.tools._files import PATTERN_CHARS_MAX, compiled

# --- contents -------------------------------------------------------------------------------------

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


# --- the backend ----------------------------------------------------------------------------------

CHANGE_WAIT_S: Final = 10.0
"""A change takes milliseconds, unless the disk of an earlier one does not answer."""
_TOO_MANY: Final = f"more than {TRANSFER_FILES_MAX} files at once"
_TOO_MUCH: Final = f"more than {TRANSFER_BYTES_MAX} bytes at once"
_WORDS: Final = {
    errno.ENOENT: FILE_NOT_FOUND,
    errno.EISDIR: IS_DIRECTORY,
    errno.ENOTDIR: NOT_A_DIRECTORY,
    errno.EEXIST: NOT_A_DIRECTORY,  # a file stands where a folder is to be made
    errno.EACCES: PERMISSION_DENIED,
    errno.EPERM: PERMISSION_DENIED,
    errno.ELOOP: PERMISSION_DENIED,  # a link stands where a file was asked for
    errno.ENAMETOOLONG: INVALID_PATH,
}

Parts = tuple[str, ...]
Failure = (RefusedError, OSError, InvalidPathError)


@dataclass(slots=True)
class Seen:
    """How far a look through a storage went."""

    entries: int = 0
    is_cut: bool = False


class FoundFile(NamedTuple):
    """A file that a walk comes by."""

    entry: Entry
    read: Callable[[], bytes]
    """Good until the walk goes on."""


class Storage(Protocol):
    """What keeps the bytes; paths are the names in them."""

    def entries(self, parts: Parts, seen: Seen) -> Iterator[Entry]:
        """Yield what is right in a folder, in no order."""

    def walk(self, parts: Parts, seen: Seen) -> Generator[FoundFile, None, None]:
        """Yield the files below a folder, sorted by path."""

    def is_file(self, parts: Parts) -> bool:
        """Say whether a file, and not a folder, is there."""

    def read(self, parts: Parts) -> bytes:
        """Return what is in a file, at most ``FILE_BYTES_MAX``."""

    def replace(self, parts: Parts, content: bytes) -> bool:
        """Give a file this content and say whether it is new."""


class Stored(Backend):
    """The operations, over a storage."""

    def __init__(self, storage: Storage) -> None:
        """Keep files in ``storage``."""
        self._storage = storage
        self._changing = threading.Lock()

    def ls(self, path: str) -> LsResult:
        """Return what is right in a folder."""
        seen = Seen()
        try:
            found = self._storage.entries(self._parts(path), seen)
            first = heapq.nsmallest(ENTRIES_MAX + 1, found, key=lambda entry: entry.path)
        except Failure as error:
            return LsResult(error=word_of(error))
        is_cut = seen.is_cut or len(first) > ENTRIES_MAX
        return LsResult(entries=tuple(first[:ENTRIES_MAX]), is_cut=is_cut)

    def read(self, path: str, offset: int = 1, limit: int = LINES_MAX) -> ReadResult:
        """Return lines of a text file."""
        try:
            return page(self._storage.read(self._parts(path)), offset, limit)
        except Failure as error:
            return ReadResult(error=word_of(error))

    def write(self, path: str, content: str) -> WriteResult:
        """Give a file this content."""
        try:
            parts = self._parts(path)
            is_new = self._put(parts, encoded(content))
        except Failure as error:
            return WriteResult(error=word_of(error))
        return WriteResult(path=joined(parts), is_new=is_new)

    def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult:  # noqa: FBT001, FBT002 - the contract
        """Replace passages of a text file; edits through this object are one after the other."""
        try:
            parts = self._parts(path)
            with self._one_at_a_time():
                content, count = edited(
                    self._storage.read(parts), old, new, replace_all=replace_all
                )
                self._storage.replace(parts, content)
        except Failure as error:
            return EditResult(error=word_of(error))
        return EditResult(path=joined(parts), replaced=count)

    def grep(self, pattern: str, path: str = "/", glob: str | None = None) -> GrepResult:
        """Return the lines that match; a search ends after ``SEARCH_TIMEOUT_S``."""
        seen = Seen()
        try:
            parts, search, fits = self._parts(path), GrepSearch(pattern), chosen_by_name(glob)
            with contextlib.closing(self._matches(parts, search, fits, seen)) as matches:
                first = tuple(islice(matches, MATCHES_MAX + 1))
        except Failure as error:
            return GrepResult(error=word_of(error))
        is_cut = seen.is_cut or len(first) > MATCHES_MAX
        return GrepResult(matches=first[:MATCHES_MAX], is_cut=is_cut)

    def glob(self, pattern: str, path: str = "/") -> GlobResult:
        """Return the files whose path matches."""
        seen = Seen()
        try:
            parts, fits = self._parts(path), chosen(pattern)
            with contextlib.closing(self._storage.walk(parts, seen)) as walk:
                found = (one.entry for one in walk if fits(_below(parts, one.entry.path)))
                first = tuple(islice(found, ENTRIES_MAX + 1))
        except Failure as error:
            return GlobResult(error=word_of(error))
        is_cut = seen.is_cut or len(first) > ENTRIES_MAX
        return GlobResult(entries=first[:ENTRIES_MAX], is_cut=is_cut)

    def upload_files(self, files: Sequence[tuple[str, bytes]]) -> tuple[FileUpload, ...]:
        """Write files as they are."""
        return tuple(
            FileUpload(path=path, error=self._uploaded(at, path, content))
            for at, (path, content) in enumerate(files)
        )

    def download_files(self, paths: Sequence[str]) -> tuple[FileDownload, ...]:
        """Return files as they are."""
        left_bytes = TRANSFER_BYTES_MAX
        downloads = []
        for at, path in enumerate(paths):
            try:
                content = self._downloaded(at, path, left_bytes)
            except Failure as error:
                downloads.append(FileDownload(path=path, error=word_of(error)))
                continue
            left_bytes -= len(content)
            downloads.append(FileDownload(path=path, content=content))
        return tuple(downloads)

    def _parts(self, path: str) -> Parts:
        return path_parts(path)

    def _put(self, parts: Parts, content: bytes) -> bool:
        if len(content) > FILE_BYTES_MAX:
            raise RefusedError(TOO_LARGE)
        with self._one_at_a_time():
            return self._storage.replace(parts, content)

    def _uploaded(self, at: int, path: str, content: bytes) -> str | None:
        try:
            if at >= TRANSFER_FILES_MAX:
                raise RefusedError(_TOO_MANY)
            self._put(self._parts(path), content)
        except Failure as error:
            return word_of(error)
        return None

    def _downloaded(self, at: int, path: str, left_bytes: int) -> bytes:
        if at >= TRANSFER_FILES_MAX:
            raise RefusedError(_TOO_MANY)
        content = self._storage.read(self._parts(path))
        if len(content) > left_bytes:
            raise RefusedError(_TOO_MUCH)
        return content

    def _matches(
        self, parts: Parts, search: GrepSearch, fits: Callable[[str], bool], seen: Seen
    ) -> Generator[GrepMatch, None, None]:
        if parts and self._storage.is_file(parts):
            if fits(parts[-1]):
                yield from search.matches(joined(parts), self._storage.read(parts))
            return
        with contextlib.closing(self._storage.walk(parts, seen)) as walk:
            for entry, read in walk:
                if not fits(_below(parts, entry.path)):
                    continue
                try:
                    content = read()
                except (RefusedError, OSError):
                    seen.is_cut = True
                    continue
                yield from search.matches(entry.path, content)

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._changing.acquire(timeout=CHANGE_WAIT_S):
            raise RefusedError(f"an earlier change has not ended within {CHANGE_WAIT_S:g} s")
        try:
            yield
        finally:
            self._changing.release()


def word_of(error: RefusedError | OSError | InvalidPathError) -> str:
    """Return the error of a result."""
    if isinstance(error, InvalidPathError):
        return INVALID_PATH
    if isinstance(error, OSError):
        return _WORDS.get(error.errno or 0) or error.strerror or str(error)
    return str(error)


def joined(parts: Parts) -> str:
    """Return the path of these names."""
    return "/" + "/".join(parts)


def _below(parts: Parts, path: str) -> str:
    """Return the path of a file from a folder that it is below."""
    return path[len(joined(parts)) :].lstrip("/")
