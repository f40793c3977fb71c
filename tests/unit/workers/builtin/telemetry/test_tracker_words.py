"""What spans, their events and metrics say: in words of the conventions and ours."""

import pytest

from cmdc_runtime import events as ev
from cmdc_runtime.extensions.plugin import PipelineRun
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import Exception as ExceptionReason
from cmdc_runtime.tracing import call_span_id, trace_id_of
from workers.builtin.telemetry.calls import CHILDREN_MAX
from workers.builtin.telemetry.spans import Facts
from workers.builtin.telemetry.tracker import PIPELINES_MAX

MODEL = "openai:gpt-5"
SECRET = "the launch code is 0000"
FACTS = Facts("s-1", MODEL, cycle_id="c-1")
USAGE = TokenUsage(prompt_tokens=30, completion_tokens=7, cost_usd=0.25, cached_tokens=20)
SPENT = {
    "gen_ai.usage.input_tokens": 30,
    "gen_ai.usage.output_tokens": 7,
    "gen_ai.usage.cache_read.input_tokens": 20,
    "cmdc.cost_usd": 0.25,
}
AGENT, CHAT, TOOL = "invoke_agent", "chat gpt-5", "execute_tool shell"

START = ev.AgentStart(command_id="c-1")
REQUEST = ev.RequestStart(model=MODEL, messages=1)
BEGUN = ev.MessageStart()
DONE = Message(role="assistant", content=SECRET, metadata={"finish_reason": "stop"})
ANSWER = ev.ResponseComplete(message=DONE, usage=USAGE)
END = ev.AgentEnd(messages=(Message.user(SECRET), DONE), usage=USAGE, command_id="c-1")
FAILED = ev.StreamError(reason="Timeout: after 3 s")
RETRY = ev.Retry(attempt=1, delay_ms=20, reason="Timeout: after 3 s")
BLOCKED = ev.ToolBlocked(name="shell", call_id="t-1", reason=SECRET)
MISSED = ev.ToolCallUnknown(name="shel", call_id="t-1")
DIED = ExceptionReason(type="ValueError", message=SECRET)


def call(number, name="shell"):
    return ev.ToolExecutionStart(name=name, call_id=f"t-{number}", args={"command": SECRET})


def returned(number, *, ok=True):
    return ev.ToolExecutionEnd(name="shell", call_id=f"t-{number}", ok=ok, text=SECRET)


def killed(number, reason):
    return ev.ToolKilled(name="shell", call_id=f"t-{number}", reason=reason)


def recovered(resumed, incarnation=2):
    return ev.AgentRecovered(incarnation=incarnation, reason=DIED, resumed=resumed)


def test_a_cycle_says_whose_it_is_and_what_it_took(drawing_of):
    """By the words of the conventions, and ours."""
    facts = Facts("s-1", "bedrock:claude:1", 3, "g-1")
    drawing = drawing_of().play(START, END, facts=facts)

    assert drawing.span(AGENT).kind == "internal"
    assert drawing.span(AGENT).attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "aws.bedrock",
        "gen_ai.request.model": "claude:1",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "cmdc.cost_usd": 0.25,
        "cmdc.incarnation": 3,
        "cmdc.group_id": "g-1",
        "cmdc.command_id": "c-1",
        "cmdc.outcome": "finished",
    }
    assert drawing.notes("agent.turn") == [
        (AGENT, {"cmdc.outcome": "finished", "cmdc.requests": 0, "cmdc.duration_ms": 1000})
    ]
    assert drawing.measured("cmdc.agent.turn.duration") == [(1.0, {"cmdc.outcome": "finished"})]


