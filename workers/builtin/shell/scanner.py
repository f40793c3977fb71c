"""Reads one word of shell text at a time: quotes, backslashes, expansions, wildcards, braces.

After the POSIX shell's token recognition and quoting (IEEE Std 1003.1, Shell Command Language, 2.2
and 2.3), with what bash adds: ``$'..'``, ``<(..)``, braces.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from workers.builtin.shell.words import (
    Part,
    PartKind,
    TooManyWordsError,
    Word,
    braced,
    word_of,
)

BRACKET_CHARS_MAX: Final = 128
"""Of ``[..]``; all of ASCII fits."""
DEPTH_MAX: Final = 16
"""Of substitutions, subshells and scripts in scripts; nobody writes more."""

_IN_ONE_WORD: Final[dict[PartKind, PartKind]] = {"brace": "text", "blank": "expansion"}
_META: Final = " \t\n;&|<>()"
_OPERATORS: Final = frozenset(";&|\n")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_SIMPLE: Final = re.compile(
    r"\$\{([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*])(?::?[-=+](.*))?\}", re.DOTALL
)
_BRACKET: Final = re.compile(
    # An operator or blank that is not quoted ends the word, and what is open then is no range.
    r"""\[[!^]?\]?(?:\[:\w+:\]|\\[^\n]|'[^'\n]{0,8}'|"[^"\n`$\\]{0,8}"|[^] \t\n;&|<>()\\'"/`$])"""
    r"""{0,128}+(\])?"""
)
_TILDE: Final = re.compile(r"~[A-Za-z0-9._+-]*(?=[/ \t\n;&|<>():]|$)")
_PLAIN: Final = re.compile(r"""(?:[^'"`\\#\n]|\\\n)*+""")
"""In which a backslash at the end of a line joins the next one, wherever in a command it stands."""
_ANSI: Final = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.)|(.))",
    re.DOTALL,
)
_ANSI_LETTERS: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v",
}  # fmt: skip
_UNICODE_MAX: Final = 0x10FFFF


class Doubt(StrEnum):
    """What a reader cannot decide; the value says it to a person."""

    NAME = "the name of a command is computed when it runs"
    PIPED = "a shell runs text that is computed or comes from elsewhere"
    EVAL = "a script is put together when it runs"
    SOURCE = "a file is run as part of the command"
    INLINE = "code of another language is part of the command"
    OPTION = "an option of a program that runs another one is not known"
    UNBALANCED = "a quote or bracket is not closed, or one too many is"
    LENGTH = "the command is too long to be read"
    DEPTH = "the command is nested too deeply to be read"
    COUNT = "the command has too many parts to be read"


class StopReadingError(Exception):
    """Reading ends here, for the reason in ``doubt``."""

    def __init__(self, doubt: Doubt) -> None:
        """Keep the reason."""
        super().__init__(doubt)
        self.doubt = doubt


