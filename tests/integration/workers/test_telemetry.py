"""The telemetry with OpenTelemetry's SDK: its exporters, and what becomes of those that fail."""

import asyncio
import contextlib
import http.server
import logging
import sys
import threading

import pytest
import structlog
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from cmdc_runtime import events as ev
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import SessionEnd
from cmdc_runtime.messages import Message, TokenUsage
from workers.builtin.plugins import telemetry
from workers.builtin.plugins.telemetry import Telemetry
from workers.builtin.telemetry import exporting as module

SOON_S = 20.0
NEVER_S = 3600.0
CONTEXT = PluginContext(session_id="s-1", model="openai:gpt-5")
USAGE = TokenUsage(prompt_tokens=30, completion_tokens=7, cost_usd=0.25)
CYCLE = (
    ev.AgentStart(command_id="c-1"),
    ev.RequestStart(model="openai:gpt-5", messages=1),
    ev.ResponseComplete(message=Message.assistant("hi"), usage=USAGE),
    ev.AgentEnd(messages=(), usage=USAGE, command_id="c-1"),
)
FAILED = (
    ev.AgentStart(command_id="c-2"),
    ev.AgentError(reason="Timeout: \ud800", retryable=True, command_id="c-2"),
)


class Metrics(MetricExporter):
    """Keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.found, self.is_closed = [], False

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        self.found += [
            metric
            for resource in metrics_data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return MetricExportResult.SUCCESS

    def shutdown(self, timeout_millis=30_000, **kwargs):
        self.is_closed = True

    def force_flush(self, timeout_millis=10_000):
        return True


class Broken(SpanExporter):
    """Fails in one way or another, until it is repaired."""

    def __init__(self, failure):
        self.failure, self.sent = failure, 0

    def export(self, spans):
        if isinstance(self.failure, Exception):
            raise self.failure
        if self.failure is not None:
            return self.failure
        self.sent += len(spans)
        return SpanExportResult.SUCCESS


@pytest.fixture(autouse=True)
def _quiet():
    """Leave OpenTelemetry's log as it was."""
    logger = logging.getLogger("opentelemetry")
    before = list(logger.handlers)
    yield
    logger.handlers[:] = before


def feed(plugin, *events):
    async def run():
        for event in events:
            await plugin.observe(event, CONTEXT)

    asyncio.run(run())


def flushed(plugin, *events):
    """Feed events and return when they are sent."""
    feed(plugin, *events)
    assert plugin._outlet.flush(SOON_S)


@pytest.fixture
def plugin_of():
    """Make plugins that send when they are asked to."""
    return lambda **options: Telemetry(**{"export_interval": NEVER_S, **options})


def test_spans_and_metrics_reach_an_exporter_of_the_application(plugin_of):
    """A function returns it in the agent; both come with the resource of the process."""
    spans, metrics = InMemorySpanExporter(), Metrics()
    plugin = plugin_of(exporter=lambda: (spans, metrics), service_name="shop")
    flushed(plugin, *CYCLE, *FAILED)
    chat, agent, failed = spans.get_finished_spans()

    assert [chat.name, agent.name, failed.name] == ["chat gpt-5", "invoke_agent", "invoke_agent"]
    assert chat.parent.span_id == agent.context.span_id
    assert chat.context.trace_id == agent.context.trace_id != failed.context.trace_id
    assert agent.parent is failed.parent is None
    assert chat.start_time <= chat.end_time <= agent.end_time
    assert agent.resource.attributes["service.name"] == "shop"
    assert [event.name for event in agent.events] == ["agent.turn"]
    assert (agent.status.status_code, failed.status.status_code) == (
        StatusCode.UNSET,
        StatusCode.ERROR,
    )
    assert {metric.name for metric in metrics.found} == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "cmdc.cost",
        "cmdc.agent.turn.duration",
    }


class ImportGate:
    """A finder of modules that holds the import of one until it is opened."""

    def __init__(self, name):
        self.name = name
        self.entered, self.opened = threading.Event(), threading.Event()

    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            self.entered.set()
            assert self.opened.wait(SOON_S)


def test_the_end_waits_while_opentelemetry_is_imported(plugin_of, monkeypatch):
    """A session that ends right after its start loses nothing on a busy machine."""
    gate, spans = ImportGate(module.__name__), InMemorySpanExporter()
    monkeypatch.setattr(sys, "meta_path", [gate, *sys.meta_path])
    monkeypatch.delitem(sys.modules, module.__name__)
    monkeypatch.setattr(telemetry, "IMPORT_S", SOON_S)
    plugin = plugin_of(exporter=lambda: spans)
    feed(plugin, *CYCLE)
    assert gate.entered.wait(SOON_S)
    with structlog.testing.capture_logs() as written:
        end = threading.Thread(target=plugin.session_end, args=(SessionEnd(), CONTEXT))
        end.start()
        end.join(1.2 * telemetry.FLUSH_S)
        is_waiting = end.is_alive()
        gate.opened.set()
        end.join(SOON_S)

    assert is_waiting
    assert [span.name for span in spans.get_finished_spans()] == ["chat gpt-5", "invoke_agent"]
    assert written == []


def test_text_that_utf_8_has_not_costs_no_span(plugin_of):
    """One half of a pair would spoil all that is sent with it."""
    spans = InMemorySpanExporter()
    flushed(plugin_of(exporter=lambda: spans, capture_content=True), *FAILED)
    [failed] = spans.get_finished_spans()

    assert failed.status.description == "Timeout: ?"


def test_metrics_can_be_left_out(plugin_of):
    """Spans are sent all the same."""
    spans, metrics = InMemorySpanExporter(), Metrics()
    flushed(plugin_of(exporter=lambda: (spans, metrics), metrics=False), *CYCLE)

    assert len(spans.get_finished_spans()) == 2
    assert metrics.found == []


def test_many_spans_are_sent_in_parts(plugin_of, monkeypatch):
    """A collector bounds its requests."""
    monkeypatch.setattr(module, "SPANS_MAX", 3)
    sizes = []

    class Counting(SpanExporter):
        def export(self, spans):
            sizes.append(len(spans))
            return SpanExportResult.SUCCESS

    flushed(plugin_of(exporter=Counting), *CYCLE * 4)

    assert sizes == [3, 3, 2]


def test_sampling_is_up_to_the_environment(plugin_of, monkeypatch):
    """As OpenTelemetry has it."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    spans = InMemorySpanExporter()
    flushed(plugin_of(exporter=lambda: spans), *CYCLE)

    assert spans.get_finished_spans() == ()


def test_the_environment_can_switch_the_sdk_off(plugin_of, monkeypatch):
    """As OpenTelemetry has it."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    spans, metrics = InMemorySpanExporter(), Metrics()
    flushed(plugin_of(exporter=lambda: (spans, metrics)), *CYCLE)

    assert spans.get_finished_spans() == ()
    assert metrics.found == []


@pytest.mark.parametrize(
    ("variables", "option", "name"),
    [
        ({}, None, "cmdc"),
        ({"OTEL_SERVICE_NAME": "env"}, None, "env"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=res"}, None, "res"),
        ({"OTEL_SERVICE_NAME": "env"}, "option", "option"),
    ],
)
def test_a_service_has_a_name(plugin_of, monkeypatch, variables, option, name):
    """The option's, the environment's, or ours."""
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    spans = InMemorySpanExporter()
    flushed(plugin_of(exporter=lambda: spans, service_name=option), *CYCLE)

    assert spans.get_finished_spans()[0].resource.attributes["service.name"] == name


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (SpanExportResult.FAILURE, "no reason was given"),
        (RuntimeError("the cable is cut"), "RuntimeError: the cable is cut"),
    ],
)
def test_an_exporter_that_fails_is_reported_once(plugin_of, failure, why):
    """And again when it is well; what was to be sent is lost, and counted."""
    exporter = Broken(failure)
    plugin = plugin_of(exporter=lambda: exporter)
    with structlog.testing.capture_logs() as entries:
        flushed(plugin, *CYCLE)
        flushed(plugin, *CYCLE)
        exporter.failure = None
        flushed(plugin, *CYCLE)
        flushed(plugin, *CYCLE)

    assert entries == [
        {"event": "telemetry.unsent", "log_level": "warning", "error": why, "spans_lost": 2},
        {"event": "telemetry.sent", "log_level": "info", "spans_lost": 4},
    ]
    assert exporter.sent == 4


