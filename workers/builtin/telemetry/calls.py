"""What a session does as spans: tool calls, requests to the model, runs of reasoning strategies.

There is one ``execute_tool`` for each call that begins, be they parallel, one ``chat`` for each
request, also for one that is sent again, one ``reason`` for each run and one ``branch`` for each
branch. A call that never begins (a plugin refuses it, there is no such tool) is an event of the
cycle.

What was said is written down as the semantic conventions have it: messages as JSON of bounded size,
a message as a role with parts: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cmdc_runtime import events
from cmdc_runtime.ids import CallId, SessionId, branch_ref, call_of_run
from cmdc_runtime.messages import OPENING, Message
from cmdc_runtime.tracing import branch_span_id, call_span_id
from workers.builtin.telemetry import names
from workers.builtin.telemetry.spans import (
    CYCLE,
    REQUEST,
    Attributes,
    OpenSpans,
    SpanEnding,
    SpanPlace,
    error_kind,
    model_attributes,
    request_kinds,
    usage_attributes,
)

# --- content --------------------------------------------------------------------------------------

TEXT_CHARS_MAX: Final = 8_192
"""Of one text, or of what a tool was given or returned."""
MESSAGES_CHARS_MAX: Final = 65_536
"""Of all messages of one attribute: the newest are kept."""
_ROLES: Final = {"tool_result": "tool"}


def messages_json(messages: Sequence[Message]) -> tuple[str, int]:
    """Return the newest messages as JSON, oldest first, and how many were left out."""
    kept: list[str] = []
    chars = 0
    for message in reversed(messages):
        facts = _json(_message_facts(message))
        chars += len(facts)
        if kept and chars > MESSAGES_CHARS_MAX:
            break
        kept.append(facts)
    return f"[{','.join(reversed(kept))}]", len(messages) - len(kept)


def arguments_json(arguments: object) -> str:
    """Return the arguments of a call as JSON."""
    return text_of(_json(arguments))


def text_of(text: str) -> str:
    """Return a text with a mark in the place of what is too much of it."""
    left = len(text) - TEXT_CHARS_MAX
    return text if left <= 0 else f"{text[:TEXT_CHARS_MAX]}… ({left} more characters)"


def _message_facts(message: Message) -> dict[str, Any]:  # Any: JSON
    facts: dict[str, Any] = {
        "role": _ROLES.get(message.role, message.role),
        "parts": list(_parts(message)),
    }
    if reason := message.metadata.get("finish_reason"):
        facts["finish_reason"] = str(reason)
    return facts


def _parts(message: Message) -> Iterator[dict[str, Any]]:  # Any: JSON
    if message.role == "tool_result":
        answer = text_of(message.content)
        yield {"type": "tool_call_response", "id": message.call_id, "response": answer}
        return
    if message.thinking:
        yield {"type": "reasoning", "content": text_of(message.thinking)}
    if message.content:
        yield {"type": "text", "content": text_of(message.content)}
    for call in message.tool_calls:
        given = arguments_json(call.arguments)
        yield {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": given}


def _json(thing: object) -> str:
    try:
        return msgspec.json.encode(thing).decode()
    except (TypeError, ValueError, RecursionError) as error:
        return msgspec.json.encode(f"{type(error).__name__}: no JSON").decode()


# --- tool calls -----------------------------------------------------------------------------------

CHILDREN_MAX: Final = 256
"""Subagents that are remembered until their end."""
_KILLED: Final = frozenset({"abandoned", "aborted", "steered"})
"""Words of the kernel for why a call was ended; other reasons are somebody's words."""


@dataclass(slots=True)
class _Call:
    name: str
    duration_ms: int | None = None


