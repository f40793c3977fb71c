"""What becomes of the bytes that a worker writes: lines for the log, records, the end of stderr.

Everything here is bounded, whatever the bytes are: a line is cut, a flood is counted and not kept,
and text is made fit for a terminal.

A record is a line of JSON, with nothing in it that is not its to say. Any code of a session can
write such a line. So the session, the process and the time are the daemon's to bind, whatever the
line says of them, and text stays within its line. A line that is no proper record is text. The last
words of a worker, the end of what it wrote to its stderr, are kept for the report of its end.

A crash in native code, or a request for a dump, makes faulthandler write the stacks of all threads
there, between whatever else was written. The two are distinguished by the form of the lines: those
of a Python traceback look different (``line 3, in f`` has a comma), so it stays with the output. To
follow a new version of Python: a pattern in ``_OPENINGS`` or ``_MIDDLES``; the tests take what the
interpreter that runs them writes.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from cmdc_runtime.lines import LINE_BYTES_MAX, RECORD_MARK, TOOL_WROTE, VISIBLE, VISIBLE_LINES

# --- lines ----------------------------------------------------------------------------------------

LINES_PER_S: Final = 200
"""Of one worker in the log, in the long run; a person who reads along sees ten a second."""
LINES_BURST: Final = 1_000
"""At once, after a pause: a test's or a compiler's whole output comes through."""
LINE_UNIT_BYTES: Final = 1024
"""A longer line counts as one for each of these, so that long ones do not fill the log's disk."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline; the rest of one that was too long is gone."""

    raw: bytes
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """What a chunk held: lines to log, and how much is not logged."""

    logged: list[Line]
    dropped: int = 0
    dropped_bytes: int = 0


class LineCutter:
    """Makes lines of the chunks of one stream; keeps less than ``LINE_BYTES_MAX`` of them."""

    def __init__(self) -> None:
        """Begin at the beginning of a line."""
        self._pending = b""
        self._is_skipping = False

    def cut(self, chunk: bytes, lines_max: int) -> Lines:
        """Return the lines that end in ``chunk``, at most ``lines_max``; the others are dropped.

        A line that is too long is one of them as soon as that is known. The work is bounded by
        ``lines_max`` and one pass over the chunk, however many lines it has.
        """
        skipped = 0
        if self._is_skipping:
            skipped = chunk.find(b"\n") + 1 or len(chunk)
            self._is_skipping = not chunk[:skipped].endswith(b"\n")
        end = chunk.rfind(b"\n")
        if end < skipped:
            rest = self._begin(chunk[skipped:], lines_max)
            return Lines(rest.logged, rest.dropped, rest.dropped_bytes + skipped)
        whole = self._pending + chunk[skipped:end]
        self._pending = b""
        pieces = whole.split(b"\n", lines_max)
        dropped = dropped_bytes = 0
        if len(pieces) > lines_max:
            refused = pieces.pop()
            dropped, dropped_bytes = refused.count(b"\n") + 1, len(refused) + 1
        logged = [_line(piece) for piece in pieces]
        dropped_bytes += sum(len(piece) - LINE_BYTES_MAX for piece in pieces if _is_long(piece))
        rest = self._begin(chunk[end + 1 :], lines_max - len(logged))
        return Lines(
            logged + rest.logged,
            dropped + rest.dropped,
            skipped + dropped_bytes + rest.dropped_bytes,
        )

    def end(self) -> Line | None:
        """Return the line that never got its newline, if there is one."""
        pending, self._pending = self._pending, b""
        return _line(pending) if pending else None

    def _begin(self, piece: bytes, lines_max: int) -> Lines:
        """Keep the beginning of a line, or cut it when it is too long."""
        pending = self._pending + piece
        if not _is_long(pending):
            self._pending = pending
            return Lines([])
        self._pending, self._is_skipping = b"", True
        if lines_max < 1:
            return Lines([], 1, len(pending))
        return Lines([_line(pending)], 0, len(pending) - LINE_BYTES_MAX)


def _is_long(piece: bytes) -> bool:
    return len(piece) > LINE_BYTES_MAX


def _line(piece: bytes) -> Line:
    return Line(piece[:LINE_BYTES_MAX], is_cut=_is_long(piece))


def units(line: Line) -> int:
    """Return what a line counts for in a ``RateLimit``."""
    return 1 + len(line.raw) // LINE_UNIT_BYTES


