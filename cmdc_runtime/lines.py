"""Lines of text: what others wrote made fit for one, and what processes print, line by line.

A model or a tool may say anything, escape sequences that repaint the screen or type for the user
included. A line that a person reads, on a terminal too, has none.

A worker sends its standard output and its standard error over a socket each, and says first whose
they are. A line that begins with ``RECORD_MARK`` holds one JSON object and is a log record; any
other line is text. Who holds such a socket is believed in what it says about itself, and in nothing
else: the daemon binds session and process by itself.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

# --- for people -----------------------------------------------------------------------------------

LINE_CHARS_MAX: Final = 120
"""What is quoted in a line is cut here."""

_ELLIPSIS: Final = "…"
_NUL_PICTURE: Final = 0x2400
_DELETE: Final = 0x7F
# U+009B alone is what ESC [ is; terminals that read UTF-8 take it too.
_C1: Final = range(0x80, 0xA0)
_BREAKS: Final = (0x2028, 0x2029)
"""Separators of lines and paragraphs: a reader of lines takes what follows for the next one."""
_BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Overrides and isolates: text that shows in another order than it is."""
_UNSEEN: Final = (
    *(0x180E, 0x200B, *range(0x2060, 0x2065), *range(0x206A, 0x2070)),
    *(0xFEFF, *range(0xFFF9, 0xFFFC), 0xE0001, *range(0xE0020, 0xE0080)),
)
"""What shows nothing and changes nothing that shows: spaces without width, and the tags, in which a
whole text can be hidden (three flags are spelled with them). Joiners, marks of direction, soft
hyphens and variation selectors are a part of how scripts and emoji are written."""
ESCAPED: Final = (_DELETE, *_C1, *_BREAKS, *_BIDI, *_UNSEEN)
"""What is no sign to see, beside the control characters of ASCII that every JSON escapes."""

VISIBLE: Final = {
    **{code: chr(_NUL_PICTURE + code) for code in range(0x20)},
    **{code: chr(code).encode("ascii", "backslashreplace").decode() for code in ESCAPED},
    _DELETE: "\u2421",
    ord("\t"): "\t",
}
"""What makes the text of one line neutral, by ``str.translate``."""
VISIBLE_LINES: Final = {**VISIBLE, ord("\n"): "\n", ord("\r"): None}
"""The same for text of several lines."""

_VISIBLE_BREAKS: Final = {ord(sign): chr(_NUL_PICTURE + ord(sign)) for sign in "\n\t"}


def neutral(text: str) -> str:
    """Return ``text`` with all but newline and tab that is no sign to see made visible."""
    return text.translate(VISIBLE_LINES)


def unbroken(text: str) -> str:
    """Return ``text`` neutral, with newlines and tabs made visible too, so that it is one line."""
    return neutral(text).translate(_VISIBLE_BREAKS)


def one_line(text: str, chars_max: int = LINE_CHARS_MAX) -> str:
    """Return ``text`` neutral, on one line, and cut to ``chars_max`` characters."""
    line = " ".join(neutral(text).split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + _ELLIPSIS


def call_line(name: str, args: Mapping[str, object]) -> str:
    """Return a call of a tool as one line, with its arguments as Python writes them."""
    listed = ", ".join(f"{name}={value!r}" for name, value in args.items())
    return f"{one_line(name)}({one_line(listed)})"


def duration(ms: int) -> str:
    """Return milliseconds as people read them: ``340 ms``, ``2.1 s``, ``3 min 20 s``."""
    if ms < 1000:  # noqa: PLR2004 - a second
        return f"{ms} ms"
    if ms < 60_000:  # noqa: PLR2004 - a minute
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


# --- what processes print -------------------------------------------------------------------------

Stream = Literal["out", "err"]

LINE_BYTES_MAX: Final = 8 * 1024
"""Of one line; a stack of 60 frames fits, and 10,000 half-written lines are 80 MB."""
HEADER_BYTES_MAX: Final = 128
"""Of the first line; the name of a worker has about 30."""
RECORD_MARK: Final = b"\x1e"
"""ASCII's record separator, which no text has: in front of a record, and so behind half a line that
somebody else has written."""
TOOL_WROTE: Final = "tool.wrote"
"""The event of a record that is a line which a tool call has printed."""

_HEADER: Final = re.compile(rb"([!-~]{1,64}) (out|err)")


def header(worker_id: str, stream: Stream) -> bytes:
    """Return what a worker sends first."""
    return f"{worker_id} {stream}\n".encode()


def read_header(line: bytes) -> tuple[str, Stream] | None:
    """Return the worker and the stream that a first line names, without its newline, or None."""
    match = _HEADER.fullmatch(line)
    if match is None:
        return None
    return match[1].decode(), "out" if match[2] == b"out" else "err"
