"""The options of the approval by people."""

import re
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from cmdc_runtime.extensions.actions import (
    APPROVAL_OPTIONS,
    APPROVAL_TIMEOUT_S,
    APPROVAL_TIMEOUT_S_MAX,
    ApprovalOption,
)
from cmdc_runtime.packing import BuiltInPlugin

ALL_TOOLS: Final = "*"
"""In the place of a tool's name: every tool."""
REGEX_MARK: Final = "re:"
"""What an entry of ``safe_commands`` begins with that is a regular expression."""
REQUIRE_APPROVAL_FOR: Final = ("shell",)
"""The tools whose calls need a person, unless the options say otherwise."""
SHELL_TOOLS: Final = ("shell",)
"""The tools whose ``command`` a shell runs, unless the options say otherwise."""
SAFE_COMMANDS: Final = (
    "ls", "pwd", "cat", "head", "tail", "wc", "nl", "cut", "tr", "sort", "grep", "find", "stat",
    "du", "df", "basename", "dirname", "realpath", "readlink", "which", "echo", "true", "false",
    "date", "whoami", "id", "uname",
    "git status", "git diff", "git log", "git show", "git branch",
)  # fmt: skip
"""Commands that only read, unless the options name others. Git runs what its configuration names:
leave its commands out where the model can write to ``.git`` without being asked."""
CONFIRM_PREFIXES: Final = ("confirm:", "确认执行：")  # noqa: RUF001 - as Chinese is typed
"""What a prompt begins with that confirms a command, unless the options say otherwise."""

_SAFE_ENTRIES_MAX: Final = 1_000
_ENTRY_CHARS_MAX: Final = 1_000
_TIMEOUT_MS: Final = round(APPROVAL_TIMEOUT_S * 1000)
_BLANKS: Final = " \t\r\n"

_Name = Annotated[str, Meta(min_length=1, max_length=128)]
_Entry = Annotated[str, Meta(max_length=_ENTRY_CHARS_MAX)]
_Prefix = Annotated[str, Meta(max_length=64)]


class HumanApproval(BuiltInPlugin, frozen=True, kw_only=True):
    """Lets a person decide about calls of some tools, but for shell commands that only read.

    A call that needs a person is published as ``ApprovalRequired`` and decided by ``approve`` or
    ``reject``. "approve_always" holds for the rest of the session: for a shell command it covers
    the *family* of the call, that is its program, with the subcommand of a program that has some
    (``git push``), and for any other tool all of its calls. A command whose program runs whatever
    it is told (``python -c ...``, ``sudo ...``) is approved in the very same words only, and one
    that cannot be read before it runs (``$(...)`` as a program, ``eval``) only once.
    """

    short_name: ClassVar[str] = "human_approval"
    require_approval_for: Annotated[tuple[_Name, ...], Meta(min_length=1)] = REQUIRE_APPROVAL_FOR
    """Names of tools, exact; ``"*"`` is every tool."""
    tools: Annotated[tuple[_Name, ...], Meta(min_length=1)] | None = None
    """Another name of ``require_approval_for``; give one of them."""
    shell_tools: tuple[_Name, ...] = SHELL_TOOLS
    """Tools that take a ``command`` for a POSIX shell. Of these a call without other arguments
    (but ``timeout``) can be safe, and be approved by family; calls of other tools cannot."""
    safe_commands: Annotated[tuple[_Entry, ...], Meta(max_length=_SAFE_ENTRIES_MAX)] = SAFE_COMMANDS
    """Commands that nobody is asked about, in place of the default ones.

    An entry is the first words of a command (``"git log"``), or ``"re:"`` and a regular expression
    that the whole command must match: its words, each quoted as ``shlex.join`` does. A line of
    several commands is safe if each one is. What no entry makes safe: writing to a file by a
    redirection, setting a variable, and a line that cannot be read. Besides, the words do not make
    safe an argument by which a program known to us writes or runs something (``sort -o``,
    ``find -exec``); a regular expression does."""
    confirm_prefix: _Prefix | tuple[_Prefix, ...] = CONFIRM_PREFIXES
    """A prompt that begins so confirms the command that follows: the next call with exactly this
    command runs, once. Nothing else in a prompt is read. None of them is an empty list."""
    timeout_ms: Annotated[int, Meta(ge=0, le=round(APPROVAL_TIMEOUT_S_MAX * 1000))] = _TIMEOUT_MS
    """After which nobody's decision counts as a rejection; 0 is never."""
    permission_options: Annotated[tuple[ApprovalOption, ...], Meta(min_length=1)] = APPROVAL_OPTIONS
    """What a person may decide."""
    mode: Literal["block", "hold"] | None = None
    """"block": the call ends with an error, the cycle rests, and an approval opens a new one in
    which the model repeats the call. "hold": the call waits, and runs when it is approved. None is
    "hold" in a subagent, which ends with its only cycle, and "block" in any other session."""

    def __post_init__(self) -> None:
        """Check what the types cannot.

        Raises:
            ValueError: options contradict each other, or an entry cannot be used.
        """
        self._resolve_alias()
        for option in ("require_approval_for", "shell_tools"):
            for name in getattr(self, option):
                if ALL_TOOLS in name and (name, option) != (ALL_TOOLS, "require_approval_for"):
                    raise ValueError(
                        f"{option} has {name!r}: give exact names of tools"
                        ' (require_approval_for=["*"] is every tool)'
                    )
        for entry in self.safe_commands:
            _check_entry(entry)
        for prefix in self.confirm_prefixes:
            if not prefix.strip():
                raise ValueError(
                    f"confirm_prefix has {prefix!r}, which any prompt begins with: give a word such"
                    ' as "confirm:", or [] for none'
                )
        if len(set(self.permission_options)) != len(self.permission_options):
            raise ValueError(f"permission_options names one twice: {self.permission_options}")

    @property
    def confirm_prefixes(self) -> tuple[str, ...]:
        """The prefixes of ``confirm_prefix``, one or several."""
        given = self.confirm_prefix
        return (given,) if isinstance(given, str) else given

    def _resolve_alias(self) -> None:
        if self.tools is None:
            return
        # Only the default itself was not given: one that was is another tuple.
        is_given = self.require_approval_for is not REQUIRE_APPROVAL_FOR
        if is_given and set(self.require_approval_for) != set(self.tools):
            raise ValueError(
                f"require_approval_for is {self.require_approval_for} and tools, another name of"
                f" it, is {self.tools}: give one of them"
            )
        msgspec.structs.force_setattr(self, "require_approval_for", self.tools)


def _check_entry(entry: str) -> None:
    if not entry.startswith(REGEX_MARK):
        if not entry.strip(_BLANKS):
            raise ValueError(f"safe_commands has {entry!r}: give a command's first words")
        return
    pattern = entry.removeprefix(REGEX_MARK)
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"safe_commands has {entry!r}: no regular expression: {error}") from error
