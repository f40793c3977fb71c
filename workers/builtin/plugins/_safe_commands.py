"""Whether a shell command may run without anybody being asked.

An entry of the options says which commands; here stands what it cannot say: how arguments are read
(``_ARGUMENTS``), and which text no entry makes safe (``trick_of``). What is unknown is not safe.

To let more of a program's arguments pass, change its row; a row for a new program narrows what
entries of words alone mean for it.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cmdc_runtime.plugins.guards import REGEX_MARK
from workers.builtin.shell.reader import Command, Part, Redirect, Word

REGEX_CHARS_MAX: Final = 4_000
"""Of a command that is held against regular expressions: matching may take long, and a longer
command is read by a person anyway."""

_ANY: Final = re.compile(r".*", re.DOTALL)
_NONE: Final = re.compile(r"(?!)")


class _Arguments(NamedTuple):
    """The arguments with which a program only reads; any other one makes it unsafe."""

    flags: re.Pattern[str]
    """Options that are one word."""
    valued: re.Pattern[str] = _NONE
    """Options whose value is the next word. It must not look like an option itself, so that a
    program that takes no value there shows no option that we overlook."""
    operands: re.Pattern[str] = _ANY
    has_end: bool = True
    """Whether ``--`` ends the options."""


_LOG_FLAGS: Final = re.compile(
    r"-\d+|-n\d+|-[puswbzRcmta]|-U\d+|-[MC]\d*%?|-[SGL][^-].*"
    r"|--(?:stat|diff-filter|unified|max-count|skip|since|until|after|before|author|committer|grep"
    r"|format|date|find-renames|abbrev|color|word-diff|decorate|pretty)=.*"
    r"|--(?:stat|shortstat|numstat|summary|compact-summary|name-only|name-status|cached|staged"
    r"|merge-base|oneline|graph|all|branches|tags|remotes|decorate|no-decorate|patch|no-patch"
    r"|pretty|abbrev|abbrev-commit|no-abbrev-commit|merges|no-merges|first-parent|follow|reverse"
    r"|topo-order|date-order|color|no-color|word-diff|color-words|ignore-all-space"
    r"|ignore-space-change|ignore-blank-lines|find-renames|no-renames|minimal|patience|histogram"
    r"|raw|no-ext-diff|no-textconv|exit-code|quiet|relative|full-index|check|no-index)",
    re.DOTALL,
)
_LOG: Final = _Arguments(_LOG_FLAGS, re.compile(r"-[nSGL]"))
_ARGUMENTS: Final[dict[tuple[str, ...], _Arguments]] = {
    ("date",): _Arguments(
        # An operand without a plus sign, and -s, set the clock.
        re.compile(
            r"-[uR]+|-I\w*|-u?[dr].+|--(?:utc|universal|rfc-email|iso-8601)|--iso-8601=\w+"
            r"|--rfc-3339=\w+|--(?:date|reference)=.*"
        ),
        re.compile(r"-u?[dr]|--date|--reference"),
        re.compile(r"\+.*", re.DOTALL),
    ),
    ("find",): _Arguments(
        re.compile(
            r"-[HLP]|-O[0-3]|-(?:depth|d|xdev|mount|empty|print|print0|ls|readable|writable"
            r"|executable|not|a|o|and|or|prune|quit|true|false|nouser|nogroup|daystart|follow"
            r"|noleaf)"
        ),
        re.compile(
            r"-(?:i?name|i?path|i?wholename|i?regex|regextype|x?type|maxdepth|mindepth|size"
            r"|[acm]time|[acm]min|[ac]?newer|newer[aBcmt]{2}|perm|user|group|uid|gid|links|inum"
            r"|samefile|fstype|i?lname|used|printf)"
        ),
        has_end=False,
    ),
    ("sort",): _Arguments(
        re.compile(
            r"-[bdfgiMhnRrVsuzcCm]+|-[bdfgiMhnRrVsuzcm]*(?:k[\d.,bdfgiMhnRrVz]+|t.)"
            r"|--(?:reverse|unique|stable|numeric-sort|human-numeric-sort|general-numeric-sort"
            r"|month-sort|version-sort|random-sort|ignore-case|ignore-leading-blanks"
            r"|dictionary-order|ignore-nonprinting|zero-terminated|check|merge|debug)"
            r"|--(?:sort|check)=[\w-]+|--key=[\d.,bdfgiMhnRrVz]+|--field-separator=."
        ),
        re.compile(r"-[bdfgiMhnRrVsuzcm]*[kt]"),
    ),
    ("tail",): _Arguments(
        # Not -f, which never ends, and -5f and +5f, which are the same.
        re.compile(r"-\d+|-[qvz]+|-[qvz]*[nc][+-]?\d+\w?|--(?:lines|bytes)=[+-]?\d+\w?|--quiet"),
        re.compile(r"-[qvz]*[nc]|--lines|--bytes"),
        re.compile(r"(?!\+).*", re.DOTALL),
    ),
    ("git", "branch"): _Arguments(
        # An operand is the name of a branch to make.
        re.compile(
            r"-[arv]+|--(?:all|remotes|list|show-current|verbose|no-color|color|merged|no-merged)"
            r"|--sort=-?[\w:]+"
        ),
        operands=_NONE,
    ),
    ("git", "diff"): _LOG,
    ("git", "log"): _LOG,
    ("git", "show"): _LOG,
    ("git", "status"): _Arguments(
        re.compile(
            r"-[sbvz]+|-u(?:no|normal|all)?|--(?:short|branch|long|verbose|porcelain|show-stash"
            r"|ahead-behind|no-ahead-behind|untracked-files|ignored|renames|no-renames)"
            r"|--(?:porcelain|untracked-files|ignored)=\w+"
        ),
    ),
}
"""Programs that can do more than read, by their first words."""
NARROWED: Final = frozenset(_ARGUMENTS)
"""First words of the programs of which only some arguments are safe."""

_AT_A_COMMAND: Final = (
    r"(?:^|[\n;&|(){}!`]|\b(?:if|then|elif|else|do|while|until|time|coproc)\b)[ \t]*"
)
_TRICKS: Final = (
    # How the reader and the running shell could see different commands, or a name get a new
    # meaning. A pattern that meets quoted text has a person asked needlessly, and no harm is done.
    (re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]"), "it has control characters"),
    (re.compile(r"(?<![ \t])\\\n|\\\Z"), "a line ends in the middle of a word"),
    (re.compile(r"<<"), "it has a here-document"),
    (re.compile(r"\$\["), "it has arithmetic of the old kind"),
    (
        re.compile(r"\([ \t]*\)\s*(?:[{(\[#]|(?:if|for|while|until|case|select)\b|$)"),
        "it defines a function",
    ),
    (re.compile(_AT_A_COMMAND + r"function\b"), "it defines a function"),
    (re.compile(_AT_A_COMMAND + r"case\b"), "it has a case"),
)
_PLAIN_EXPANSION: Final = re.compile(
    # A variable as it is, sums of numbers, and what is read as commands of its own. All else can
    # set a variable, or run what is in one.
    r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])|\$\{\w+\}|\$\(\([\d\s+*/%()-]*\)\)|\$\((?!\().*|`.*|<\(.*",
    re.DOTALL,
)
_OPERATORS: Final = frozenset(";&|<>()")
_SINKS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_SOCKETS: Final = ("/dev/tcp", "/dev/udp")


class SafeCommands:
    """The commands that the options call safe."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Take the entries of ``safe_commands``, which are checked already."""
        listed = tuple(entries)
        self._regexes = tuple(
            re.compile(entry.removeprefix(REGEX_MARK))
            for entry in listed
            if entry.startswith(REGEX_MARK)
        )
        self._heads = frozenset(
            tuple(entry.split()) for entry in listed if not entry.startswith(REGEX_MARK)
        )

    def cover(self, command: Command) -> bool:
        """Say whether one simple command, whose words are all plain, is safe by them."""
        words = command.words
        texts = tuple(word.text for word in words)
        sizes = [len(head) for head in self._heads if texts[: len(head)] == head]
        if not sizes or not all(word.is_literal for word in words[: max(sizes)]):
            return self._matches(command)
        return _only_reads(words) or self._matches(command)

    def _matches(self, command: Command) -> bool:
        if not self._regexes or not command.is_literal:
            return False
        text = shlex.join(word.text for word in command.words)
        if len(text) > REGEX_CHARS_MAX:
            return False
        return any(regex.fullmatch(text) for regex in self._regexes)


