"""Which spans and metrics a session's events amount to: events in, operations out.

It knows neither OpenTelemetry nor a clock. A cycle is a trace of its own, or in a subagent part of
its parent's (``cmdc_runtime.tracing``): its ``invoke_agent`` span
holds a ``chat`` span for each request and an ``execute_tool`` span for each call, and that of a
call which runs a reasoning strategy a ``reason`` span with one for each branch. What CMDC's
telemetry has by a name is an event, under that name, of the span that it happened in; between
cycles, of a span without length.

Any event may be missing, since a process dies or an observer cannot keep up. What ends without
having begun is a span without length. What never ends is ended by the next thing that cannot come
before its end; its outcome is "unknown". What is open when a process dies is lost.

An event that is no more than an event of its span says so on its class; any other one whose class
names a span has a row in ``_ROWS``. A test says which have neither.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from cmdc_runtime import events
from cmdc_runtime.errors import REASON_CHARS_MAX
from cmdc_runtime.extensions.plugin import Observed, PipelineRun
from cmdc_runtime.ids import CommandId, Incarnation
from cmdc_runtime.messages import Message
from cmdc_runtime.plain import shown
from workers.builtin.telemetry import names
from workers.builtin.telemetry.calls import Calls, RequestSpans, Runs, messages_json
from workers.builtin.telemetry.spans import (
    CYCLE,
    REQUEST,
    Attributes,
    Facts,
    OpenSpans,
    Operation,
    SpanEnding,
    error_kind,
    model_attributes,
    usage_attributes,
)

PIPELINES_MAX: Final = 64
"""Runs of plugins that a cycle's spans have: a span has room for 128 events. All are measured."""
PROMPTS_MAX: Final = 64
"""Texts that are kept for the cycles that they will open."""
_MS_PER_S: Final = 1000
_FIRST: Final = Incarnation(1)
"""Of the processes of a session."""


