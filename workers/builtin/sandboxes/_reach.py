"""What paths reach: descriptors of files below one folder, or wherever the machine has them.

In virtual mode a path is taken apart into names, and one that leads out is refused as text: with
"..", a "~" in front, or absolute and not below the root. Links are followed below the root and
never out of it. The kernel sees to that where it can (openat2(2), RESOLVE_BENEATH); elsewhere each
name is opened by itself in the folder that it stands in, and links are read and followed by us. A
write goes by names alone: links are read first, then each folder is opened as one that is no link,
and the file is another one that takes the name. So what is checked is what is used, whatever is put
in its place meanwhile.

The root itself is reached without links too: it is what it was when the session began.
"""

import contextlib
import ctypes
import errno
import functools
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from cmdc_runtime.extensions.sandbox import refuse_folder_path

PathNames: TypeAlias = tuple[str, ...]

PATH_BYTES_MAX: Final = 4096
"""Of one path, as the kernel has it."""
DEPTH_MAX: Final = 256
"""PathNames in one path: each may hold a descriptor while it is looked at."""
LINKS_MAX: Final = 40
"""Links on the way of one path, as the kernel has it."""
AGAIN_MAX: Final = 32
"""Tries of a path on which folders are moved meanwhile; the kernel then can't say."""

_OPENAT2: Final = 437
"""The number of the system call on every architecture."""
_NO_MAGICLINKS: Final = 0x02
_NO_SYMLINKS: Final = 0x04
_BENEATH: Final = 0x08
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_ABSENT: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG})
"""How a kernel, or a filter of system calls before it, says that it has no openat2."""


class OutsideError(ValueError):
    """A path leads out of the root."""


def outside() -> OutsideError:
    """Return the error for a path that leads out."""
    return OutsideError("it is outside of the working folder")