def test_nothing_is_sent_where_nothing_is_new(plugin_of):
    """The end of an idle session costs no request."""
    sent = []

    class Counting(SpanExporter):
        def export(self, spans):
            sent.append("spans")
            return SpanExportResult.SUCCESS

    class CountingMetrics(Metrics):
        def export(self, metrics_data, timeout_millis=10_000, **kwargs):
            sent.append("metrics")
            return MetricExportResult.SUCCESS

    plugin = plugin_of(exporter=lambda: (Counting(), CountingMetrics()))
    flushed(plugin, *CYCLE)
    flushed(plugin, ev.PromptReceived(text="hi", queued=False, command_id="c-2"))
    plugin.session_end(SessionEnd(), CONTEXT)

    assert sent == ["spans", "metrics"]


@pytest.mark.parametrize("made", [None, (1, 2), "exporter"])
def test_what_is_no_exporter_is_reported(plugin_of, made):
    """The session goes on without."""
    plugin = plugin_of(exporter=lambda: made)
    with structlog.testing.capture_logs() as entries:
        feed(plugin, *CYCLE)
        assert not plugin._outlet.flush(SOON_S)

    assert [entry["event"] for entry in entries] == ["plugin_thread.crashed"]


class Refusing(http.server.BaseHTTPRequestHandler):
    """A collector that takes nothing."""

    paths = ()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).paths += (self.path,)
        self.send_response(403, "Not you")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Keep quiet."""


@contextlib.contextmanager
def refusing():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(SOON_S)


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_collector_that_refuses_is_reported_with_its_words(plugin_of, slash, capfd):
    """Once, and nothing besides is written to standard error."""
    Refusing.paths = ()
    with refusing() as url, structlog.testing.capture_logs() as entries:
        plugin = plugin_of(endpoint=url + slash)
        flushed(plugin, *CYCLE)
        flushed(plugin, *CYCLE)

    assert Refusing.paths == ("/v1/traces", "/v1/metrics") * 2
    assert [entry["event"] for entry in entries] == ["telemetry.unsent"]
    assert "403" in entries[0]["error"]
    assert capfd.readouterr().err == ""


def test_the_environment_says_where_the_collector_is(plugin_of, monkeypatch):
    """Where the options do not."""
    Refusing.paths = ()
    with refusing() as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{url}/base")
        flushed(plugin_of(), *CYCLE)

    assert Refusing.paths == ("/base/v1/traces", "/base/v1/metrics")


def test_the_console_is_standard_error(plugin_of, capfd):
    """For development."""
    flushed(plugin_of(endpoint="console"), *CYCLE)
    written = capfd.readouterr()

    assert written.out == ""
    assert "chat gpt-5" in written.err
    assert "gen_ai.client.token.usage" in written.err


def test_the_end_of_a_session_closes_what_is_open(plugin_of):
    """And sends it."""
    spans = InMemorySpanExporter()
    plugin = plugin_of(exporter=lambda: spans)
    flushed(plugin)
    feed(plugin, *CYCLE[:2])
    assert plugin._outlet.flush(SOON_S)  # whatever the imports take
    plugin.session_end(SessionEnd(), CONTEXT)

    assert [span.attributes["cmdc.outcome"] for span in spans.get_finished_spans()] == [
        "stopped",
        "stopped",
    ]


def test_a_plugin_that_is_detached_sends_what_it_has(plugin_of):
    """Its thread ends with it."""
    spans, metrics = InMemorySpanExporter(), Metrics()
    plugin = plugin_of(exporter=lambda: (spans, metrics))
    feed(plugin, *CYCLE[:2])
    thread = plugin._outlet._tank._thread
    del plugin
    thread.join(SOON_S)

    assert not thread.is_alive()
    assert [span.name for span in spans.get_finished_spans()] == ["chat gpt-5", "invoke_agent"]
    assert metrics.is_closed