class Tracker:
    """The open spans of one process of a session."""

    def __init__(self, *, captures: bool) -> None:
        """Begin with nothing open; ``captures`` is whether content may be exported."""
        self._spans = spans = OpenSpans(captures=captures)
        self.requests: Final = RequestSpans(spans)
        self.calls: Final = Calls(spans)
        self.runs: Final = Runs(spans, self.calls)
        self._trigger: str | None = None
        self._prompts: dict[CommandId, str] = {}
        self._pipelines = 0

    def track(self, event: Observed, facts: Facts, at_ns: int) -> list[Operation]:
        """Return what an event amounts to that was published at ``at_ns``."""
        handler = _HANDLERS.get(type(event))
        if handler is None:
            return []
        self._spans.turn(facts, at_ns)
        if type(event) not in _WITH_ABORT:
            self.calls.close_left()
        if type(event) in _IN_CYCLE and not self._spans.has(CYCLE):
            self._open({"cmdc.begin": "unknown"})
        handler(self, event)
        return self._spans.operations()

    def end(self, facts: Facts, at_ns: int) -> list[Operation]:
        """Return what ends all that is open, since the session ends."""
        self._spans.turn(facts, at_ns)
        self.calls.close_left()
        if self._spans.has(CYCLE):
            self._close(SpanEnding("stopped"))
        return self._spans.operations()

    # --- cycles ---------------------------------------------------------------------------------

    def keep_prompt(self, event: events.PromptReceived) -> None:
        """Keep the text for the cycle that it opens."""
        if self._spans.captures:
            self._prompts[event.command_id] = event.text
            if len(self._prompts) > PROMPTS_MAX:
                del self._prompts[next(iter(self._prompts))]

    def drop_prompt(self, event: events.PromptDropped) -> None:
        """Forget the text."""
        self._prompts.pop(event.command_id, None)

    def keep_trigger(self, event: events.AgentResumed) -> None:
        """Keep what opens the next cycle."""
        self._trigger = event.trigger

    def start(self, event: events.AgentStart) -> None:
        """Open a cycle."""
        more: Attributes = {"cmdc.command_id": event.command_id}
        if self._trigger is not None:
            more["cmdc.trigger"], self._trigger = self._trigger, None
        if (text := self._prompts.pop(event.command_id, None)) is not None:
            more[names.INPUT_MESSAGES], _ = messages_json([Message.user(text)])
        self._open(more, event.command_id)

    def finish(self, event: events.AgentEnd) -> None:
        """Close the cycle: the model is done."""
        self._spans.describe(CYCLE, usage_attributes(event.usage))
        if self._spans.captures:
            answers = [message for message in event.messages if message.role == "assistant"]
            self._spans.describe(CYCLE, {names.OUTPUT_MESSAGES: messages_json(answers[-1:])[0]})
        self._close(SpanEnding("finished"))

    def abort(self, event: events.AgentAbort) -> None:
        """Close the cycle; calls that are ended with it come afterwards."""
        if not self._spans.has(CYCLE):
            if event.command_id is None:
                return  # nothing ran
            self._open({"cmdc.begin": "unknown"})
        word = names.word_of(event.reason)
        if word is not None:
            self._spans.describe(CYCLE, {"cmdc.abort.reason": word})
        error = word if names.is_failure(event.reason) else None
        self._close(SpanEnding("aborted", error, shown(event.reason, REASON_CHARS_MAX)))

    def fail(self, event: events.AgentError) -> None:
        """Close the cycle: it failed."""
        self._spans.describe(CYCLE, {"cmdc.retryable": event.retryable})
        error = names.word_of(event.reason) or names.OTHER_ERROR
        self._close(SpanEnding("failed", error, event.reason))

    def recover(self, event: events.AgentRecovered) -> None:
        """Record the restart, in the cycle that goes on if one does.

        A first process that goes on with a saved state, as a branch that forks, is none.
        """
        if event.resumed != "idle":
            self._open({"cmdc.resumed": event.resumed})
        if event.incarnation == _FIRST:
            return
        kind: Attributes = {"cmdc.reason": names.kind_of(event.reason)}
        facts: Attributes = {
            "cmdc.resumed": event.resumed,
            "cmdc.restart.incarnation": int(event.incarnation),
        }
        self._spans.note(names.SESSION_RESTART, {**kind, **facts})
        self._spans.measure(names.SESSION_RESTARTS, 1, kind)

    def _open(self, more: Attributes, begun: CommandId | None = None) -> None:
        if self._spans.has(CYCLE):
            self._close(SpanEnding("unknown"))
        attributes = {**model_attributes(self._spans.facts.model), **more}
        self._spans.open_cycle(attributes, begun)
        self.requests.begin_cycle()
        self.calls.begin_cycle()
        self._pipelines = 0

    def _close(self, ending: SpanEnding) -> None:
        spans = self._spans
        if spans.has(REQUEST):
            self.requests.end(SpanEnding(ending.outcome))
        self.runs.close_all(ending.outcome)
        if ending.outcome == "aborted":
            self.calls.leave()
        else:
            self.calls.close_all(ending.outcome, spans.now_ns)
        if self._pipelines > PIPELINES_MAX:
            spans.describe(CYCLE, {"cmdc.pipelines.omitted": self._pipelines - PIPELINES_MAX})
        facts: Attributes = {
            "cmdc.outcome": ending.outcome,
            "cmdc.requests": self.requests.count,
            "cmdc.duration_ms": spans.elapsed_ms(CYCLE),
        }
        spans.note(names.AGENT_TURN, facts, CYCLE)
        kinds: Attributes = {"cmdc.outcome": ending.outcome, **error_kind(ending)}
        spans.measure(names.AGENT_TURN_DURATION, spans.elapsed_s(CYCLE), kinds)
        spans.close(CYCLE, ending)

    # --- notes ----------------------------------------------------------------------------------

    def note(self, event: events.Event) -> None:
        """Add to a span what the event's class says."""
        if event.span_note is not None:
            name, attributes = event.span_note
            facts = {attributes[field]: getattr(event, field) for field in attributes}
            self._spans.note(name, facts)

    # --- calls ----------------------------------------------------------------------------------

    def end_call(self, event: events.ToolExecutionEnd) -> None:
        """Close a call, and what it ran."""
        self.runs.close_of(event.call_id, "unknown")
        self.calls.end(event)

    def kill_call(self, event: events.ToolKilled) -> None:
        """Close a call that was ended from outside, and what it ran."""
        self.runs.close_of(event.call_id, "killed")
        self.calls.kill(event)

    # --- plugins --------------------------------------------------------------------------------

    def run_pipeline(self, event: PipelineRun) -> None:
        """Measure what plugins took at a hook, and note it where a cycle runs."""
        hook: Attributes = {"cmdc.hook": event.hook}
        self._spans.measure(names.PLUGIN_PIPELINE_DURATION, event.duration_ms / _MS_PER_S, hook)
        if event.ignored:
            self._spans.measure(names.PLUGIN_ACTIONS_IGNORED, len(event.ignored), hook)
        if self._spans.innermost() is None:
            return
        self._pipelines += 1
        if self._pipelines > PIPELINES_MAX:
            return
        facts: Attributes = {"cmdc.duration_ms": event.duration_ms, "cmdc.plugins": event.plugins}
        if event.halted_by is not None:
            facts["cmdc.halted_by"] = event.halted_by
        if event.crashed:
            facts["cmdc.crashed"] = event.crashed
        self._spans.note(names.PLUGIN_PIPELINE, {**hook, **facts})

    def start_subagent(self, event: events.SubagentStart) -> None:
        """Record which session works for a call, and go on with the span of its branch."""
        self.calls.start_subagent(event)
        self.runs.resume(event)

    def crash_plugin(self, event: events.PluginCrashed) -> None:
        """Record which plugin crashed at which hook."""
        facts: Attributes = {"cmdc.plugin": event.plugin, "cmdc.hook": event.hook}
        self._spans.measure(names.PLUGIN_CRASHES, 1, facts)
        if self._spans.captures:
            facts = {**facts, "exception.message": event.error}
        self._spans.note(names.PLUGIN_CRASH, facts)