def trick_of(command: str) -> str | None:
    """Return what in a command's text no entry makes safe, in words; None if there is nothing."""
    return next((why for pattern, why in _TRICKS if pattern.search(command)), None)


def is_plain(word: Word) -> bool:
    """Say whether a word, when it is expanded, neither sets a variable nor runs what is in one.

    Commands that are substituted in it are read as commands of their own.
    """
    return all(_is_plain(part) for part in word.parts)


def is_harmless(redirect: Redirect) -> bool:
    """Say whether a redirection writes nothing and talks to nobody."""
    target = redirect.target
    if redirect.direction == "write":
        return target.is_literal and target.text in _SINKS
    is_known = is_plain(target) and all(part.kind != "expansion" for part in target.parts)
    return redirect.direction == "read" and is_known and not target.text.startswith(_SOCKETS)


def _is_plain(part: Part) -> bool:
    if part.kind == "glob":
        # An operator ends a word even between brackets, so that this would be read wrongly.
        return _OPERATORS.isdisjoint(part.text)
    return part.kind != "expansion" or _PLAIN_EXPANSION.fullmatch(part.text) is not None


def _only_reads(words: Sequence[Word]) -> bool:
    """Say whether a command that an entry names has no argument by which it does more."""
    texts = [word.text for word in words]
    for head, allowed in _ARGUMENTS.items():
        if tuple(texts[: len(head)]) == head:
            is_known = all(word.is_literal or _is_one_operand(word) for word in words)
            return is_known and _fits(texts[len(head) :], allowed)
    return True


def _is_one_operand(word: Word) -> bool:
    """Say whether a word that is not literal can be no option: a wildcard behind some text."""
    if any(part.kind == "expansion" for part in word.parts):
        return False
    return word.parts[0].kind in ("text", "tilde") and not word.text.startswith("-")


def _fits(args: Sequence[str], allowed: _Arguments) -> bool:
    rest = iter(args)
    for word in rest:
        if word == "--" and allowed.has_end:
            return all(allowed.operands.fullmatch(operand) for operand in rest)
        if allowed.valued.fullmatch(word):
            if _looks_like_an_option(next(rest, "")):
                return False
        elif word.startswith("-") and word != "-":
            if not allowed.flags.fullmatch(word):
                return False
        elif not allowed.operands.fullmatch(word):
            return False
    return True


def _looks_like_an_option(value: str) -> bool:
    return value.startswith("-") and not value[1:2].isdecimal() and value != "-"
