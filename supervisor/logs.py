"""Log lines of the daemon: structlog straight to standard error, without the logging module.

An event is a literal ``noun.past_participle`` with fields; ``session_id`` is bound by contextvars
at the edge. Secrets are taken out at the sink, behind everything that could add one: by the name of
a field at any depth, and by ``name=value`` inside tracebacks, whose locals are never shown.

Who logs never waits: ``Sink`` has the queue and the thread. What is queued when the process ends is
written then, within a bound.
"""

import atexit
import contextlib
import errno
import os
import re
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Literal, TypeAlias

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# --- the sink -------------------------------------------------------------------------------------

STDERR: Final = 2
LINES_QUEUED_MAX: Final = 10_000
"""About what a daemon writes in minutes; a burst of restarts fits."""
BYTES_QUEUED_MAX: Final = 8 * 2**20
"""Of these lines together."""
WRITE_BYTES_MAX: Final = select.PIPE_BUF
"""Lines that go in one write. A pipe takes as much at once or not at all, so what others write to
standard error comes between lines and not into them."""
RETRY_S: Final = 0.5
"""Between two tries of a write that fails: a full disk is not asked more often."""
EXIT_FLUSH_S: Final = 2.0
"""For the queue to be written when the process ends; a reader that is gone takes no longer."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What a sink could not write."""

    dropped_lines: int = 0
    dropped_bytes: int = 0
    write_errors: int = 0


class Sink:
    """One stream and its queue; ``report`` is called, on the thread, with what was dropped.

    Rules: ``put`` never waits and never raises, whatever became of the reader or the disk; a full
    queue drops the newest lines and counts them, and reports it when there is room; a write that
    fails is tried again, so what was queued comes once that is possible. The thread starts with the
    first line and ends with ``flush``; the next line starts one again, in a forked child too.
    """

    def __init__(self, stream: BinaryIO | None, report: Callable[[Losses], None]) -> None:
        """Write to ``stream`` by its descriptor, where it has one; None is standard error."""
        self._stream = stream
        self._report = report
        self._turn = threading.Condition()
        self._hurry = threading.Event()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._is_ending = False
        self._unreported = Losses()
        self.losses = Losses()
        """All of them, reported or not."""

    def put(self, line: bytes) -> None:
        """Queue one line, without its newline, or drop it."""
        with self._turn:
            size = len(line) + 1
            if len(self._lines) >= LINES_QUEUED_MAX or self._bytes + size > BYTES_QUEUED_MAX:
                self._note(Losses(dropped_lines=1, dropped_bytes=size))
                return
            self._lines.append(line + b"\n")
            self._bytes += size
            if self._thread is None:
                self._start()
            elif len(self._lines) == 1:  # the thread waits for nothing else
                self._turn.notify_all()

    def flush(self, bound_s: float) -> bool:
        """Write what is queued and end the thread; False if that took longer than ``bound_s``.

        A write that fails meanwhile is not tried again.
        """
        deadline = time.monotonic() + bound_s
        with self._turn:
            if self._thread is None and self._lines:
                self._start()
            self._is_ending = True
            self._hurry.set()
            self._turn.notify_all()
            try:
                while self._thread is not None:
                    if (left_s := deadline - time.monotonic()) <= 0:
                        return False
                    self._turn.wait(left_s)
            finally:
                self._is_ending = False
                self._hurry.clear()
            return not self._lines

    def begin_anew(self) -> None:
        """Forget thread, locks and queue: they are the parent's, and this is its child."""
        self._turn = threading.Condition()
        self._hurry = threading.Event()
        self._lines, self._bytes = deque(), 0
        self._thread, self._is_ending = None, False

    def _start(self) -> None:
        thread = threading.Thread(target=self._main, name="log", daemon=True)
        # No thread is to be had, now or at the interpreter's end: the next line tries again.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def _note(self, lost: Losses) -> None:
        self._unreported = _added(self._unreported, lost)
        self.losses = _added(self.losses, lost)

    # Everything below runs on the thread.

    def _main(self) -> None:
        try:
            while batch := self._next():
                if self._write(memoryview(batch)):
                    self._report_losses()
        finally:
            with self._turn:  # after a fault of ours, too: the next line starts another
                if self._thread is threading.current_thread():
                    self._thread = None
                    self._turn.notify_all()

    def _next(self) -> bytes:
        """Wait for lines and take them; nothing when the thread is to end."""
        with self._turn:
            while not self._lines:
                if self._is_ending:
                    self._thread = None
                    self._turn.notify_all()
                    return b""
                self._turn.wait()
            batch = [self._lines.popleft()]
            size = len(batch[0])
            while self._lines and size + len(self._lines[0]) <= WRITE_BYTES_MAX:
                batch.append(self._lines.popleft())
                size += len(batch[-1])
            self._bytes -= size
        return b"".join(batch)

    def _write(self, rest: memoryview) -> bool:
        """Write all of it, whenever that may be; False when it fails and the end has come."""
        while rest:
            try:
                rest = rest[self._write_some(rest) :]
            except (OSError, ValueError) as error:  # ValueError: somebody closed the stream
                if isinstance(error, OSError) and error.errno == errno.EAGAIN:
                    self._wait_writable()
                    continue
                with self._turn:
                    self._note(Losses(write_errors=1))
                    if self._is_ending:
                        lines = bytes(rest).count(b"\n")
                        self._note(Losses(dropped_lines=lines, dropped_bytes=len(rest)))
                        return False
                self._hurry.wait(RETRY_S)
        return True

    def _write_some(self, rest: memoryview) -> int:
        stream = self._stream
        if stream is None:
            return os.write(STDERR, rest)
        try:
            fd = stream.fileno()
        except OSError:  # a stream in memory has none
            stream.write(rest)
            stream.flush()
            return len(rest)
        return os.write(fd, rest)

    def _wait_writable(self) -> None:
        """Wait for room in a pipe that somebody made non-blocking, for all who share it."""
        poll = select.poll()
        poll.register(STDERR if self._stream is None else self._stream.fileno(), select.POLLOUT)
        poll.poll(RETRY_S * 1e3)

    def _report_losses(self) -> None:
        """Report what was dropped, as soon as there is room."""
        with self._turn:
            unreported = self._unreported
            has_room = (
                len(self._lines) <= LINES_QUEUED_MAX // 2 and self._bytes <= BYTES_QUEUED_MAX // 2
            )
            if not unreported.dropped_lines or not has_room:
                return
            self._unreported = Losses()
        self._report(unreported)


