"""Files as tools see them: patterns of paths, text that can be read, writes in one piece.

A failure with a file is an ``OSError`` or ``ValueError``; the tool turns it into the ``ToolError``
that names the path the way the model wrote it, with ``reason_of``.

In a pattern ``*`` and ``?`` stand within one name, ``**`` across folders, ``{a,b}`` for either.
Nothing else is special: a name like ``[id].tsx`` is found by itself. A new wildcard is a row of
``_MEANINGS``.
"""

import contextlib
import fcntl
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO, Final

from cmdc_runtime.extensions import ToolError

# --- patterns -------------------------------------------------------------------------------------

PATTERN_CHARS_MAX: Final = 500
SEARCH_TIMEOUT_S: Final = 60.0
"""A search ends here whatever its pattern does; some regular expressions never end."""

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


# --- reading and writing --------------------------------------------------------------------------

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger file is no text that a model works on, and would be held in memory as a whole."""
CHANGE_WAIT_S: Final = 10.0
"""A change takes milliseconds, unless the disk of an earlier one does not answer."""
READING: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""How a file is opened that may be anything: a named pipe would wait for its writer."""
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""Of UTF-8: where a file begins with it, it is kept, and is no part of its text."""
_BINARY_PROBE_BYTES: Final = 8192
_A_FOLDER: Final = "it is a folder; list_dir shows what is in it"
_DRAFT: Final = re.compile(r"\.cmdc-[0-9a-f]{16}\.part")
_CLEARED_MAX: Final = 10_000
"""Entries of a folder among which drafts are looked for, in milliseconds."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

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


def text_file(descriptor: int) -> BinaryIO:
    """Return the open file of a descriptor, which is closed with it, or at once.

    Raises:
        OSError: it cannot be looked at.
        ValueError: it is no text: a folder, a device, or binary.
    """
    try:
        _refuse_what_is_no_text(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def whole(text: BinaryIO) -> bytes:
    """Return what is in an open file, which is closed then.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger than ``FILE_BYTES_MAX``.
    """
    with text as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"it is larger than {FILE_BYTES_MAX} bytes")
    return content


def mark_in(content: bytes) -> bytes:
    """Return the byte order mark that ``content`` begins with, b"" for none."""
    return BYTE_ORDER_MARK if content.startswith(BYTE_ORDER_MARK) else b""


def mark_of(folder: int, name: str) -> bytes:
    """Return the byte order mark that the file of a folder begins with, b"" for none.

    Raises:
        OSError: it can't be looked at.
        ValueError: there is something else than a file, or it is write-protected.
    """
    if status_of_writable(folder, name) is None:
        return b""
    try:
        descriptor = os.open(name, READING | os.O_NOFOLLOW, dir_fd=folder)
    except PermissionError:  # it may be written, and not read
        return b""
    try:
        return mark_in(os.pread(descriptor, len(BYTE_ORDER_MARK), 0))
    finally:
        os.close(descriptor)


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


def put(folder: int, name: str, content: bytes, *, like: os.stat_result | None = None) -> bool:
    """Give the file of a folder this content, and say whether it is new.

    Others see the old content or the new, never a part, whenever this process ends. The file keeps
    its mode and, where we may say so, its owner; a new one has those of ``like``. The name is that
    of the file itself and no link's.

    Raises:
        OSError: it cannot be written; nothing has changed.
        ValueError: there is something else than a file.
    """
    status = status_of_writable(folder, name)
    clear_drafts(folder)
    part, descriptor = draft(folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if (model := status or like) is not None:
                _inherit(descriptor, model)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise
    return status is None


def draft(folder: int) -> tuple[str, int]:
    """Return the name and descriptor of a new file that takes another's place when it is written.

    It is locked for as long as it is open, so that others see whether its writer lives.

    Raises:
        OSError: it cannot be made.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f".cmdc-{secrets.token_hex(8)}.part"
        descriptor = os.open(name, flags, 0o666, dir_fd=folder)  # less the umask, as for any file
        with contextlib.suppress(OSError):  # a file system without locks: nobody clears there
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return name, descriptor
        os.close(descriptor)  # it was cleared before it was locked


def clear_drafts(folder: int) -> None:
    """Remove drafts of writers that were killed, as far as a short look at a folder finds them."""
    with contextlib.suppress(OSError):
        listing = os.open(".", _FOLDER, dir_fd=folder)  # one that only stands for it is not read
        try:
            with os.scandir(listing) as entries:
                for entry in islice(entries, _CLEARED_MAX):
                    if _DRAFT.fullmatch(entry.name):
                        _clear(folder, entry.name)
        finally:
            os.close(listing)


def _clear(folder: int, name: str) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        descriptor = os.open(name, flags, dir_fd=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its writer lives: an OSError
            os.unlink(name, dir_fd=folder)
        finally:
            os.close(descriptor)


def _refuse_what_is_no_text(descriptor: int) -> None:
    status = os.fstat(descriptor)
    _refuse_what_is_no_file(status)
    if b"\0" in os.pread(descriptor, _BINARY_PROBE_BYTES, 0):
        raise ValueError(f"it is a binary file of {status.st_size} bytes")


def _refuse_what_is_no_file(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ValueError(_A_FOLDER)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is a device, socket or pipe")


def status_of_writable(folder: int, name: str) -> os.stat_result | None:
    """Return the status of a file of a folder, None where nothing is.

    Raises:
        OSError: it can't be looked at.
        ValueError: there is something else than a file, or it is write-protected.
    """
    if not name:
        raise ValueError(_A_FOLDER)
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _refuse_what_is_no_file(status)
    # A rename asks the folder alone, and would pass over a file that is write-protected.
    if not os.access(name, os.W_OK, dir_fd=folder):
        raise ValueError("it is write-protected")
    return status


def _inherit(descriptor: int, status: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # only root may give a file to somebody else
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
