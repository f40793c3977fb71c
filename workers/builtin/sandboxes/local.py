"""``local``: files of this machine below one folder, and commands as processes of this user.

In virtual mode tools for files can't leave the folder, whatever a path says and whatever lies on
its way (``cmdc_runtime.beneath``); an absolute path is one of the machine, and taken where it lies
below the folder. Commands are not confined. A sandbox that confines them is one of this kind with
another ``program``, which says what is run for a command line.
"""

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, get_args

from cmdc_runtime.beneath import Reach, file_in
from cmdc_runtime.extensions.context import Context
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
    Listing,
    Sandbox,
    SandboxError,
    SandboxPlace,
    ShellKind,
    WrittenFile,
)
from cmdc_runtime.extensions.tool_error import ToolError
from cmdc_runtime.tool_environment import passed_on
from workers.builtin.sandboxes._search import found_lines, found_paths, is_folder, place_of
from workers.builtin.tools._files import (
    BYTE_ORDER_MARK,
    READING,
    mark_in,
    mark_of,
    one_at_a_time,
    put,
    reason_of,
    status_of_writable,
    text_file,
    whole,
)

ENTRIES_MAX: Final = 1000
"""Of one listing."""
PLACES_MAX: Final = 5
"""So many places of a text that is not unique are named."""
COMMAND_BYTES_MAX: Final = 128 * 1024 - 1
"""Of a command line: it is one argument of the shell, and Linux takes none of more."""

_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")


@dataclass(frozen=True, slots=True)
class _Held:
    """A file as it was when it was read."""

    content: bytes
    status: os.stat_result


