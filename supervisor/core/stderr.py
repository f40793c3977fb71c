"""What a dead process left on its standard error: ordinary lines, and the stacks of faulthandler.

A crash in native code, or a request for a dump, makes faulthandler write the stacks of all threads
there, between whatever else was written. The two are told apart by the form of the lines: those of
a Python traceback look different (``line 3, in f`` has a comma), so it stays with the output.

To follow a new version of Python: a pattern in ``_OPENINGS`` or ``_MIDDLES``; the tests take what
the interpreter that runs them writes.
"""

import re
from typing import Final, NamedTuple

OUTPUT_BYTES_MAX: Final = 4 * 2**10
"""Of the output that a Down tells, whose end is kept: some 50 lines."""
STACK_BYTES_MAX: Final = 8 * 2**10
"""Of the stacks that a Down tells, whose beginning is kept: some 100 frames."""

BETWEEN_LINES_MAX: Final = 20
"""Lines of other threads in the middle of a dump, which is written in milliseconds."""

_CUT: Final = "…"
"""Stands where something was left out."""

_OPENINGS: Final = re.compile(
    r"Fatal Python error: .*"
    r"|Timeout \([0-9:.]+\)!"
    r"|(?P<thread>(Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):)"
    r"|(Current thread|Thread 0x[0-9a-f]+)'s C stack trace \(most recent call first\):"
    r'|(?P<frame>  File "[^"]*", line (\d+|\?\?\?) in .*)'
)
"""A line that only faulthandler writes: here a dump may begin.

The last is a frame, for a dump whose beginning is gone.
"""
_MIDDLES: Final = re.compile(
    r"|Python runtime state: .*"
    r"|  Garbage-collecting"
    r"|  \.\.\."
    r"|\s*<[^>]+>"
    r'|  Binary file "[^"]*"(, at .*)?( \[0x[0-9a-f]+\])?'
    r"|Extension modules: .*"
)
"""A line that belongs to a dump if it follows one of it; the empty line does."""
_CURRENT: Final = "Current thread "
_EXTENSIONS: Final = "Extension modules: "


class Split(NamedTuple):
    """Standard error in two parts; each may be empty."""

    output: str
    stack: str


def split_output(tail: str) -> Split:
    """Take the last dump of faulthandler out of the end of a process's standard error.

    What was written behind it stays in the output, and so do earlier dumps. The thread that
    crashed comes first in the stack.
    """
    lines = tail.splitlines()
    dump: list[int] = []
    between = 0
    for at, line in enumerate(lines):
        if match := _OPENINGS.fullmatch(line):
            if between and not _goes_on([lines[one] for one in dump], match, between):
                dump = []
            dump.append(at)
            between = 0
        elif dump and not between and _MIDDLES.fullmatch(line):
            dump.append(at)
        elif dump:
            between += 1
    while dump and not lines[dump[-1]]:
        dump.pop()
    taken = frozenset(dump)
    output = "\n".join(line for at, line in enumerate(lines) if at not in taken).strip("\n")
    return Split(output, _current_first([lines[at] for at in dump]))


def _goes_on(dump: list[str], opening: re.Match[str], between: int) -> bool:
    """Say whether a dump goes on behind lines of somebody else: other threads write meanwhile.

    A frame belongs to the thread above it, a thread to the dump that has not had its current one.
    """
    if between > BETWEEN_LINES_MAX:
        return False
    if opening["frame"]:
        return True
    return bool(opening["thread"]) and not any(line.startswith(_CURRENT) for line in dump)


def bounded_start(text: str, bytes_max: int) -> str:
    """Return the beginning of ``text`` in at most so many bytes of UTF-8; a cut shows."""
    data = text.encode(errors="replace")
    if len(data) <= bytes_max:
        return data.decode()
    return data[: bytes_max - len(_CUT.encode())].decode(errors="ignore") + _CUT


def bounded_end(text: str, bytes_max: int) -> str:
    """Return the end of ``text`` in at most so many bytes of UTF-8; a cut shows.

    It begins with a whole line unless the last line alone is too long.
    """
    data = text.encode(errors="replace")
    if len(data) <= bytes_max:
        return data.decode()
    kept = data[-(bytes_max - len(_CUT.encode()) - 1) :].decode(errors="ignore")
    _, newline, whole = kept.partition("\n")
    return f"{_CUT}\n{whole}" if newline and whole else f"{_CUT}{kept}"


def bounded_stack(stack: str, bytes_max: int) -> str:
    """Return the beginning of ``stack`` without the names of extension modules if they are many.

    litellm alone loads so many that they would take the place of the other threads.
    """
    if len(stack.encode(errors="replace")) > bytes_max:
        lines = (line for line in stack.splitlines() if not line.startswith(_EXTENSIONS))
        stack = "\n".join(lines)
    return bounded_start(stack, bytes_max)


def _current_first(lines: list[str]) -> str:
    """Put the section of the current thread first among those of the threads."""
    sections: list[list[str]] = [[]]
    for line in lines:
        match = _OPENINGS.fullmatch(line)
        if (match and match["thread"]) or line.startswith(_EXTENSIONS):
            sections.append([])
        sections[-1].append(line)
    head, *threads = ("\n".join(section).strip("\n") for section in sections)
    threads.sort(key=lambda section: not section.startswith(_CURRENT))
    return "\n\n".join(section for section in (head, *threads) if section)
