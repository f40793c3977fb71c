"""Judges a shell command: what it destroys, which blocked paths its words may be.

The command is judged as it is read, then what its own decoders would make of it. What reading
cannot decide is let pass unless the options say otherwise; a command that cannot be read at all,
or is too large to be looked at, is not.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from workers.builtin.guarding.blocked_commands import destructive
from workers.builtin.guarding.blocked_paths import Blocked, BlockedPaths, EntryBudget
from workers.builtin.guarding.decoded_text import decoded
from workers.builtin.guarding.shell_paths import (
    Folders,
    Surroundings,
    folders_of,
    meanings,
    names_of,
    path_words,
    pieces,
    searches_of,
    values_of,
)
from workers.builtin.shell.reader import Doubt, Reading, Word, read

PATHS_MAX: Final = 5000
"""Paths that the words of one command may be, looked at in each folder that it works in; more are
no command of a person's."""
WILD_MAX: Final = 300
"""Of them, those that are compared letter by letter, which takes a millisecond or two."""
STRINGS_MAX: Final = 100
"""Of the code in one argument."""
FOLDERS_MAX: Final = 8
"""Folders that one command works in."""
_UNREADABLE: Final = frozenset({Doubt.UNBALANCED, Doubt.LENGTH, Doubt.DEPTH, Doubt.COUNT})
_VALUES_RUN: Final = frozenset({Doubt.NAME, Doubt.EVAL})
_SUBSTITUTION: Final = re.compile(r"\$\(|`")
_EVALUATING: Final = frozenset({
    "[", "[[", "declare", "let", "local", "printf", "read", "readonly", "test", "typeset", "unset",
})  # fmt: skip
"""Commands whose arguments are, or name, elements of arrays; a subscript is arithmetic."""
_STRING: Final = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'")


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a call is blocked."""

    kind: Literal["path", "command", "unreadable"]
    subject: str
    """The path or the words that are blocked."""
    rule: str
    """The pattern of the options, or what the command would do."""


@dataclass(frozen=True, slots=True)
class ShellRules:
    """What is blocked besides paths."""

    destructive: bool
    """Whether the built-in list of commands holds."""
    phrases: Sequence[tuple[str, re.Pattern[str]]]
    """The user's own, each with what finds it."""
    searches: bool
    undecidable: bool
    """Whether a command that is opaque is blocked for that alone."""


class ShellGuard:
    """Judges the commands of one session."""

    def __init__(self, paths: BlockedPaths, rules: ShellRules, around: Surroundings) -> None:
        """Take what is blocked, and what commands start with."""
        self._paths = paths
        self._rules = rules
        self._around = around

    def judge(self, command: str) -> Finding | None:
        """Say why a command is blocked, None if it is not."""
        reading = read(command)
        budget = EntryBudget()
        return (
            self._of_reading(reading)
            or self._of_commands(reading, command)
            or self._of_paths(reading, budget)
            or self._of_searches(reading, budget)
            or self._of_hidden(reading, budget)
        )

    def _of_reading(self, reading: Reading) -> Finding | None:
        doubt = next((one for one in reading.doubts if one in _UNREADABLE), None)
        if doubt is None and self._rules.undecidable and reading.doubts:
            doubt = reading.doubts[0]
        return None if doubt is None else Finding("unreadable", "the command", doubt.value)

    def _of_commands(self, reading: Reading, command: str) -> Finding | None:
        texts = [command, *(" ".join(words) for words in reading.commands)]
        for phrase, expression in self._rules.phrases:
            if any(expression.search(text) for text in texts):
                return Finding("command", phrase, "it is on the list of blocked commands")
        if not self._rules.destructive:
            return None
        around = self._around
        harm = destructive(reading, command, around.working_dir, around.home)
        return (
            None if harm is None else Finding("command", harm, "destructive commands are blocked")
        )

    def _of_paths(self, reading: Reading, budget: EntryBudget) -> Finding | None:
        folders = folders_of(reading, self._around)
        words = list(itertools.islice(self._words(reading), PATHS_MAX + 1))
        wild = sum(not word.is_literal for word in words)
        if len(words) > PATHS_MAX or wild > WILD_MAX or len(folders.bases) > FOLDERS_MAX:
            return Finding("unreadable", "the command", Doubt.COUNT.value)
        for word in words:
            if (blocked := self._of_word(word, folders, budget)) is not None:
                return Finding("path", blocked.path, blocked.pattern)
        return None

    def _words(self, reading: Reading) -> Iterator[Word]:
        """Yield once every word that may be a path, and each that it may stand for."""
        values = values_of(reading)
        seen: set[Word] = set()
        for word in path_words(reading):
            for meaning in meanings(word, values, self._around):
                new = {piece: None for piece in pieces(meaning) if piece not in seen}
                seen.update(new)
                yield from new

    def _of_word(self, word: Word, folders: Folders, budget: EntryBudget) -> Blocked | None:
        for base in folders.bases:
            if word.is_literal:
                found = self._exact(word.text, base)
            else:
                looks = budget if folders.is_sure else None
                found = self._paths.wild(names_of(word, base), word.text, looks)
            if found is not None:
                return found
        return None

    def _exact(self, text: str, base: str) -> Blocked | None:
        try:
            return self._paths.exact(text, base)
        except ValueError:
            return None  # what no file is called does no harm in a command

    def _of_searches(self, reading: Reading, budget: EntryBudget) -> Finding | None:
        if not self._rules.searches:
            return None
        bases = folders_of(reading, self._around).bases
        for command, base in itertools.product(reading.details, bases):
            texts = [next(meanings(word, {}, self._around)).text for word in command.words[1:]]
            for search in searches_of(command.name, texts):
                if blocked := self._paths.below(search, base, budget):
                    rule = f"{blocked.pattern}; {command.name} would read it with the folder"
                    return Finding("path", blocked.path, rule)
        return None

    def _of_hidden(self, reading: Reading, budget: EntryBudget) -> Finding | None:
        """Judge what decoders write, and what is run although it is data."""
        texts = [*decoded(reading), *_evaluated(reading)]
        if not _VALUES_RUN.isdisjoint(reading.doubts):
            texts += [assignment.value.text for assignment in reading.assignments]
        for command in reading.details:
            if Doubt.INLINE in reading.doubts:
                texts += _strings(command.argv[1:])
        for text in texts:
            hidden = read(text)
            found = self._of_commands(hidden, text) or self._of_paths(hidden, budget)
            if found is not None:
                return found
        return None


def _evaluated(reading: Reading) -> Iterator[str]:
    """Yield values that run what is written in them where arithmetic or a prompt has them."""
    words = [assignment.value for assignment in reading.assignments]
    for command in reading.details:
        if command.name in _EVALUATING:
            words += command.words[1:]
    for word in words:
        if any(part.kind == "text" and _SUBSTITUTION.search(part.text) for part in word.parts):
            yield word.text


def _strings(args: Sequence[str]) -> list[str]:
    """Return what stands in quotes in code, which may be a command."""
    return [
        found[1] or found[2]
        for arg in args
        for found in itertools.islice(_STRING.finditer(arg), STRINGS_MAX)
    ]
