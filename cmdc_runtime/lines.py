"""Text that others wrote, made fit for one line that a person reads, on a terminal too.

A model or a tool may say anything, escape sequences that repaint the screen or type for the user
included.
"""

from collections.abc import Mapping
from typing import Final

LINE_CHARS_MAX: Final = 120
"""What is quoted in a line is cut here."""

_ELLIPSIS: Final = "…"
_NUL_PICTURE: Final = 0x2400
DELETE: Final = 0x7F
# U+009B alone is what ESC [ is; terminals that read UTF-8 take it too.
C1: Final = range(0x80, 0xA0)
BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Overrides and isolates: text that shows in another order than it is."""

_VISIBLE: Final = {
    **{code: chr(_NUL_PICTURE + code) for code in range(0x20)},
    DELETE: "\u2421",
    **{code: f"\\x{code:02x}" for code in C1},
    **{code: f"\\u{code:04x}" for code in BIDI},
    ord("\n"): "\n",
    ord("\t"): "\t",
    ord("\r"): None,
}

_VISIBLE_BREAKS: Final = {ord(sign): chr(_NUL_PICTURE + ord(sign)) for sign in "\n\t"}


def neutral(text: str) -> str:
    """Return ``text`` with every control character but newline and tab made visible."""
    return text.translate(_VISIBLE)


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
