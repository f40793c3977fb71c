"""Log lines of a worker: as records for its daemon, or as plain lines where nobody reads records.

A record is one JSON object on one line with a mark in front (``cmdc_runtime.lines``). The
daemon adds session, process and time, takes secrets out and drops what is below its own level. What
stood in a frame's variables is never shown: structlog's own default does, with keys, prompts and
tool arguments.
"""

import sys
from collections.abc import MutableMapping
from typing import Any, BinaryIO, Final

import msgspec
import structlog
from structlog.typing import Processor, WrappedLogger

from cmdc_runtime.lines import LINE_BYTES_MAX, RECORD_MARK

TEXT_CHARS_MAX: Final = 1_000
"""Of each field but the traceback, in a record that would be too long."""
TRACEBACK_CHARS_MAX: Final = 4_000
"""Of a traceback in such a record: its first lines, and more of its last ones."""
FIELDS_BYTES_MAX: Final = LINE_BYTES_MAX - len(RECORD_MARK)

_HEAD_CHARS: Final = 1_000
_GAP: Final = "\n  ...\n"


def configure_logs(level: str, *, as_records: bool, file: BinaryIO | None = None) -> None:
    """Write the log lines of this process from ``level`` up to ``file``, or to standard error."""
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
    ]
    structlog.configure(
        processors=[*common, *(_RECORDS if as_records else _PLAIN)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(file or sys.stderr.buffer),
    )


def render_record(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> bytes:  # Any: whatever was logged; what JSON does not know is written as its repr
    """Return the line of a record; one that would be too long is shortened."""
    line = _encoded(event)
    if len(line) > FIELDS_BYTES_MAX:
        line = _encoded({name: _short(name, value) for name, value in event.items()})
    if len(line) > FIELDS_BYTES_MAX:
        kept = {name: event[name] for name in ("event", "level")}
        line = _encoded({name: str(value)[:TEXT_CHARS_MAX] for name, value in kept.items()})
    return RECORD_MARK + line


def _encoded(event: MutableMapping[str, Any]) -> bytes:  # Any: as above
    try:
        return msgspec.json.encode(event, enc_hook=repr)
    except (TypeError, ValueError, RecursionError):  # a key, half a surrogate, a ring
        return msgspec.json.encode({name: _ascii(value) for name, value in event.items()})


def _ascii(value: object) -> str:
    return value if isinstance(value, str) and value.isascii() else ascii(value)


def _short(name: str, value: object) -> object:
    text = value if isinstance(value, str) else repr(value)
    if name == "exception":
        if len(text) <= TRACEBACK_CHARS_MAX:
            return text
        last = TRACEBACK_CHARS_MAX - _HEAD_CHARS - len(_GAP)
        return text[:_HEAD_CHARS] + _GAP + text[-last:]
    return text[:TEXT_CHARS_MAX] if len(text) > TEXT_CHARS_MAX else value


def _render_bytes(_logger: WrappedLogger, _method: str, line: object) -> bytes:
    return str(line).encode(errors="backslashreplace")


_RECORDS: Final[list[Processor]] = [structlog.processors.format_exc_info, render_record]
_PLAIN: Final[list[Processor]] = [
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    # The renderer is not the last one here, so its text goes on where a dict is declared.
    _render_bytes,
]
