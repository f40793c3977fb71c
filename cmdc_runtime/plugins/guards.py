r"""The options of plugins that guard: content, cost, approvals, output, commands and paths, skills.

A pattern of the output filter has to be decided while its text is still coming. Patterns are those
of the ``regex`` library, in its version 0. What has no meaning for a text that comes in pieces is
refused: matching from the end, searching for the best match, or a match that hangs on where the
search began.

``probe_of`` makes of a pattern one that finds where it has to wait: searched with
``partial=True`` it matches at the first place from which matching runs into the end of the text
before it has succeeded or failed. It is the pattern as an atomic group, followed by what never
matches: the library then reports a partial match, and only that. One thing the library does not
count as running into the end: an assertion there, such as ``\b``. So each gets a look at the next
character put before it.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.extensions.actions import (
    APPROVAL_OPTIONS,
    APPROVAL_TIMEOUT_S,
    APPROVAL_TIMEOUT_S_MAX,
    ApprovalOption,
)
from cmdc_runtime.ids import ToolName
from cmdc_runtime.packing import BuiltInPlugin, Function
from cmdc_runtime.provider_options import check_models

if TYPE_CHECKING:
    import regex

# --- patterns that are decided while their text is coming -----------------------------------------

_PART: Final = (
    r"(?s)\\[pPN]\{[^}]*\}|\\."
    r"|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
    r"|\(\?\#[^)]*\)"
    r"|\(\?[A-Za-z]*x[A-Za-z]*:"
    r"|\(\?(?:R|0)\)|\(\*SKIP\)"
    r"|\{\s*(?:\d+\s*<=?\s*|\d+\s*)?[eids]\s*(?:[<+,:][^}]*)?\}"
    r"|\$"
)
"""What is looked at in a pattern: an escape, a set, a comment, an anchor, or what is refused."""
_COMMENT: Final = r"|#[^\n]*"
"""Besides, where a pattern is verbose."""
_REFUSED: Final = {
    r"\G": r"\G hangs on where a search began",
    r"\K": r"\K moves the start of a match: use a lookbehind",
    "(?R)": "(?R) repeats the whole pattern: repeat a group by its number",
    "(?0)": "(?0) repeats the whole pattern: repeat a group by its number",
    "(*SKIP)": "(*SKIP) hangs on where a search began",
}
_NEXT: Final = r"(?=(?s:.)|)"
"""Runs into the end where there is no next character, and is true in any case."""
_AFTER_LINE: Final = r"(?=\n?(?:(?s:.)|))"
"""The same, one line feed further: the end of a text may stand before its last one."""
_LOOKS: Final = {
    r"\b": _NEXT, r"\B": _NEXT, r"\m": _NEXT, r"\M": _NEXT,
    "$": _AFTER_LINE, r"\Z": _AFTER_LINE, r"\z": _AFTER_LINE,
}  # fmt: skip
"""Assertions about what comes next, each with the look that goes before it."""


def problem_of(pattern: str) -> str | None:
    """Say why a pattern cannot be used on text that comes in pieces, or None."""
    import regex  # noqa: PLC0415 - as above

    try:
        compiled = regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError) as error:
        return f"it is no regular expression: {error}"
    if (refusal := _refusal(pattern, compiled.flags)) is not None:
        return refusal
    if compiled.fullmatch("") is not None:
        return "it matches the empty text: make it match a character at least"
    return None


def probe_of(pattern: str) -> "regex.Pattern[str]":
    """Return what finds the first place from which ``pattern`` runs into the end of a text."""
    import regex  # noqa: PLC0415 - as above

    flags = regex.compile(pattern).flags

    def looking(found: "regex.Match[str]") -> str:
        look = _LOOKS.get(found[0])
        return found[0] if look is None else f"(?:{look}{found[0]})"

    body = regex.sub(_part(flags), looking, pattern)
    # A verbose pattern may end with a comment, which ends with its line.
    close = "\n)" if flags & regex.VERBOSE else ")"
    return regex.compile(f"(?>{body}{close}(?!)")


def _refusal(pattern: str, flags: int) -> str | None:
    """Say what in a pattern has no meaning for a text that comes in pieces."""
    for flag, name in _refused_flags():
        if flags & flag:
            return f"the flag {name} is for text that is there as a whole"
    for part in _parts(pattern, flags):
        if part in _REFUSED:
            return _REFUSED[part]
        if part.startswith("(?") and part.endswith(":"):
            return "write (?x) at its start: it is for the pattern as a whole"
        if part.startswith("{"):
            return f"{part} allows for errors, and whether there are some shows at the end only"
    return None


def _refused_flags() -> tuple[tuple[int, str], ...]:
    import regex  # noqa: PLC0415 - as above

    return (
        (regex.REVERSE, "(?r)"),
        (regex.BESTMATCH, "(?b)"),
        (regex.ENHANCEMATCH, "(?e)"),
        (regex.POSIX, "(?p)"),
        (regex.WORD, "(?w)"),
        (regex.VERSION1, "(?V1)"),
    )


def _parts(pattern: str, flags: int) -> list[str]:
    import regex  # noqa: PLC0415 - as above

    return regex.findall(_part(flags), pattern)


def _part(flags: int) -> str:
    import regex  # noqa: PLC0415 - as above

    return _PART + _COMMENT if flags & regex.VERBOSE else _PART


# --- content policy -------------------------------------------------------------------------------

JUDGE_TIMEOUT_S_MAX: Final = 600.0
"""A user waits meanwhile."""
RUBRIC_CHARS_MAX: Final = 20_000
KEYWORDS_MAX: Final = 1000
KEYWORD_CHARS_MAX: Final = 200

MessageRule: TypeAlias = Literal[
    "instruction_subversion", "harmful_content", "off_topic", "brand_competitor"
]
"""What a message may be against; a ``judge_fn`` may have words of its own."""
Keywords: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=KEYWORD_CHARS_MAX)], ...],
    Meta(max_length=KEYWORDS_MAX),
]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """What a judge says of one message."""

    compliance_status: Literal["compliant", "non-compliant"]
    evaluation_summary: str = ""
    """Why, in a sentence."""
    triggered_policies: tuple[str, ...] = ()


class ContentPolicy(BuiltInPlugin, frozen=True, kw_only=True):
    """Judges what a user says before the model sees it, and ends the cycle where it may not be.

    Each message is judged once: by ``judge_fn``, else by ``judge_model``, else by a heuristic that
    knows common phrases of subversion and the names of competitors.
    """

    short_name: ClassVar[str] = "content_policy"
    judge_model: Annotated[str, Meta(min_length=1)] | None = None
    """A model that is asked for a verdict; the session pays for it."""
    judge_provider_opts: dict[str, Any] = msgspec.field(  # Any: litellm's own arguments
        default_factory=lambda: {"temperature": 0.0}
    )
    judge_timeout: Annotated[float, Meta(gt=0, le=JUDGE_TIMEOUT_S_MAX)] = 8.0
    """Seconds; a judge that takes longer has failed."""
    custom_rubric: Annotated[str, Meta(max_length=RUBRIC_CHARS_MAX)] = ""
    """What ``judge_model`` reads besides: what is on topic, what else is not allowed."""
    brand_keywords: Keywords = ()
    """Names of one's own, which ``judge_model`` protects."""
    competitor_keywords: Keywords = ()
    """Names of competitors, for ``judge_model``; the heuristic does not let them pass."""
    fail_open: bool = True
    """Whether a message that could not be judged passes."""
    judge_fn: Function | None = None
    """``judge_fn(text, context)``, sync or async, with the plugin's context: True lets the message
    pass, False does not; or a ``Verdict``, as a dict or a Struct of its fields."""

    def __post_init__(self) -> None:
        """Refuse a model that there can't be."""
        check_models(judge_model=self.judge_model)


