"""Files as tools see them: patterns of paths, walks, text that can be read, writes in one piece.

A failure with a file is an ``OSError`` or ``ValueError``; the tool turns it into the ``ToolError``
that names the path the way the model wrote it, with ``reason_of``.

In a pattern ``*`` and ``?`` stand within one name, ``**`` across folders, ``{a,b}`` for either.
Nothing else is special: a name like ``[id].tsx`` is found by itself. A new wildcard is a row of
``_MEANINGS``.

A ``Walk`` through a folder is sorted, bounded, and passes what holds no sources. What is left out
is counted, and ``notes`` reports it to the model.
"""

import contextlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from cmdc_runtime.extensions import ToolError

# --- patterns -------------------------------------------------------------------------------------

PATTERN_CHARS_MAX: Final = 500

_TOKEN: Final = re.compile(r"(?<![^/{,])\*\*/|\*\*|.", re.DOTALL)
_WILD: Final = re.compile(r"[*?{]")
_MEANINGS: Final = {
    "**/": "(?:.*/)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
    "{": "(?:",
}
_MEANINGS_IN_BRACES: Final = {**_MEANINGS, ",": "|", "}": ")"}


def compiled(pattern: str) -> re.Pattern[str]:
    """Return what fully matches the paths that are meant.

    Raises:
        ValueError: a brace stays open.
    """
    parts: list[str] = []
    depth = 0
    for token in _TOKEN.findall(pattern):
        meanings = _MEANINGS_IN_BRACES if depth else _MEANINGS
        parts.append(meanings.get(token, re.escape(token)))
        depth += (token == "{") - (token == "}" and depth > 0)  # noqa: S105 - no password
    if depth:
        raise ValueError("a { in the pattern has no }")
    return re.compile("".join(parts), re.DOTALL)


def split(pattern: str) -> tuple[str, str]:
    """Return the folder in which every match is, "" for any, and the pattern below it."""
    *folders, last = pattern.split("/")
    plain = next((at for at, name in enumerate(folders) if _WILD.search(name)), len(folders))
    folder = "/".join(folders[:plain])
    if plain and not folder:  # an absolute pattern with a wildcard right below the root
        folder = "/"
    return folder, "/".join([*folders[plain:], last])


# --- walks ----------------------------------------------------------------------------------------

SKIPPED: Final = frozenset(
    {
        ".git", ".hg", ".svn", "_build", "deps", "node_modules", ".elixir_ls", ".vscode", ".idea",
        "__pycache__", ".mypy_cache", "vendor", ".bundle", "tmp",
    }
)  # fmt: skip
"""Folders of these names are passed by, except as the place where a search begins."""
DEPTH_MAX: Final = 25
ENTRIES_MAX: Final = 200_000
"""After so many files and folders a walk ends; it takes seconds."""
SEARCH_TIMEOUT_S: Final = 60.0
"""A search ends here whatever its pattern does; some regular expressions never end."""


class Walk:
    """The files and folders below one folder; links are named, and not followed."""

    def __init__(self, root: Path, depth_max: int = DEPTH_MAX) -> None:
        """Go ``depth_max`` folders down from ``root``; 0 means what is right in it.

        Raises:
            OSError: ``root`` is no folder that can be read.
        """
        os.scandir(root).close()
        self.unread = 0
        """What is there and was not searched; a search adds the files that it could not read."""
        self._root = str(root)
        self._depth_max = depth_max
        self._is_cut = False
        self._is_too_deep = False

    def __iter__(self) -> Iterator[str]:
        """Yield paths relative to the root, those of folders with "/" at the end."""
        entries = 0
        for folder, folders, files in os.walk(self._root, onerror=self._count):
            prefix = folder[len(self._root) :].lstrip("/")
            prefix = f"{prefix}/" if prefix else ""
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            entries += len(files) + len(folders)
            if entries > ENTRIES_MAX:
                self._is_cut = True
                return
            yield from (prefix + name for name in sorted(files))
            yield from (f"{prefix}{name}/" for name in folders)
            if folders and prefix.count("/") >= self._depth_max:
                self._is_too_deep = True
                folders.clear()

    def notes(self) -> list[str]:
        """Return a line for each kind of thing that was left out."""
        notes = []
        if self._is_cut:
            notes.append(f"[ended after {ENTRIES_MAX} files and folders: begin further down]")
        if self._is_too_deep and self._depth_max == DEPTH_MAX:
            notes.append(f"[folders deeper than {DEPTH_MAX} are left out]")
        if self.unread:
            notes.append(f"[{self.unread} files or folders could not be searched]")
        return notes

    def _count(self, _: OSError) -> None:
        self.unread += 1


