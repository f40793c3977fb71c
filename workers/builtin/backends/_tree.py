"""Files below one folder of the machine, reached by descriptors and never by a link.

Each name of a path is opened by itself, in the descriptor of the folder that it stands in, and a
symbolic link is refused there. So what was checked is what is used: a link that is put in the place
of a folder meanwhile leads nowhere. A write is a file of another name, and then a rename.

``Filesystem`` is the backend over such a folder, which keeps what asks for others out.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Generator, Iterator
from functools import partial
from typing import Final

import structlog

from cmdc_runtime.beneath import NamedPath, OutsideError, named_path
from cmdc_runtime.extensions.backend import (
    DEPTH_MAX,
    FILE_BYTES_MAX,
    IS_DIRECTORY,
    NOT_A_DIRECTORY,
    PERMISSION_DENIED,
    Entry,
    InvalidPathError,
    path_parts,
)
from workers.builtin.backends._stored import (
    TOO_LARGE,
    Failure,
    FoundFile,
    Parts,
    RefusedError,
    Seen,
    Stored,
    joined,
)

log = structlog.get_logger()

# --- files below a folder -------------------------------------------------------------------------

ENTRIES_SEEN_MAX: Final = 200_000
"""After so many files and folders a listing or a walk ends; it takes seconds."""
_PART: Final = re.compile(r"\.cmdc-[0-9a-f]{16}\.part")
"""What a write is called that is not done yet; such a file is not shown."""
_NO_FILE: Final = "it is a device, socket or pipe"


class Tree:
    """The files below a folder: on the way there links are those of its ``NamedPath``, then none.

    Links, devices and names that are no text are not shown.
    """

    def __init__(self, top: NamedPath) -> None:
        """Take the folder; it is looked at by each operation, and made by a write."""
        self._top = top
        self.root = top.whole

    def entries(self, parts: Parts, seen: Seen) -> Iterator[Entry]:
        """Yield what is right in a folder, in no order."""
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self._folder(parts))
            except FileNotFoundError:
                if parts:
                    raise
                return  # the top is there, also before its first file
            yield from _entries(folder, parts, seen)

    def walk(self, parts: Parts, seen: Seen) -> Generator[FoundFile, None, None]:
        """Yield the files below a folder, sorted by path."""
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self._folder(parts))
            except FileNotFoundError:
                if parts:
                    raise
                return
            yield from _walk(folder, parts, seen)

    def is_file(self, parts: Parts) -> bool:
        """Say whether a file, and not a folder, is there."""
        if not parts:
            return False
        with self._folder(parts[:-1]) as folder:
            status = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise RefusedError(PERMISSION_DENIED)
        return stat.S_ISREG(status.st_mode)

    def read(self, parts: Parts) -> bytes:
        """Return what is in a file."""
        if not parts:
            raise RefusedError(IS_DIRECTORY)
        with self._folder(parts[:-1]) as folder:
            return _read(folder, parts[-1])

    def replace(self, parts: Parts, content: bytes) -> bool:
        """Give a file this content, with the folders it needs, and say whether it is new.

        Others see the old content or the new, never a part; the file keeps its mode.
        """
        if not parts:
            raise RefusedError(IS_DIRECTORY)
        with self._folder(parts[:-1], create=True) as folder:
            status = _writable(folder, parts[-1])
            _put(folder, parts[-1], content, status)
            return status is None

    @contextlib.contextmanager
    def _folder(self, parts: Parts, *, create: bool = False) -> Iterator[int]:
        try:
            folder = self._top.open_as_folder(makes=create)
        except OutsideError as error:
            log.warning("backend.refused", folder=self.root, problem=str(error))
            raise RefusedError(PERMISSION_DENIED) from error
        try:
            for name in parts:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                inner = _inner(folder, name)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


def _inner(folder: int, name: str) -> int:
    """Return a descriptor of a folder in a folder."""
    # A link is opened as such and not followed, so that it can be distinguished from a file.
    inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    mode = os.fstat(inner).st_mode
    if stat.S_ISDIR(mode):
        return inner
    os.close(inner)
    raise RefusedError(PERMISSION_DENIED if stat.S_ISLNK(mode) else NOT_A_DIRECTORY)


def _read(folder: int, name: str) -> bytes:
    # Not blocking, since to open a named pipe would wait for its writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(_checked(os.open(name, flags, dir_fd=folder)), "rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise RefusedError(TOO_LARGE)
    return content


def _checked(descriptor: int) -> int:
    """Return the descriptor of a file, and close that of anything else."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise RefusedError(IS_DIRECTORY if stat.S_ISDIR(mode) else _NO_FILE)