def _added(one: Losses, other: Losses) -> Losses:
    return Losses(
        one.dropped_lines + other.dropped_lines,
        one.dropped_bytes + other.dropped_bytes,
        one.write_errors + other.write_errors,
    )


# --- lines ----------------------------------------------------------------------------------------

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

REDACTED: Final = "[redacted]"
REDACTION_DEPTH_MAX: Final = 4
"""Nesting that is searched; what lies deeper is left out as a whole."""

# What ends in one of these is secret: ``x-api-key``, ``authToken``; ``tokens`` and ``token_usage``
# are counts.
_WORDS: Final = (
    "api[_-]?key|authorization|cookie|credentials?|pass(?:word|phrase|wd)|private[_-]?key"
    "|secret(?:[_-]?key)?|token"
)
_SECRET_NAME: Final = re.compile(rf".*(?:{_WORDS})", re.IGNORECASE)
# Begins at the word and not at the name that ends with it: whoever writes a line of 8 KiB must not
# make this search go over it again and again.
_SECRET_IN_TEXT: Final = re.compile(
    rf"(?P<name>(?:{_WORDS})[\"']?\s*[=:]\s*)"
    r"(?:(?:Bearer|Basic)\s+)?(?:\"[^\"]*\"|'[^']*'|[^\s,;)}]+)",
    re.IGNORECASE,
)
_SEVERITY: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class _Lines:
    """What structlog hands a rendered line to: the sink of the moment."""

    __slots__ = ()

    def msg(self, line: bytes) -> None:
        """Queue one line."""
        _process.sink.put(line)

    debug = info = warning = error = critical = msg


class _Process:
    """What there is once in a process: the sink, and from which level on lines are kept."""

    def __init__(self) -> None:
        self.sink = Sink(None, _report_losses)
        self.severity_min = _SEVERITY["info"]

    def begin_anew(self) -> None:
        """Take over in a forked child."""
        self.sink.begin_anew()


