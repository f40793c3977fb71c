"""A backend over anything that keeps bytes by path: what ``StateFiles`` and ``Filesystem`` share.

The storage raises ``RefusedError`` or ``OSError``; here both become the error of a result. A
storage that fits ``Storage`` makes a backend by ``class Mine(Stored)``.
"""

import contextlib
import errno
import heapq
import threading
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
from workers.builtin.backends._content import (
    TOO_LARGE,
    GrepSearch,
    RefusedError,
    chosen,
    chosen_by_name,
    edited,
    encoded,
    page,
)

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