class WordReader:
    """A place in a text, and the words that begin there."""

    def __init__(self, text: str, depth: int) -> None:
        """Start at the beginning; ``depth`` is how deep the text is nested in others."""
        self.text = text
        self.depth = depth
        self.at = 0
        self._joined = 0
        self._has_document = False

    def substitution(self) -> None:
        """Read commands up to the ``)`` that ends them, and keep them."""

    def script(self, text: str) -> None:
        """Read commands that stand in a text of their own, and keep them."""

    def other_script(self, text: str) -> None:
        """Read commands as a shell other than bash would see them."""

    def doubt(self, doubt: Doubt) -> None:
        """Remember what cannot be decided."""

    def spend(self, chars: int) -> None:
        """Bound what is read twice."""

    def attempt(self, read: Callable[[], bool]) -> bool:
        """Read something that may turn out to be something else: False undoes it."""
        text, at, joined = self.text, self.at, self._joined
        if done := read():
            return done
        self.text, self.at, self._joined = text, at, joined
        return False

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Bound how deep things are nested."""
        if self.depth >= DEPTH_MAX:
            raise StopReadingError(Doubt.DEPTH)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def join(self) -> None:
        """Join the lines that are one from here to the next mark that may quote."""
        if self.at < self._joined or not (found := _PLAIN.match(self.text, self.at)):
            return
        joined = found[0].replace("\\\n", "")
        self._joined = self.at + len(joined)
        if len(joined) < len(found[0]):
            self.text = self.text[: self.at] + joined + self.text[found.end() :]

    def sees(self, *tokens: str) -> bool:
        """Say whether one of ``tokens`` stands here."""
        return self.text.startswith(tokens, self.at)

    def words(self, head: Iterable[Part] = ()) -> list[Word]:
        """Return the words that ``head`` and the characters up to the next blank stand for."""
        rows: list[list[Part]] = [[]]
        for part in [*head, *self.parts()]:
            if part.kind == "blank":
                rows.append([])
            else:
                rows[-1].append(part)
        if len(rows) > 1:
            rows = [row for row in rows if row]
        try:
            return [word for row in rows for word in braced(row)]
        except TooManyWordsError as error:
            raise StopReadingError(Doubt.COUNT) from error

    def word(self) -> Word:
        """Return the word that begins here where no braces are expanded: a value, a target."""
        return word_of(
            Part(_IN_ONE_WORD.get(part.kind, part.kind), part.text, part.name, part.default)
            for part in self.parts()
        )

    def parts(self) -> list[Part]:
        """Return the parts up to the next unquoted blank or operator."""
        parts: list[Part] = []
        while self._joins() < len(self.text):
            char = self.text[self.at]
            if char in "<>" and self.text[self.at + 1 : self.at + 2] == "(":
                parts.append(self._process())
            elif char in _META:
                break
            else:
                parts += self._part(char, is_first=not parts)
        return parts

    def _joins(self) -> int:
        self.join()
        return self.at

    def quoted(self, end: str) -> list[Part]:
        """Return what stands up to ``end``, as in double quotes; "" is the end of the text."""
        parts: list[Part] = []
        while not (end and self.sees(end)):
            if self.at >= len(self.text):
                if end:
                    raise StopReadingError(Doubt.UNBALANCED)
                return parts
            char = self.text[self.at]
            if char in "$`":
                parts += self._expansion(char, is_quoted=True)
            elif char == "\\":
                parts += self._escaped_in_quotes()
            else:
                parts.append(Part("text", char))
                self.at += 1
        self.at += len(end)
        return parts

    def _part(self, char: str, *, is_first: bool) -> list[Part]:
        if char == "\\":
            # The last character of a text escapes nothing.
            escaped = self.text[self.at + 1 : self.at + 2] or "\\"
            self.at = min(self.at + 2, len(self.text))
            return [Part("text", "" if escaped == "\n" else escaped)]
        if char == "'":
            return [Part("text", self._until("'"))]
        if char == '"':
            self.at += 1
            return self.quoted('"') or [Part("text", "")]
        if char in "$`":
            return self._expansion(char, is_quoted=False)
        if char == "~" and is_first and (found := _TILDE.match(self.text, self.at)):
            self.at = found.end()
            return [Part("tilde", found[0])]
        return [self._plain(char)]

    def _plain(self, char: str) -> Part:
        found = _BRACKET.match(self.text, self.at) if char == "[" else None
        if found and found.end() - self.at > BRACKET_CHARS_MAX:
            raise StopReadingError(Doubt.COUNT)
        if found and found[1]:
            self.at = found.end()
            return Part("glob", re.sub(r"""['"\\]""", "", found[0]))
        # A range that holds more than is worth reading is open to the end.
        is_open = found is not None and self.text[found.end() : found.end() + 1] in tuple("'\"$`")
        self.at += 1
        if is_open:
            return Part("glob", char)
        if char in "*?":
            return Part("glob", char)
        return Part("brace" if char in "{,}~" else "text", char)

    def _until(self, end: str) -> str:
        """Return what stands between the mark here and the next ``end``, and step over both."""
        start = self.at + 1
        stop = self.text.find(end, start)
        if stop < 0:
            raise StopReadingError(Doubt.UNBALANCED)
        self.at = stop + 1
        return self.text[start:stop]

    def _escaped_in_quotes(self) -> list[Part]:
        escaped = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if escaped == "\n":
            return []
        return [Part("text", escaped if escaped in ("$", "`", '"', "\\") else "\\" + escaped)]

    def _process(self) -> Part:
        start = self.at
        self.at += 2
        self.substitution()
        return Part("expansion", self.text[start : self.at])

    def _expansion(self, char: str, *, is_quoted: bool) -> list[Part]:
        self.join()
        start = self.at
        if char == "`":
            self._backticks(is_quoted=is_quoted)
        elif self.sees("$((") and self.arithmetic("$((", "))"):
            pass
        elif self.sees("$["):
            self._old_arithmetic()
        elif self.sees("$("):
            self.at += 2
            self.substitution()
        elif self.sees("${"):
            return [self._parameter(is_quoted=is_quoted)]
        elif self.sees("$'") and not is_quoted:
            self.at += 1
            return [Part("text", self._ansi())]
        elif self.sees('$"') and not is_quoted:
            self.at += 2
            return self.quoted('"')
        elif found := _NAME.match(self.text, start + 1):
            self.at = found.end()
            return [_variable(self.text[start : self.at], found[0], is_quoted=is_quoted)]
        else:
            self.at += 1
            return [Part("text", char)]
        return [Part("expansion", self.text[start : self.at])]

    def inside(self, start: int, end: int) -> list[Part]:
        """Return the parts of a stretch of the text, its substitutions read; ``at`` stays."""
        whole, back, joined = self.text, self.at, self._joined
        self.text, self.at, self._joined = whole[start:end], 0, 0
        with self.deeper():
            parts = self.quoted("")
        self.text, self.at, self._joined = whole, back, joined
        return parts

    def arithmetic(self, begin: str, end: str) -> bool:
        """Read arithmetic between the marks, if what stands here is that; its commands are kept."""
        self._has_document = False
        if self.attempt(lambda: self._sum(begin, end)):
            return True
        if self._has_document:  # bash looks for its text behind what it took for arithmetic
            self.doubt(Doubt.UNBALANCED)
        return False

    def _sum(self, begin: str, end: str) -> bool:
        start, opening, closing = self.at, begin[-1], end[0]
        self.at += len(begin)
        depth = 0
        with self.deeper():
            while depth or not self.sees(closing):
                if self.at >= len(self.text):
                    raise StopReadingError(Doubt.UNBALANCED)
                depth += self.sees(opening) - self.sees(closing)
                self._in_braces(is_quoted=True)
        if not self.sees(end):
            self.spend(self.at - start)
            self._has_document = "<<" in self.text[start : self.at]
            return False
        self.at += len(end)
        return True

    def _old_arithmetic(self) -> None:
        """Read ``$[..]``, which other shells than bash take for words."""
        start = self.at + len("$[")
        self.arithmetic("$[", "]")
        body = self.text[start : self.at - 1]
        if not _OPERATORS.isdisjoint(body):
            self.other_script(body)

    def _backticks(self, *, is_quoted: bool) -> None:
        at = self.at + 1
        while at < len(self.text) and self.text[at] != "`":
            at += 2 if self.text[at] == "\\" else 1
        if at >= len(self.text):
            raise StopReadingError(Doubt.UNBALANCED)
        body = self.text[self.at + 1 : at]
        self.at = at + 1
        self.script(re.sub(r'\\([$`\\"])' if is_quoted else r"\\([$`\\])", r"\1", body))

    def _parameter(self, *, is_quoted: bool) -> Part:
        start = self.at
        self.at += 2
        is_script = self.sees(" ", "\t", "\n", "|")
        with self.deeper():
            self._skip_to_brace(is_quoted=is_quoted)
        text = self.text[start : self.at]
        if is_script:  # of bash 5.3: its output, or what it sets REPLY to
            self.script(text[len("${") : -1].removeprefix("|"))
        found = _SIMPLE.fullmatch(text)
        if found is None:
            return Part("expansion", text)
        return _variable(text, found[1], found[2], is_quoted=is_quoted)

    def _skip_to_brace(self, *, is_quoted: bool) -> None:
        while not self.sees("}"):
            if self.at >= len(self.text):
                raise StopReadingError(Doubt.UNBALANCED)
            self._in_braces(is_quoted=is_quoted)
        self.at += 1

    def _in_braces(self, *, is_quoted: bool) -> None:
        """Step over a character, or what is quoted or substituted here."""
        char = self.text[self.at]
        if char == "'" and is_quoted:
            # It hides what ends the expansion, and yet quotes nothing.
            start = self.at + 1
            self._until("'")
            self.inside(start, self.at - 1)
        elif char in "$`":
            self._expansion(char, is_quoted=is_quoted)
        elif char in "\"'\\":
            self._part(char, is_first=False)
        elif self.sees("<(", ">(") and not is_quoted:
            self._process()
        else:
            self.at += 1

    def _ansi(self) -> str:
        r"""Return the value of ``$'..'``, whose first quote stands here."""
        start = self.at + 1
        at = start
        while at < len(self.text) and self.text[at] != "'":
            at += 2 if self.text[at] == "\\" else 1
        if at >= len(self.text):
            raise StopReadingError(Doubt.UNBALANCED)
        self.at = at + 1
        return _ANSI.sub(_ansi_char, self.text[start:at]).partition("\0")[0]


def _variable(text: str, name: str, default: str | None = None, *, is_quoted: bool) -> Part:
    """Return the part that a variable is; the shell's own separator, unquoted, ends a word."""
    is_blank = name == "IFS" and not is_quoted
    return Part("blank" if is_blank else "expansion", text, name, default)


def _ansi_char(found: re.Match[str]) -> str:
    octal, hexadecimal, short, long, control, letter = found.groups()
    if octal:
        return chr(int(octal, 8) & 0xFF)
    if digits := hexadecimal or short or long:
        code = int(digits, 16)
        return chr(code) if code <= _UNICODE_MAX else ""
    if control:
        return chr(ord(control) & 0x1F)
    return _ANSI_LETTERS.get(letter, letter if letter in "\\'\"?" else "\\" + letter)