class Calls:
    """The calls that run, and the subagents that they wait for."""

    def __init__(self, spans: OpenSpans) -> None:
        """Record on ``spans``."""
        self._spans = spans
        self._running: dict[CallId, _Call] = {}
        self._left_ns: int | None = None
        self._ended: set[CallId] = set()
        """Whose end is there already: by what ended them, or since they never began."""
        self._children: dict[SessionId, str] = {}

    def begin_cycle(self) -> None:
        """Forget the cycle before."""
        self.close_left()
        self._ended.clear()

    def leave(self) -> None:
        """Take this as the end of what runs, unless more comes of it: the cycle was aborted."""
        self._left_ns = self._spans.now_ns

    def close_left(self) -> None:
        """Close what was left by an abort: whatever was ended with it has come."""
        if self._left_ns is not None:
            self.close_all("aborted", self._left_ns)
            self._left_ns = None

    def close_all(self, outcome: str, at_ns: int) -> None:
        """Close what nothing more comes of."""
        for call_id in self._running:
            self._spans.close(_key(call_id), SpanEnding(outcome), at_ns)
        self._running.clear()

    def span_of(self, call_id: CallId) -> str | None:
        """Return the span of a call that runs, None of another one."""
        return _key(call_id) if call_id in self._running else None

    def start(self, event: events.ToolExecutionStart) -> None:
        """Open a call."""
        if event.call_id in self._running:
            self._end(event.call_id, SpanEnding("unknown"))
        facts: Attributes = {}
        if self._spans.captures:
            facts = {names.TOOL_ARGUMENTS: arguments_json(event.args)}
        self._open(event.name, event.call_id, facts)

    def time(self, event: events.ToolExecutionMetrics) -> None:
        """Keep the time that a call took, as the session has measured it.

        Where only its time begins, it is made again by this process, which did not get its start.
        """
        if (call := self._running.get(event.call_id)) is not None:
            call.duration_ms = event.meta.get("duration_ms")
        elif "ended_at_ms" not in event.meta:
            self._open(event.name, event.call_id)

    def end(self, event: events.ToolExecutionEnd) -> None:
        """End a call."""
        ending = (
            SpanEnding("finished") if event.ok else SpanEnding("failed", "tool_error", event.text)
        )
        if self._left_ns is not None:  # the session waits for it no more
            ending = SpanEnding("aborted")
        if event.call_id in self._running:
            if self._spans.captures:
                facts: Attributes = {names.TOOL_RESULT: text_of(event.text)}
                self._spans.describe(_key(event.call_id), facts)
            self._end(event.call_id, ending)
        elif event.call_id in self._ended:
            self._ended.discard(event.call_id)
        else:  # it began in a process before this one
            self._note_refused(event.name, event.call_id, "unknown")

    def kill(self, event: events.ToolKilled) -> None:
        """End a call from outside."""
        if event.call_id not in self._running:
            return  # it had not begun
        why = event.reason if event.reason in _KILLED else "aborted"
        self._spans.describe(_key(event.call_id), {"cmdc.kill.reason": why})
        self._end(event.call_id, SpanEnding("killed", "killed", event.reason))
        self._ended.add(event.call_id)

    def block(self, event: events.ToolBlocked) -> None:
        """Record a call that is not made."""
        if event.call_id not in self._ended:
            self._ended.add(event.call_id)
            self._note_refused(event.name, event.call_id, "blocked")

    def miss(self, event: events.ToolCallUnknown) -> None:
        """Record a call of a tool that there is none of."""
        self._ended.add(event.call_id)
        self._note_refused(event.name, event.call_id, "no_such_tool")

    def loop(self, event: events.LoopDetected) -> None:
        """Record that the model repeats its calls."""
        facts: Attributes = {
            "cmdc.loop.type": event.type,
            "cmdc.loop.count": event.count,
            names.TOOL_NAME: event.name,
        }
        self._spans.note(names.LOOP_DETECTED, facts)

    def start_subagent(self, event: events.SubagentStart) -> None:
        """Record which session does the work of a call: its spans have that conversation's id."""
        self._children[event.child_session_id] = event.subagent_type
        if len(self._children) > CHILDREN_MAX:
            del self._children[next(iter(self._children))]
        if event.call_id in self._running:
            facts: Attributes = {
                "cmdc.subagent.type": event.subagent_type,
                "cmdc.subagent.session_id": event.child_session_id,
            }
            self._spans.describe(_key(event.call_id), facts)

    def end_subagent(self, event: events.SubagentEnd) -> None:
        """Record what a subagent came to; its requests are measured by its own session."""
        kind = self._children.pop(event.child_session_id, "unknown")
        outcome = "finished" if event.ok else "failed"
        kinds: Attributes = {"cmdc.subagent.type": kind, "cmdc.outcome": outcome}
        facts: Attributes = {"cmdc.subagent.session_id": event.child_session_id}
        self._spans.note(
            names.SUBAGENT_RUN,
            {**kinds, **facts, **usage_attributes(event.usage)},
            self.span_of(event.call_id),
            late_in=call_span_id(self._spans.facts.session_id, event.call_id),
        )
        self._spans.measure(names.SUBAGENT_RUNS, 1, kinds)

    def _open(self, name: str, call_id: CallId, facts: Attributes | None = None) -> None:
        more: Attributes = {names.TOOL_TYPE: "function", **_attributes(name, call_id)}
        more |= facts or {}
        place = SpanPlace(span_id=call_span_id(self._spans.facts.session_id, call_id))
        self._spans.open(_key(call_id), names.EXECUTE_TOOL, name, more, place)
        self._running[call_id] = _Call(name)

    def _end(self, call_id: CallId, ending: SpanEnding) -> None:
        spans, key = self._spans, _key(call_id)
        call = self._running.pop(call_id)
        took_ms = spans.elapsed_ms(key) if call.duration_ms is None else call.duration_ms
        summary: Attributes = {"cmdc.outcome": ending.outcome, "cmdc.duration_ms": took_ms}
        spans.note(names.TOOL_EXEC, {**_attributes(call.name, call_id), **summary}, key)
        kinds: Attributes = {names.TOOL_NAME: call.name, **error_kind(ending)}
        spans.measure(names.TOOL_EXEC_DURATION, took_ms / 1000, kinds)
        spans.close(key, ending)

    def _note_refused(self, name: str, call_id: CallId, outcome: str) -> None:
        facts: Attributes = {**_attributes(name, call_id), "cmdc.outcome": outcome}
        self._spans.note(names.TOOL_EXEC, facts)