class Reach:
    """The way from paths to descriptors; the caller closes what it is given."""

    def __init__(
        self,
        root: str,
        *,
        given: str | None = None,
        is_virtual: bool = True,
        is_kernels: bool | None = None,
    ) -> None:
        """Take a root that is absolute and without links, and how else paths may call it.

        ``is_kernels`` False follows links without the kernel's help; None asks what it has.
        """
        self.root = root
        self.is_virtual = is_virtual
        self._tops = tuple({_names(root), _names(given or root)})
        self._is_kernels = has_openat2() if is_kernels is None else is_kernels

    def go_alone(self) -> None:
        """Follow links without the kernel's help from now on: a filter refuses openat2(2)."""
        self._is_kernels = False

    # --- paths ------------------------------------------------------------------------------------

    def names_of(self, path: str) -> PathNames:
        """Return a path as names below the root.

        Raises:
            OSError: it is too long.
            OutsideError: it leads out.
            ValueError: it can be no path.
        """
        if "\0" in path:
            raise ValueError("embedded null byte")
        encoded = os.fsencode(path)
        if path.startswith("~"):
            raise outside()
        names = _names(path)
        if ".." in names:
            raise outside()
        if len(encoded) >= PATH_BYTES_MAX or len(names) > DEPTH_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return self._below(names) if path.startswith("/") else names

    def _below(self, names: PathNames) -> PathNames:
        for top in self._tops:
            if names[: len(top)] == top:
                return names[len(top) :]
        raise outside()

    # --- descriptors ------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        """Return a descriptor of what is there, links followed.

        Raises:
            OSError: it can't be opened.
            ValueError: it can be no path, or leads out.
        """
        flags |= os.O_CLOEXEC
        if not self.is_virtual:
            return os.open(os.path.join(self.root, path), flags)  # noqa: PTH118 - paths are text
        names = self.names_of(path)
        with self._top() as top:
            if self._is_kernels:
                return _beneath(top, names, flags)
            return _plain(top, _resolved(top, names), flags)

    def open_file(self, path: str, flags: int) -> int:
        """Return a descriptor of what is there, as ``open`` does, for a path that may be a file's.

        Raises:
            OSError: it can't be opened.
            ValueError: it can be no path of a file, or leads out.
        """
        self._refuse_folder_path(path)
        return self.open(path, flags)

    @contextlib.contextmanager
    def folder_of(self, path: str, *, makes: bool = False) -> Iterator[tuple[int, str]]:
        """Give the folder that a file stands in, and the name it has there, links followed.

        With ``makes`` the folders it needs are made. The name may be that of nothing; it is ""
        where the path is that of the root.

        Raises:
            OSError: there is no such folder, or it can't be made.
            ValueError: it can be no path of a file, or leads out.
        """
        self._refuse_folder_path(path)
        if self.is_virtual:
            with self._top() as top:
                names = _resolved(top, self.names_of(path))
                folder = _made(top, names[:-1], makes=makes)
        else:
            whole = os.path.realpath(os.path.join(self.root, path))  # noqa: PTH118 - text
            parent, name = os.path.split(whole)
            if makes:
                os.makedirs(parent, exist_ok=True)  # noqa: PTH103 - text
            folder, names = os.open(parent, _FOLDER), (name,)
        try:
            yield folder, names[-1] if names else ""
        finally:
            os.close(folder)

    def _refuse_folder_path(self, path: str) -> None:
        if self.is_virtual:
            self.names_of(path)  # that it leads out comes first
        refuse_folder_path(path)

    @contextlib.contextmanager
    def _top(self) -> Iterator[int]:
        slash = os.open("/", _FOLDER)
        try:
            names = _names(self.root)
            top = (
                _beneath(slash, names, _FOLDER, _NO_SYMLINKS)
                if self._is_kernels
                else _plain(slash, names, _FOLDER)
            )
        finally:
            os.close(slash)
        try:
            yield top
        finally:
            os.close(top)


def _names(path: str) -> PathNames:
    return tuple(name for name in path.split("/") if name not in {"", "."})


# --- by the kernel --------------------------------------------------------------------------------


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def has_openat2() -> bool:
    """Say whether the kernel follows links below a folder and never out of it."""
    try:
        os.close(_openat2(-100, b"/", _FOLDER, _NO_MAGICLINKS))  # AT_FDCWD
    except OSError as error:
        return error.errno not in _ABSENT
    return True


def _openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    how = _How(flags, 0, resolve)
    found: int = _libc().syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(folder),
        ctypes.c_char_p(path),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


def _beneath(top: int, names: PathNames, flags: int, more: int = 0) -> int:
    path = os.fsencode("/".join(names) or ".")
    for _ in range(AGAIN_MAX):
        try:
            return _openat2(top, path, flags, _BENEATH | _NO_MAGICLINKS | more)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise outside() from error
            if error.errno not in {errno.EAGAIN, errno.EINTR}:
                raise
    raise OSError(errno.EAGAIN, "folders on the way to it are being moved")


# --- name by name ---------------------------------------------------------------------------------


def _resolved(top: int, names: PathNames) -> PathNames:
    """Return the names without links that the names lead to; what is not there stays as it is.

    Raises:
        OSError: a file is in the way, or there are too many links.
        OutsideError: a link leads out.
    """
    way = _Way(top)
    try:
        return way.follow(names)
    finally:
        way.close()


class _Way:
    """A way down from a folder, with a descriptor of each folder on it."""

    def __init__(self, top: int) -> None:
        self._folders = [top]
        self._names: list[str] = []

    def follow(self, names: PathNames) -> PathNames:
        todo, links = [*reversed(names)], 0
        while todo:
            name = todo.pop()
            if name == "..":  # only links have that
                self._back()
            elif (target := _link_target(self._folders[-1], name)) is not None:
                links += 1
                if links > LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if target.startswith("/"):
                    raise outside()
                todo += reversed(_names(target))
            elif not self._enter(name, is_last=not todo):
                return self._with_missing(todo)
        return tuple(self._names)

    def close(self) -> None:
        while len(self._folders) > 1:
            os.close(self._folders.pop())

    def _back(self) -> None:
        if not self._names:
            raise outside()
        self._names.pop()
        os.close(self._folders.pop())

    def _enter(self, name: str, *, is_last: bool) -> bool:
        """Go one name on; False, if nothing is there."""
        self._names.append(name)
        if is_last:
            return True
        if len(self._names) > DEPTH_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        try:
            self._folders.append(_inner(self._folders[-1], name))
        except FileNotFoundError:
            return False
        return True

    def _with_missing(self, todo: Sequence[str]) -> PathNames:
        if ".." in todo:  # it would have to be a folder
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return (*self._names, *reversed(todo))


def _link_target(folder: int, name: str) -> str | None:
    """Return where a link leads, None for what is none, or is not there."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def _inner(folder: int, name: str) -> int:
    """Return a descriptor of a folder in a folder; the name is no link's."""
    inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    mode = os.fstat(inner).st_mode
    if stat.S_ISDIR(mode):
        return inner
    os.close(inner)
    if stat.S_ISLNK(mode):  # it was none when it was looked at
        raise outside()
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def _plain(top: int, names: PathNames, flags: int) -> int:
    """Return a descriptor of what is there by these names alone, none of which is a link's."""
    if not names:
        return os.open(".", flags, dir_fd=top)
    folder = _made(top, names[:-1], makes=False)
    try:
        found = os.open(names[-1], flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:  # it was none when it was looked at
            raise outside() from error
        raise
    finally:
        os.close(folder)
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise outside()
    return found


def _made(top: int, names: PathNames, *, makes: bool) -> int:
    """Return a descriptor of a folder, which is made where it is missing."""
    folder = os.open(".", _FOLDER, dir_fd=top)
    for name in names:
        try:
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
            inner = _inner(folder, name)
        finally:
            os.close(folder)
        folder = inner
    return folder
