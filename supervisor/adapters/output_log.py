"""What workers write, as records of the daemon's log; for one thread.

A line of text is ``worker.wrote``; a line that is a record keeps its event, level and fields. Whose
it is, is bound here, and nothing that a worker writes can change it. Secrets of the form
``name=value`` are taken out. A record in the log that has a ``stream`` was written by a worker, or
by what it has started. What goes beyond the allowance of a worker, or of all together, is counted,
and ``output.dropped`` reports it once a second.
"""

import contextlib
import os
import select
import time
from dataclasses import dataclass, field
from typing import Final

import structlog

from cmdc_runtime.lines import TOOL_WROTE, Stream
from supervisor.core.output import (
    LINES_BURST,
    LINES_PER_S,
    Line,
    LineCutter,
    RateLimit,
    Tail,
    pieces,
    read_record,
    readable,
    units,
)
from supervisor.logs import redact_text

REPORT_S: Final = 1.0
"""Between two records of what was dropped."""
TOTAL_LINES_PER_S: Final = 2_000
"""Of all workers together; one takes some 50 us, so this is a tenth of a core."""
TOTAL_LINES_BURST: Final = 10_000
"""The same after a pause."""
QUIET_LINES: Final = LINES_BURST // 2
"""What a worker has of its own allowance beyond this it may use whatever the others write: who has
written little lately is heard."""
YIELD_LINES: Final = 16
"""Records made at a stretch, which takes less than a millisecond; then others have their turn."""
YIELD_S: Final = 0.000_05
"""Long enough for a thread that waits for the interpreter to get it."""
ECHOED_BYTES_MAX: Final = select.PIPE_BUF
"""Of one line: so much goes into a pipe that has room at once."""

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class WorkerOutput:
    """One worker that writes: whose its lines are, the end of its stderr, what was dropped."""

    bound: dict[str, object]
    """Replaced as a whole, by any thread."""
    is_named: bool = False
    tail: Tail = field(default_factory=Tail)
    rate_limit: RateLimit = field(default_factory=lambda: RateLimit(LINES_PER_S, LINES_BURST))
    dropped_lines: int = 0
    dropped_bytes: int = 0


class OutputLog:
    """Logs what workers write, and once in ``REPORT_S`` how much it could not log."""

    def __init__(self, echo_fd: int | None = None) -> None:
        """Begin with nothing logged; ``echo_fd`` gets what tools print, as far as it has room."""
        self._echo_fd = echo_fd
        self._total = RateLimit(TOTAL_LINES_PER_S, TOTAL_LINES_BURST)
        self._unreported: dict[WorkerOutput, None] = {}
        self._refused = 0
        self._logged = 0
        self.report_at: float | None = None
        """When ``report_losses`` is due, in monotonic seconds."""

    def take(self, worker: WorkerOutput, stream: Stream, cutter: LineCutter, chunk: bytes) -> None:
        """Log the lines of one chunk, as many as the worker may write now."""
        if stream == "err":
            worker.tail.add(chunk)
        lines = cutter.cut(chunk, self._allowed(worker))
        for line in lines.logged:
            self._report(worker, stream, line)
        if lines.dropped_bytes:
            self._drop(worker, lines.dropped, lines.dropped_bytes)

    def end(self, worker: WorkerOutput, stream: Stream, cutter: LineCutter) -> None:
        """Log the last line of a stream, which had no newline."""
        line = cutter.end()
        if line is not None and self._allowed(worker):
            self._report(worker, stream, line)
        elif line is not None:
            self._drop(worker, 1, len(line.raw))

    def refuse(self, count: int) -> None:
        """Count connections that were closed, to be reported with the rest."""
        self._refused += count
        if count:
            self._report_soon()

    def report_losses(self) -> None:
        """Log what was dropped since the last time."""
        unreported, self._unreported, self.report_at = self._unreported, {}, None
        for worker in unreported:
            self.report_loss(worker)
        if self._refused:
            log.warning("output.refused", connections=self._refused)
            self._refused = 0

    def report_loss(self, worker: WorkerOutput) -> None:
        """Log what was dropped of one worker."""
        lost = {"lines": worker.dropped_lines, "bytes": worker.dropped_bytes}
        worker.dropped_lines = worker.dropped_bytes = 0
        if lost["bytes"]:
            log.warning("output.dropped", **(lost | worker.bound))

    def _allowed(self, worker: WorkerOutput) -> int:
        now = time.monotonic()
        own, total = worker.rate_limit.at(now), self._total.at(now)
        return max(min(own, total), own - QUIET_LINES)

    def _drop(self, worker: WorkerOutput, lines: int, size_bytes: int) -> None:
        worker.dropped_lines += lines
        worker.dropped_bytes += size_bytes
        self._unreported[worker] = None
        self._report_soon()

    def _report_soon(self) -> None:
        if self.report_at is None:
            self.report_at = time.monotonic() + REPORT_S

    def _report(self, worker: WorkerOutput, stream: Stream, line: Line) -> None:
        count = units(line)
        worker.rate_limit.spend(count)
        self._total.spend(count)
        whose = worker.bound | {"stream": stream}
        for piece in pieces(line):
            record = read_record(piece)
            if record is None:
                cut = {"is_cut": True} if line.is_cut else {}
                log.info("worker.wrote", line=redact_text(readable(piece)), **cut, **whose)
            else:
                fields = _redacted(record.fields)
                log.log(record.level, record.event, **(fields | whose))
                if record.event == TOOL_WROTE:
                    name = f"{whose.get('session_id')} {fields.get('tool')}"
                    self._echo(f"[{name}] {fields.get('line')}")
        self._logged += 1
        if self._logged % YIELD_LINES == 0:
            time.sleep(YIELD_S)

    def _echo(self, line: str) -> None:
        """Show a line to whoever runs an embedded daemon, unless that would wait."""
        if self._echo_fd is None:
            return
        poll = select.poll()
        poll.register(self._echo_fd, select.POLLOUT)
        with contextlib.suppress(OSError):
            if [event for _, event in poll.poll(0) if event == select.POLLOUT]:
                text = line.encode(errors="replace")[: ECHOED_BYTES_MAX - 1]
                os.write(self._echo_fd, text + b"\n")


def _redacted(fields: dict[str, object]) -> dict[str, object]:
    return {
        name: redact_text(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }
