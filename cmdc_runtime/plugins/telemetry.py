"""The options of the telemetry."""

import re
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from msgspec import Meta, field

from cmdc_runtime.packing import BuiltInPlugin, Function
from cmdc_runtime.plain import short

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
