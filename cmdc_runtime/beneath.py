"""What paths reach: descriptors of files below one folder, or wherever the machine has them.

Tools put links, pipes and folders where they may write, and the agent's own process, which nothing
confines, opens files there too. So a path below a working folder is opened by a ``Reach`` alone:
one of the sandbox for what the model names, and a ``NamedPath`` for what an application names, or
we do.

In virtual mode a path is taken apart into names, and one that leads out is refused as text: with
"..", a "~" in front, or absolute and not below the root. Links are followed below the root and
never out of it. The kernel sees to that where it can (openat2(2), RESOLVE_BENEATH); elsewhere each
name is opened by itself in the folder that it stands in, and links are read and followed by us. A
write goes by names alone: links are read first, then each folder is opened as one that is no link,
and the file is another one that takes the name. So what is checked is what is used, whatever is put
in its place meanwhile.

The root itself is reached without links too: it is what it was when the session began.

What is opened is a file and nothing else by ``file_of`` alone: a pipe would wait for its other end,
so every flag has O_NONBLOCK with it.
"""

import contextlib
import errno
import functools
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import ctypes

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


def refuse_folder_path(path: str) -> None:
    """Refuse a path that can only be a folder's, where a file is read or written.

    Raises:
        ValueError: it is empty, or ends with "/" or a name of dots.
    """
    name = path.rpartition("/")[2]
    if name in {"", ".", ".."}:
        end = f'ends with "{name or "/"}"' if path else "is empty"
        raise ValueError(
            f"it is a folder, since the path {end}; that of a file ends with the file's name, and"
            " list_dir shows what is in a folder"
        )


class Reach:
    """The way from paths to descriptors; the caller closes what it is given."""

    def __init__(
        self,
        root: str,
        *,
        given: str | None = None,
        is_virtual: bool = True,
        is_kernels: bool | None = None,
        folder_mode: int = 0o777,
    ) -> None:
        """Take a root that is absolute and without links, and how else paths may call it.

        ``is_kernels`` False follows links without the kernel's help; None asks what it has.
        Folders that are made have ``folder_mode``, less the umask.
        """
        self.root = root
        self.is_virtual = is_virtual
        self._tops = tuple({_names(root), _names(given or root)})
        self.folder_mode = folder_mode
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
        return _below(names, self._tops) if path.startswith("/") else names

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
            return _plain(top, self._resolved(top, names), flags)

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
                given = self.names_of(path)
                names = self._resolved(top, given)
                self._admit(given, names)
                mode = self.folder_mode if makes else None
                folder = _made(top, names[:-1], mode)
        else:
            whole = os.path.realpath(os.path.join(self.root, path))  # noqa: PTH118 - text
            parent, name = os.path.split(whole)
            if makes:
                _make_way(parent, self.folder_mode)
            folder, names = os.open(parent, _FOLDER), (name,)
        try:
            yield folder, names[-1] if names else ""
        finally:
            os.close(folder)

    def _resolved(self, top: int, names: PathNames) -> PathNames:
        return _resolved(top, names)

    def _admit(self, given: PathNames, resolved: PathNames) -> None:
        """Refuse a write to a path that leads to these names; raises OSError."""

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


def _below(names: PathNames, tops: Sequence[PathNames]) -> PathNames:
    """Return what is left of absolute names below one of these folders.

    Raises:
        OutsideError: they lie below none.
    """
    for top in tops:
        if names[: len(top)] == top:
            return names[len(top) :]
    raise outside()


# --- by the kernel --------------------------------------------------------------------------------


@functools.cache
def _libc() -> "ctypes.CDLL":
    # Here, since applications import this module too, and have no use for it.
    import ctypes  # noqa: PLC0415

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
    libc = _libc()
    import ctypes  # noqa: PLC0415 - as above

    how = struct.pack("=QQQ", flags, 0, resolve)
    found: int = libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(folder),
        ctypes.c_char_p(path),
        how,
        ctypes.c_size_t(len(how)),
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


def _resolved(top: int, names: PathNames, roots: Sequence[PathNames] = ()) -> PathNames:
    """Return the names without links that the names lead to; what is not there stays as it is.

    A link that is absolute leads out, unless that is below one of ``roots``, which call the top.

    Raises:
        OSError: a file is in the way, or there are too many links.
        OutsideError: a link leads out.
    """
    way = _Way(top, roots)
    try:
        return way.follow(names)
    finally:
        way.close()


class _Way:
    """A way down from a folder, with a descriptor of each folder on it."""

    def __init__(self, top: int, roots: Sequence[PathNames]) -> None:
        self._folders = [top]
        self._names: list[str] = []
        self._roots = roots

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
                todo += reversed(self._leads(target))
            elif not self._enter(name, is_last=not todo):
                return self._with_missing(todo)
        return tuple(self._names)

    def close(self) -> None:
        while len(self._folders) > 1:
            os.close(self._folders.pop())

    def _leads(self, target: str) -> PathNames:
        """Return the names that a link says, to be gone from here; of an absolute one, from top."""
        names = _names(target)
        if not target.startswith("/"):
            return names
        below = _below(names, self._roots)
        self.close()
        self._names.clear()
        return below

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
    folder = _made(top, names[:-1], None)
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


def _made(top: int, names: PathNames, mode: int | None) -> int:
    """Return a descriptor of a folder, which is made with this mode where it is missing."""
    folder = os.open(".", _FOLDER, dir_fd=top)
    for name in names:
        try:
            if mode is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=folder)
            inner = _inner(folder, name)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _make_way(folder: str, mode: int) -> None:
    """Make what is missing of a path of the machine, each part with this mode."""
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)  # noqa: PTH120 - text
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(one, mode)  # noqa: PTH102 - text