# --- cost guard -----------------------------------------------------------------------------------


class CostGuard(BuiltInPlugin, frozen=True, kw_only=True):
    """Aborts the cycle when the session has spent its budget, and warns observers once before."""

    short_name: ClassVar[str] = "cost_guard"
    max_tokens: Annotated[int, Meta(gt=0)] | None = None
    """Of the session and its subagents, over its life; None is no limit."""
    max_cost_usd: Annotated[float, Meta(gt=0)] | None = None
    """As above; see ``unpriced``."""
    unpriced: Literal["abort", "free"] = "abort"
    """What becomes of a request to a model without a known price where ``max_cost_usd`` is set: the
    cycle is aborted, or it counts as costing nothing. An answer whose usage cannot be read costs
    what its length and the price say."""
    warn_threshold: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """The part of a limit at which observers are warned."""


# --- human approval -------------------------------------------------------------------------------

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
    it is given (``python -c ...``, ``sudo ...``) is approved in the very same words only, and one
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


# --- output filter --------------------------------------------------------------------------------

PATTERNS_MAX: Final = 200
"""Each is searched for in every piece of text."""
PATTERN_CHARS_MAX: Final = 4096


HELD_CHARS_MAX: Final = 1_000_000
"""More than any answer of today's models has."""
MATCH_TIMEOUT_S_MAX: Final = 5.0
"""The session does nothing else meanwhile."""


