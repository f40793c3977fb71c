"""``Composite``: folders of one backend that are backends of their own; and how each is opened.

``opened`` makes a backend from its light reference. To add a backend: a reference in
``cmdc_runtime.backends``, in ``AnyBackend`` too, a module of its name here, and a case in
``opened``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar, assert_never

import msgspec

from cmdc_runtime import backends
from cmdc_runtime.extensions.backend import (
    ENTRIES_MAX,
    FILE_NOT_FOUND,
    INVALID_PATH,
    LINES_MAX,
    MATCHES_MAX,
    Backend,
    EditResult,
    Entry,
    ExecuteResult,
    FileDownload,
    FileUpload,
    GlobResult,
    GrepMatch,
    GrepResult,
    InvalidPathError,
    LsResult,
    ReadResult,
    Result,
    WriteResult,
    path_parts,
)
from workers.builtin.backends._stored import RefusedError, chosen, word_of
from workers.builtin.backends._tree import Filesystem
from workers.builtin.backends.state import StateFiles

# --- composite ------------------------------------------------------------------------------------

_Answer = TypeVar("_Answer", bound=Result)
_Named = TypeVar("_Named", Entry, GrepMatch, WriteResult, EditResult)
_FAILURES: Final = (InvalidPathError, RefusedError)


class _Place(NamedTuple):
    """A path, and the backend that it is in."""

    backend: Backend
    prefix: str
    """What the backend does not see: "/memories", or nothing."""
    inner: str
    """The path as the backend sees it."""
    folder: str
    """The whole path as that of a folder, with "/" at its end."""


class Composite(Backend):
    """A default backend, and others for what is below their prefixes; the longest prefix counts.

    What the default has below a prefix is hidden. Paths are virtual, whatever a backend takes.
    """

    def __init__(self, default: Backend, routes: Mapping[str, Backend]) -> None:
        """Take prefixes that begin and end with "/"; ``cmdc_runtime.backends`` checks them."""
        self._default = default
        self._routes = sorted(routes.items(), key=lambda route: (-len(route[0]), route[0]))

    @property
    def id(self) -> str:
        """What it is made of."""
        routes = (f"{prefix}={backend.id}" for prefix, backend in self._routes)
        return f"composite:({', '.join([self._default.id, *routes])})"

    def ls(self, path: str) -> LsResult:
        """Return what is right in a folder, and the first folder of each prefix below it."""
        try:
            place = self._place(path)
        except InvalidPathError:
            return LsResult(error=INVALID_PATH)
        found = place.backend.ls(place.inner)
        firsts = {_first_folder(place.folder, below.folder) for below in self._below(place)}
        if found.error is not None and not (firsts and found.error == FILE_NOT_FOUND):
            return found
        entries = {entry.path: entry for entry in self._owned(place, found.entries)}
        entries |= {path: Entry(path=path) for path in firsts}
        listed = sorted(entries.values(), key=lambda entry: entry.path)
        is_cut = found.is_cut or len(listed) > ENTRIES_MAX
        return LsResult(entries=tuple(listed[:ENTRIES_MAX]), is_cut=is_cut)

    def read(self, path: str, offset: int = 1, limit: int = LINES_MAX) -> ReadResult:
        """Return lines of a text file."""
        try:
            place = self._place(path)
        except InvalidPathError:
            return ReadResult(error=INVALID_PATH)
        return place.backend.read(place.inner, offset, limit)

    def write(self, path: str, content: str) -> WriteResult:
        """Give a file this content."""
        try:
            place = self._place(path)
        except InvalidPathError:
            return WriteResult(error=INVALID_PATH)
        written = place.backend.write(place.inner, content)
        return _outside(place, written) if written.error is None else written

    def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult:  # noqa: FBT001, FBT002 - the contract
        """Replace passages of a text file."""
        try:
            place = self._place(path)
        except InvalidPathError:
            return EditResult(error=INVALID_PATH)
        done = place.backend.edit(place.inner, old, new, replace_all)
        return _outside(place, done) if done.error is None else done

    def grep(self, pattern: str, path: str = "/", glob: str | None = None) -> GrepResult:
        """Return the lines that match, from every backend that has files there."""
        by_path = glob if glob is not None and "/" in glob else None
        try:
            place = self._place(path)
            fits = _anything if by_path is None else chosen(by_path)
            # A pattern of paths begins at the folder that was asked for, not at a prefix below it.
            found = self._gathered(
                place,
                lambda at: at.backend.grep(
                    pattern, at.inner, glob if at is place or by_path is None else None
                ),
            )
        except _FAILURES as error:
            return GrepResult(error=word_of(error))
        matches = [
            match
            for at, result in found
            for match in self._owned(at, result.matches)
            if at is place or fits(match.path.removeprefix(place.folder))
        ]
        matches.sort(key=lambda match: (match.path, match.line))
        is_cut = len(matches) > MATCHES_MAX or any(result.is_cut for _, result in found)
        return GrepResult(matches=tuple(matches[:MATCHES_MAX]), is_cut=is_cut)

    def glob(self, pattern: str, path: str = "/") -> GlobResult:
        """Return the files whose path matches, from every backend that has files there."""
        try:
            place = self._place(path)
            fits = chosen(pattern)
            found = self._gathered(
                place, lambda at: at.backend.glob(pattern if at is place else "**", at.inner)
            )
        except _FAILURES as error:
            return GlobResult(error=word_of(error))
        entries = [
            entry
            for at, result in found
            for entry in self._owned(at, result.entries)
            if at is place or fits(entry.path.removeprefix(place.folder))
        ]
        entries.sort(key=lambda entry: entry.path)
        is_cut = len(entries) > ENTRIES_MAX or any(result.is_cut for _, result in found)
        return GlobResult(entries=tuple(entries[:ENTRIES_MAX]), is_cut=is_cut)

    def upload_files(self, files: Sequence[tuple[str, bytes]]) -> tuple[FileUpload, ...]:
        """Write files as they are, those of one backend at once."""
        errors: dict[int, str | None] = {}
        for backend, places in self._batches([path for path, _ in files]):
            batch = [(inner, files[at][1]) for at, inner in places.items()]
            uploads = backend.upload_files(batch)
            errors |= {at: done.error for at, done in zip(places, uploads, strict=True)}
        return tuple(
            FileUpload(path=path, error=errors.get(at, INVALID_PATH))
            for at, (path, _) in enumerate(files)
        )

    def download_files(self, paths: Sequence[str]) -> tuple[FileDownload, ...]:
        """Return files as they are, those of one backend fetched at once."""
        found: dict[int, FileDownload] = {}
        for backend, places in self._batches(paths):
            downloads = backend.download_files(list(places.values()))
            found |= zip(places, downloads, strict=True)
        return tuple(
            msgspec.structs.replace(found[at], path=path)
            if at in found
            else FileDownload(path=path, error=INVALID_PATH)
            for at, path in enumerate(paths)
        )

    def execute(self, command: str, timeout_s: float = 60.0) -> ExecuteResult:
        """Run a command where the default backend runs it, if it does."""
        return self._default.execute(command, timeout_s)

    def local_path(self, path: str) -> str | None:
        """Return where a file is."""
        try:
            place = self._place(path)
        except InvalidPathError:
            return None
        return place.backend.local_path(place.inner)

    def _place(self, path: str) -> _Place:
        folder = "/".join(["", *path_parts(path), ""])
        plain = folder[:-1] or "/"
        for prefix, backend in self._routes:
            if folder.startswith(prefix):
                return _Place(backend, prefix[:-1], plain[len(prefix) - 1 :] or "/", folder)
        return _Place(self._default, "", plain, folder)

    def _below(self, place: _Place) -> list[_Place]:
        """Return the tops of the backends whose prefix lies below a place."""
        return [
            _Place(backend, prefix[:-1], "/", prefix)
            for prefix, backend in self._routes
            if prefix.startswith(place.folder) and prefix != place.folder
        ]

    def _gathered(
        self, place: _Place, ask: Callable[[_Place], _Answer]
    ) -> list[tuple[_Place, _Answer]]:
        """Return the answers of all backends that have files at a place or below it.

        Raises:
            Refused: one has an error, other than that nothing is there where something is below.
        """
        places = [place, *self._below(place)]
        answers = [(at, ask(at)) for at in places]
        for at, answer in answers:
            is_only_missing = at is place and len(places) > 1 and answer.error == FILE_NOT_FOUND
            if answer.error is not None and not is_only_missing:
                raise RefusedError(answer.error)
        return answers

    def _owned(self, place: _Place, found: Iterable[_Named]) -> list[_Named]:
        """Return what a backend found, named from outside, but what another backend hides."""
        named = (_outside(place, one) for one in found)
        return [one for one in named if self._prefix_of(one.path) == place.prefix]

    def _prefix_of(self, path: str) -> str:
        folder = f"{path.rstrip('/')}/"
        found = (prefix for prefix, _ in self._routes if folder.startswith(prefix))
        return next(found, "/")[:-1]

    def _batches(self, paths: Sequence[str]) -> list[tuple[Backend, dict[int, str]]]:
        """Return each backend with the paths that are in it, by their places in ``paths``."""
        batches: dict[str, tuple[Backend, dict[int, str]]] = {}
        for at, path in enumerate(paths):
            try:
                place = self._place(path)
            except InvalidPathError:
                continue
            batches.setdefault(place.prefix, (place.backend, {}))[1][at] = place.inner
        return list(batches.values())


def _outside(place: _Place, found: _Named) -> _Named:
    return msgspec.structs.replace(found, path=place.prefix + found.path)


def _first_folder(folder: str, below: str) -> str:
    return folder + below[len(folder) :].partition("/")[0] + "/"


def _anything(_: str) -> bool:
    return True


# --- opening --------------------------------------------------------------------------------------


def opened(reference: backends.AnyBackend, working_dir: str = ".") -> Backend:
    """Return a new backend; relative folders begin at ``working_dir``."""
    match reference:
        case backends.State(max_bytes=bytes_max, max_files=files_max):
            return StateFiles(bytes_max=bytes_max, files_max=files_max)
        case backends.Filesystem(root_dir=root_dir, virtual_mode=virtual_mode):
            return Filesystem(root_dir, virtual_mode=virtual_mode, working_dir=working_dir)
        case backends.Composite(default=default, routes=routes):
            return Composite(
                opened(default, working_dir),
                {prefix: opened(route, working_dir) for prefix, route in routes.items()},
            )
        case _:
            assert_never(reference)
