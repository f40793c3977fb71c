"""Spans and metrics by OpenTelemetry's SDK: what operations say, no more.

The one module that imports OpenTelemetry; it is imported in the thread of the telemetry, and never
where the plugin is not used. The SDK's own processors are not used: each has a thread that wakes up
although nothing has happened, and a flush without bound. Here one thread (``outlet``) does all,
and exporters are called from it alone. Nothing global is set: an application may use OpenTelemetry
for itself.
"""

import logging
import math
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import structlog
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.sdk.environment_variables import OTEL_SERVICE_NAME
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from cmdc_runtime.extensions.tool import resolve
from cmdc_runtime.plugins.observers import CONSOLE, Telemetry
from cmdc_runtime.tracing import SpanParent
from cmdc_runtime.version import VERSION
from workers.builtin.telemetry.names import ERROR_TYPE, INSTRUMENTS
from workers.builtin.telemetry.spans import (
    AddAttributes,
    AddSpanEvent,
    AddToMetric,
    Attributes,
    EndSpan,
    OpenSpan,
    Operation,
    Value,
)

log = structlog.get_logger()

SPANS_MAX: Final = 512
"""Of one request to a collector."""
SCOPE: Final = "cmdc_runtime"
DEFAULT_SERVICE: Final = "cmdc"
_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_TRACES_PATH: Final = "/v1/traces"
_METRICS_PATH: Final = "/v1/metrics"
_ERROR_CHARS_MAX: Final = 500
_PAIR: Final = 2


class Telemeter:
    """Carries operations out, and sends what came of them."""

    def __init__(self, config: Telemetry) -> None:
        """Make the exporters as the options and the environment say; nothing is sent yet."""
        self._ended = _Ended()
        self._last_complaint = _LastComplaint()
        self._is_failing = self._is_measured = False
        self._lost = 0
        self._open: dict[str, Span] = {}
        # Whoever has no handler gets each message on standard error, again at each interval.
        logging.getLogger("opentelemetry").addHandler(self._last_complaint)
        resource = _resource(config)
        self._spans, metrics = _exporters(config)
        self._ids = _Ids()
        traces = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        self._sampler = traces.sampler
        traces.add_span_processor(self._ended)
        self._tracer = traces.get_tracer(SCOPE, VERSION)
        self._reader = None if metrics is None else _Reader(metrics)
        readers = [] if self._reader is None else [self._reader]
        meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._instruments = _instruments(meters.get_meter(SCOPE, VERSION))

    def apply(self, operations: Iterable[Operation]) -> None:
        """Carry them out, in their order."""
        for operation in operations:
            match operation:
                case OpenSpan():
                    self._begin(operation)
                case AddSpanEvent(key, name, at_ns, attributes):
                    self._open[key].add_event(name, _clean(attributes), at_ns)
                case AddAttributes(key, attributes):
                    self._open[key].set_attributes(_clean(attributes))
                case EndSpan():
                    self._end(operation)
                case AddToMetric(instrument, value, attributes):
                    self._measure(instrument, value, _clean(attributes))

    def send(self) -> None:
        """Send what is new; a failure is logged once, and costs the spans of it.

        Metrics add up over the life of the process, so they are in what is sent next.
        """
        ended = self._ended.take()
        if not ended and not self._is_measured:
            return
        lost = sum(
            len(some) for some in _chunks(ended) if not self._is_sent(partial(self._export, some))
        )
        if self._reader is not None and self._is_measured:
            self._is_measured = not self._is_sent(self._reader.read)
        self._report(lost, is_failing=lost > 0 or self._is_measured)

    def close(self) -> None:
        """Send what there is, unless nothing gets through, and let go of the exporters."""
        if not self._is_failing:
            self.send()
        self._spans.shutdown()
        if self._reader is not None:
            self._reader.release()

    def _begin(self, opened: OpenSpan) -> None:
        parent = None if opened.parent is None else self._open.get(opened.parent)
        if opened.remote is not None:
            parent = self._remote(opened.remote)
        self._ids.ask(opened.trace_id, opened.span_id, is_root=parent is None)
        self._open[opened.key] = self._tracer.start_span(
            _clean_text(opened.name),
            context=Context() if parent is None else set_span_in_context(parent, Context()),
            kind=_KINDS[opened.kind],
            attributes=_clean(opened.attributes),
            start_time=opened.at_ns,
        )

    def _remote(self, parent: SpanParent) -> Span:
        """Return a span of another process; the sampler takes it, or not, as it does there."""
        trace_id = int(parent.trace_id, 16)
        decision = self._sampler.should_sample(None, trace_id, "").decision
        is_taken = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_taken else TraceFlags.DEFAULT)
        span_id = int(parent.span_id, 16)
        return NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags))

    def _end(self, closed: EndSpan) -> None:
        span = self._open.pop(closed.key)
        if closed.error is not None:
            span.set_attribute(ERROR_TYPE, _clean_text(closed.error))
            text = None if closed.text is None else _clean_text(closed.text)
            span.set_status(Status(StatusCode.ERROR, text))
        span.end(closed.at_ns)

    def _measure(self, instrument: str, value: float, attributes: Attributes) -> None:
        self._is_measured = self._reader is not None
        kept = self._instruments[instrument]
        if isinstance(kept, Histogram):
            kept.record(value, attributes)
        else:
            kept.add(value, attributes)

    def _export(self, spans: Sequence[ReadableSpan]) -> bool:
        return self._spans.export(spans) is SpanExportResult.SUCCESS

    def _is_sent(self, send: Any) -> bool:  # Any: a partial, or a method
        try:
            return bool(send())
        except Exception as error:  # noqa: BLE001 - an exporter may be anybody's; it is logged
            self._last_complaint.text = f"{type(error).__name__}: {error}"
            return False

    def _report(self, lost: int, *, is_failing: bool) -> None:
        """Say when sending begins to fail, and when it is well again."""
        self._lost += lost
        if is_failing and not self._is_failing:
            why = self._last_complaint.text[:_ERROR_CHARS_MAX]
            log.warning("telemetry.unsent", error=why, spans_lost=self._lost)
        elif self._is_failing and not is_failing:
            log.info("telemetry.sent", spans_lost=self._lost)
            self._lost = 0
        self._is_failing = is_failing