class OutputFilter(BuiltInPlugin, frozen=True, kw_only=True):
    """Keeps words and patterns out of what the model says and thinks, before anybody sees them.

    Text is shown as it streams; what could still become a match is kept back until that is known.
    Matches that overlap are one. What a tool is called with, and what it answers, is not looked at.
    """

    short_name: ClassVar[str] = "output_filter"
    patterns: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)], ...],
        Meta(max_length=PATTERNS_MAX),
    ] = ()
    """Regular expressions of the ``regex`` library. Each is searched for in the text as it is,
    and as it looks: without invisible characters, and with plain ones for full-width ones."""
    keywords: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=KEYWORD_CHARS_MAX)], ...],
        Meta(max_length=KEYWORDS_MAX),
    ] = ()
    """Words, found inside longer ones too. Case, accents, width, invisible characters, markdown's
    marks, letters that look alike and the kind of white space make no difference."""
    replacement: Annotated[str, Meta(min_length=1, max_length=KEYWORD_CHARS_MAX)] = "[filtered]"
    """Not empty, since what stands around a match would become one word."""
    action: Literal["replace", "abort"] = "replace"
    """"abort" shows nothing from the first match on, and ends the cycle when the answer is
    complete."""
    held_chars_max: Annotated[int, Meta(ge=1, le=HELD_CHARS_MAX)] = 100_000
    """Characters kept back at most; a pattern that wants more ends the cycle."""
    match_timeout: Annotated[float, Meta(gt=0, le=MATCH_TIMEOUT_S_MAX)] = 0.25
    """Seconds of processor time that one search for one pattern may take; more end the cycle."""

    def __post_init__(self) -> None:
        """Check each pattern.

        Raises:
            ValueError: one cannot be used; the message names all such, and why.
        """
        found = ((at, pattern, problem_of(pattern)) for at, pattern in enumerate(self.patterns))
        problems = [f"patterns[{at}] {text!r}: {why}" for at, text, why in found if why]
        if problems:
            raise ValueError("; ".join(problems))


# --- security guard -------------------------------------------------------------------------------

"""What a blocked command begins with that is a regular expression."""
BLOCKED_PATHS: Final = (
    "*.key", "*.pem", "*.p12", "*.pfx", "*.crt", "*.cer", ".env", ".env.*", "~/.ssh/**",
    "**/.ssh/**", "~/.gnupg/**", "**/.aws/credentials", "**/.aws/config", "**/.config/gcloud/**",
    "/Library/Keychains/**", "~/Library/Keychains/**", "/etc/shadow", "/etc/passwd",
)  # fmt: skip
"""What ``default_blocked_paths`` stands for."""

Texts = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...], Meta(max_length=200)
]