# --- reading and writing --------------------------------------------------------------------------

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger file is no text that a model works on, and would be held in memory as a whole."""
CHANGE_WAIT_S: Final = 10.0
"""A change takes milliseconds, unless the disk of an earlier one does not answer."""
_BINARY_PROBE_BYTES: Final = 8192

_changing: Final = threading.Lock()


def reason_of(error: OSError | ValueError) -> str:
    """Return what went wrong without the path, which the caller names."""
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error)


def shown(name: str) -> str:
    """Return a name of the file system as text of one line.

    A name may hold anything but "/" and NUL; what is no text is shown, and breaks no line.
    """
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def open_text(path: Path) -> BinaryIO:
    """Return the open file.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no text: a folder, a device, or binary.
    """
    # Not blocking, since to open a named pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_what_is_no_text(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_whole(path: Path) -> bytes:
    """Return a text file of at most ``FILE_BYTES_MAX``.

    Raises:
        OSError: it cannot be opened or read.
        ValueError: it is no text, or larger.
    """
    with open_text(path) as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"it is larger than {FILE_BYTES_MAX} bytes")
    return content


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep other calls from changing files meanwhile.

    Calls of one batch run side by side in threads; of two edits of a file neither may get lost.

    Raises:
        ToolError: an earlier change does not end.
    """
    if not _changing.acquire(timeout=CHANGE_WAIT_S):
        raise ToolError(f"An earlier change of a file has not ended within {CHANGE_WAIT_S:g} s.")
    try:
        yield
    finally:
        _changing.release()


def replace(path: Path, content: bytes) -> bool:
    """Give the file this content and say whether it is new; its folders are made where missing.

    Others see the old content or the new, never a part, whenever this process ends. The file keeps
    its mode and, where we may say so, its owner; a symbolic link stays and its target changes.

    Raises:
        OSError: it cannot be written; nothing has changed.
        ValueError: there is something else than a file.
    """
    target = Path(os.path.realpath(path))
    status = _status_of_writable(target)
    _make_folder(target.parent)
    part = target.with_name(f".cmdc-{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(part, flags, 0o666)  # less the umask, as for any new file
    try:
        with os.fdopen(descriptor, "wb") as file:
            if status is not None:
                _inherit(descriptor, status)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return status is None


def _refuse_what_is_no_text(descriptor: int) -> None:
    status = os.fstat(descriptor)
    _refuse_what_is_no_file(status)
    if b"\0" in os.pread(descriptor, _BINARY_PROBE_BYTES, 0):
        raise ValueError(f"it is a binary file of {status.st_size} bytes")


def _refuse_what_is_no_file(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ValueError("it is a folder; list_dir shows what is in it")
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is a device, socket or pipe")


def _status_of_writable(target: Path) -> os.stat_result | None:
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    _refuse_what_is_no_file(status)
    # A rename asks the folder alone, and would pass over a file that is write-protected.
    if not os.access(target, os.W_OK):
        raise ValueError("it is write-protected")
    return status


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ValueError(f"{folder} can be no folder, since a file is in the way") from error


def _inherit(descriptor: int, status: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # only root may give a file to somebody else
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