@dataclass(slots=True)
class RateLimit:
    """How many lines may be logged: ``burst`` after a pause, ``per_s`` in the long run."""

    per_s: float
    burst: float
    left: float = field(init=False)
    _at: float = 0.0

    def __post_init__(self) -> None:
        """Begin with all of the burst."""
        self.left = self.burst

    def at(self, now: float) -> int:
        """Return how many are left at ``now``, in monotonic seconds."""
        self.left = min(self.burst, self.left + max(0.0, now - self._at) * self.per_s)
        self._at = max(self._at, now)
        return max(0, int(self.left))

    def spend(self, count: int) -> None:
        """Take away ``count``; what is taken too much is waited for, as far as a burst goes."""
        self.left = max(-self.burst, self.left - count)


def readable(raw: bytes) -> str:
    """Return one line as text that no terminal takes for commands and no reader for two lines."""
    return raw.decode(errors="backslashreplace").translate(VISIBLE)


def pieces(line: Line) -> list[bytes]:
    """Return the parts of a line: text, and from the mark on a record; empty ones are none."""
    text, mark, record = line.raw.partition(RECORD_MARK)
    return [part for part in (text.removesuffix(b"\r"), mark + record) if part]


# --- records --------------------------------------------------------------------------------------

FIELDS_MAX: Final = 32
"""Of one record."""
DEPTH_MAX: Final = 4
"""Of lists and objects in a record's fields; what lies deeper is left out."""

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
UNNAMED: Final = "worker.logged"
"""The event of a record whose own is a sentence and not a name."""

_EVENT: Final = re.compile(r"[a-z_]{1,40}(?:\.[a-z_]{1,40}){1,3}")
_FIELD: Final = re.compile(r"[A-Za-z][\w-]{0,63}")
# What the daemon binds, and what its own log processors would act on.
_BOUND: Final = frozenset({"session_id", "incarnation", "pid", "stream", "worker_id"})
_PROCESSED: Final = frozenset(
    {"event", "level", "timestamp", "exception", "exc_info", "stack", "stack_info", "logger"}
)
_INT_MAX: Final = 2**63 - 1
"""Beyond it a log format may have no number for it."""
_LEFT_OUT: Final = "…"


@dataclass(frozen=True, slots=True)
class Record:
    """A log record that a worker wrote, with nothing in it that is not a worker's to say."""

    level: int
    event: str
    fields: dict[str, object]


def read_record(piece: bytes) -> Record | None:
    """Return the record that ``piece`` is, or None where it is text."""
    if not piece.startswith(RECORD_MARK):
        return None
    try:
        given = msgspec.json.decode(piece[len(RECORD_MARK) :], type=dict[str, Any])  # Any: JSON
    except (ValueError, RecursionError):
        return None
    event, level = given.get("event"), given.get("level")
    if not isinstance(event, str) or not isinstance(level, str) or level not in LEVELS:
        return None
    names = [name for name in given if _FIELD.fullmatch(name) and name not in _BOUND | _PROCESSED]
    fields = {name: _neutral(given[name], 1) for name in names[:FIELDS_MAX]}
    if isinstance(text := given.get("exception"), str):
        # Indented, so that no line of it can pose as a line of the log.
        fields["exception"] = "  " + text.translate(VISIBLE_LINES).replace("\n", "\n  ")
    if _EVENT.fullmatch(event) is None:
        fields["text"], event = event.translate(VISIBLE), UNNAMED
    return Record(LEVELS[level], event, fields)


def _neutral(value: Any, depth: int) -> object:  # Any: JSON
    match value:
        case str():
            return value.translate(VISIBLE)
        case bool() | float() | None:
            return value
        case int():
            return value if abs(value) <= _INT_MAX else _LEFT_OUT
        case _ if depth > DEPTH_MAX:
            return _LEFT_OUT
        case dict():
            return {str(_neutral(key, depth)): _neutral(value[key], depth + 1) for key in value}
        case _:
            return [_neutral(inner, depth + 1) for inner in value]


# --- the end of stderr ----------------------------------------------------------------------------

TAIL_BYTES_MAX: Final = 4 * 1024
"""Of the end of stderr, in a report."""
TAIL_KEPT_BYTES_MAX: Final = 16 * 1024
"""Of stderr in memory: records and the list of a dump's modules are taken out of it for the tail,
and what is left should still be as long."""
_RECORD: Final = re.compile(re.escape(RECORD_MARK) + rb"[^\n]*\n?")
_MODULES: Final = re.compile(r"^Extension modules: .*\n?", re.MULTILINE)
_FATAL: Final = "Fatal Python error: "


class Tail:
    """The end of what a worker wrote on its stderr; ``text`` may be asked for from any thread."""

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


# --- its lines and its stacks ---------------------------------------------------------------------

OUTPUT_BYTES_MAX: Final = 4 * 2**10
"""Of the output that a Down has, whose end is kept: some 50 lines."""
STACK_BYTES_MAX: Final = 8 * 2**10
"""Of the stacks that a Down has, whose beginning is kept: some 100 frames."""

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