class SecurityGuard(BuiltInPlugin, frozen=True, kw_only=True):
    """Keeps tools away from secret files and destructive shell commands.

    It reads the arguments of every tool: those that name a path, and those that are a shell
    command, whose words count as paths too. A blocked call does not run; the model reads why.

    It is a barrier against mistakes and plain attempts, no sandbox: a program that the model has
    written itself reads what its user may read. Give a session that must not reach a file a user
    or a container that cannot.
    """

    short_name: ClassVar[str] = "security_guard"
    blocked_paths: Texts = ()
    """Patterns besides the defaults. ``*``, ``?`` and ``[a-z]`` match within a name, ``**`` stands
    for any folders. A pattern without ``/`` holds in any folder, one that begins with ``/`` or
    ``~/`` from there, any other from the working folder. It blocks all below what it matches;
    case does not count."""
    blocked_commands: Texts = ()
    """Words besides the defaults that no command may have, wherever they stand in it, such as
    ``"terraform destroy"``; case does not count. ``"re:..."`` is a regular expression, searched for
    in the whole command."""
    audit: bool = True
    """Publish ``security_audit`` for each call that is blocked."""
    default_blocked_paths: bool = True
    """Block keys and certificates (``*.key``, ``*.pem``, ``*.p12``, ``*.pfx``, ``*.crt``,
    ``*.cer``), ``.env`` and ``.env.*``, ``.ssh``, ``~/.gnupg``, the credentials of AWS and Google
    Cloud, keychains, ``/etc/shadow`` and ``/etc/passwd``."""
    default_blocked_commands: bool = True
    """Block what formats, wipes or partitions disks, deletes folders by force or at a root, changes
    the rights of whole trees, kills everything or by name (``pkill``, ``killall``, ``fuser -k``),
    stops services or the machine, or pipes a download into a shell."""
    path_arguments: Texts = ()
    """Names of tool arguments that hold paths, besides those that sound like it: ``path``,
    ``file``, ``directory``, ``target_file`` and their kin."""
    guard_searches: bool = True
    """Block a search or copy of a whole folder in which a blocked file lies, as ``grep -r`` or
    ``tar`` do it; folders of dependencies are not looked into."""
    undecidable_commands: Literal["allow", "block"] = "allow"
    """What becomes of a shell command that does what its text does not show: code of another
    language, a program whose name is computed, a script that is sourced. "block" lets pass only
    what can be read."""

    def __post_init__(self) -> None:
        """Check the regular expressions.

        Raises:
            ValueError: one is wrong, or a pattern is blank.
        """
        for pattern in self.blocked_paths:
            if not pattern.strip("/ *"):
                raise ValueError(
                    f"blocked_paths has {pattern!r}, which means every path: name a file or folder"
                )
        for command in self.blocked_commands:
            expression = command.removeprefix(REGEX_MARK)
            if not expression.strip():
                raise ValueError(f"blocked_commands has {command!r}, which is blank: name a word")
            if expression != command:
                _check(expression)


def _check(expression: str) -> None:
    try:
        re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"blocked_commands has {REGEX_MARK + expression!r}, which is no regular expression:"
            f" {error}"
        ) from error


# --- skill guard ----------------------------------------------------------------------------------

SkillName = Annotated[str, Meta(pattern="^[a-z0-9-]{1,64}$")]


class SkillRule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=Checked
):
    """A skill, and the tools that it needs."""

    name: SkillName
    allowed_tools: Annotated[tuple[ToolName, ...], Meta(max_length=512)] | None = None
    """None is every tool, () none."""


class SkillGuard(BuiltInPlugin, frozen=True, kw_only=True):
    """Lets the model call only the tools that its active skills allow, taken together.

    With no active skill, or with one that allows every tool, nothing is restricted.
    """

    short_name: ClassVar[str] = "skill_guard"
    skills: Annotated[tuple[SkillRule, ...], Meta(max_length=256)] = ()
    active: Annotated[tuple[SkillName, ...], Meta(max_length=256)] | None = None
    """The names of those that are active; None is all."""
    enforce_mode: Literal["strict", "warn"] = "strict"
    """"warn" lets every call run; a log line and the event ``skill_violation`` name those that
    "strict" would block."""

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: a name stands for two skills, or for none.
        """
        names = [skill.name for skill in self.skills]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"skills has {', '.join(twice)} more than once: give each its own name"
            )
        if unknown := sorted(set(self.active or ()) - set(names)):
            known = ", ".join(sorted(names)) or "there are none"
            raise ValueError(
                f"active has {', '.join(unknown)}, which is no name of skills: use some of {known}"
            )