class _Ids(RandomIdGenerator):
    """Ids by chance, but for the next span where it has its own."""

    def __init__(self) -> None:
        self._trace_id: str | None = None
        self._span_id: str | None = None
        self._given: set[str] = set()

    def ask(self, trace_id: str | None, span_id: str | None, *, is_root: bool) -> None:
        """Give the next span these; an id that was given in its trace is not given again."""
        if is_root:
            self._given.clear()
        self._trace_id = trace_id
        self._span_id = None if span_id in self._given else span_id
        if span_id is not None:
            self._given.add(span_id)

    def generate_trace_id(self) -> int:
        """Return the next trace's."""
        return super().generate_trace_id() if self._trace_id is None else int(self._trace_id, 16)

    def generate_span_id(self) -> int:
        """Return the next span's."""
        return super().generate_span_id() if self._span_id is None else int(self._span_id, 16)


class _Ended(SpanProcessor):
    """Keeps the spans that have ended until they are sent."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans


class _Reader(PeriodicExportingMetricReader):
    """Sends metrics when it is asked to, never by itself."""

    def __init__(self, exporter: MetricExporter) -> None:
        super().__init__(exporter, export_interval_millis=math.inf)
        self._sink = exporter
        self._is_sent = True

    def read(self) -> bool:
        """Send; say whether that went well."""
        self._is_sent = True
        self.collect()
        return self._is_sent

    def release(self) -> None:
        """Let go of the exporter."""
        self._sink.shutdown()

    # Any: the SDK's own.
    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        result = self._sink.export(metrics_data, timeout_millis, **kwargs)
        self._is_sent = result is MetricExportResult.SUCCESS


class _LastComplaint(logging.Handler):
    """Keeps the last thing that the SDK complained of."""

    text = "no reason was given"

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def _resource(config: Telemetry) -> Resource:
    """Return what all spans and metrics of this process have in common."""
    named = config.service_name or os.environ.get(OTEL_SERVICE_NAME)
    more = {SERVICE_VERSION: VERSION}
    found = Resource.create(more if named is None else {**more, SERVICE_NAME: named})
    if named is None and str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return found.merge(Resource({SERVICE_NAME: DEFAULT_SERVICE}))
    return found


def _exporters(config: Telemetry) -> tuple[SpanExporter, MetricExporter | None]:
    spans, metrics = _chosen(config)
    return spans, metrics if config.metrics else None


def _chosen(config: Telemetry) -> tuple[SpanExporter, MetricExporter | None]:
    if config.exporter is not None:
        return _own(config.exporter)
    if config.endpoint == CONSOLE:
        return ConsoleSpanExporter(out=sys.stderr), ConsoleMetricExporter(out=sys.stderr)
    # Not where exporters of another kind are used, and the package is missing.
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )

    base = None if config.endpoint is None else config.endpoint.rstrip("/")
    headers = config.headers or None
    return (
        OTLPSpanExporter(None if base is None else base + _TRACES_PATH, headers=headers),
        OTLPMetricExporter(None if base is None else base + _METRICS_PATH, headers=headers),
    )


# Any: a function, or the name of one, and what it returns.
def _own(exporter: Any) -> tuple[SpanExporter, MetricExporter | None]:
    make: Any = resolve(exporter) if isinstance(exporter, str) else exporter
    made: Any = make()
    spans, metrics = made if isinstance(made, tuple) and len(made) == _PAIR else (made, None)
    if isinstance(spans, SpanExporter) and isinstance(metrics, MetricExporter | None):
        return spans, metrics
    raise TypeError(
        f"exporter returned {made!r:.200}: return a SpanExporter of opentelemetry.sdk, or a pair of"
        " it and a MetricExporter"
    )


def _instruments(meter: Meter) -> dict[str, Histogram | Counter]:
    made: dict[str, Histogram | Counter] = {}
    for name, (kind, unit, description, buckets) in INSTRUMENTS.items():
        if kind == "histogram":
            made[name] = meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=buckets
            )
        else:
            made[name] = meter.create_counter(name, unit, description)
    return made


def _chunks(spans: Sequence[ReadableSpan]) -> list[Sequence[ReadableSpan]]:
    return [spans[first : first + SPANS_MAX] for first in range(0, len(spans), SPANS_MAX)]


def _clean(attributes: Attributes) -> Attributes:
    return {name: _clean_value(value) for name, value in attributes.items()}


def _clean_value(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_clean_text(text) for text in value)
    return _clean_text(value) if isinstance(value, str) else value


def _clean_text(text: str) -> str:
    """Return ``text`` fit for UTF-8: one half of a pair would cost all spans beside it."""
    return text.encode("utf-8", "replace").decode()
