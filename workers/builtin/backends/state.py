"""``StateFiles``: files in the memory of the process."""

import secrets
from collections.abc import Generator, Iterator
from functools import partial

from cmdc_runtime.extensions.backend import (
    FILE_NOT_FOUND,
    IS_DIRECTORY,
    NOT_A_DIRECTORY,
    Entry,
)
from workers.builtin.backends._stored import FoundFile, Parts, RefusedError, Seen, Stored, joined


class StateFiles(Stored):
    """Files in memory: they live as long as this object, and so at most as long as the process.

    A crash, a restart and a hibernation lose them. A folder is there while a file is in it.
    """

    def __init__(self, *, bytes_max: int, files_max: int) -> None:
        """Hold so many files, and bytes of them together, paths included."""
        self._id = f"state:{secrets.token_hex(4)}"
        super().__init__(_Shelf(bytes_max, files_max))

    @property
    def id(self) -> str:
        """A random name."""
        return self._id


class _Shelf:
    """Contents by path, changed by one thread at a time."""

    def __init__(self, bytes_max: int, files_max: int) -> None:
        self._files: dict[str, bytes] = {}
        self._bytes_left = bytes_max
        self._bytes_max = bytes_max
        self._files_max = files_max

    def entries(self, parts: Parts, seen: Seen) -> Iterator[Entry]:  # noqa: ARG002 - all is seen
        folders = set()
        for path, content in self._below(parts):
            name, slash, _ = path[len(_folder(parts)) :].partition("/")
            if not slash:
                yield Entry(path=path, size_bytes=len(content))
            elif name not in folders:
                folders.add(name)
                yield Entry(path=f"{_folder(parts)}{name}/")

    def walk(self, parts: Parts, seen: Seen) -> Generator[FoundFile, None, None]:  # noqa: ARG002 - all is seen
        for path, content in sorted(self._below(parts)):
            entry = Entry(path=path, size_bytes=len(content))
            yield FoundFile(entry, partial(bytes, content))

    def is_file(self, parts: Parts) -> bool:
        if joined(parts) in self._files:
            return True
        self._below(parts)
        return False

    def read(self, parts: Parts) -> bytes:
        content = self._files.get(joined(parts))
        if content is None:
            self._below(parts)
            raise RefusedError(IS_DIRECTORY)
        return content

    def replace(self, parts: Parts, content: bytes) -> bool:
        path = joined(parts)
        old = self._files.get(path)
        if old is None:
            self._refuse_folder(parts)
            if len(self._files) >= self._files_max:
                raise RefusedError(f"the store is full: it holds {self._files_max} files")
        more = len(content) + len(path.encode()) if old is None else len(content) - len(old)
        if more > self._bytes_left:
            raise RefusedError(f"the store is full: it holds {self._bytes_max} bytes")
        self._files[path] = content
        self._bytes_left -= more
        return old is None

    def _refuse_folder(self, parts: Parts) -> None:
        try:
            self._below(parts)
        except RefusedError as error:
            if str(error) == FILE_NOT_FOUND:
                return
            raise
        raise RefusedError(IS_DIRECTORY)

    def _below(self, parts: Parts) -> list[tuple[str, bytes]]:
        """Return the files below a folder; raises where there is no such folder."""
        for count in range(1, len(parts) + 1):
            if joined(parts[:count]) in self._files:
                raise RefusedError(NOT_A_DIRECTORY)
        folder = _folder(parts)
        found = [one for one in list(self._files.items()) if one[0].startswith(folder)]
        if parts and not found:
            raise RefusedError(FILE_NOT_FOUND)
        return found


def _folder(parts: Parts) -> str:
    return "/".join(["", *parts, ""])
