"""Reads shell text into simple commands, wherever in it they stand.

It follows the POSIX shell grammar (IEEE Std 1003.1, Shell Command Language, 2.9 and 2.10) no
further than is needed to see every simple command: what is between the reserved words is read as
if it ran. Text that is no valid script is read as far as it can be.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from workers.builtin.plugins._shell_scanner import Doubt, StopReadingError, WordReader
from workers.builtin.plugins._shell_words import Part, Word

COMMANDS_MAX: Final = 1000
WORDS_MAX: Final = 10_000
"""Of all commands together."""
CHARS_READ_MAX: Final = 4 * 65_536
"""Text in text is read again, so that this is more than a command may be long."""

Direction: TypeAlias = Literal["read", "write", "both"]

_OPENING: Final = frozenset({"if", "while", "until", "{", "then", "do", "else", "elif"})
_SKIPPED: Final = _OPENING | {"fi", "done", "}", "!", "time", "coproc", "function"}
_ENDS: Final = {"fi": 1, "done": 1, "}": 1}
_STARTS: Final = {"if": 1, "while": 1, "until": 1, "{": 1, "for": 1, "select": 1}
_REDIRECT: Final = re.compile(r"(?:\d+|\{\w+\})?(<<<|<<-|<<|<>|<&|<|&>>|&>|>>|>\||>&|>)")
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^]\s]*\])?\+?=")
_BLANKS: Final = re.compile(r"(?:[ \t\r]|\\\n)*")
_COMMENT: Final = re.compile(r"#[^\n]*")
_DIRECTIONS: Final[dict[str, Direction]] = {"<": "read", "<&": "read", "<>": "both"}
_OPERATORS: Final = ("&&", "||", "|&", ";;&", ";;", ";&", ";", "&", "|", "\n")


@dataclass(frozen=True, slots=True)
class Redirect:
    """A file that a command reads or writes by ``<``, ``>`` and their kin."""

    direction: Direction
    target: Word


@dataclass(frozen=True, slots=True)
class Assignment:
    """A value that a variable is given, be it in front of a command or by ``for`` or ``export``."""

    name: str
    value: Word
    is_appended: bool = False
    """``name+=value``: it follows the value that the variable has."""


@dataclass(slots=True)
class Draft:
    """A simple command while it is read."""

    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    stdin: str | None = None
    """The text of a here-document or here-string."""
    feeds: bool = False
    """Its output is, or may be, what another command reads or a part of its words."""
    fed: bool = False
    """It reads what another command writes."""


@dataclass(slots=True)
class Findings:
    """What has been read so far, of the text and of all texts in it."""

    drafts: list[Draft] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    chars: int = 0
    words: int = 0

    def doubt(self, doubt: Doubt) -> None:
        """Note a doubt once."""
        if doubt not in self.doubts:
            self.doubts.append(doubt)


def parse(text: str, findings: Findings, *, depth: int = 0) -> None:
    """Add every simple command of ``text`` to ``findings``, and what could not be read."""
    findings.chars += len(text)
    if findings.chars > CHARS_READ_MAX:
        findings.doubt(Doubt.LENGTH)
        return
    parser = Parser(text, findings, depth)
    try:
        parser.commands("")
    except StopReadingError as stop:
        findings.doubt(stop.doubt)
        findings.drafts.append(parser.draft)


class Parser(WordReader):
    """Reads one text."""

    def __init__(self, text: str, findings: Findings, depth: int) -> None:
        """Start at the beginning of ``text``."""
        super().__init__(text, depth)
        self.findings = findings
        self.draft = Draft()
        self.compounds = depth
        """Of how many compound commands this is a part: their output may go anywhere."""
        self.cases = 0
        self.documents: list[tuple[Draft, str, bool, bool]] = []

    def substitution(self) -> None:
        """Read commands up to the ``)`` that ends them, as a part of a word."""
        outer, compounds, cases = self.draft, self.compounds, self.cases
        self.draft, self.compounds, self.cases = Draft(), compounds + 1, 0
        with self.deeper():
            self.commands(")")
        self.draft, self.compounds, self.cases = outer, compounds, cases
        outer.feeds = True

    def script(self, text: str) -> None:
        """Read a text that stands in this one."""
        with self.deeper():
            parse(text, self.findings, depth=self.depth)

    def commands(self, end: str) -> None:
        """Read commands up to ``end``; "" is the end of the text."""
        while self._blank() < len(self.text):
            if self.sees(")"):
                self._finish()
                if not end:
                    raise StopReadingError(Doubt.UNBALANCED)
                self.at += 1
                return
            self._token()
        self._finish()
        self._here_documents()
        if end:
            raise StopReadingError(Doubt.UNBALANCED)

    def _blank(self) -> int:
        found = _BLANKS.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if comment := _COMMENT.match(self.text, self.at):
            self.at = comment.end()
        return self.at

    def _token(self) -> None:
        """Read one operator, redirection or word."""
        if self.sees("("):
            self._parenthesis()
        elif not self.sees("<(", ">(") and (found := _REDIRECT.match(self.text, self.at)):
            self._redirect(found)
        elif operator := next((one for one in _OPERATORS if self.sees(one)), None):
            self._operator(operator)
        elif (found := _ASSIGNED.match(self.text, self.at)) and self._is_assignment(found.end()):
            self.at = found.end()
            more = found[0].endswith("+=")
            self.draft.assignments += [Assignment(found[1], one, more) for one in self._values()]
        else:
            self._words()

    def _is_assignment(self, value: int) -> bool:
        # Behind a program's name only ``declare`` and its kin take one, and only this is no word.
        return not self.draft.words or self.text[value : value + 1] == "("

    def _operator(self, operator: str) -> None:
        self.at += len(operator)
        is_pipe = operator in ("|", "|&")
        self.draft.feeds |= is_pipe
        self._finish()
        self.draft.fed = is_pipe
        if operator == "\n":
            self._here_documents()
        if operator in (";;", ";&", ";;&") and self.cases:
            self._case_pattern()

    def _finish(self) -> None:
        """Keep the command that is read, if there is one, and begin another."""
        draft, self.draft = self.draft, Draft()
        if not (draft.words or draft.redirects or draft.assignments):
            return
        draft.feeds |= self.compounds > 0
        self.findings.words += len(draft.words) + len(draft.assignments)
        self.findings.drafts.append(draft)
        if len(self.findings.drafts) > COMMANDS_MAX or self.findings.words > WORDS_MAX:
            raise StopReadingError(Doubt.COUNT)

    def _parenthesis(self) -> None:
        if self.draft.words:  # a function's definition, and nothing else that is valid
            self.at += 1
            if len(self.draft.words) > 1 or self._blank() >= len(self.text) or not self.sees(")"):
                raise StopReadingError(Doubt.UNBALANCED)
            self.at += 1
            self.draft = Draft()
            return
        if self.sees("((") and (end := self._arithmetic_end(self.at + 2)):
            body = self.text[self.at + 2 : end - 2]
            self.at = end
            # A shell without arithmetic commands reads it as a subshell in a subshell.
            doubts = list(self.findings.doubts)
            self.script(body)
            self.findings.doubts = doubts
            return
        self.at += 1
        self.substitution()

    def _words(self) -> None:
        """Read a word of the command, or a reserved word."""
        start = self.at
        words = self.words()
        if self.at == start:  # nothing but an operator that is none here
            self.at += 1
            return
        written = self.text[start : self.at]
        if not self.draft.words and not self.draft.redirects and self._is_reserved(written):
            return
        self.draft.words += words

    def _is_reserved(self, written: str) -> bool:
        """Say whether a word is one of the grammar's own, and read what it brings."""
        self.compounds += _STARTS.get(written, 0) - _ENDS.get(written, 0)
        readers: dict[str, Callable[[], None]] = {
            "for": self._for, "select": self._for, "case": self._case, "[[": self._test,
        }  # fmt: skip
        if reader := readers.get(written):
            reader()
        elif written == "esac" and self.cases:
            self.cases -= 1
            self.compounds -= 1
        elif written == "function":
            self._blank()
            self.words()
            self._skip("(", ")")
        else:
            return written in _SKIPPED
        return True

    def _for(self) -> None:
        self._blank()
        name = self.word().text
        self._skip("in")
        while self._blank() < len(self.text) and not self.sees(";", "\n", "&", "|", ")", "("):
            start = self.at
            self.draft.assignments += [Assignment(name, value) for value in self.words()]
            self.at += self.at == start

    def _case(self) -> None:
        self._blank()
        # The word is compared only; commands in it are kept.
        self.word()
        self._lines()
        self._skip("in")
        self.cases += 1
        self.compounds += 1
        self._case_pattern()

    def _case_pattern(self) -> None:
        """Step over ``a | b)``, or stop at the ``esac`` that stands there instead."""
        self._lines()
        if self.text[self.at : self.at + 4] == "esac":
            return
        while self.at < len(self.text) and not self.sees(")"):
            start = self.at
            self.parts()
            self.at += self.at == start and not self.sees(")")
        self.at += 1

    def _test(self) -> None:
        """Read ``[[ .. ]]``, in which operators compare and pipe nothing."""
        self.draft.words.append(Word((Part("text", "[["),)))
        while self.at < len(self.text) and not self.sees("]]"):
            start = self.at
            word = self.word()
            if self.at == start:
                self.at += 1
            else:
                self.draft.words.append(word)
        self.at += 2

    def _values(self) -> list[Word]:
        """Return the value that is assigned here, or those of an array."""
        if not self.sees("("):
            return [self.word()]
        self.at += 1
        values: list[Word] = []
        while self._lines() < len(self.text) and not self.sees(")"):
            start = self.at
            values += self.words()
            self.at += self.at == start
        self.at += 1
        return values

    def _lines(self) -> int:
        """Step over blanks, comments and ends of lines."""
        while self._blank() < len(self.text) and self.sees("\n"):
            self.at += 1
        return self.at

    def _skip(self, *tokens: str) -> None:
        for token in tokens:
            self._blank()
            self.at += len(token) if self.sees(token) else 0

    def _redirect(self, found: re.Match[str]) -> None:
        self.at = found.end()
        operator = found[1]
        self._blank()
        start = self.at
        target = self.word()
        if self.at == start:
            raise StopReadingError(Doubt.UNBALANCED)
        if operator == "<<<":
            self.draft.stdin = target.text
            if not target.is_literal:
                self.draft.fed = True
        elif operator in ("<<", "<<-"):
            is_exact = any(mark in self.text[start : self.at] for mark in "'\"\\")
            self.documents.append((self.draft, target.text, operator == "<<-", is_exact))
        elif not (operator in ("<&", ">&") and re.fullmatch(r"\d*-?", target.text)):
            self.draft.redirects.append(Redirect(_DIRECTIONS.get(operator, "write"), target))

    def _here_documents(self) -> None:
        """Read the bodies of the here-documents that were announced on the line before."""
        waiting, self.documents = self.documents, []
        for draft, end, has_tabs, is_exact in waiting:
            lines: list[str] = []
            start = self.at
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at = min(stop + 1, len(self.text))
                if (line.lstrip("\t") if has_tabs else line) == end:
                    break
                lines.append(line)
            draft.stdin = "\n".join(lines)
            if not is_exact and not all(
                part.kind == "text" for part in self.inside(start, self.at)
            ):
                draft.fed = True
