"""Reads shell text into simple commands, with redirections and assignments, wherever they stand.

It follows the POSIX shell grammar (IEEE Std 1003.1, Shell Command Language, 2.9 and 2.10) no
further than is needed to see every simple command: what is between the reserved words is read as
if it ran. Text that is no valid script is read as far as it can be.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from workers.builtin.shell.scanner import Doubt, StopReadingError, WordReader
from workers.builtin.shell.words import Part, Word

# --- what is found --------------------------------------------------------------------------------

Direction: TypeAlias = Literal["read", "write", "both"]


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
    is_redirected: bool = False

    @property
    def is_begun(self) -> bool:
        """Whether something of it has been read."""
        return self.is_redirected or bool(self.words or self.assignments)


@dataclass(slots=True)
class Findings:
    """What has been read so far, of the text and of all texts in it."""

    drafts: list[Draft] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    chars: int = 0
    words: int = 0

    def doubt(self, doubt: Doubt) -> None:
        """Remember a doubt once."""
        if doubt not in self.doubts:
            self.doubts.append(doubt)


# --- the parser -----------------------------------------------------------------------------------

COMMANDS_MAX: Final = 1000
WORDS_MAX: Final = 10_000
"""Of all commands together."""
CHARS_READ_MAX: Final = 4 * 65_536
"""Text in text is read again, so that this is more than a command may be long."""

_OPENING: Final = frozenset({"if", "while", "until", "{", "then", "do", "else", "elif"})
_SKIPPED: Final = _OPENING | {"fi", "done", "}", "!"}
_ENDS: Final = {"fi": 1, "done": 1, "}": 1}
_STARTS: Final = {"if": 1, "while": 1, "until": 1, "{": 1, "for": 1, "select": 1}
_REDIRECT: Final = re.compile(r"(?:\d+|\{\w+\})?(<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)|(&>>?)")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?=\[|\+?=)")
_ASSIGNS: Final = re.compile(r"\+?=")
_ASSIGNING: Final = frozenset({
    "alias", "declare", "eval", "export", "let", "local", "readonly", "typeset",
})  # fmt: skip
_BLANKS: Final = re.compile(r"(?:[ \t]|\\\n)*")
_NO_PARAMETERS: Final = re.compile(r"\([ \t]*\)")
_TIME_OPTION: Final = re.compile(r"(?:-p|--)(?=[ \t\n;&|<>()]|$)")
_NAMED: Final = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*[ \t]+(?=\(|(?:\{|if|while|until|for|select|case|\[\[)[ \t\n])"
)
_LINE: Final = re.compile(r"[^\n]*")
_JOINED_LINE: Final = re.compile(r"(?:[^\\\n]|\\\n|\\.|\\)*+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_DIRECTIONS: Final[dict[str, Direction]] = {"<": "read", "<&": "read", "<>": "both"}
_OPERATORS: Final = ("&&", "||", "|&", ";;&", ";;", ";&", ";", "&", "|", "\n")


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
        outer, documents = self.draft, self.documents
        self.documents = []
        self._group()
        outer.feeds = True
        # A document that was announced inside and has not begun yet stands behind the line.
        self.draft, self.documents = outer, documents + self.documents

    def _group(self) -> None:
        """Read commands up to the ``)`` that ends them."""
        compounds, cases = self.compounds, self.cases
        self.draft, self.compounds, self.cases = Draft(), compounds + 1, 0
        with self.deeper():
            self.commands(")")
        self.draft, self.compounds, self.cases = Draft(), compounds, cases

    def script(self, text: str) -> None:
        """Read a text that stands in this one."""
        with self.deeper():
            parse(text, self.findings, depth=self.depth)

    def other_script(self, text: str) -> None:
        """Read a text as commands that bash takes for something else."""
        doubts = list(self.findings.doubts)
        self.script(text)
        self.findings.doubts = doubts

    def doubt(self, doubt: Doubt) -> None:
        """Remember what cannot be decided."""
        self.findings.doubt(doubt)

    def spend(self, chars: int) -> None:
        """Bound what is read twice."""
        self.findings.chars += chars
        if self.findings.chars > CHARS_READ_MAX:
            raise StopReadingError(Doubt.LENGTH)

    def attempt(self, read: Callable[[], bool]) -> bool:
        """Read something that may turn out to be something else: False undoes it."""
        found = self.findings
        marks = len(found.drafts), len(found.doubts), len(found.functions)
        documents = list(self.documents)
        if super().attempt(read):
            return True
        del found.drafts[marks[0] :], found.doubts[marks[1] :], found.functions[marks[2] :]
        self.documents = documents
        return False

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

    def _blank(self, *, has_comments: bool = True) -> int:
        found = _BLANKS.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if has_comments and (comment := _COMMENT.match(self.text, self.at)):
            self.at = comment.end()
        self.join()
        return self.at

    def _token(self) -> None:
        """Read one operator, redirection or word."""
        if self.sees("("):
            self._parenthesis()
        elif not self.sees("<(", ">(") and (found := _REDIRECT.match(self.text, self.at)):
            self._redirect(found)
        elif operator := next((one for one in _OPERATORS if self.sees(one)), None):
            self._operator(operator)
        else:
            self._words()

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
        if not draft.is_begun:
            return
        draft.feeds |= self.compounds > 0
        self.findings.words += len(draft.words) + len(draft.assignments)
        self.findings.drafts.append(draft)
        if len(self.findings.drafts) > COMMANDS_MAX or self.findings.words > WORDS_MAX:
            raise StopReadingError(Doubt.COUNT)

    def _parenthesis(self) -> None:
        start = self.at
        if self.draft.is_begun:
            self._definition()
        elif self.sees("((") and self.arithmetic("((", "))"):
            # A shell without arithmetic commands reads it as a subshell in a subshell.
            self.other_script(self.text[start + 2 : self.at - 2])
        else:
            self.at += 1
            self._group()

    def _definition(self) -> None:
        """Read the ``()`` behind a function's name; nothing else is valid behind a word."""
        self.at += 1
        words = self.draft.words
        if len(words) != 1 or self._blank() >= len(self.text) or not self.sees(")"):
            raise StopReadingError(Doubt.UNBALANCED)
        self.at += 1
        self.findings.functions.append(words[0].text)
        self.draft = Draft()

    def _words(self) -> None:
        """Read a word of the command, or a reserved word."""
        start = self.at
        head = self._variable()
        if head and (found := _ASSIGNS.match(self.text, self.at)) and self._is_assignment(found):
            self.at = found.end()
            values = self._values()
            is_more = found[0] == "+="
            self.draft.assignments += [Assignment(head[0].text, one, is_more) for one in values]
            if self.draft.words:  # of ``eval`` it is an argument
                self.draft.words.append(Word((Part("expansion", self.text[start : self.at]),)))
            return
        words = self.words(head)
        if self.at == start:  # nothing but an operator that is none here
            self.at += 1
            return
        written = self.text[start : self.at]
        if not self.draft.is_begun and self._is_reserved(written):
            return
        self.draft.words += words

    def _variable(self) -> list[Part]:
        """Read what may be given a value here, in whose subscript no operator is one."""
        words = self.draft.words
        found = _VARIABLE.match(self.text, self.at)
        if not found or (words and words[0].text not in _ASSIGNING):
            return []
        self.at = start = found.end()
        if self.sees("[") and not words:
            self.arithmetic("[", "]")
        subscript = self.text[start : self.at]
        return [Part("text", found[0]), *([Part("glob", subscript)] if subscript else [])]

    def _is_assignment(self, found: re.Match[str]) -> bool:
        # Behind a program's name a value is a part of a word, unless it is an array.
        return not self.draft.words or self.text[found.end() : found.end() + 1] == "("

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
            self.findings.functions.append(self.word().text)
            self._blank()
            if found := _NO_PARAMETERS.match(self.text, self.at):
                self.at = found.end()
        elif written == "time":
            return self._is_keyword_time()
        elif written == "coproc":
            self._coprocess()
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

    def _is_keyword_time(self) -> bool:
        """Say whether this ``time`` is not the program of that name; its option is stepped over."""
        if self.draft.fed:
            return False
        for _ in range(2):
            self._blank()
            if found := _TIME_OPTION.match(self.text, self.at):
                self.at = found.end()
        return not self.sees("-")

    def _coprocess(self) -> None:
        """Step over the name that a compound command may have here."""
        self._blank()
        if found := _NAMED.match(self.text, self.at):
            self.at = found.end()

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
        while self._lines(has_comments=False) < len(self.text):
            if self.sees("#"):  # a comment, or a part of a pattern
                raise StopReadingError(Doubt.UNBALANCED)
            start = self.at
            word = self.word()
            if self.text[start : self.at] == "]]":
                return
            self.at += self.at == start
            self.draft.words += [word] if word.parts else []

    def _values(self) -> list[Word]:
        """Return the value that is assigned here, or those of an array."""
        if not self.sees("("):
            return [self.word()]
        self.at += 1
        values: list[Word] = []
        while self._lines() < len(self.text) and not self.sees(")"):
            start = self.at
            head = []
            if self.sees("["):
                self.arithmetic("[", "]")
                head.append(Part("glob", self.text[start : self.at]))
            values += self.words(head)
            if self.at == start:
                raise StopReadingError(Doubt.UNBALANCED)
        if self.at >= len(self.text):
            raise StopReadingError(Doubt.UNBALANCED)
        self.at += 1
        self.parts()  # which are a part of the same word, and of no use
        return values

    def _lines(self, *, has_comments: bool = True) -> int:
        """Step over blanks, comments and ends of lines."""
        while self._blank(has_comments=has_comments) < len(self.text) and self.sees("\n"):
            self.at += 1
            self._here_documents()
        return self.at

    def _skip(self, *tokens: str) -> None:
        for token in tokens:
            self._blank()
            self.at += len(token) if self.sees(token) else 0

    def _redirect(self, found: re.Match[str]) -> None:
        self.at = found.end()
        self.draft.is_redirected = True
        operator = found[1] or found[2]
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
                line = self._line(is_exact=is_exact)
                if (line.lstrip("\t") if has_tabs else line) == end:
                    break
                lines.append(line)
            draft.stdin = "\n".join(lines)
            if not is_exact and not all(
                part.kind == "text" for part in self.inside(start, self.at)
            ):
                draft.fed = True

    def _line(self, *, is_exact: bool) -> str:
        """Return the next line of a here-document, with those that it is joined to."""
        found = (_LINE if is_exact else _JOINED_LINE).match(self.text, self.at)
        line = found[0] if found else ""
        self.at = min(self.at + len(line) + 1, len(self.text))
        return line if is_exact else line.replace("\\\n", "")