def test_a_request_says_what_it_took(drawing_of):
    """Tokens, price, the time until its answer began, and why it ended."""
    drawing = drawing_of().play(START, REQUEST, BEGUN, ev.ThinkingStart(), ANSWER)
    span = drawing.span(CHAT)
    kinds = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
    }
    used = {**kinds, "cmdc.purpose": "answer"}
    spent = {
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "cmdc.cost_usd": 0.25,
    }

    assert span.kind == "client"
    assert span.attributes == {
        **kinds,
        **spent,
        "gen_ai.conversation.id": "s-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 1.0,
        "cmdc.incarnation": 2,
        "cmdc.outcome": "finished",
        "cmdc.request.messages": 1,
    }
    assert span.events == [
        ("llm.request", {"cmdc.outcome": "finished", "cmdc.duration_ms": 3000, **spent})
    ]
    assert drawing.measures == [
        ("gen_ai.client.operation.time_to_first_chunk", 1.0, kinds),
        ("gen_ai.client.token.usage", 30, {**used, "gen_ai.token.type": "input"}),
        ("gen_ai.client.token.usage", 7, {**used, "gen_ai.token.type": "output"}),
        ("cmdc.cost", 0.25, used),
        ("gen_ai.client.operation.duration", 3.0, kinds),
    ]


def test_what_is_not_known_is_not_recorded(drawing_of):
    """No price, no cached tokens, no reason."""
    bare = ev.ResponseComplete(message=Message.assistant("hi"), usage=TokenUsage())
    drawing = drawing_of().play(START, REQUEST, bare)

    assert {"cmdc.cost_usd", "gen_ai.usage.cache_read.input_tokens"}.isdisjoint(
        drawing.span(CHAT).attributes
    )
    assert "gen_ai.response.finish_reasons" not in drawing.span(CHAT).attributes
    assert [name for name, _, _ in drawing.measures] == ["gen_ai.client.operation.duration"]


def test_a_request_that_is_sent_again_is_counted(drawing_of):
    """Its span has the number of the attempt; the next request begins anew."""
    drawing = drawing_of().play(
        START, REQUEST, FAILED, RETRY, REQUEST, ANSWER, REQUEST, ANSWER, END
    )
    requests = [span for span in drawing.spans if span.name == CHAT]

    assert [span.attributes.get("cmdc.request.attempt") for span in requests] == [None, 2, None]
    assert drawing.notes("llm.retry") == [(AGENT, {"cmdc.attempt": 1, "cmdc.delay_ms": 20})]
    durations = drawing.measured("gen_ai.client.operation.duration")
    assert [kinds.get("error.type") for _, kinds in durations] == ["Timeout", None, None]
    assert drawing.notes("agent.turn")[0][1]["cmdc.requests"] == 3


def test_a_call_says_which_and_how_long(drawing_of):
    """By the session's own watch where it says so."""
    meta = {"started_at_ms": 5, "ended_at_ms": 47, "duration_ms": 42}
    timed = ev.ToolExecutionMetrics(name="shell", call_id="t-1", meta=meta)
    early = ev.ToolExecutionMetrics(name="shell", call_id="t-1", meta={"started_at_ms": 5})
    drawing = drawing_of().play(
        START, call(1), early, timed, returned(1), call(2), returned(2, ok=False), timed
    )
    first, second = [span for span in drawing.spans if span.name == TOOL]

    assert first.kind == "internal"
    assert first.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.tool.name": "shell",
        "gen_ai.tool.call.id": "t-1",
        "gen_ai.tool.type": "function",
        "cmdc.incarnation": 2,
        "cmdc.outcome": "finished",
    }
    assert [(name, event["cmdc.duration_ms"]) for name, event in first.events] == [
        ("tool.exec", 42)
    ]
    assert [event["cmdc.outcome"] for _, event in second.events] == ["failed"]
    assert drawing.measured("cmdc.tool.exec.duration") == [
        (0.042, {"gen_ai.tool.name": "shell"}),
        (1.0, {"gen_ai.tool.name": "shell", "error.type": "tool_error"}),
    ]


