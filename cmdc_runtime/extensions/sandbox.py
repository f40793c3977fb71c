"""Sandboxes: where the tools of a session reach files and run commands, and where that ends.

A session has one, ``Options.sandbox``, and its tools have it as ``context.sandbox``. The built-in
ones are ``cmdc_runtime.sandbox``. Paths are relative to the session's working folder, or absolute;
which absolute ones there are is the sandbox's to say.

What can't be done raises ``SandboxError``, whose text is for the model: a tool that lets it pass
fails with it. It names the path as the caller wrote it.

To write one: subclass ``Sandbox`` with the eight operations, and hold it to the tests in
``tests/contract/test_sandboxes.py``; ``change_file`` goes by these until you write it. Operations
on files are plain functions that may wait for a disk or a network, so they are called from threads
and from processes of calls, several at a time; ``execute`` is a coroutine, and what it has started
is gone when it returns or is cancelled.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Literal

import msgspec

from cmdc_runtime.extensions.tool_error import ToolError
from cmdc_runtime.ids import SessionId
from cmdc_runtime.reasons import snake

LINES_MAX: Final = 2000
"""Lines of one ``read_file``."""
READ_BYTES_MAX: Final = 50 * 1024
"""Of what one ``read_file`` returns."""
CHANGED_CHARS_MAX: Final = 16 * 2**20
"""Of a file that ``change_file`` puts together of parts."""
GREP_RESULTS: Final = 100
GLOB_RESULTS: Final = 500
EXECUTE_TIMEOUT_S: Final = 30.0

LOCAL_SANDBOX: Final = "local"
"""The built-in sandbox of a session that is given none."""
CONFINING: Final = frozenset({"landlock", "bubblewrap"})
"""The built-in ones that confine what runs in them."""
UNCONFINED: Final = (
    "it keeps tools for files in a folder, and commands go where they like;"
    " give a sandbox that confines them, or leave require_sandbox out"
)
"""Why a sandbox is none for ``require_sandbox``."""

ShellKind = Literal["sh", "bash", "zsh"]
EntryType = Literal["file", "directory"]


class SandboxError(ToolError):
    """The sandbox did not do it: the path leads out, nothing is there, or it may not be read."""


class SandboxPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a sandbox serves."""

    session_id: SessionId
    working_dir: str
    """Where its relative paths begin, absolute, as the application gave it."""
    real_dir: str = ""
    """The same without symbolic links, as it was when the session's process started; "" where
    nobody has looked."""


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a text file."""

    text: str
    """With their line ends; bytes that are no UTF-8 are shown as U+FFFD. A byte order mark is no
    part of it."""
    next_line: int | None = None
    """Where to go on; None: this is the end."""
    is_cut: bool = False
    """The last line is longer than what one answer has, and its rest is left out."""


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file has its new content."""

    is_new: bool
    size_bytes: int


class EditedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A passage of a file is replaced."""

    line: int
    """Where it begins, counted from 1."""


class DirEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What is right in a folder."""

    name: str
    type: EntryType
    size_bytes: int = 0


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A folder, sorted by name."""

    entries: tuple[DirEntry, ...] = ()
    left_out: int = 0
    """How many more there are."""


class PathMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder whose path matches."""

    path: str
    type: EntryType = "file"