def _writable(folder: int, name: str) -> os.stat_result | None:
    """Return the status of a file that may be replaced, None if there is none."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise RefusedError(IS_DIRECTORY)
    if stat.S_ISLNK(status.st_mode):
        raise RefusedError(PERMISSION_DENIED)
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(_NO_FILE)
    # A rename asks the folder alone, and would pass over a file that is write-protected.
    if not os.access(name, os.W_OK, dir_fd=folder):
        raise RefusedError(PERMISSION_DENIED)
    return status


def _put(folder: int, name: str, content: bytes, status: os.stat_result | None) -> None:
    part = f".cmdc-{secrets.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(part, flags, 0o666, dir_fd=folder)  # less the umask, as for any new file
    try:
        with os.fdopen(descriptor, "wb") as file:
            if status is not None:
                with contextlib.suppress(PermissionError):  # only root gives a file to others
                    os.fchown(descriptor, status.st_uid, status.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


def _entries(folder: int, parts: Parts, seen: Seen) -> Iterator[Entry]:
    # A descriptor that only stands for a folder can't be read from.
    listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(listing) as found:
            for one in found:
                seen.entries += 1
                if seen.entries > ENTRIES_SEEN_MAX:
                    seen.is_cut = True
                    return
                yield from _entry(one, parts)
    finally:
        os.close(listing)


def _entry(found: os.DirEntry[str], parts: Parts) -> Iterator[Entry]:
    """Yield a file or folder that can be named, nothing for anything else."""
    if _PART.fullmatch(found.name) or not _is_text(found.name):
        return
    try:
        status = found.stat(follow_symlinks=False)
    except FileNotFoundError:  # gone since it was listed
        return
    path = joined((*parts, found.name))
    if stat.S_ISDIR(status.st_mode):
        yield Entry(path=f"{path}/")
    elif stat.S_ISREG(status.st_mode):
        yield Entry(path=path, size_bytes=status.st_size)


def _walk(folder: int, parts: Parts, seen: Seen) -> Iterator[FoundFile]:
    # The "/" behind a folder sorts it among the files as it does in their whole paths.
    for entry in sorted(_entries(folder, parts, seen), key=lambda entry: entry.path):
        name = entry.path.rstrip("/").rpartition("/")[2]
        if not entry.is_dir:
            yield FoundFile(entry, partial(_read, folder, name))
        elif len(parts) + 2 > DEPTH_MAX:  # no file in it could be named
            seen.is_cut = True
        else:
            yield from _walk_inner(folder, (*parts, name), seen)


def _walk_inner(folder: int, parts: Parts, seen: Seen) -> Iterator[FoundFile]:
    try:
        inner = _inner(folder, parts[-1])
    except (OSError, RefusedError):  # no longer a folder
        seen.is_cut = True
        return
    try:
        yield from _walk(inner, parts, seen)
    except OSError:  # it may not be listed, or is gone
        seen.is_cut = True
    finally:
        os.close(inner)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8, as Python shows them
        return False
    return True


# --- the backend ----------------------------------------------------------------------------------


class Filesystem(Stored):
    """Files below one folder.

    In virtual mode that folder is "/", and neither a path nor a link leads out of it. Otherwise
    paths are those of the machine, and results name files by where they really are. In both, links
    are neither shown nor walked into.
    """

    def __init__(self, root_dir: str, *, virtual_mode: bool = True, working_dir: str = ".") -> None:
        """Take the folder, relative to ``working_dir`` or absolute."""
        top = named_path(root_dir, working_dir)
        self._root = top.whole
        self._is_virtual = virtual_mode
        self._tree = Tree(top if virtual_mode else named_path("/", working_dir))
        super().__init__(self._tree)

    @property
    def id(self) -> str:
        """The folder."""
        return f"filesystem:{self._root}"

    def local_path(self, path: str) -> str | None:
        """Return where a file is."""
        try:
            parts = self._parts(path)
            is_file = self._tree.is_file(parts)
        except Failure:
            return None
        return os.path.join(self._tree.root, *parts) if is_file else None  # noqa: PTH118 - text

    def _parts(self, path: str) -> Parts:
        if self._is_virtual:
            return path_parts(path)
        try:
            # What is a link now is followed here, and what becomes one later is refused there.
            return path_parts(os.path.realpath(os.path.join(self._root, path)))  # noqa: PTH118
        except InvalidPathError:
            raise
        except ValueError as error:  # a NUL, or half a character
            raise InvalidPathError(str(error)) from error
