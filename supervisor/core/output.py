"""What becomes of the bytes that a worker writes: lines for the log.

Everything here is bounded, whatever the bytes are: a line is cut, a flood is counted and not kept,
and text is made fit for a terminal. Lines that are records are read in ``output_records``; last
words are kept in ``tail``.
"""

from dataclasses import dataclass, field
from typing import Final

from cmdc_runtime.lines import LINE_BYTES_MAX, RECORD_MARK, VISIBLE

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
    """What a chunk held: lines to tell, and how much is not told."""

    told: list[Line]
    dropped: int = 0
    dropped_bytes: int = 0


class LineCutter:
    """Makes lines of the chunks of one stream; keeps less than ``LINE_BYTES_MAX`` of them."""

    def __init__(self) -> None:
        """Begin at the beginning of a line."""
        self._pending = b""
        self._is_skipping = False

    def feed(self, chunk: bytes, lines_max: int) -> Lines:
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
            return Lines(rest.told, rest.dropped, rest.dropped_bytes + skipped)
        whole = self._pending + chunk[skipped:end]
        self._pending = b""
        pieces = whole.split(b"\n", lines_max)
        dropped = dropped_bytes = 0
        if len(pieces) > lines_max:
            refused = pieces.pop()
            dropped, dropped_bytes = refused.count(b"\n") + 1, len(refused) + 1
        told = [_line(piece) for piece in pieces]
        dropped_bytes += sum(len(piece) - LINE_BYTES_MAX for piece in pieces if _is_long(piece))
        rest = self._begin(chunk[end + 1 :], lines_max - len(told))
        return Lines(
            told + rest.told,
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
    """Return what a line counts for in an ``Allowance``."""
    return 1 + len(line.raw) // LINE_UNIT_BYTES


@dataclass(slots=True)
class Allowance:
    """How many lines may be told: ``burst`` after a pause, ``per_s`` in the long run."""

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