# --- what applications name, and we do ------------------------------------------------------------

LEADS_OUT: Final = (
    "it leads out of the working folder by a link, and programs in there could have put that there;"
    " if it is meant, give the absolute path that it leads to"
)
HIDDEN: Final = (
    "a link on the way to it leads into a hidden folder, from which other programs may take orders"
)


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path as an application names it, or as we do, and how far links on it are followed.

    One outside of the working folder is as it is given: whoever named it meant it, links and all.
    One below it stays below, however it is named, since tools put there what they like; links that
    stay are followed, but for a write into what is hidden.
    """

    reach: Reach
    path: str
    """As the reach takes it."""
    whole: str
    """The whole path, for people and as a name; nobody opens it."""

    def open(self, flags: int) -> int:
        """Return a descriptor of what is there.

        Raises:
            OSError: it can't be opened.
            ValueError: it can be no path, or a link leads out.
        """
        with _in_our_words():
            return self.reach.open(self.path, flags | os.O_NONBLOCK)

    @contextlib.contextmanager
    def folder(self, *, makes: bool = False) -> Iterator[tuple[int, str]]:
        """Give the folder that the file stands in, and the name it has there, which is no link's.

        With ``makes`` the folders it needs are made. A link may take the name meanwhile: open it
        with O_NOFOLLOW.

        Raises:
            OSError: there is no such folder, or it can't be made.
            ValueError: it can be no path of a file, or a link leads out.
        """
        with contextlib.ExitStack() as stack:
            with _in_our_words():
                found = stack.enter_context(self.reach.folder_of(self.path, makes=makes))
            yield found

    def open_as_folder(self, *, makes: bool = False) -> int:
        """Return a descriptor that stands for the folder at this path.

        Raises:
            OSError: there is no such folder, or it can't be made.
            ValueError: it can be no path, or a link leads out.
        """
        if not makes or not self.path.strip("./"):
            return self.open(_FOLDER)
        with self.folder(makes=True) as (folder, name), _in_our_words():
            return _made(folder, (name,), self.reach.folder_mode)

    def open_in_folder(self, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor of the file, to write to; its folders are made where missing.

        Raises:
            OSError: it can't be opened, or is no file.
            ValueError: it can be no path of a file, or a link leads out.
        """
        with self.folder(makes=True) as (folder, name):
            return file_in(folder, name, flags, mode)


def named_path(name: str, working_dir: str, *, folder_mode: int = 0o777) -> NamedPath:
    """Return the path of this name, relative to the working folder or absolute, "~" for a home.

    Without a home "~" is a name as any other. Folders that are made have ``folder_mode``.

    Raises:
        ValueError: it can be no path.
    """
    given = os.path.abspath(working_dir)  # noqa: PTH100 - no link is resolved
    home = real_of(given)
    # What is meant is what a person reads: ".." takes a name away, whatever links there are.
    written = os.path.normpath(os.path.expanduser(name))  # noqa: PTH111 - raises without a home
    below = _names_below(home, os.path.join(home, written))  # noqa: PTH118 - text
    whole = os.path.join(given, written)  # noqa: PTH118
    if below is None:
        outer = Reach("/", is_virtual=False, is_kernels=False, folder_mode=folder_mode)
        return NamedPath(outer, os.path.join(home, written), whole)  # noqa: PTH118
    kept = _Kept(home, given, folder_mode)
    return NamedPath(kept, "/".join((".", *below)) if below else ".", whole)


def _names_below(home: str, path: str) -> PathNames | None:
    """Return an absolute path as names below a folder, None for one that lies elsewhere.

    The folder counts under every name it has: links that lead to it are of people.
    """
    names, top = _names(os.path.normpath(path)), _names(home)
    if names[: len(top)] == top:  # whatever lies there by now
        return names[len(top) :]
    for length in range(len(names) + 1):
        with contextlib.suppress(OutsideError):
            real = os.path.realpath("/" + "/".join(names[:length]))
            return (*_below(_names(real), (top,)), *names[length:])
    return None


_pinned: dict[str, str] = {}


def pin(working_dir: str, real: str) -> None:
    """Have this process know a working folder, an absolute path, by this one without links.

    Whoever may write around it could put a link in its place later.
    """
    _pinned[working_dir] = real


def real_of(working_dir: str) -> str:
    """Return a working folder without links, as it was pinned, else as it is now."""
    return _pinned.get(working_dir) or os.path.realpath(working_dir)


def file_in(folder: int, name: str, flags: int, mode: int = 0o666) -> int:
    """Return a descriptor of a file of a folder, never of what a link leads to or of a pipe.

    Raises:
        OSError: it can't be opened, or is no file.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    found = os.open(name, flags, mode, dir_fd=folder)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    raise OSError(errno.EINVAL, "it is no regular file")


class _Kept(Reach):
    """Keeps to a working folder; links that stay there are followed, absolute ones too."""

    def __init__(self, root: str, given: str, folder_mode: int) -> None:
        super().__init__(root, given=given, is_kernels=False, folder_mode=folder_mode)

    def _admit(self, given: PathNames, resolved: PathNames) -> None:
        if set(filter(_is_hidden, resolved)) - set(given):
            raise PermissionError(errno.EPERM, HIDDEN)

    def _resolved(self, top: int, names: PathNames) -> PathNames:
        return _resolved(top, names, self._tops)


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


@contextlib.contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except OutsideError as error:
        raise OutsideError(LEADS_OUT) from error