@pytest.mark.parametrize(
    ("event", "outcome", "tool"), [(BLOCKED, "blocked", "shell"), (MISSED, "no_such_tool", "shel")]
)
def test_a_call_that_never_begins_is_an_event(event, outcome, tool, drawing_of):
    """Once: its end says no more. It is in no metric, since the model made up its name."""
    drawing = drawing_of().play(START, event, returned(1, ok=False))

    assert drawing.notes("tool.exec") == [
        (AGENT, {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": "t-1", "cmdc.outcome": outcome})
    ]
    assert drawing.measures == []


@pytest.mark.parametrize(
    ("reason", "word"), [("steered", "steered"), ("abandoned", "abandoned"), (SECRET, "aborted")]
)
def test_a_killed_call_says_why_in_words_of_the_kernel(reason, word, drawing_of):
    """A caller's own words are content."""
    drawing = drawing_of().play(START, call(1), killed(1, reason))

    assert drawing.span(TOOL).attributes["cmdc.kill.reason"] == word


@pytest.mark.parametrize(
    ("reason", "word", "error"),
    [
        ("enough", "enough", None),
        (None, None, None),
        (SECRET, None, None),
        ("loop_detected", "loop_detected", "loop_detected"),
        ("max_cost_usd_exceeded", "max_cost_usd_exceeded", "max_cost_usd_exceeded"),
    ],
)
def test_an_abort_is_an_error_where_a_limit_was_reached(reason, word, error, drawing_of):
    """A person who says stop is none; a reason is recorded if it is one word."""
    event = ev.AgentAbort(reason=reason, command_id="c-1")
    span = drawing_of().play(START, event).span(AGENT)

    assert (span.attributes.get("cmdc.abort.reason"), span.error) == (word, error)


@pytest.mark.parametrize(("resumed", "where"), [("stream", AGENT), ("idle", "session.restart")])
def test_a_restart_says_what_it_came_of(resumed, where, drawing_of):
    """By its kind; what an exception said is content."""
    drawing = drawing_of().play(recovered(resumed))

    assert drawing.notes("session.restart") == [
        (
            where,
            {"cmdc.reason": "exception", "cmdc.resumed": resumed, "cmdc.restart.incarnation": 2},
        )
    ]
    assert drawing.measured("cmdc.session.restarts") == [(1, {"cmdc.reason": "exception"})]


@pytest.mark.parametrize(("resumed", "spans"), [("stream", [AGENT]), ("idle", [])])
def test_a_first_process_that_goes_on_is_no_restart(resumed, spans, drawing_of):
    """As that of a branch that forks: it begins no trace of its own, and none is counted."""
    drawing = drawing_of().play(recovered(resumed, incarnation=1))

    assert [one.name for one in drawing.spans] == spans
    assert drawing.notes("session.restart") == []
    assert drawing.measured("cmdc.session.restarts") == []


def test_a_cycle_that_a_decision_opens_says_so(drawing_of):
    """The one after it was opened by a prompt."""
    resumed = ev.AgentResumed(trigger="tool_approved", approval_id="a-1")
    drawing = drawing_of().play(resumed, START, END, START)

    assert [span.attributes.get("cmdc.trigger") for span in drawing.spans] == [
        "tool_approved",
        None,
    ]


def test_what_happens_to_a_request_is_an_event_of_it(drawing_of):
    """A silent stream, an overflow, a void answer."""
    drawing = drawing_of().play(
        START, REQUEST, ev.StreamStalled(elapsed_s=30.0), ev.StreamReset(), FAILED,
        ev.ContextOverflow(reason=SECRET),
        ev.ModelSwitched(from_="a:b", to="c:d"),
        ev.LoopDetected(type="repeat", name="shell", count=3),
    )  # fmt: skip

    assert drawing.notes("llm.stalled") == [(CHAT, {"cmdc.elapsed_s": 30.0})]
    assert drawing.notes("llm.reset") == [(CHAT, {})]
    assert drawing.notes("llm.overflow") == [(AGENT, {})]
    assert drawing.notes("model.switched") == [
        (AGENT, {"cmdc.model.from": "a:b", "cmdc.model.to": "c:d"})
    ]
    assert drawing.notes("loop.detected") == [
        (AGENT, {"cmdc.loop.type": "repeat", "cmdc.loop.count": 3, "gen_ai.tool.name": "shell"})
    ]


def test_a_compaction_says_what_it_made_of_the_conversation(drawing_of):
    """And what the summary took."""
    compacted = ev.ConversationCompacted(
        trigger="size", before=40, after=7, history_file=SECRET, usage=USAGE
    )
    drawing = drawing_of().play(START, compacted)

    assert drawing.notes("compactor.run") == [
        (AGENT, {
            "cmdc.trigger": "size", "cmdc.messages.before": 40, "cmdc.messages.after": 7, **SPENT,
        }),
    ]  # fmt: skip
    assert drawing.measured("cmdc.compactor.runs") == [(1, {"cmdc.trigger": "size"})]
    assert {kinds["cmdc.purpose"] for _, kinds in drawing.measured("cmdc.cost")} == {"compaction"}


def test_what_a_plugin_asks_a_model_is_counted(drawing_of):
    """Under a purpose of its own."""
    asked = ev.PluginModelCall(plugin="content_policy", model="groq:small", usage=USAGE)
    drawing = drawing_of().play(START, asked)
    kinds = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "groq",
        "gen_ai.request.model": "small",
        "cmdc.purpose": "plugin",
    }

    assert drawing.measured("cmdc.cost") == [(0.25, kinds)]


def subagent(number=1, *, ok=True):
    """Return the begin and the end of a subagent."""
    child = f"s-child-{number}"
    return (
        ev.SubagentStart(
            call_id="t-1", subagent_type="writer", child_session_id=child, description=SECRET
        ),
        ev.SubagentEnd(call_id="t-1", child_session_id=child, ok=ok, text=SECRET, usage=USAGE),
    )


@pytest.mark.parametrize(("ok", "outcome"), [(True, "finished"), (False, "failed")])
def test_a_call_says_which_session_does_its_work(drawing_of, ok, outcome):
    """A child's spans are found by the id of its conversation."""
    drawing = drawing_of().play(START, call(1, "task"), *subagent(ok=ok), returned(1))
    span = drawing.span("execute_tool task")
    kinds = {"cmdc.subagent.type": "writer", "cmdc.outcome": outcome}

    assert span.attributes["cmdc.subagent.type"] == "writer"
    assert span.attributes["cmdc.subagent.session_id"] == "s-child-1"
    assert drawing.notes("subagent.run") == [
        (span.name, {**kinds, "cmdc.subagent.session_id": "s-child-1", **SPENT})
    ]
    assert drawing.measured("cmdc.subagent.runs") == [(1, kinds)]


def test_a_subagent_whose_call_is_over_is_recorded_in_the_cycle(drawing_of):
    """Also one whose begin was missed, or is forgotten."""
    children = [subagent(number) for number in range(CHILDREN_MAX + 1)]
    drawing = drawing_of().play(START, *(begin for begin, _ in children))
    drawing.play(children[0][1], children[1][1], start=CHILDREN_MAX + 9)

    assert [
        (where, facts["cmdc.subagent.type"]) for where, facts in drawing.notes("subagent.run")
    ] == [(AGENT, "unknown"), (AGENT, "writer")]


def test_a_subagent_that_ends_behind_its_cycle_is_recorded_in_its_trace(drawing_of):
    """In a span of its own, below that of its call: a process that was begun anew may be fast."""
    begin, end = subagent()
    drawing = drawing_of().play(START, begin, END, end, facts=FACTS)
    span = drawing.span("subagent.run")

    assert span.remote == (trace_id_of("s-1", "c-1", None), call_span_id("s-1", "t-1"))
    assert drawing.notes("subagent.run")[0][0] == span.name


def test_a_crash_of_a_plugin_is_recorded_and_counted(drawing_of):
    """What it said is content."""
    crashed = ev.PluginCrashed(plugin="mine", hook="before_tool", error=SECRET)
    attributes = {"cmdc.plugin": "mine", "cmdc.hook": "before_tool"}
    quiet = drawing_of().play(START, crashed)
    loud = drawing_of(captures=True).play(START, crashed)

    assert quiet.notes("plugin.crash") == [(AGENT, attributes)]
    assert quiet.measured("cmdc.plugin.crashes") == [(1, attributes)]
    assert loud.notes("plugin.crash") == [(AGENT, {**attributes, "exception.message": SECRET})]
    assert loud.measured("cmdc.plugin.crashes") == [(1, attributes)]


def test_a_run_of_plugins_is_recorded_where_it_happens(drawing_of):
    """In the request, else in the cycle; between cycles it is measured alone."""
    run = PipelineRun(hook="before_tool", duration_ms=1.5, plugins=3)
    halted = PipelineRun(
        hook="before_tool", duration_ms=2.5, plugins=2, halted_by="guard", crashed=("a", "b")
    )
    drawing = drawing_of().play(run, START, halted, REQUEST, run)
    hook = {"cmdc.hook": "before_tool"}

    assert drawing.notes("plugin.pipeline") == [
        (AGENT, {
            **hook, "cmdc.duration_ms": 2.5, "cmdc.plugins": 2,
            "cmdc.halted_by": "guard", "cmdc.crashed": ("a", "b"),
        }),
        (CHAT, {**hook, "cmdc.duration_ms": 1.5, "cmdc.plugins": 3}),
    ]  # fmt: skip
    assert drawing.measured("cmdc.plugin.pipeline.duration") == [
        (0.0015, hook),
        (0.0025, hook),
        (0.0015, hook),
    ]


def test_runs_of_plugins_do_not_fill_a_span(drawing_of):
    """A long cycle has more of them than a span has room for; each one is measured."""
    runs = [PipelineRun(hook="before_tool", duration_ms=1.0, plugins=1)] * (PIPELINES_MAX + 3)
    drawing = drawing_of().play(START, *runs, END, START, runs[0])

    assert len(drawing.notes("plugin.pipeline")) == PIPELINES_MAX + 1
    assert [span.attributes.get("cmdc.pipelines.omitted") for span in drawing.spans] == [3, None]
    assert len(drawing.measured("cmdc.plugin.pipeline.duration")) == PIPELINES_MAX + 4


def test_a_clock_that_is_set_back_stands_still(drawing_of):
    """No span ends before it begins."""
    drawing = drawing_of().play(START, start=50).play(REQUEST, ANSWER, END, start=10)

    assert [(span.begin, span.end) for span in drawing.spans] == [(50, 50), (50, 50)]


def test_a_call_that_ended_with_its_cycle_is_recorded_once(drawing_of):
    """The kernel reports behind the abort what was killed, what never began and what is left."""
    abort = ev.AgentAbort(command_id="c-1")
    blocked = ev.ToolBlocked(name="shell", call_id="t-2", reason="aborted")
    after = (killed(1, "aborted"), returned(1, ok=False), blocked, returned(2, ok=False))
    drawing = drawing_of().play(START, call(1), call(3), abort, *after, returned(3, ok=False), END)

    assert sorted(one["cmdc.outcome"] for _, one in drawing.notes("tool.exec")) == [
        "aborted",
        "blocked",
        "killed",
    ]


def test_a_call_that_is_made_again_after_a_crash_has_a_span(drawing_of):
    """The process that makes it hears of its new time, and not of its start."""
    again = ev.ToolExecutionMetrics(name="shell", call_id="t-1", meta={"started_at_ms": 5})
    took = {"started_at_ms": 5, "ended_at_ms": 47, "duration_ms": 42}
    timed = ev.ToolExecutionMetrics(name="shell", call_id="t-1", meta=took)
    drawing = drawing_of().play(recovered("tools"), again, timed, returned(1), END)

    assert drawing.span(TOOL).attributes["gen_ai.tool.call.id"] == "t-1"
    assert [one["cmdc.duration_ms"] for _, one in drawing.notes("tool.exec")] == [42]


def test_a_call_of_no_tool_is_recorded_once(drawing_of):
    """Though two events say that it was not made."""
    blocked = ev.ToolBlocked(name="shel", call_id="t-1", reason="unknown_tool")
    drawing = drawing_of().play(START, MISSED, blocked, returned(1, ok=False), END)

    assert [one["cmdc.outcome"] for _, one in drawing.notes("tool.exec")] == ["no_such_tool"]
