"""The telemetry of a real session, as a collector gets it: OTLP over HTTP, protobuf decoded."""

import http.server
import os
import signal
import threading
from dataclasses import dataclass

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Error, Hold, Text, ToolCalls, ToolUse
from cmdc_runtime.tracing import call_span_id

TURN_S = 20.0
OFTEN_S = 0.05
SLOW_IMPORT_S = 1.6
"""Beyond what plugins have where work takes its time to end, and within what they have else."""
QUICK = {"retry_base_delay": 0.01, "retry_max_delay": 0.05}
PROMPT, ARGUMENT, RESULT, ANSWER = "prompt-4711", "argument-4712", "result-4713", "answer-4714"
CONTENT = (PROMPT, ARGUMENT, RESULT, ANSWER)
OK, FAILED = Status.STATUS_CODE_UNSET, Status.STATUS_CODE_ERROR


@cmdc.tool(effects="read", isolation="task")
async def look(what: str) -> str:
    """Look something up."""
    return RESULT + what[:0]


@cmdc.tool(effects="read", isolation="task", max_retries=0)
async def explode() -> str:
    """Fail."""
    raise ValueError(RESULT)


def values(attributes):
    """Return attributes as a dict."""
    return {one.key: value(one.value) for one in attributes}


def value(one):
    kind = one.WhichOneof("value")
    if kind == "array_value":
        return [value(inner) for inner in one.array_value.values]
    return getattr(one, kind)


@dataclass
class ReceivedSpan:
    """One span as it was received."""

    raw: Span
    resource: dict

    @property
    def attributes(self):
        return values(self.raw.attributes)

    @property
    def events(self):
        return {event.name: values(event.attributes) for event in self.raw.events}

    @property
    def outline(self):
        return (self.raw.name, self.attributes["cmdc.outcome"], self.raw.status.code)


class Collector:
    """What was received."""

    def __init__(self):
        self.bodies, self.headers = [], []
        self._spans, self._metrics = ExportTraceServiceRequest(), ExportMetricsServiceRequest()
        self.arrived = threading.Condition()

    def take(self, path, headers, body):
        with self.arrived:
            self.bodies.append(body)
            self.headers.append(headers)
            if path == "/v1/traces":
                self._spans.MergeFromString(body)
            else:
                assert path == "/v1/metrics"
                self._metrics.MergeFromString(body)
            self.arrived.notify_all()

    def spans(self):
        """Return all spans so far, in the order of their begin."""
        found = [
            ReceivedSpan(span, values(of.resource.attributes))
            for of in self._spans.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda traced: traced.raw.start_time_unix_nano)

    def wait_for(self, name, count=1):
        """Return all spans once so many of this name are there."""
        with self.arrived:
            assert self.arrived.wait_for(
                lambda: [traced.raw.name for traced in self.spans()].count(name) >= count,
                TURN_S,
            ), self.spans()
            return self.spans()

    def points(self, name):
        """Return the points of a metric as they came last: attributes, count or value, sum."""
        found = {}
        for of in self._metrics.resource_metrics:
            for metric in (one for scope in of.scope_metrics for one in scope.metrics):
                if metric.name == name:
                    data = getattr(metric, metric.WhichOneof("data"))
                    found |= {
                        tuple(sorted(values(point.attributes).items())): point
                        for point in data.data_points
                    }
        return [(dict(key), point) for key, point in found.items()]

    def leaked(self, *words):
        return [word for word in words if any(word.encode() in body for body in self.bodies)]


