"""The last words of a worker: the end of what it wrote to its stderr, for the report of its end."""

import re
from typing import Final

from cmdc_runtime.lines import RECORD_MARK, TOOL_WROTE, VISIBLE_LINES
from supervisor.core.output_records import read_record

TAIL_BYTES_MAX: Final = 4 * 1024
"""Of the last words on stderr, in a report."""
TAIL_KEPT_BYTES_MAX: Final = 16 * 1024
"""Of stderr in memory: records and the list of a dump's modules are taken out of it for the tail,
and what is left should still be as long."""
_RECORD: Final = re.compile(re.escape(RECORD_MARK) + rb"[^\n]*\n?")
_MODULES: Final = re.compile(r"^Extension modules: .*\n?", re.MULTILINE)
_FATAL: Final = "Fatal Python error: "


class Tail:
    """The last words of a worker on its stderr; ``text`` may be asked for from any thread."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept = b""

    def add(self, chunk: bytes) -> None:
        """Keep the end of what there is with ``chunk``."""
        kept = self._kept + chunk[-TAIL_KEPT_BYTES_MAX:]
        self._kept = kept[-TAIL_KEPT_BYTES_MAX:]

    def text(self) -> str:
        """Return it with control characters made visible, and of records only what a tool wrote."""
        kept = self._kept
        if len(kept) == TAIL_KEPT_BYTES_MAX:  # begins within a line, or at best with one
            kept = kept.partition(b"\n")[2] or kept.partition(b" ")[2] or kept
        text = _RECORD.sub(_written, kept).decode(errors="backslashreplace")
        return text.translate(VISIBLE_LINES)


def _written(found: re.Match[bytes]) -> bytes:
    """Return the line that a tool wrote, which came as a record, else nothing."""
    record = read_record(found[0])
    if record is None or record.event != TOOL_WROTE:
        return b""
    return f"{record.fields.get('line', '')}\n".encode()


def last_lines(text: str, bytes_max: int = TAIL_BYTES_MAX) -> str:
    """Return the end of ``text``, cut at the beginning of a line where that is possible.

    What a dump of the interpreter lists of modules goes first, and what it begins with last.
    """
    if _size(text) <= bytes_max:
        return text
    text = _MODULES.sub("", text)
    if _size(text) <= bytes_max:
        return text
    fatal = text.rfind(_FATAL)
    head = "" if fatal < 0 else text[fatal:].partition("\n")[0] + "\n"
    if _size(text[max(fatal, 0) :]) <= bytes_max or _size(head) > bytes_max // 2:
        head = ""
    room = bytes_max - _size(head)
    before, after = text.encode()[:-room], text.encode()[-room:].decode(errors="ignore")
    is_line = before.endswith(b"\n")
    return head + (after if is_line else after.partition("\n")[2] or after)


def _size(text: str) -> int:
    return len(text.encode())