def _key(call_id: CallId) -> str:
    return f"call {call_id}"


def _attributes(name: str, call_id: CallId) -> Attributes:
    return {names.TOOL_NAME: name, names.TOOL_CALL_ID: call_id}


# --- requests -------------------------------------------------------------------------------------


class RequestSpans:
    """The request that is under way, and what is known of earlier ones of the cycle."""

    def __init__(self, spans: OpenSpans) -> None:
        """Record on ``spans``."""
        self._spans = spans
        self._model = ""
        self._has_begun = False
        self._attempt = 1
        self.count = 0
        """Of the cycle."""

    def begin_cycle(self) -> None:
        """Forget the cycle before."""
        self._attempt, self.count = 1, 0

    def start(self, event: events.RequestStart) -> None:
        """Open a request."""
        if self._spans.has(REQUEST):
            self.end(SpanEnding("unknown"))
        more: Attributes = {"cmdc.request.messages": event.messages}
        if self._attempt > 1:
            more["cmdc.request.attempt"] = self._attempt
        if self._spans.captures:
            # The conversation may have grown since.
            sent = self._spans.facts.messages[: event.messages]
            more[names.INPUT_MESSAGES], omitted = messages_json(sent)
            if omitted:
                more["cmdc.request.messages_omitted"] = omitted
        self._open(event.model, more)

    def begin_answer(self, _event: events.MessageStart | events.ThinkingStart) -> None:
        """Take the time until the first piece of the answer."""
        spans = self._spans
        if self._has_begun or not spans.has(REQUEST):
            return
        self._has_begun = True
        waited_s = spans.elapsed_s(REQUEST)
        spans.describe(REQUEST, {names.TIME_TO_FIRST_CHUNK: waited_s})
        kinds = request_kinds(self._model)
        spans.measure(names.OPERATION_TIME_TO_FIRST_CHUNK, waited_s, kinds)

    def complete(self, event: events.ResponseComplete) -> None:
        """End the request: it has its answer."""
        spans, message = self._spans, event.message
        if OPENING in message.metadata:
            return  # no request was made for it
        if not spans.has(REQUEST):
            self._open(spans.facts.model, {"cmdc.begin": "unknown"})
        used = usage_attributes(event.usage)
        spans.describe(REQUEST, used)
        if reason := message.metadata.get("finish_reason"):
            spans.describe(REQUEST, {names.FINISH_REASONS: (str(reason),)})
        if spans.captures:
            spans.describe(REQUEST, {names.OUTPUT_MESSAGES: messages_json([message])[0]})
        spans.spend(event.usage, self._model, "answer")
        self.end(SpanEnding("finished"), used)
        self._attempt = 1

    def cut(self, event: events.RequestCut) -> None:
        """End the request: it was ended in the middle of its answer, and took about this much."""
        used = usage_attributes(event.usage)
        if self._spans.has(REQUEST):
            self._spans.describe(REQUEST, used)
            self.end(SpanEnding("aborted"), used)
        self._spans.spend(event.usage, self._model or self._spans.facts.model, "answer")

    def fail(self, event: events.StreamError) -> None:
        """End the request: it failed."""
        if self._spans.has(REQUEST):
            error = names.word_of(event.reason) or names.OTHER_ERROR
            self.end(SpanEnding("failed", error, event.reason))

    def end(self, ending: SpanEnding, facts: Attributes | None = None) -> None:
        """End the request."""
        spans = self._spans
        summary: Attributes = {
            "cmdc.outcome": ending.outcome,
            "cmdc.duration_ms": spans.elapsed_ms(REQUEST),
        }
        spans.note(names.LLM_REQUEST, {**summary, **(facts or {})})
        kinds = {**request_kinds(self._model), **error_kind(ending)}
        spans.measure(names.OPERATION_DURATION, spans.elapsed_s(REQUEST), kinds)
        spans.close(REQUEST, ending)

    def retry(self, event: events.Retry) -> None:
        """Record that the request will be sent again."""
        self._attempt = event.attempt + 1
        facts: Attributes = {"cmdc.attempt": event.attempt, "cmdc.delay_ms": event.delay_ms}
        self._spans.note(names.LLM_RETRY, facts)

    def compact(self, event: events.ConversationCompacted) -> None:
        """Record what was summed up, and count what that took."""
        trigger: Attributes = {"cmdc.trigger": event.trigger}
        facts: Attributes = {
            "cmdc.messages.before": event.before,
            "cmdc.messages.after": event.after,
        }
        self._spans.note(names.COMPACTOR_RUN, {**trigger, **facts, **usage_attributes(event.usage)})
        self._spans.measure(names.COMPACTOR_RUNS, 1, trigger)
        self._spans.spend(event.usage, self._spans.facts.model, "compaction")

    def spend_by_plugin(self, event: events.PluginModelCall) -> None:
        """Count what a plugin asked a model for itself."""
        self._spans.spend(event.usage, event.model, "plugin")

    def _open(self, model: str, more: Attributes) -> None:
        subject = names.model_id_of(model)
        attributes = {**model_attributes(model), **more}
        self._spans.open(REQUEST, names.CHAT, subject, attributes)
        self._model, self._has_begun = model, False
        self.count += 1