@pytest.fixture
def collector():
    """A collector on a free port; ``url`` is where."""
    found = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.take(self.path, dict(self.headers), body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    server.server_close()
    thread.join(TURN_S)


@pytest.fixture
def traced(agent, collector):
    """Make sessions that export to the collector."""

    def create(model, capture_content=False, **options):
        telemetry = cmdc.plugins.Telemetry(
            endpoint=collector.url,
            headers={"x-team": "blue"},
            service_name="shop",
            export_interval=OFTEN_S,
            capture_content=capture_content,
        )
        return agent(model, plugins=[telemetry], **options)

    return create


def steps():
    calls = ToolCalls(ToolUse("look", {"what": ARGUMENT}, "c-1"), ToolUse("explode", {}, "c-2"))
    return Error(503, "busy"), calls, ANSWER


def test_a_cycle_reaches_the_collector(traced, collector, scripted):
    """Spans in their tree, metrics, no content; all is there when the session has ended."""
    session = traced(scripted(*steps()), tools=[look, explode], **QUICK)
    session.run(PROMPT, timeout=TURN_S)
    session.stop()
    spans = collector.spans()
    cycle = spans[0]
    by_call = {one.attributes.get("gen_ai.tool.call.id"): one for one in spans}
    chats = [one for one in spans if one.attributes["gen_ai.operation.name"] == "chat"]

    assert cycle.outline == ("invoke_agent", "finished", OK)
    assert [(one.attributes["cmdc.outcome"], one.raw.status.code) for one in chats] == [
        ("failed", FAILED),
        ("finished", OK),
        ("finished", OK),
    ]
    assert by_call["c-1"].outline == ("execute_tool look", "finished", OK)
    assert by_call["c-2"].outline == ("execute_tool explode", "failed", FAILED)
    assert len(spans) == 6
    assert cycle.raw.parent_span_id == b""
    assert {one.raw.parent_span_id for one in spans[1:]} == {cycle.raw.span_id}
    assert {one.raw.trace_id for one in spans} == {cycle.raw.trace_id}
    for one in spans:
        assert one.raw.start_time_unix_nano <= one.raw.end_time_unix_nano
        assert one.raw.end_time_unix_nano <= cycle.raw.end_time_unix_nano
        assert one.attributes["gen_ai.conversation.id"] == session.id
        assert one.resource["service.name"] == "shop"
    assert chats[0].raw.kind == Span.SPAN_KIND_CLIENT
    assert chats[1].attributes["cmdc.request.attempt"] == 2
    assert chats[1].attributes["gen_ai.usage.input_tokens"] > 0
    assert {"agent.turn", "llm.retry"} <= cycle.events.keys()
    assert cycle.events["agent.turn"]["cmdc.requests"] == 3
    assert "llm.request" in chats[1].events
    assert by_call["c-1"].events["tool.exec"]["cmdc.outcome"] == "finished"
    check_metrics(collector)
    assert collector.leaked(*CONTENT) == []
    assert {headers["x-team"] for headers in collector.headers} == {"blue"}


def check_metrics(collector):
    """Each request, each call and the cycle are counted, once."""
    requests = collector.points("gen_ai.client.operation.duration")
    assert sum(point.count for _, point in requests) == 3
    assert sum(point.count for kinds, point in requests if "error.type" in kinds) == 1
    tokens = collector.points("gen_ai.client.token.usage")
    assert {kinds["gen_ai.token.type"] for kinds, _ in tokens} == {"input", "output"}
    calls = collector.points("cmdc.tool.exec.duration")
    assert {(kinds["gen_ai.tool.name"], point.count) for kinds, point in calls} == {
        ("look", 1),
        ("explode", 1),
    }
    [(kinds, point)] = collector.points("cmdc.agent.turn.duration")
    assert (kinds, point.count) == ({"cmdc.outcome": "finished"}, 1)


def test_content_reaches_the_collector_where_it_is_wanted(traced, collector, scripted):
    """By the attributes of the conventions."""
    session = traced(scripted(*steps()[1:]), capture_content=True, tools=[look, explode])
    session.run(PROMPT, timeout=TURN_S)
    session.stop()
    by_call = {one.attributes.get("gen_ai.tool.call.id"): one for one in collector.spans()}
    cycle, first, *_ = collector.spans()

    assert PROMPT in cycle.attributes["gen_ai.input.messages"]
    assert ANSWER in cycle.attributes["gen_ai.output.messages"]
    assert PROMPT in first.attributes["gen_ai.input.messages"]
    assert ARGUMENT in first.attributes["gen_ai.output.messages"]
    assert ANSWER not in first.attributes["gen_ai.input.messages"]
    assert ARGUMENT in by_call["c-1"].attributes["gen_ai.tool.call.arguments"]
    assert by_call["c-1"].attributes["gen_ai.tool.call.result"] == RESULT
    assert RESULT in by_call["c-2"].raw.status.message


def test_a_crash_is_reported_by_the_next_process(traced, collector, scripted, poll):
    """Its cycle goes on in the same trace; an abort is reported at once."""
    model = scripted((Text("half"), Hold()), (Text("half"), Hold()))
    session = traced(model)
    session.prompt(PROMPT)
    model.wait_held()
    os.kill(first := session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: session.agent_pid() not in {None, first})
    model.wait_held()
    session.abort(reason="enough")
    spans = collector.wait_for("invoke_agent")
    session.stop()
    [cycle] = [one for one in spans if one.raw.name == "invoke_agent"]

    assert cycle.outline == ("invoke_agent", "aborted", OK)
    assert cycle.attributes["cmdc.incarnation"] == 2
    assert cycle.events["session.restart"]["cmdc.reason"] == "signal"
    assert cycle.attributes["cmdc.abort.reason"] == "enough"


def test_a_run_of_a_strategy_is_nested_in_its_call(traced, collector, scripted):
    """Its branches are spans of the run's, with what each took."""
    strategy = cmdc.reasoning.SelfConsistency(samples=2)
    below = cmdc.SubAgent("general-purpose", "Votes.", model=scripted(default="Answer: 42"))
    call = ToolCalls(ToolUse("reason", {"question": PROMPT}, "c-1"))
    tool = cmdc.tools.Reason(strategies=[strategy])
    session = traced(scripted(call, ANSWER), tools=[tool], subagents=[below])
    session.run(PROMPT, timeout=TURN_S)
    session.stop()
    spans = collector.spans()
    names = {one.raw.span_id: one.raw.name for one in spans}
    above = {(one.raw.name, names.get(one.raw.parent_span_id)) for one in spans}
    [run] = [one for one in spans if one.raw.name == "reason self_consistency"]
    branches = [one for one in spans if one.raw.name.startswith("branch ")]

    assert above >= {
        ("execute_tool reason", "invoke_agent"),
        ("reason self_consistency", "execute_tool reason"),
    }
    assert {one.raw.parent_span_id for one in branches} == {run.raw.span_id}
    assert [one.attributes["cmdc.outcome"] for one in [run, *branches]] == ["finished"] * 3
    assert all(one.attributes["gen_ai.usage.output_tokens"] > 0 for one in branches)
    assert run.attributes["cmdc.reasoning.branches"] == 2
    assert collector.leaked(*CONTENT) == []


def test_what_a_branch_does_is_in_its_span(traced, collector, scripted):
    """One trace has the whole run, with each branch's own cycle and requests, and a subagent's."""
    strategy = cmdc.reasoning.SelfConsistency(samples=2)
    below = cmdc.SubAgent("general-purpose", "Votes.", model=scripted(default="Answer: 42"))
    calls = ToolCalls(
        ToolUse("reason", {"question": PROMPT}, "c-1"),
        ToolUse("task", {"description": PROMPT, "subagent_type": "general-purpose"}, "c-2"),
    )
    tool = cmdc.tools.Reason(strategies=[strategy])
    session = traced(scripted(calls, ANSWER), tools=[tool], subagents=[below])
    session.run(PROMPT, timeout=TURN_S)
    session.stop()
    spans = collector.wait_for("invoke_agent", 4)
    by_id = {one.raw.span_id: one for one in spans}
    cycles = [one for one in spans if one.raw.name == "invoke_agent"]
    above = sorted(
        by_id[one.raw.parent_span_id].raw.name for one in cycles if one.raw.parent_span_id
    )
    branches = [one for one in spans if one.raw.name.startswith("branch ")]

    assert above == [*sorted(one.raw.name for one in branches), "execute_tool task"]
    assert len({one.raw.trace_id for one in spans}) == 1
    assert len(by_id) == len(spans)
    chats = [one for one in spans if one.attributes["gen_ai.operation.name"] == "chat"]
    assert {one.raw.parent_span_id for one in chats} == {one.raw.span_id for one in cycles}


def test_a_death_of_the_parent_leaves_one_trace(traced, collector, scripted):
    """What its subagent reported stands in the same trace, below the call that was under way."""
    below_model = scripted((Text("half"), Hold()), default=ANSWER)
    below = cmdc.SubAgent("general-purpose", "Works.", model=below_model)
    calls = ToolCalls(ToolUse("task", {"description": PROMPT}, "c-1"))
    session = traced(scripted(calls, default=ANSWER), subagents=[below])
    session.prompt(PROMPT)
    below_model.wait_held()
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.collect_reply(timeout=TURN_S)
    session.stop()
    spans = collector.wait_for("invoke_agent", 2)
    cycles = [one for one in spans if one.raw.name == "invoke_agent"]
    above = {one.attributes["gen_ai.conversation.id"]: one.raw.parent_span_id for one in cycles}

    assert above[session.id] == b""
    assert above[f"{session.id}.1"].hex() == call_span_id(session.id, "c-1")
    assert len({one.raw.trace_id for one in collector.spans()}) == 1


class Pair(cmdc.ReasoningStrategy):
    """Asks two, and takes what is there."""

    name = "pair"

    def step(self, state, context):
        return [cmdc.Branch(context.question, id=name) for name in ("a", "b")]

    def aggregate(self, thoughts, state):
        return cmdc.Done([one.error or one.content for one in thoughts])


def test_branches_that_run_again_are_in_spans(traced, collector, scripted):
    """After their parent's death: what each does is below its run, whichever process reports it."""
    below_model = scripted(*[(Text("half"), Hold())] * 2, default=ANSWER)
    below = cmdc.SubAgent("general-purpose", "Thinks.", model=below_model)
    call = ToolCalls(ToolUse("reason", {"question": PROMPT}, "c-1"))
    tool = cmdc.tools.Reason(strategies=[Pair])
    session = traced(scripted(call, default=ANSWER), tools=[tool], subagents=[below])
    session.prompt(PROMPT)
    below_model.wait_held(count=2)
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.collect_reply(timeout=TURN_S)
    session.stop()
    spans = collector.wait_for("invoke_agent", 3)
    by_id = {one.raw.span_id: one for one in spans}
    [top] = [one for one in spans if one.attributes["gen_ai.conversation.id"] == session.id
             and one.raw.name == "invoke_agent"]  # fmt: skip
    cycles = [one for one in spans if one.raw.name == "invoke_agent" and one is not top]
    above = [by_id[one.raw.parent_span_id] for one in cycles]
    runs = [by_id[one.raw.parent_span_id].raw.name for one in above]

    assert {one.raw.name for one in above} == {"branch a", "branch b"}
    assert set(runs) == {"reason pair"}
    assert len({one.raw.trace_id for one in spans}) == 1


def kill_branches(session, client):
    for one in client.list_sessions():
        if one.session_id != session.id:
            os.kill(one.pid, signal.SIGKILL)


def abort(session, client):
    session.abort()


def test_a_session_that_ends_before_its_telemetry_is_ready_loses_nothing(agent, scripted, tmp_path):
    """On a busy machine an import takes longer than the session; the end waits for it."""
    gate, spans = tmp_path / "gate", tmp_path / "spans"
    os.mkfifo(gate)

    def exporter():
        gate.read_text()
        return ConsoleSpanExporter(out=spans.open("w"), formatter=lambda span: f"{span.name}\n")

    telemetry = cmdc.plugins.Telemetry(exporter=exporter)
    session = agent(scripted(ANSWER), plugins=[telemetry])
    session.run(PROMPT, timeout=TURN_S)
    end = threading.Thread(target=session.stop)
    end.start()
    end.join(SLOW_IMPORT_S)
    is_waiting = end.is_alive()
    os.close(os.open(gate, os.O_RDWR))  # who reads it goes on; without one nothing happens
    end.join(TURN_S)

    assert is_waiting
    assert [name.partition(" ")[0] for name in spans.read_text().splitlines()] == [
        "chat",
        "invoke_agent",
    ]


@pytest.mark.parametrize(
    ("end", "outcome"), [(kill_branches, "failed"), (abort, "killed")], ids=["SIGKILL", "abort"]
)
def test_a_killed_branch_has_a_span_that_failed(traced, collector, scripted, client, end, outcome):  # noqa: PLR0913, PLR0917 - fixtures
    """It is ended, as an error, below the run that it was of; so is the run that was killed."""
    below_model = scripted((Hold(), "late"), (Hold(), "late"), default=ANSWER)
    below = cmdc.SubAgent("general-purpose", "Votes.", model=below_model)
    call = ToolCalls(ToolUse("reason", {"question": PROMPT}, "c-1"))
    tool = cmdc.tools.Reason(strategies=[Pair])
    session = traced(scripted(call, ANSWER), tools=[tool], subagents=[below])
    session.prompt(PROMPT)
    below_model.wait_held(TURN_S, count=2)
    end(session, client)
    spans = collector.wait_for("execute_tool reason")
    [run] = [one for one in spans if one.raw.name == "reason pair"]
    branches = [one for one in spans if one.raw.name.startswith("branch ")]

    assert {one.raw.parent_span_id for one in branches} == {run.raw.span_id}
    assert [one.attributes["cmdc.outcome"] for one in branches] == [outcome] * 2
    assert [one.raw.status.code for one in branches] == [FAILED] * 2
    assert all(one.raw.end_time_unix_nano > 0 for one in branches)