def configure_logs(
    level: LogLevel, log_format: Literal["console", "json"], stream: BinaryIO | None = None
) -> None:
    """Send the log lines of this process from ``level`` up to ``stream``, or standard error.

    What was sent to another stream before is written to that, as far as it takes it now.
    """
    set_level(level)
    sys.excepthook = _crash
    _process.sink.flush(EXIT_FLUSH_S)
    _process.sink = Sink(stream, _report_losses)
    has_colours = os.isatty(STDERR) if stream is None else stream.isatty()
    structlog.configure(
        processors=[
            _drop_below_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            *_RENDERERS[log_format](has_colours),
        ],
        # Lets everything pass: loggers are made once, and the level may be set again.
        wrapper_class=structlog.make_filtering_bound_logger("debug"),
        logger_factory=lambda *_: _Lines(),
        cache_logger_on_first_use=True,
    )


def set_level(level: LogLevel) -> None:
    """Keep the lines from ``level`` up, from now on."""
    _process.severity_min = _SEVERITY[level]


def flush_logs(bound_s: float = EXIT_FLUSH_S) -> bool:
    """Return when every line is written, or False after ``bound_s``; lines may follow."""
    return _process.sink.flush(bound_s)


def log_path() -> str:
    """Return the file that standard error goes to, "" where it is none: a terminal, a pipe."""
    try:
        is_file = stat.S_ISREG(os.fstat(STDERR).st_mode)
        return str(Path(f"/proc/self/fd/{STDERR}").readlink()) if is_file else ""
    except OSError:
        return ""


def log_losses() -> Losses:
    """Return what could not be written to the present stream so far."""
    return _process.sink.losses


def redact_text(text: str) -> str:
    """Return ``text`` with the values of ``name=value`` taken out where the name says secret."""
    return _SECRET_IN_TEXT.sub(rf"\g<name>{REDACTED}", text)


def _crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback that ends the process behind the log's lines, and not between them."""
    flush_logs()
    sys.__excepthook__(kind, error, trace)


def _drop_below_level(_logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if _SEVERITY[method] < _process.severity_min:
        raise structlog.DropEvent
    return event


def _report_losses(lost: Losses) -> None:
    structlog.get_logger().warning(
        "log.dropped",
        lines=lost.dropped_lines,
        bytes=lost.dropped_bytes,
        write_errors=lost.write_errors,
    )


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the values of fields whose name says that they are secret."""
    clean: EventDict = {name: _clean(name, value, 1) for name, value in event.items()}
    if isinstance(text := clean.get("exception"), str):
        clean["exception"] = redact_text(text)
    return clean


def _clean(name: object, value: object, depth: int) -> object:
    if isinstance(name, str) and _SECRET_NAME.fullmatch(name):
        return REDACTED
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth > REDACTION_DEPTH_MAX:
        return REDACTED
    if isinstance(value, Mapping):
        return {key: _clean(key, inner, depth + 1) for key, inner in value.items()}
    return [_clean(None, inner, depth + 1) for inner in value]


def _render_json(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> bytes:  # Any: whatever was logged; what JSON does not know is written as its repr
    try:
        return msgspec.json.encode(event, enc_hook=repr)
    except (TypeError, ValueError, RecursionError):  # a key, half a surrogate, a ring
        return msgspec.json.encode({name: _ascii(value) for name, value in event.items()})


def _ascii(value: object) -> str:
    return value if isinstance(value, str) and value.isascii() else ascii(value)


def _render_bytes(_logger: WrappedLogger, _method: str, line: object) -> bytes:
    return str(line).encode(errors="backslashreplace")


def _console(has_colours: bool) -> list[Processor]:  # noqa: FBT001 - as in the table below
    pretty = structlog.dev.ConsoleRenderer(
        colors=has_colours, exception_formatter=structlog.dev.plain_traceback
    )
    # The renderer is not the last one here, so its text goes on where a dict is declared.
    return [pretty, _render_bytes]


def _json(_has_colours: bool) -> list[Processor]:  # noqa: FBT001 - as in the table below
    return [_render_json]


_RENDERERS: Final = {"console": _console, "json": _json}

_process: Final = _Process()
atexit.register(flush_logs)
os.register_at_fork(after_in_child=_process.begin_anew)
