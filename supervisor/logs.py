"""Log lines of the daemon: structlog straight to standard error, without the logging module.

An event is a literal ``noun.past_participle`` with fields; ``session_id`` is bound by contextvars
at the edge. Secrets are taken out at the sink, behind everything that could add one: by the name
of a field at any depth, and by ``name=value`` inside tracebacks, whose locals are never shown.

Who logs never waits: ``log_sink`` has the queue and the thread. What is queued when the process
ends is written then, within a bound.
"""

import atexit
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from types import TracebackType
from typing import Any, BinaryIO, Final, Literal

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from supervisor.log_sink import EXIT_FLUSH_S, STDERR, Losses, Sink

Level = Literal["debug", "info", "warning", "error"]

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
        self.sink = Sink(None, _tell_losses)
        self.severity_min = _SEVERITY["info"]

    def begin_anew(self) -> None:
        """Take over in a forked child."""
        self.sink.begin_anew()


def configure_logs(
    level: Level, log_format: Literal["console", "json"], stream: BinaryIO | None = None
) -> None:
    """Send the log lines of this process from ``level`` up to ``stream``, or standard error.

    What was sent to another stream before is written to that, as far as it takes it now.
    """
    set_level(level)
    sys.excepthook = _crash
    _process.sink.flush(EXIT_FLUSH_S)
    _process.sink = Sink(stream, _tell_losses)
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


def set_level(level: Level) -> None:
    """Keep the lines from ``level`` up, from now on."""
    _process.severity_min = _SEVERITY[level]


def flush_logs(bound_s: float = EXIT_FLUSH_S) -> bool:
    """Return when every line is written, or False after ``bound_s``; lines may follow."""
    return _process.sink.flush(bound_s)


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


def _tell_losses(lost: Losses) -> None:
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
