"""The telemetry's options, and what it takes down of the session."""

import asyncio
import importlib.util
import subprocess
import sys

import pytest

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.events import AgentAbort, AgentHibernated, AgentStart, MessageDelta
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import SessionEnd
from cmdc_runtime.messages import Message
from workers.builtin.plugins import telemetry
from workers.builtin.plugins.telemetry import Telemetry

CONTEXT = PluginContext(
    session_id="s-1", model="openai:gpt-5", group_id="g", incarnation=2,
    messages=(Message.user("hi"),),
)  # fmt: skip
START = AgentStart(command_id="c-1")
DELTA = MessageDelta(delta="pie")
SPANS, OTLP = "opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"


class Outlet:
    """Takes down what it is asked."""

    def __init__(self, *, is_quick=True):
        self.asked, self.is_quick = [], is_quick

    def put(self, heard):
        self.asked.append(heard)

    def flush(self, timeout_s, *, prepare_s):
        assert prepare_s == (telemetry.IMPORT_S if timeout_s else 0.0)
        self.asked.append(timeout_s)
        return self.is_quick


def observed(plugin, *events):
    """Give the plugin events, and return what it asked of its outlet."""

    async def scenario():
        for event in events:
            await plugin.observe(event, CONTEXT)

    asyncio.run(scenario())
    return plugin._outlet.asked


@pytest.fixture
def plugin_of(monkeypatch):
    """Make plugins whose outlet is watched."""

    def make(*, is_quick=True, **options):
        plugin = Telemetry(**options)
        plugin._outlet = Outlet(is_quick=is_quick)
        return plugin

    return make


def test_an_event_is_taken_down_when_it_comes(plugin_of, monkeypatch):
    """With what was known then; nothing else is done about it, and pieces of answers are none."""
    monkeypatch.setattr(telemetry.time, "time_ns", lambda: 7)
    [heard] = observed(plugin_of(), START, DELTA)

    assert heard.event is START
    assert heard.at_ns == 7
    assert heard.facts == ("s-1", "openai:gpt-5", 2, "g", (), None, None)


def test_the_conversation_is_kept_only_where_it_is_wanted(plugin_of):
    """What is not kept does not leak."""
    [heard] = observed(plugin_of(capture_content=True), START)

    assert heard.facts.messages == CONTEXT.messages


@pytest.mark.parametrize("event", [AgentAbort(command_id="c-1"), AgentHibernated()])
def test_what_the_process_may_end_with_is_waited_for(plugin_of, event):
    """An end of the session need not follow."""
    asked = observed(plugin_of(), event)

    assert asked[-1] == telemetry.FLUSH_S


def test_a_collector_that_is_slow_is_not_waited_for_again(plugin_of):
    """Until it is in time."""
    plugin = plugin_of(is_quick=False)
    observed(plugin, AgentHibernated(), AgentHibernated())
    plugin._outlet.is_quick = True

    assert observed(plugin, AgentHibernated(), AgentHibernated()) == [1.0, 0.0, 0.0, 1.0]


def test_the_end_of_the_session_is_reported_and_waited_for(plugin_of):
    """What is open is closed."""
    plugin = plugin_of()
    plugin.session_end(SessionEnd(), CONTEXT)

    assert [one if one == 1.0 else one.event for one in plugin._outlet.asked] == [None, 1.0]


def test_defaults():
    """As the reference says."""
    assert Telemetry().config == plugins.Telemetry(
        service_name=None,
        endpoint=None,
        headers={},
        capture_content=False,
        export_interval=5.0,
        metrics=True,
        exporter=None,
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"endpoint": "localhost:4318"}, "endpoint is 'localhost:4318': give a URL such as"),
        ({"endpoint": "ftp://a"}, "endpoint is 'ftp://a'"),
        ({"endpoint": "http://"}, "endpoint is 'http://'"),
        ({"endpoint": "http://a:99999"}, "endpoint is 'http://a:99999'"),
        ({"endpoint": "http://[a"}, "endpoint is 'http://[a'"),
        ({"endpoint": "http://a/?key=1"}, r"endpoint is 'http://a/?[hidden]'"),
        ({"endpoint": ""}, "option 'endpoint': Expected `str` of length >= 1"),
        ({"service_name": ""}, "option 'service_name': Expected `str` of length >= 1"),
        ({"headers": {"a b": "c"}}, "headers has 'a b', which no HTTP header can be"),
        ({"headers": {"": "c"}}, "headers has ''"),
        ({"headers": {"a": "c\nd: e"}}, "headers has 'a'"),
        ({"export_interval": 0}, "option 'export_interval': Expected `float` > 0"),
        ({"exporter": "a:b", "endpoint": "console"}, "exporter is given, and endpoint or headers"),
        ({"exporter": "a:b", "headers": {"a": "b"}}, "exporter is given, and endpoint or headers"),
        ({"endpont": "console"}, "there is no option 'endpont'"),
    ],
)
def test_unfit_options_are_refused(options, problem):
    """Each is named with its value and the way out."""
    with pytest.raises(InvalidOptions) as raised:
        Telemetry(**options)

    assert problem in str(raised.value)


def test_a_header_s_value_is_not_shown():
    """It may be a key."""
    with pytest.raises(InvalidOptions) as raised:
        Telemetry(headers={"api-key": "sk-1234\n"})

    assert "sk-1234" not in str(raised.value)


@pytest.mark.parametrize(
    ("absent", "options", "missing"),
    [
        ({SPANS, OTLP}, {}, "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"),
        ({OTLP}, {}, "opentelemetry-exporter-otlp-proto-http"),
        ({SPANS}, {"endpoint": "console"}, "opentelemetry-sdk"),
        ({OTLP}, {"endpoint": "console"}, None),
        ({OTLP}, {"exporter": "package:exporter"}, None),
    ],
)
def test_missing_packages_are_named(monkeypatch, absent, options, missing):
    """Before the session starts, with the way out; only those that the options need."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else find(name)
    )
    if missing is None:
        Telemetry(**options)
        return
    with pytest.raises(InvalidOptions) as raised:
        Telemetry(**options)

    assert str(raised.value).endswith(
        f"plugin 'telemetry': {missing} must be installed where the daemon runs:"
        ' pip install "cmdc-runtime[otel]"'
    )


def test_a_missing_parent_package_is_missing_too(monkeypatch):
    """Looking for a part of what is not there at all is an error of its own."""

    def find(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(InvalidOptions, match="opentelemetry-sdk and opentelemetry-exporter"):
        Telemetry()


PROBE = """
import sys, threading
from cmdc_runtime import plugins
from workers.builtin.plugins.telemetry import Telemetry
Telemetry()
loaded = {"opentelemetry.sdk.trace", "opentelemetry.trace", "requests", "google.protobuf"}
print(sorted(loaded & set(sys.modules)), threading.active_count())
"""


@pytest.mark.process
def test_making_the_plugin_imports_nothing_and_starts_nothing():
    """It may be made where processes are forked later on."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], check=True, capture_output=True, text=True, timeout=60
    )

    assert probe.stdout == "[] 1\n"