Handler = Callable[[Tracker, Any], None]  # Any: the event of the row
# fmt: off
_ROWS: Final[Mapping[type[Observed], Handler]] = MappingProxyType({
    events.AgentAbort:            Tracker.abort,
    events.AgentEnd:              Tracker.finish,
    events.AgentError:            Tracker.fail,
    events.AgentRecovered:        Tracker.recover,
    events.AgentResumed:          Tracker.keep_trigger,
    events.AgentStart:            Tracker.start,
    events.ConversationCompacted: lambda one, event: one.requests.compact(event),
    events.LoopDetected:          lambda one, event: one.calls.loop(event),
    events.MessageStart:          lambda one, event: one.requests.begin_answer(event),
    events.PluginCrashed:         Tracker.crash_plugin,
    events.PluginModelCall:       lambda one, event: one.requests.spend_by_plugin(event),
    events.PromptDropped:         Tracker.drop_prompt,
    events.PromptReceived:        Tracker.keep_prompt,
    events.ReasoningBranch:       lambda one, event: one.runs.branch(event),
    events.ReasoningDone:         lambda one, event: one.runs.finish(event),
    events.ReasoningPrune:        lambda one, event: one.runs.prune(event),
    events.ReasoningScore:        lambda one, event: one.runs.score(event),
    events.ReasoningThought:      lambda one, event: one.runs.thought(event),
    events.RequestCut:            lambda one, event: one.requests.cut(event),
    events.RequestStart:          lambda one, event: one.requests.start(event),
    events.ResponseComplete:      lambda one, event: one.requests.complete(event),
    events.Retry:                 lambda one, event: one.requests.retry(event),
    events.StreamError:           lambda one, event: one.requests.fail(event),
    events.SubagentEnd:           lambda one, event: one.calls.end_subagent(event),
    events.SubagentStart:         Tracker.start_subagent,
    events.ThinkingStart:         lambda one, event: one.requests.begin_answer(event),
    events.ToolBlocked:           lambda one, event: one.calls.block(event),
    events.ToolCallUnknown:       lambda one, event: one.calls.miss(event),
    events.ToolExecutionEnd:      Tracker.end_call,
    events.ToolExecutionMetrics:  lambda one, event: one.calls.time(event),
    events.ToolExecutionStart:    lambda one, event: one.calls.start(event),
    events.ToolKilled:            Tracker.kill_call,
    PipelineRun:                  Tracker.run_pipeline,
})
# fmt: on
_HANDLERS: Final[Mapping[type[Observed], Handler]] = MappingProxyType(
    {**{kind: Tracker.note for kind in events.Event.__subclasses__() if kind.span_note}, **_ROWS}
)
TRACKED: Final = frozenset(_HANDLERS)
"""What the tracker makes spans of."""
_WITH_ABORT: Final = frozenset(
    {events.ToolBlocked, events.ToolExecutionEnd, events.ToolKilled, events.PromptDropped}
)
"""What may follow the end of a cycle and belongs to it still."""
_IN_CYCLE: Final = frozenset(
    {
        events.AgentEnd,
        events.AgentError,
        events.RequestStart,
        events.ResponseComplete,
        events.ToolExecutionStart,
    }
)
"""What happens in a cycle only, so that one has begun."""
