"""The options of plugins that only look: the event log and the telemetry."""

import re
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from cmdc_runtime.packing import BuiltInPlugin, Function
from cmdc_runtime.plain import short

# --- event logger ---------------------------------------------------------------------------------

LINE_BYTES_MAX: Final = 65_536
"""Of one line of the log; what an event has beyond it is cut, and the line says so."""
SESSION_PLACEHOLDER: Final = "{session_id}"
"""What stands in a path for the id of the session."""
_BRACED: Final = re.compile(r"\{[^{}]*\}")

_Path = Annotated[str, Meta(min_length=1, max_length=4096)]


class EventLogger(BuiltInPlugin, frozen=True, kw_only=True):
    """Writes what the session does into a file, one JSON object a line.

    Its keys are ``ts`` (ISO 8601, milliseconds, UTC), ``session``, ``event``, ``data``, ``level``
    and ``turn``. The file is for its owner's eyes alone: it and the folders that are made for it
    are closed to others. Lines are written a little after their events, so the last ones of a
    process that is killed may be missing. A file that cannot be written any more harms no session:
    a warning says so, and the log ends there until the session has its next process.
    """

    short_name: ClassVar[str] = "event_logger"
    level: Literal["debug", "info", "warning", "warn"] = "info"
    """The least level that is written ("warn" is "warning"); pieces of answers are "debug"."""
    log_dir: _Path | None = None
    """The folder of ``{session_id}.jsonl``; None is ``.cmdc/logs`` in the session's working
    folder, to which a relative path is relative. ``~`` is the home of who runs the daemon."""
    log_file: _Path | None = None
    """The file itself, in place of one in ``log_dir``. Sessions may share it; ``{session_id}`` in
    it, or in ``log_dir``, is the id of the session."""
    include_args: bool = True
    """False leaves out what people, the model and tools say: prompts, answers, the arguments and
    results of tools, and what plugins emit."""
    max_bytes: Annotated[int, Meta(ge=LINE_BYTES_MAX, le=2**40)] = 50_000_000
    """The size at which the file becomes ``<file>.1``, and that one ``<file>.2``."""
    backups: Annotated[int, Meta(ge=0, le=100)] = 3
    """How many such older files are kept; 0 throws a full file away."""

    def __post_init__(self) -> None:
        """Check the paths.

        Raises:
            ValueError: a path has a placeholder that means nothing.
        """
        for option in ("log_dir", "log_file"):
            for braced in _BRACED.findall(getattr(self, option) or ""):
                if braced != SESSION_PLACEHOLDER:
                    raise ValueError(
                        f"{option} has {braced!r}: the one placeholder is {SESSION_PLACEHOLDER!r}"
                    )


# --- telemetry ------------------------------------------------------------------------------------

CONSOLE: Final = "console"
"""In the place of an endpoint: standard error, which is the daemon's log."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Telemetry(BuiltInPlugin, frozen=True, kw_only=True):
    """Reports what the session does to an OpenTelemetry collector: traces and metrics.

    Spans and metrics follow the semantic conventions for generative AI: ``invoke_agent`` is a
    cycle, with a ``chat`` for each request to the model and an ``execute_tool`` for each call in
    it. That of a subagent or branch is in the span of the call or branch that started it. A span
    that is open when its process dies is lost, and what stands in it names a parent that no
    collector has: the trace is the same. It needs the extra ``otel`` where the daemon runs.
    """

    short_name: ClassVar[str] = "telemetry"
    service_name: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    """The resource's ``service.name``; None is ``OTEL_SERVICE_NAME``, else "cmdc"."""
    endpoint: Annotated[str, Meta(min_length=1, max_length=2048)] | None = None
    """The URL of a collector that takes OTLP over HTTP, such as ``http://localhost:4318``; the
    paths ``/v1/traces`` and ``/v1/metrics`` are added. None is what the daemon's environment says
    (``OTEL_EXPORTER_OTLP_ENDPOINT`` and the like). "console" writes to the daemon's log."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with each request, beside those of the environment."""
    capture_content: bool = False
    """True adds prompts, answers, the arguments and results of tools, and the texts of errors."""
    export_interval: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """Seconds until something new is sent, at the latest; nothing is sent where nothing is new.
    What has not been sent is lost when the process crashes."""
    metrics: bool = True
    """False sends traces alone."""
    exporter: Function | None = None
    """A function without arguments that returns another exporter than OTLP over HTTP: a
    ``SpanExporter`` of OpenTelemetry's SDK, or a pair of it and a ``MetricExporter``. It is called
    in the agent."""

    def __post_init__(self) -> None:
        """Check the endpoint and the headers.

        Raises:
            ValueError: one cannot be used, or they contradict the exporter.
        """
        if self.endpoint is not None and self.endpoint != CONSOLE:
            _check_url(self.endpoint)
        for name, value in self.headers.items():
            # The value may be a key, so it is not shown.
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError(
                    f"headers has {name!r}, which no HTTP header can be: give a name of letters,"
                    " digits and hyphens, and a value of one line"
                )
        if self.exporter is not None and (self.endpoint is not None or self.headers):
            raise ValueError(
                "exporter is given, and endpoint or headers too: an exporter of your own knows"
                " where to send by itself, so leave them out"
            )


def _check_url(endpoint: str) -> None:
    try:
        url = urlsplit(endpoint)
        is_url = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url or any(sign in endpoint for sign in "?# \r\n\t"):
        raise ValueError(
            f"endpoint is {short(endpoint, ('endpoint',))}: give a URL such as"
            f' "http://localhost:4318", or "{CONSOLE}"'
        )
