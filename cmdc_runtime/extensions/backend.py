"""Backends: where plugins keep files, be it a folder, a process's memory or a store of your own.

Paths are virtual: text that begins with "/", which is the top of the backend and not of the
machine. Every operation answers with a Struct that carries what was asked for, or an ``error``; a
bad path, a missing file or a full store raises nothing. An error is one of the words below, or
another text that says what is wrong, never with the path in it.

To write one: subclass ``Backend``, take paths apart with ``path_parts``, and hold it to the tests
in ``tests/contract/test_backends.py``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import msgspec

from cmdc_runtime.errors import UsageError

FILE_NOT_FOUND: Final = "file_not_found"
PERMISSION_DENIED: Final = "permission_denied"
IS_DIRECTORY: Final = "is_directory"
INVALID_PATH: Final = "invalid_path"
NOT_A_DIRECTORY: Final = "not_a_directory"
"""A file stands where the path has a folder."""

FILE_BYTES_MAX: Final = 16 * 2**20
"""Of one file: operations hold it in memory as a whole."""
ENTRIES_MAX: Final = 1000
"""Of one ``ls`` or ``glob``."""
MATCHES_MAX: Final = 1000
"""Lines that one ``grep`` returns."""
MATCH_CHARS_MAX: Final = 400
"""Of a longer line ``grep`` returns the part around the match."""
LINES_MAX: Final = 2000
"""What ``read`` returns unless asked for more or less."""
TRANSFER_FILES_MAX: Final = 1000
"""Of one ``upload_files`` or ``download_files``; those behind get an error."""
TRANSFER_BYTES_MAX: Final = 64 * 2**20
"""Of all contents of one ``download_files``; what does not fit gets an error."""
PATH_BYTES_MAX: Final = 4096
NAME_BYTES_MAX: Final = 255
DEPTH_MAX: Final = 32
"""Names in one path."""


class InvalidPathError(UsageError, ValueError):
    """A text is no path of a backend; operations answer it with ``INVALID_PATH``."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all results: where there is an ``error``, the other fields have their defaults."""

    error: str | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder."""

    path: str
    """From the top of the backend; that of a folder ends with "/"."""
    size_bytes: int = 0
    """Of a file."""

    @property
    def is_dir(self) -> bool:
        """Say whether it is a folder."""
        return self.path.endswith("/")


class LsResult(Result, frozen=True, kw_only=True):
    """What is right in a folder, sorted by path."""

    entries: tuple[Entry, ...] = ()
    is_cut: bool = False
    """This is not all, here and below: a bound was reached, or a part could not be read."""


class ReadResult(Result, frozen=True, kw_only=True):
    """Lines of a text file."""

    content: str = ""
    """With their line ends; bytes that are no UTF-8 are shown as U+FFFD."""
    next_offset: int | None = None
    """Where to go on; None if this is the end."""


class WriteResult(Result, frozen=True, kw_only=True):
    """A file has its new content."""

    path: str = ""
    is_new: bool = False


class EditResult(Result, frozen=True, kw_only=True):
    """Passages of a file are replaced."""

    path: str = ""
    replaced: int = 0
    """How many."""


class GrepMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A line in which something was found."""

    path: str
    line: int
    """Its number, from 1."""
    text: str


class GrepResult(Result, frozen=True, kw_only=True):
    """Lines that match, file by file."""

    matches: tuple[GrepMatch, ...] = ()
    is_cut: bool = False


class GlobResult(Result, frozen=True, kw_only=True):
    """Files whose paths match, sorted by path."""

    entries: tuple[Entry, ...] = ()
    is_cut: bool = False


class FileUpload(Result, frozen=True, kw_only=True):
    """What became of one uploaded file."""

    path: str


class FileDownload(Result, frozen=True, kw_only=True):
    """One file as it is."""

    path: str
    content: bytes | None = None
    """None where there is an error."""


class ExecuteResult(Result, frozen=True, kw_only=True):
    """What a command wrote, and how it ended."""

    output: str = ""
    exit_code: int | None = None
    is_cut: bool = False


class Backend(ABC):
    """Keeps files under virtual paths.

    Operations are plain functions that may wait for a disk or a network, so they are called from
    threads, several at a time. A write is seen by others as a whole or not at all.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """What this backend is called in logs and events: its kind, and which one it is."""

    @abstractmethod
    def ls(self, path: str) -> LsResult:
        """Return what is right in a folder, at most ``ENTRIES_MAX``; "/" is always a folder."""

    @abstractmethod
    def read(self, path: str, offset: int = 1, limit: int = LINES_MAX) -> ReadResult:
        """Return ``limit`` lines of a text file from line ``offset`` on, counted from 1."""

    @abstractmethod
    def write(self, path: str, content: str) -> WriteResult:
        """Give a file this content, be it there or not; its folders are made where missing."""

    @abstractmethod
    def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult:  # noqa: FBT001, FBT002 - four arguments by contract
        """Replace ``old`` in a text file, once or all over; once means that it occurs only once."""

    @abstractmethod
    def grep(self, pattern: str, path: str = "/", glob: str | None = None) -> GrepResult:
        """Return the lines of a file, or of all files below a folder, that match.

        ``pattern`` is a regular expression. ``glob`` narrows the files: without "/" by their
        name, with it by their path below ``path``. Binary files are not searched.
        """

    @abstractmethod
    def glob(self, pattern: str, path: str = "/") -> GlobResult:
        """Return the files below a folder whose path from there matches, at most ``ENTRIES_MAX``.

        ``*`` and ``?`` match within a name, ``**`` across folders, ``{a,b}`` either of the two.
        """

    @abstractmethod
    def upload_files(self, files: Sequence[tuple[str, bytes]]) -> tuple[FileUpload, ...]:
        """Write files as they are, path and content each; one that fails stops no other."""

    @abstractmethod
    def download_files(self, paths: Sequence[str]) -> tuple[FileDownload, ...]:
        """Return files as they are, in the order of ``paths``."""

    def execute(self, command: str, timeout_s: float = 60.0) -> ExecuteResult:  # noqa: ARG002 - for those who override
        """Run a shell command where the files are, if the backend can."""
        return ExecuteResult(error=f"{self.id} runs no commands")

    def local_path(self, path: str) -> str | None:  # noqa: ARG002 - for those who override
        """Return where a file is on this machine's disk, None if it is not there or on no disk.

        It is true when it is said; who opens the file later looks again.
        """
        return None


def path_parts(path: str) -> tuple[str, ...]:
    """Return the names in a virtual path, none for the top; empty ones and "." are left out.

    Names are compared as they are written: no case folding, no Unicode normalization.

    Raises:
        InvalidPathError: it does not begin with "/", climbs by "..", has a NUL or half a character,
            or is too long or too deep.
    """
    if not path.startswith("/") or "\0" in path:
        raise InvalidPathError('a path begins with "/" and has no NUL')
    parts = tuple(name for name in path.split("/") if name not in {"", "."})
    if ".." in parts:
        raise InvalidPathError('a path has no ".."')
    try:
        sizes = [len(name.encode()) for name in parts]
    except UnicodeEncodeError as error:
        raise InvalidPathError("a path is text that UTF-8 can hold") from error
    if len(parts) > DEPTH_MAX or sum(sizes) + len(sizes) > PATH_BYTES_MAX:
        raise InvalidPathError(f"a path has {DEPTH_MAX} names and {PATH_BYTES_MAX} bytes at most")
    if max(sizes, default=0) > NAME_BYTES_MAX:
        raise InvalidPathError(f"a name in a path has {NAME_BYTES_MAX} bytes at most")
    return parts