class Local(Sandbox):
    """See the module."""

    def __init__(
        self,
        root: str | None = None,
        *,
        virtual_mode: bool = True,
        timeout: float = EXECUTE_TIMEOUT_S,
    ) -> None:
        """Take the options of ``cmdc_runtime.sandbox.Local``."""
        self._root = root
        self._is_virtual = virtual_mode
        self._timeout_s = timeout

    def begin(self, place: SandboxPlace) -> None:
        """Find the folder; that it is there is seen by each operation."""
        super().begin(place)
        working_dir = os.path.abspath(place.working_dir)  # noqa: PTH100 - no link is resolved
        if self._root is None:
            given, real = working_dir, place.real_dir or os.path.realpath(working_dir)
        else:
            given = os.path.join(working_dir, self._root)  # noqa: PTH118 - paths are text here
            given = os.path.abspath(given)  # noqa: PTH100 - as above
            real = os.path.realpath(given)
        self._folder = given
        self._reach = Reach(real, given=given, is_virtual=self._is_virtual)

    # --- files ------------------------------------------------------------------------------------

    def read_file(self, path: str, offset: int = 1, limit: int = LINES_MAX) -> FilePart:
        """Return a part of a text file; see the contract."""
        with _in_our_words("read", path), text_file(self._reach.open_file(path, READING)) as file:
            return _part(file, offset, limit)

    def write_file(self, path: str, content: str) -> WrittenFile:
        """Replace a file; see the contract. A byte order mark stays where one was."""
        with _in_our_words("write", path):
            encoded = content.encode()
            with one_at_a_time(), self._reach.folder_of(path, makes=True) as (folder, name):
                mark = mark_of(folder, name)
                encoded = encoded if encoded.startswith(mark) else mark + encoded
                return WrittenFile(is_new=put(folder, name, encoded), size_bytes=len(encoded))

    def edit_file(self, path: str, old: str, new: str) -> EditedFile:
        """Replace a passage; see the contract. In a file with CR LF one written with LF is meant.

        Everything else in the file stays as it is, byte by byte, whatever its encoding.
        """
        with _in_our_words("edit", path):
            before, after = old.encode(), new.encode()
            with one_at_a_time(), self._reach.folder_of(path) as (folder, name):
                descriptor = os.open(name or ".", READING | os.O_NOFOLLOW, dir_fd=folder)
                content = whole(text_file(descriptor))
                mark = mark_in(content)
                edited, line = _edited(content[len(mark) :], before, after)
                put(folder, name, mark + edited)
        return EditedFile(line=line)

    def change_file(
        self, path: str, change: Callable[[bytes | None], bytes | None], *, to: str | None = None
    ) -> None:
        """Change, add, delete or move a file; see the contract. Of two of our calls none is lost.

        A link is no file that is deleted or moved. A move writes the new file before the old one
        goes, so that a crash leaves both.
        """
        with _in_our_words("change", path), one_at_a_time():
            held = self._held(path)
            after = change(None if held is None else held.content)
            if to is not None:
                self._move(path, held, to, after)
            elif after is None:
                if held is not None:
                    self._delete(path)
            elif held is None or after != held.content:
                with self._reach.folder_of(path, makes=True) as (folder, name):
                    put(folder, name, after)

    def _held(self, path: str) -> _Held | None:
        try:
            with self._reach.folder_of(path) as (folder, name):
                status = status_of_writable(folder, name)
                if status is None:
                    return None
                descriptor = os.open(name, READING | os.O_NOFOLLOW, dir_fd=folder)
                return _Held(whole(text_file(descriptor)), status)
        except FileNotFoundError:  # of its folder
            return None

    def _delete(self, path: str) -> None:
        self._refuse_a_link(path)
        with self._reach.folder_of(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def _move(self, path: str, held: _Held | None, to: str, after: bytes | None) -> None:
        if held is None or after is None:
            raise ValueError("there is nothing to move")
        self._refuse_a_link(path)
        with _in_our_words("move to", to), self._reach.folder_of(to, makes=True) as (folder, name):
            if status_of_writable(folder, name) is not None:
                raise ValueError("something is there already")
            put(folder, name, after, like=held.status)
        self._delete(path)

    def _refuse_a_link(self, path: str) -> None:
        parent, name = os.path.split(path.rstrip("/"))
        folder = self._reach.open(parent or ".", os.O_PATH | os.O_DIRECTORY)
        try:
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise ValueError("it is a symbolic link; only files are deleted and moved")
        finally:
            os.close(folder)

    def list_dir(self, path: str = ".") -> Listing:
        """Return what is in a folder; see the contract."""
        with _in_our_words("list", path):
            folder = self._reach.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
            try:
                names = sorted(os.listdir(folder))  # noqa: PTH208 - of a descriptor
                kept = tuple(self._entry(folder, path, name) for name in names[:ENTRIES_MAX])
            finally:
                os.close(folder)
        return Listing(entries=kept, left_out=len(names) - len(kept))

    def _entry(self, folder: int, path: str, name: str) -> DirEntry:
        if is_folder(self._reach, str(Path(path, name))):
            return DirEntry(name=name, type="directory")
        try:
            size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
        except OSError:  # gone since it was listed
            size = 0
        return DirEntry(name=name, type="file", size_bytes=size)

    def glob(self, pattern: str, path: str = ".", max_results: int = GLOB_RESULTS) -> FoundPaths:
        """Find files by their paths; see the contract."""
        with _in_our_words("search", place_of(pattern, path)[0]):
            return found_paths(self._reach, pattern, path, max_results)

    def grep(
        self, pattern: str, path: str = ".", settings: GrepSettings | None = None
    ) -> FoundLines:
        """Find lines by a regular expression of Python's; see the contract."""
        with _in_our_words("search", path):
            return found_lines(self._reach, pattern, path, settings or GrepSettings())

    def file_exists(self, path: str) -> bool:
        """Say whether something is there; see the contract."""
        try:
            os.close(self._reach.open(path, os.O_PATH))
        except (OSError, ValueError):
            return False
        return True

    # --- commands ---------------------------------------------------------------------------------

    def program(self, command: str, shell: ShellKind | None = None) -> Sequence[str]:
        """Return what is run for a command line: a program with its arguments.

        A shell of None is the sandbox's own. A sandbox that confines puts its own program before
        it, and leaves the command line the argument that it is.

        Raises:
            SandboxError: the shell is not installed.
        """
        found = (shutil.which("bash") or "/bin/sh") if shell is None else _installed(shell)
        return (found, "-c", command)

    @property
    def confines_commands_itself(self) -> bool:
        """Whether ``program`` does more than keep a command from looking into other processes."""
        return False

    async def execute(self, command: str, settings: ExecuteSettings | None = None) -> Execution:
        """Run a command line with a short list of this process's variables; see the contract."""
        # Here, since a tool's process of its own has no use for it, and asyncio is large.
        from workers.builtin.sandboxes import _capture, _commands  # noqa: PLC0415

        _refuse_long(command)
        given = settings or ExecuteSettings()
        environment = {
            **passed_on(os.environ),
            "PWD": self._folder,
            "CMDC_SESSION_ID": self.place.session_id,
            **given.env,
        }
        order = _commands.CommandOrder(
            program=self.program(command, given.shell),
            working_dir=self._reach.root,
            environment=environment,
            timeout_s=self._timeout_s if given.timeout_s is None else given.timeout_s,
            confines_itself=self.confines_commands_itself,
        )
        kept = _Kept(self._reach, self._folder, given.output_file or _output_path())
        capture = _capture.Capture(kept)
        try:
            status = await _commands.run(order, capture)
        except (OSError, ValueError) as error:
            raise SandboxError(f"Cannot run the command: {error}") from error
        return Execution(output=capture.text(), exit_status=status)


def create(
    root: str | None = None,
    *,
    virtual_mode: bool = True,
    timeout: float = EXECUTE_TIMEOUT_S,
) -> Sandbox:
    """Return the sandbox; see ``cmdc_runtime.sandbox.Local``."""
    return Local(root, virtual_mode=virtual_mode, timeout=timeout)


def sandbox_of(context: Context) -> Sandbox:
    """Return the sandbox of a call; without a session it is this one over the working folder."""
    if context.sandbox is not None:
        return context.sandbox
    sandbox = Local()
    place = SandboxPlace(session_id=context.session_id, working_dir=context.working_dir)
    sandbox.begin(place)
    return sandbox


def _refuse_long(command: str) -> None:
    """Refuse a command line that is no argument of a program.

    Raises:
        SandboxError: it has more than ``COMMAND_BYTES_MAX`` bytes.
    """
    size = len(command.encode("utf-8", "surrogatepass"))
    if size > COMMAND_BYTES_MAX:
        raise SandboxError(
            f"Cannot run the command: it has {size} bytes, and {COMMAND_BYTES_MAX} at most are"
            " taken; write what is long to a file first, as with write_file, and use the file in"
            " the command"
        )


def _installed(shell: ShellKind) -> str:
    """Return where a shell is.

    Raises:
        SandboxError: it is not installed.
    """
    found = shutil.which(shell)
    if found is None:
        kinds = [kind for kind in get_args(ShellKind) if shutil.which(kind)]
        there = f"there are {', '.join(kinds)}" if kinds else "and neither is any other one"
        raise SandboxError(f"Cannot run the command: {shell} is not installed; {there}")
    return found


@contextlib.contextmanager
def _in_our_words(verb: str, path: str) -> Iterator[None]:
    """Raise what goes wrong with a path in the words of every sandbox."""
    try:
        yield
    except SandboxError:
        raise
    except ToolError as error:  # an earlier change has not ended
        raise SandboxError(*error.args) from error
    except (OSError, ValueError) as error:
        raise SandboxError(f"Cannot {verb} {path}: {reason_of(error)}") from error


# --- parts of files -------------------------------------------------------------------------------


def _part(file: BinaryIO, offset: int, limit: int) -> FilePart:
    lines = _lines(file)
    skipped = sum(1 for _ in islice(lines, offset - 1))
    if skipped < offset - 1:
        raise ValueError(f"it has {skipped} lines, and none at offset {offset}")
    kept: list[bytes] = []
    next_line, size, is_cut = None, 0, False
    for number, (line, is_whole) in enumerate(lines, offset):
        size += len(line)
        if number == offset + limit or (size > READ_BYTES_MAX and kept):
            next_line = number
            break
        kept.append(line)
        if not is_whole:
            next_line, is_cut = number + 1, True
            break
    if offset == 1 and kept:
        kept[0] = kept[0].removeprefix(BYTE_ORDER_MARK)
    text = b"".join(kept).decode("utf-8", errors="replace")
    return FilePart(text=text, next_line=next_line, is_cut=is_cut)


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, the end of an endless one left out, and whether it is whole."""
    while line := file.readline(READ_BYTES_MAX):
        is_whole = line.endswith(b"\n") or len(line) < READ_BYTES_MAX
        yield line, is_whole
        rest = b"" if is_whole else line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(READ_BYTES_MAX)


def _edited(content: bytes, old: bytes, new: bytes) -> tuple[bytes, int]:
    """Return the new content and the line, counted from 1, where it begins to differ."""
    if not old:
        raise ValueError("old_string is empty")
    if old == new:
        raise ValueError("old_string and new_string are the same")
    if b"\r\n" in content and old not in content:
        old, new = (_BARE_LINE_FEED.sub(b"\r\n", text) for text in (old, new))
    at = content.find(old)
    if at < 0:
        raise ValueError("old_string does not occur in it; read the file and copy the passage")
    if content.find(old, at + 1) >= 0:
        raise ValueError(
            f"old_string occurs more than once, at {_places(content, old)};"
            " give more of the text around the passage"
        )
    return content[:at] + new + content[at + len(old) :], _line(content, at)


def _places(content: bytes, old: bytes) -> str:
    lines: list[str] = []
    at = content.find(old)
    while at >= 0 and len(lines) < PLACES_MAX:
        lines.append(str(_line(content, at)))
        at = content.find(old, at + 1)
    return f"lines {', '.join(lines)}{' and others' if at >= 0 else ''}"


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1


# --- long output ----------------------------------------------------------------------------------


class _Kept:
    """A file of the sandbox that takes the output of a command."""

    def __init__(self, reach: Reach, folder: str, path: str) -> None:
        self._reach = reach
        self._folder = folder
        self._path = path

    @property
    def path(self) -> str:
        return os.path.join(self._folder, self._path)  # noqa: PTH118 - text

    @contextlib.contextmanager
    def opened(self, *, is_new: bool) -> Iterator[BinaryIO]:
        flags = os.O_WRONLY | (os.O_CREAT | os.O_EXCL if is_new else os.O_APPEND)
        with self._reach.folder_of(self._path, makes=True) as (folder, name):
            descriptor = file_in(folder, name, flags, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            yield file


def _output_path() -> str:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return f".cmdc/output/{now}.txt"
