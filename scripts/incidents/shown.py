"""How what was printed is shown on a page: cut to what a reader needs, and folded. Pure.

A cut leaves ``…`` where something was. What is cut: frames of a stack that are not the
application's own, threads that are not to blame, and fields of log lines that say the same of every
agent.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import TextWrapper
from typing import Final

from scripts.incidents.stand_ins import APP

CUT: Final = "…"
WIDTH: Final = 98
"""Of a line in a code block; most pages show as much."""
INDENT: Final = 10
"""Of what was folded."""

_BAR: Final = "    | "
_FRAME: Final = re.compile(r'  File "(?P<file>[^"]*)", line \d+,? in ')
_NOISE: Final = ("Thread 0x", "Extension modules: ")
_MARKS: Final = re.compile(r"[ ~^]+")
"""Where Python points at a part of a line, which differs between its versions."""
_WROTE: Final = re.compile(r".* worker\.wrote .* line=(?P<quote>['\"])(?P<line>.*)(?P=quote) pid=")
_REPORT: Final = re.compile(r" (?:child|supervisor)\.\w+ +child=")
_WORN: Final = re.compile(r" (?:child_type|report|restart_type|significant|shutdown)=\S+")
_CONTEXT: Final = re.compile(r" context=(?:child_terminated|start_error|unkillable)(?= )")


def _monitor(text: str) -> str:
    """Return what ``cmdc monitor`` prints, its stacks cut."""
    return _folded(_cut(text.splitlines(), _quoted))


def _log(text: str) -> str:
    """Return lines of the log, without what is the same in all of them."""
    return _folded(map(_without_worn, _cut(text.splitlines(), _written)))


def part(name: str, text: str) -> str:
    """Return how a part of what an incident has shown is shown on a page."""
    return _PARTS.get(name, _plain)(text)


def prompted(command: str, text: str) -> str:
    """Return a command as it is typed, and what it prints."""
    return "\n".join(line.rstrip() for line in (f"$ {command}", *text.splitlines()))


def block(pieces: Iterable[str]) -> str:
    """Return a code block of commands and what they print."""
    return "\n".join(["```console", "\n\n".join(pieces), "```"])


def _quoted(line: str) -> str | None:
    """Return what a process wrote, where ``cmdc monitor`` quotes it."""
    bar = _BAR.rstrip()
    return line.removeprefix(bar).removeprefix(" ") if line.startswith(bar) else None


def _written(line: str) -> str | None:
    """Return what a process wrote, where the log has it."""
    found = _WROTE.match(line)
    return None if found is None else found["line"]


def _cut(lines: Sequence[str], words_of: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the lines; of stacks in what processes wrote the application's own frames alone."""
    for is_theirs, group in groupby(lines, lambda line: words_of(line) is not None):
        found = list(group)
        if not is_theirs:
            yield from found
            continue
        words = [words_of(line) or "" for line in found]
        shown = [line if keep else None for line, keep in zip(found, _keeps(words), strict=True)]
        for is_cut, run in groupby(shown, lambda line: line is None):
            margin = _BAR if found[0].startswith(_BAR.rstrip()) else ""
            yield from [f"{margin}{CUT}"] if is_cut else filter(None, run)


def _keeps(words: Iterable[str]) -> Iterator[bool]:
    """Say of each line that a process wrote whether a reader needs it."""
    is_own = True
    for line in words:
        if frame := _FRAME.match(line):
            is_own = frame["file"].startswith(APP)
        elif not line.startswith("    "):
            is_own = not line.startswith(_NOISE)
        elif _MARKS.fullmatch(line):
            is_own = False
        yield is_own and bool(line.strip())


def _without_worn(line: str) -> str:
    """Return a report of the supervision tree without what it says of every agent."""
    if not _REPORT.search(line):
        return line
    return f"{_CONTEXT.sub('', _WORN.sub('', line))} {CUT}"


def _folded(lines: Iterable[str]) -> str:
    wrapper = TextWrapper(
        WIDTH,
        subsequent_indent=" " * INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(
        piece for line in lines for piece in (wrapper.wrap(line) if line.strip() else [""])
    )


def _plain(text: str) -> str:
    return _folded(text.splitlines())


_PARTS: Final[Mapping[str, Callable[[str], str]]] = {"monitor": _monitor, "log": _log}
"""What is cut before it is folded."""
