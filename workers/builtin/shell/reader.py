"""Reads a shell command for guards: every program that it visibly runs, and what stays unseen.

``read`` takes the text of a command and returns each simple command in it, wherever it stands: in
pipelines, subshells, compound commands, substitutions, here-documents for a shell, and in the
arguments of programs that run others (``sh -c``, ``xargs``, ``sudo``, ``find -exec`` ..). Quotes
are off, braces expanded. It runs nothing and looks at no file, variable or clock.

What only the running shell knows is never guessed: such words are not literal, and ``opaque`` says
what kind of thing stayed unseen. A guard that needs certainty refuses a reading that is opaque.
"""

from dataclasses import dataclass
from typing import Final

from workers.builtin.shell.parser import COMMANDS_MAX as DRAFTS_MAX
from workers.builtin.shell.parser import Assignment, Direction, Draft, Findings, Redirect, parse
from workers.builtin.shell.programs import SHELLS, Inner, basename, inner_of
from workers.builtin.shell.scanner import DEPTH_MAX, Doubt
from workers.builtin.shell.words import Part, Word

__all__ = [
    "COMMAND_CHARS_MAX", "SHELLS", "Assignment", "Command", "Direction", "Doubt", "Part", "Reading",
    "Redirect", "Word", "basename", "read",
]  # fmt: skip

COMMAND_CHARS_MAX: Final = 65_536
"""Of a command; a longer one is a script that belongs into a file, and is opaque."""


COMMANDS_MAX: Final = 2 * DRAFTS_MAX
"""Of all; those of the text itself are at most half of them."""
VALUES_MAX: Final = 30_000
"""Given to variables and positional parameters, the same ones at every call."""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: a program with its arguments."""

    words: tuple[Word, ...]
    """The program's name as it is written, path included, and its arguments."""
    redirects: tuple[Redirect, ...] = ()
    stdin: str | None = None
    """The text that it reads, from a here-document or here-string; expansions are as written."""
    feeds: bool = False
    """Its output is, or may be, what another command reads, or a part of another's words."""
    fed: bool = False
    """It reads what another command writes, or text that is computed."""
    via: tuple[str, ...] = ()
    """The programs through which it runs, outermost first: ``("sudo", "env")``."""

    @property
    def name(self) -> str:
        """The program without its folder; "" where there is none."""
        return basename(self.words[0].text) if self.words else ""

    @property
    def argv(self) -> tuple[str, ...]:
        """The name and the arguments; what is not known stands there as it is written."""
        return (self.name, *(word.text for word in self.words[1:]))

    @property
    def is_literal(self) -> bool:
        """Whether ``argv`` is certainly what runs."""
        return all(word.is_literal for word in self.words)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a command does, as far as its text shows."""

    details: tuple[Command, ...]
    """Every simple command, a program that runs another one in front of what it runs."""
    redirects: tuple[Redirect, ...]
    """Of all commands, and of those that are nothing but a redirection."""
    assignments: tuple[Assignment, ...]
    """Of all variables, in order; a variable may be given several values."""
    doubts: tuple[Doubt, ...]
    """All that reading could not decide, in the order in which it was met."""
    functions: tuple[str, ...] = ()
    """Names that are defined: a command of that name runs a body, whose commands are there too.

    Its arguments are the body's ``$1`` and so on, and another command where the body runs them."""

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The words of every simple command, the program's name without its folder first."""
        return tuple(command.argv for command in self.details)

    @property
    def opaque(self) -> str | None:
        """The first thing that reading could not decide, as a sentence; None if all is decided.

        A word that is not literal makes no reading opaque unless it is a program's name or a
        script: see ``Command.is_literal``.
        """
        return self.doubts[0].value if self.doubts else None


def read(command: str) -> Reading:
    """Return what ``command`` does; any text at all can be read."""
    findings = Findings()
    if len(command) > COMMAND_CHARS_MAX:
        findings.doubt(Doubt.LENGTH)
        command = command[:COMMAND_CHARS_MAX]
    parse(command, findings)
    commands: list[Command] = []
    redirects: list[Redirect] = []
    assignments: list[Assignment] = []
    queue = [Inner(draft) for draft in findings.drafts]
    positional: list[Inner] = []
    while queue or (queue := _run(commands, positional)):
        inner = queue.pop(0)
        draft = inner.draft
        redirects += draft.redirects
        assignments += draft.assignments
        if not draft.words:
            continue
        commands.append(_command(draft, inner.via))
        found = inner_of(draft, findings.functions)
        via = (*inner.via, draft.words[0].text)
        positional += [Inner(one, via) for one in found.positional]
        if len(commands) > COMMANDS_MAX or len(assignments) > VALUES_MAX:
            findings.doubt(Doubt.COUNT)
            break
        for doubt in found.doubts:
            findings.doubt(doubt)
        assignments += found.assignments
        queue[:0] = _nested(found.drafts, found.scripts, inner, findings)
    return Reading(
        details=tuple(commands),
        redirects=tuple(redirects),
        assignments=tuple(assignments),
        doubts=tuple(findings.doubts),
        functions=tuple(dict.fromkeys(findings.functions)),
    )


def _run(commands: list[Command], positional: list[Inner]) -> list[Inner]:
    """Return, once, what ``$@`` stands for, if it is anywhere in the place of a program."""
    names = {part.name for one in commands for word in one.words[:1] for part in word.parts}
    if not any(name in ("@", "*") or name.isdecimal() for name in names):
        return []
    found = {tuple(one.draft.words): one for one in positional if len(one.via) <= DEPTH_MAX}
    positional.clear()
    return list(found.values())


def _command(draft: Draft, via: tuple[str, ...]) -> Command:
    return Command(
        words=tuple(draft.words),
        redirects=tuple(draft.redirects),
        stdin=draft.stdin,
        feeds=draft.feeds,
        fed=draft.fed,
        via=via,
    )


def _nested(
    drafts: list[Draft], scripts: list[str], outer: Inner, findings: Findings
) -> list[Inner]:
    """Return what a command runs: other commands, and those of its scripts."""
    if len(outer.via) >= DEPTH_MAX:
        if drafts or scripts:
            findings.doubt(Doubt.DEPTH)
        return []
    via = (*outer.via, basename(outer.draft.words[0].text))
    found = list(drafts)
    for script in scripts:
        before = len(findings.drafts)
        parse(script, findings, depth=len(via))
        found += findings.drafts[before:]
    return [Inner(draft, via) for draft in found]
