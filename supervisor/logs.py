"""Log lines of the daemon: structlog straight to standard error, without the logging module.

An event is a literal ``noun.past_participle`` with fields; ``session_id`` is bound by contextvars
at the edge. Secrets are taken out at the sink, behind everything that could add one: by the name
of a field at any depth, and by ``name=value`` inside tracebacks, whose locals are never shown.
"""

import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, BinaryIO, Final, Literal

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

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
_SECRET_IN_TEXT: Final = re.compile(
    rf"(?P<name>\b[\w-]*(?:{_WORDS})[\"']?\s*[=:]\s*)"
    r"(?:(?:Bearer|Basic)\s+)?(?:\"[^\"]*\"|'[^']*'|[^\s,;)}]+)",
    re.IGNORECASE,
)


def configure_logs(
    level: Literal["debug", "info", "warning", "error"],
    log_format: Literal["console", "json"],
    stream: BinaryIO | None = None,
) -> None:
    """Send the log lines of this process from ``level`` up to ``stream``, or standard error."""
    sink = stream or sys.stderr.buffer
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    structlog.configure(
        processors=[*common, *_RENDERERS[log_format](sink)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(sink),
        cache_logger_on_first_use=True,
    )


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the values of fields whose name says that they are secret."""
    clean: EventDict = {name: _clean(name, value, 1) for name, value in event.items()}
    if isinstance(text := clean.get("exception"), str):
        clean["exception"] = _SECRET_IN_TEXT.sub(rf"\g<name>{REDACTED}", text)
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
    return msgspec.json.encode(event, enc_hook=repr)


def _render_bytes(_logger: WrappedLogger, _method: str, line: object) -> bytes:
    return str(line).encode(errors="backslashreplace")


def _console(sink: BinaryIO) -> list[Processor]:
    pretty = structlog.dev.ConsoleRenderer(
        colors=sink.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    # The renderer is not the last one here, so its text goes on where a dict is declared.
    return [pretty, _render_bytes]


def _json(_sink: BinaryIO) -> list[Processor]:
    return [_render_json]


_RENDERERS: Final = {"console": _console, "json": _json}
