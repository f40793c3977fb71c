"""``Filesystem``: files in a folder of the machine, which keeps what asks for others out."""

import os
from pathlib import Path

from cmdc_runtime.extensions.backend import InvalidPathError, path_parts
from workers.builtin.backends._stored import Failure, Parts, Stored
from workers.builtin.backends._tree import Tree


class Filesystem(Stored):
    """Files below one folder.

    In virtual mode that folder is "/", and neither a path nor a link leads out of it. Otherwise
    paths are those of the machine, and results name files by where they really are. In both, links
    are neither shown nor walked into.
    """

    def __init__(self, root_dir: str, *, virtual_mode: bool = True) -> None:
        """Take the folder, relative to the working folder of the process or absolute."""
        self._root = str(Path(root_dir).expanduser().absolute())
        self._is_virtual = virtual_mode
        self._tree = Tree(self._root if virtual_mode else "/")
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