# --- reasoning ------------------------------------------------------------------------------------

NOTES_MAX: Final = 100
"""Scores, prunings and thoughts that a run's span has: a span has room for 128 events."""
RUNS_MAX: Final = 64
"""Open at a time; of more runs than that there are no spans."""
_RUN_KILLED: Final = "killed"
"""How a run and its branches end whose call is ended from outside: that is their error, too."""
_NO_FAILURE: Final = frozenset({"done", "aborted"})


@dataclass(slots=True)
class _Run:
    strategy: str
    branches: int = 0
    notes: int = 0
    running: set[str] = field(default_factory=set)


class Runs:
    """The runs of strategies that are under way in this session.

    The run's span is in that of the call which runs it, else in the cycle's; its branches are in
    the run's, and name their parents in the tree. What a branch's own session does is in the
    branch's span (``cmdc_runtime.tracing``). Scores, prunings and thoughts that no branch of this
    process has brought are events of the run.
    """

    def __init__(self, spans: OpenSpans, calls: Calls) -> None:
        """Record on ``spans``, of runs within ``calls``."""
        self._spans = spans
        self._calls = calls
        self._running: dict[str, _Run] = {}
        self._over: deque[str] = deque(maxlen=RUNS_MAX)
        """Runs that are closed: what comes of their branches later opens none anew."""

    def branch(self, event: events.ReasoningBranch) -> None:
        """Open a branch, and its run with the first one."""
        run = self._run(event.run_id, event.strategy)
        if run is None:
            return
        if event.branch_id in run.running:
            self._end(event.run_id, event.branch_id, SpanEnding("unknown"))
        more: Attributes = {}
        if event.parent_id is not None:
            more["cmdc.reasoning.parent_id"] = event.parent_id
        if event.revision:
            more["cmdc.reasoning.revision"] = event.revision
        if self._spans.captures:
            more["cmdc.reasoning.prompt"] = text_of(event.prompt)
        self._open(event.run_id, run, event.branch_id, more)

    def resume(self, event: events.SubagentStart) -> None:
        """Open a branch that runs again, since the process died that had reported its begin.

        What its session does is in this span, whose id is that of the one which was lost.
        """
        if event.of_run is None or event.strategy is None or event.branch_id is None:
            return
        run = self._run(event.of_run, event.strategy)
        if run is not None and event.branch_id not in run.running:
            facts: Attributes = {"cmdc.begin": "unknown"}
            self._open(event.of_run, run, event.branch_id, facts)

    def thought(self, event: events.ReasoningThought) -> None:
        """End a branch; another thought is an event of the run."""
        run = self._run(event.run_id, event.strategy)
        if run is None:
            return
        if event.thought_id not in run.running:
            facts: Attributes = {"cmdc.reasoning.thought_id": event.thought_id}
            self._note(event.run_id, names.REASONING_THOUGHT, facts)
            return
        facts = usage_attributes(event.usage)
        if self._spans.captures:
            facts["cmdc.reasoning.thought"] = text_of(event.content)
        self._spans.describe(_run_key(event.run_id, event.thought_id), facts)
        word = None if event.error is None else names.word_of(event.error) or names.OTHER_ERROR
        outcome = "finished" if word is None else "failed"
        self._end(event.run_id, event.thought_id, SpanEnding(outcome, word, event.error))

    def score(self, event: events.ReasoningScore) -> None:
        """Record how a thought was scored."""
        if self._run(event.run_id, event.strategy) is not None:
            facts: Attributes = {
                "cmdc.reasoning.thought_id": event.thought_id,
                "cmdc.reasoning.score": event.score,
            }
            self._note(event.run_id, names.REASONING_SCORE, facts)

    def prune(self, event: events.ReasoningPrune) -> None:
        """Record which thoughts were given up."""
        if self._run(event.run_id, event.strategy) is not None:
            facts: Attributes = {"cmdc.reasoning.thought_ids": event.thought_ids}
            self._note(event.run_id, names.REASONING_PRUNE, facts)

    def finish(self, event: events.ReasoningDone) -> None:
        """Close the run, and what still runs of it."""
        if self._run(event.run_id, event.strategy) is None:
            return
        outcome = "finished" if event.status == "done" else event.status
        error = None if event.status in _NO_FAILURE else event.status
        self._close(event.run_id, SpanEnding(outcome, error, event.reason))

    def close_of(self, call_id: CallId, outcome: str) -> None:
        """Close what a call that is over has left open; what was killed has failed."""
        error = outcome if outcome == _RUN_KILLED else None
        for run_id in [one for one in self._running if call_of_run(one) == call_id]:
            self._close(run_id, SpanEnding(outcome, error))

    def close_all(self, outcome: str) -> None:
        """Close what nothing more comes of."""
        for run_id in [*self._running]:
            self._close(run_id, SpanEnding(outcome))

    def _run(self, run_id: str, strategy: str) -> _Run | None:
        """Return a run; None after the cycle, which had closed it, and of too many.

        It is opened with what comes first, since this process may not have got its begin.
        """
        run = self._running.get(run_id)
        if run_id in self._over:
            return None
        if run is None and self._spans.has(CYCLE) and len(self._running) < RUNS_MAX:
            run = self._running[run_id] = _Run(strategy)
            more: Attributes = {"cmdc.reasoning.run_id": run_id, **_kinds(strategy)}
            place = SpanPlace(self._calls.span_of(call_of_run(run_id)))
            self._spans.open(_run_key(run_id), names.REASON, strategy, more, place)
        return run

    def _open(self, run_id: str, run: _Run, branch_id: str, more: Attributes) -> None:
        where, inside = _run_key(run_id, branch_id), _run_key(run_id)
        ref = branch_ref(call_of_run(run_id), branch_id)
        place = SpanPlace(inside, branch_span_id(self._spans.facts.session_id, ref))
        facts: Attributes = {"cmdc.reasoning.branch_id": branch_id, **_kinds(run.strategy), **more}
        self._spans.open(where, names.BRANCH, branch_id, facts, place)
        run.branches += 1
        run.running.add(branch_id)

    def _note(self, run_id: str, name: str, facts: Attributes) -> None:
        run = self._running[run_id]
        run.notes += 1
        if run.notes <= NOTES_MAX:
            self._spans.note(name, facts, _run_key(run_id))

    def _end(self, run_id: str, branch_id: str, ending: SpanEnding) -> None:
        self._running[run_id].running.discard(branch_id)
        self._spans.close(_run_key(run_id, branch_id), ending)

    def _close(self, run_id: str, ending: SpanEnding) -> None:
        spans, run, where = self._spans, self._running[run_id], _run_key(run_id)
        for branch_id in sorted(run.running):
            error = ending.error if ending.outcome == _RUN_KILLED else None
            self._end(run_id, branch_id, SpanEnding(ending.outcome, error))
        del self._running[run_id]
        self._over.append(run_id)
        facts: Attributes = {"cmdc.reasoning.branches": run.branches}
        if run.notes > NOTES_MAX:
            facts["cmdc.reasoning.omitted"] = run.notes - NOTES_MAX
        spans.describe(where, facts)
        kinds = {**_kinds(run.strategy), "cmdc.outcome": ending.outcome, **error_kind(ending)}
        spans.measure(names.REASONING_RUN_DURATION, spans.elapsed_s(where), kinds)
        spans.close(where, ending)


def _kinds(strategy: str) -> Attributes:
    return {"cmdc.reasoning.strategy": strategy}


def _run_key(run_id: str, branch_id: str | None = None) -> str:
    return f"run {run_id}" if branch_id is None else f"run {run_id} branch {branch_id}"