class FoundPaths(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, folder by folder, each sorted."""

    matches: tuple[PathMatch, ...] = ()
    left_out: int = 0
    """How many more were found."""
    notes: tuple[str, ...] = ()
    """What was not searched, a line for people and models each."""


class LineMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A line that matches, or one beside it."""

    file: str
    line: int
    """Counted from 1."""
    content: str
    """Without its line end; of a long one the part around the match."""
    is_match: bool = True
    """False: it is shown because the match is near."""


class FoundLines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines file by file, in their order."""

    matches: tuple[LineMatch, ...] = ()
    is_cut: bool = False
    """More was found than was asked for."""
    notes: tuple[str, ...] = ()


class GrepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a search goes."""

    include: str = "*"
    """Which files: a pattern of names, one with "/" of paths below the place of the search."""
    context_lines: int = 0
    max_results: int = GREP_RESULTS


class ExecuteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a command is run."""

    timeout_s: float | None = None
    """None: as long as the sandbox lets one run."""
    env: dict[str, str] = {}
    """Variables beside those that every command sees."""
    shell: ShellKind | None = None
    """What reads the command line; None: bash, and sh where that is missing."""
    output_file: str | None = None
    """Where the whole text goes if it is longer than what is returned; None: the sandbox says."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    output: str
    """Both streams as they came; of a long one the two ends, and where the rest is."""
    exit_status: int | None
    """Negative for the signal that ended it; None: it was killed since its time was up."""


class Sandbox(ABC):
    """Base of all sandboxes; one instance serves one session in one process."""

    name: str = ""
    """For people and errors: the class name in snake_case unless the class sets it."""
    confines: ClassVar[bool] = False
    """Whether also what commands do, and what they start, ends where the sandbox does; of tools in
    processes the same, by ``confine``. Only such a sandbox is one for ``require_sandbox``."""
    place: SandboxPlace

    def __init_subclass__(cls, **arguments: Any) -> None:  # Any: whatever a base class takes
        """Name the class."""
        super().__init_subclass__(**arguments)
        if "name" not in vars(cls):
            cls.name = snake(cls.__name__)

    def begin(self, place: SandboxPlace) -> None:
        """Serve this session from now on; called once in each process, before anything else.

        It may block for a moment. Whoever overrides it calls this one.

        Raises:
            SandboxUnavailable: what it needs is not here; no tool of the session runs then.
        """
        self.place = place

    def confine(self) -> None:  # noqa: B027 - to confine nothing is the default
        """Confine this process, which was forked for one call of a tool, and all that it starts.

        Called after ``begin`` and before any code of the tool, for ever, in a process that has one
        thread. The default confines nothing.

        Raises:
            SandboxUnavailable: it can't; the tool does not run then.
        """

    def server_program(
        self,
        program: Sequence[str],
        *,
        needs_network: bool = False,  # noqa: ARG002 - of those that confine
    ) -> Sequence[str]:
        """Return what is run for a program that serves the session, as an MCP server does.

        It speaks on stdin and stdout for as long as the session's process lives, and is started in
        the session's working folder. Where the sandbox confines, the answer does so to it and to
        all that it starts, with the network if ``needs_network``. Called in the event loop of the
        agent, so it does not block.

        Raises:
            SandboxError: it can't; the default can't where the sandbox confines.
        """
        if self.confines:
            raise SandboxError(
                f"the sandbox {self.name} has no server_program, so no server is started in it;"
                " give it one, or a server at a url"
            )
        return program

    @abstractmethod
    def read_file(self, path: str, offset: int = 1, limit: int = LINES_MAX) -> FilePart:
        """Return ``limit`` lines of a text file from line ``offset`` on, counted from 1."""

    @abstractmethod
    def write_file(self, path: str, content: str) -> WrittenFile:
        """Give a file this content as a whole, with the folders it needs, in one piece."""

    @abstractmethod
    def edit_file(self, path: str, old: str, new: str) -> EditedFile:
        """Replace a passage that occurs exactly once in a text file."""

    @abstractmethod
    def list_dir(self, path: str = ".") -> Listing:
        """Return what is right in a folder."""

    @abstractmethod
    def glob(self, pattern: str, path: str = ".", max_results: int = GLOB_RESULTS) -> FoundPaths:
        """Return the files whose paths below ``path`` match, or folders with a "/" at the end."""

    @abstractmethod
    def grep(
        self, pattern: str, path: str = ".", settings: GrepSettings | None = None
    ) -> FoundLines:
        """Return the lines of the files in or at ``path`` that match a regular expression."""

    @abstractmethod
    async def execute(self, command: str, settings: ExecuteSettings | None = None) -> Execution:
        """Run a command line in the working folder; that it fails is no error."""

    @abstractmethod
    def file_exists(self, path: str) -> bool:
        """Say whether a file or folder is there; False for what can't be reached."""

    def change_file(
        self, path: str, change: Callable[[bytes | None], bytes | None], *, to: str | None = None
    ) -> None:
        """Give a text file the content that ``change`` makes of the one it has, in one piece.

        ``change`` is given None for a file that is not there, and returns None for one that shall
        not be there; what it returns unchanged is not written. A ``ValueError`` of it is one of
        the sandbox's. With ``to`` the file is moved there, where nothing may be yet, and keeps its
        mode. This one reads and writes by the operations above: it takes UTF-8 alone, overlooks
        what others change meanwhile, and neither deletes nor moves.
        """
        try:
            before = self._whole(path) if self.file_exists(path) else None
            after = change(before)
        except ValueError as error:
            raise SandboxError(f"Cannot change {path}: {error}") from error
        if to is not None or (after is None and before is not None):
            verb = "delete" if to is None else "move"
            raise SandboxError(f"Cannot {verb} {path}: this sandbox can't")
        if after is not None and after != before:
            try:
                self.write_file(path, after.decode())
            except UnicodeDecodeError as error:
                raise SandboxError(f"Cannot change {path}: it is no UTF-8") from error

    def _whole(self, path: str) -> bytes:
        parts: list[str] = []
        offset: int | None = 1
        while offset is not None:
            part = self.read_file(path, offset)
            if part.is_cut or "\N{REPLACEMENT CHARACTER}" in part.text:
                raise ValueError("it has lines that are too long, or no UTF-8")
            parts.append(part.text)
            if sum(map(len, parts)) > CHANGED_CHARS_MAX:
                raise ValueError(f"it has more than {CHANGED_CHARS_MAX} characters")
            offset = part.next_line
        return "".join(parts).encode()
