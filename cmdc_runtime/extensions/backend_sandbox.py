"""A backend as a sandbox: the tools for files of a session read and write what it keeps.

``create_agent(sandbox=MyBackend)`` is all that an application says. A path is one of the backend:
relative ones begin at its top, and of one below the session's working folder the rest counts.
Commands are the backend's own, if it runs any. Tools run in several processes, each of which has an
instance: a backend keeps its files where all of them find the same.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from cmdc_runtime.beneath import refuse_folder_path
from cmdc_runtime.extensions.backend import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    NOT_A_DIRECTORY,
    Backend,
    GrepMatch,
    Result,
)
from cmdc_runtime.extensions.sandbox import (
    EXECUTE_TIMEOUT_S,
    GLOB_RESULTS,
    LINES_MAX,
    READ_BYTES_MAX,
    DirEntry,
    EditedFile,
    ExecuteSettings,
    Execution,
    FilePart,
    FoundLines,
    FoundPaths,
    GrepSettings,
    LineMatch,
    Listing,
    PathMatch,
    Sandbox,
    SandboxError,
    WrittenFile,
)

_R = TypeVar("_R", bound=Result)

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
"""Of no other kind of line: a form feed ends none."""
_ABSENT: Final = frozenset({FILE_NOT_FOUND, NOT_A_DIRECTORY, INVALID_PATH})
_FILES_ALONE: Final = "this store finds files alone, no folders"


class BackendSandbox(Sandbox):
    """See the module."""

    name = "backend"

    def __init__(self, backend: Backend) -> None:
        """Serve what ``backend`` keeps."""
        self._backend = backend
        self._changing = threading.Lock()

    # --- files ------------------------------------------------------------------------------------

    def read_file(self, path: str, offset: int = 1, limit: int = LINES_MAX) -> FilePart:
        """Return lines of a text file; see the contract."""
        found = self._well(
            self._backend.read(self._file(path, "read"), offset, limit), "read", path
        )
        return _bounded(found.content, offset, found.next_offset)

    def write_file(self, path: str, content: str) -> WrittenFile:
        """Give a file its content; see the contract."""
        virtual = self._file(path, "write")
        with self._changing:
            done = self._backend.write(virtual, content)
        is_new = self._well(done, "write", path).is_new
        return WrittenFile(is_new=is_new, size_bytes=len(content.encode()))

    def edit_file(self, path: str, old: str, new: str) -> EditedFile:
        """Replace a passage; see the contract."""
        with self._changing:
            before = self._content(path, "edit") or b""
            self._well(self._backend.edit(self._file(path, "edit"), old, new), "edit", path)
        at = max(before.find(old.encode()), 0)
        return EditedFile(line=before.count(b"\n", 0, at) + 1)

    def list_dir(self, path: str = ".") -> Listing:
        """Return what is in a folder; see the contract."""
        found = self._well(self._backend.ls(self._virtual(path)), "list", path)
        entries = tuple(
            DirEntry(
                name=one.path.rstrip("/").rpartition("/")[2],
                type="directory" if one.is_dir else "file",
                size_bytes=one.size_bytes,
            )
            for one in found.entries
        )
        return Listing(entries=entries, left_out=int(found.is_cut))

    def glob(self, pattern: str, path: str = ".", max_results: int = GLOB_RESULTS) -> FoundPaths:
        """Find files by their paths; see the contract. Folders are not found."""
        if pattern.endswith("/"):
            return FoundPaths(notes=(_FILES_ALONE,))
        found = self._well(self._backend.glob(pattern, self._virtual(path)), "search", path)
        kept = found.entries[:max_results]
        return FoundPaths(
            matches=tuple(PathMatch(path=one.path.lstrip("/")) for one in kept),
            left_out=len(found.entries) - len(kept) + found.is_cut,
        )

    def grep(
        self, pattern: str, path: str = ".", settings: GrepSettings | None = None
    ) -> FoundLines:
        """Find lines by a regular expression; see the contract."""
        given = settings or GrepSettings()
        glob = None if given.include == "*" else given.include
        found = self._well(self._backend.grep(pattern, self._virtual(path), glob), "search", path)
        kept = found.matches[: given.max_results]
        is_cut = found.is_cut or len(kept) < len(found.matches)
        return FoundLines(matches=tuple(self._lines(kept, given.context_lines)), is_cut=is_cut)

    def file_exists(self, path: str) -> bool:
        """Say whether something is there; see the contract."""
        virtual = self._virtual(path)
        if self._backend.ls(virtual).error is None:
            return True
        error = self._backend.read(virtual, 1, 1).error
        return error is None or error not in _ABSENT

    def change_file(
        self, path: str, change: Callable[[bytes | None], bytes | None], *, to: str | None = None
    ) -> None:
        """Change or add a file, byte by byte; see the contract. A backend has no way to delete."""
        with self._changing:
            before = self._content(path, "change")
            try:
                after = change(before)
            except ValueError as error:
                raise SandboxError(f"Cannot change {path}: {error}") from error
            if to is not None or (after is None and before is not None):
                verb = "delete" if to is None else "move"
                raise SandboxError(f"Cannot {verb} {path}: this store can't")
            if after is not None and after != before:
                [done] = self._backend.upload_files([(self._virtual(path), after)])
                self._well(done, "change", path)

    # --- commands ---------------------------------------------------------------------------------

    async def execute(self, command: str, settings: ExecuteSettings | None = None) -> Execution:
        """Run a command where the files are; the backend's own timeout ends it."""
        # Here, since a tool's process of its own has no use for it, and it is large.
        import asyncio  # noqa: PLC0415

        given = settings or ExecuteSettings()
        timeout_s = EXECUTE_TIMEOUT_S if given.timeout_s is None else given.timeout_s
        done = await asyncio.to_thread(self._backend.execute, command, timeout_s)
        if done.error is not None:
            raise SandboxError(f"Cannot run the command: {done.error}")
        return Execution(output=done.output, exit_status=done.exit_code)

    # --- on the way -------------------------------------------------------------------------------

    def _virtual(self, path: str) -> str:
        home = self.place.working_dir.rstrip("/")
        below = path.removeprefix(home) if path == home or path.startswith(f"{home}/") else path
        return "/" + below.removeprefix("/")

    def _file(self, path: str, verb: str) -> str:
        """Return the backend's path of what is to be a file."""
        try:
            refuse_folder_path(path)
        except ValueError as error:
            raise SandboxError(f"Cannot {verb} {path}: {error}") from error
        return self._virtual(path)

    def _well(self, result: _R, verb: str, path: str) -> _R:
        if result.error is None:
            return result
        raise SandboxError(f"Cannot {verb} {path}: {_words(result.error)}")

    def _content(self, path: str, verb: str) -> bytes | None:
        """Return a file as it is, None where there is none."""
        [found] = self._backend.download_files([self._file(path, verb)])
        if found.error == FILE_NOT_FOUND:
            return None
        content = self._well(found, verb, path).content or b""
        if b"\0" in content:
            raise SandboxError(f"Cannot {verb} {path}: it is a binary file of {len(content)} bytes")
        return content

    def _lines(self, matches: Sequence[GrepMatch], around: int) -> Iterator[LineMatch]:
        """Yield matches, with the lines around them where some are asked for."""
        for path in dict.fromkeys(one.path for one in matches):
            own = {one.line: one.text for one in matches if one.path == path}
            file = path.lstrip("/")
            if not around:
                yield from (LineMatch(file=file, line=at, content=own[at]) for at in own)
                continue
            [found] = self._backend.download_files([path])
            rows = (found.content or b"").decode("utf-8", "replace").split("\n")
            near = {at + by for at in own for by in range(-around, around + 1)}
            for at in sorted(one for one in near if 1 <= one <= len(rows)):
                text = own.get(at, rows[at - 1])
                yield LineMatch(file=file, line=at, content=text, is_match=at in own)


def _bounded(text: str, offset: int, next_line: int | None) -> FilePart:
    """Return as many of the lines as one part has."""
    lines = _LINE.findall(text)
    if lines and len(first := lines[0].encode()) > READ_BYTES_MAX:
        more = next_line if len(lines) == 1 else offset + 1
        cut = first[:READ_BYTES_MAX].decode("utf-8", "ignore")
        return FilePart(text=cut, next_line=more, is_cut=True)
    size = 0
    for count, line in enumerate(lines):
        size += len(line.encode())
        if size > READ_BYTES_MAX:
            return FilePart(text="".join(lines[:count]), next_line=offset + count)
    return FilePart(text=text, next_line=next_line)


def _words(error: str) -> str:
    return error.replace("_", " ")
