"""Text that others wrote, made fit for a terminal and for one line.

A model or a tool may say anything, escape sequences that repaint the screen or type for the user
included: ``terminal`` makes everything ``neutral`` that it prints. Times may be any number.
"""

import time
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from cmdc_runtime.ranges import TIME_MS_MAX

LINE_CHARS_MAX: Final = 120
"""What is quoted in a line of its own is cut here."""

_ELLIPSIS: Final = "…"
_NUL_PICTURE: Final = 0x2400
_DELETE: Final = 0x7F
# U+009B alone is what ESC [ is; terminals that read UTF-8 take it too.
_C1: Final = range(0x80, 0xA0)
_BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Overrides and isolates: text that shows in another order than it is."""

_VISIBLE: Final = {
    **{code: chr(_NUL_PICTURE + code) for code in range(0x20)},
    _DELETE: "\u2421",
    **{code: f"\\x{code:02x}" for code in _C1},
    **{code: f"\\u{code:04x}" for code in _BIDI},
    ord("\n"): "\n",
    ord("\t"): "\t",
    ord("\r"): None,
}
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in (_DELETE, *_C1, *_BIDI)}
"""What JSON lets pass as it is; it stands in strings only, where the escape means the same."""


def neutral(text: str) -> str:
    """Return ``text`` with every control character but newline and tab made visible."""
    return text.translate(_VISIBLE)


def one_line(text: str, chars_max: int = LINE_CHARS_MAX) -> str:
    """Return ``text`` neutral, on one line, and cut to ``chars_max`` characters."""
    line = " ".join(neutral(text).split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + _ELLIPSIS


def json_line(value: Any) -> str:  # Any: whatever msgspec encodes
    """Return ``value`` as one line of JSON that no terminal takes for commands."""
    return msgspec.json.encode(value).decode().translate(_JSON_ESCAPES)


def typed(argument: str) -> str:
    """Return a command-line argument with bytes that are no UTF-8 replaced."""
    return argument.encode(errors="surrogateescape").decode(errors="replace")


def moment(at_ms: int) -> str:
    """Return a wall time as people read it: UTC, to the second; a wild one as the number it is."""
    if not 0 <= at_ms <= TIME_MS_MAX:
        return f"{at_ms} ms since 1970"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def clock(at_ms: int) -> str:
    """Return the local time of day of a wall time; nothing of a wild one."""
    is_time = 0 <= at_ms <= TIME_MS_MAX
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000)) if is_time else "--:--:--"


def duration(ms: int) -> str:
    """Return milliseconds as people read them: ``340 ms``, ``2.1 s``, ``3 min 20 s``."""
    if ms < 1000:  # noqa: PLR2004 - a second
        return f"{ms} ms"
    if ms < 60_000:  # noqa: PLR2004 - a minute
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
