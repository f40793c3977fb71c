"""Events in, spans and metrics out: one event a second, and what they amount to."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdc_runtime import events as ev
from cmdc_runtime.extensions.plugin import PipelineRun
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import Exception as ExceptionReason
from scripts.reference.sources import declared
from workers.builtin.telemetry.spans import Facts
from workers.builtin.telemetry.tracker import TRACKED

MODEL = "openai:gpt-5"
FACTS = Facts("s-1", MODEL, 2)
SECRET = "the launch code is 0000"
USAGE = TokenUsage(prompt_tokens=30, completion_tokens=7, cost_usd=0.25, cached_tokens=20)

START = ev.AgentStart(command_id="c-1")
REQUEST = ev.RequestStart(model=MODEL, messages=1)
BEGUN = ev.MessageStart()
DONE = Message(role="assistant", content=SECRET, metadata={"finish_reason": "stop"})
ANSWER = ev.ResponseComplete(message=DONE, usage=USAGE)
END = ev.AgentEnd(messages=(Message.user(SECRET), DONE), usage=USAGE, command_id="c-1")
ABORT = ev.AgentAbort(reason="enough", command_id="c-1")


def call(number, name="shell"):
    """Return the events of a call's begin."""
    return ev.ToolExecutionStart(
        name=name, call_id=f"t-{number}", args={"command": SECRET}, summary=SECRET
    )


def returned(number, *, ok=True, name="shell"):
    return ev.ToolExecutionEnd(name=name, call_id=f"t-{number}", ok=ok, text=SECRET)


def killed(number, reason="aborted"):
    return ev.ToolKilled(name="shell", call_id=f"t-{number}", reason=reason)


AGENT, CHAT, TOOL = "invoke_agent", "chat gpt-5", "execute_tool shell"
BLOCKED = ev.ToolBlocked(name="shell", call_id="t-1", reason=SECRET)
MISSED = ev.ToolCallUnknown(name="shel", call_id="t-1")
FAILED = ev.StreamError(reason="Timeout: after 3 s")
RETRY = ev.Retry(attempt=1, delay_ms=20, reason="Timeout: after 3 s")
ERROR = ev.AgentError(reason=f"RateLimitError: {SECRET}", retryable=True, command_id="c-1")
ODD_ERROR = ev.AgentError(reason=SECRET, retryable=False, command_id="c-1")
CUT = ev.RequestCut(usage=USAGE)
LIMIT = ev.AgentAbort(reason="max_turns_exceeded", command_id="c-1")
GONE = ev.PromptDropped(text=SECRET, command_id="c-2")
DIED = ExceptionReason(type="ValueError", message=SECRET)


TREE = {"run_id": "t-1@1", "strategy": "tree"}


def branch(number, **more):
    """Return the event of a branch's begin, in a run of the first call."""
    return ev.ReasoningBranch(**{**TREE, **more}, branch_id=f"b-{number}", prompt=SECRET)


def thought(number, error=None):
    return ev.ReasoningThought(
        **TREE, thought_id=f"b-{number}", content=SECRET, error=error, usage=USAGE
    )


SCORE = ev.ReasoningScore(**TREE, thought_id="b-1", score=0.5, detail={"why": SECRET})
PRUNE = ev.ReasoningPrune(**TREE, thought_ids=("b-1",), reason=SECRET)
RUN, BRANCH_1, BRANCH_2 = "reason tree", "branch b-1", "branch b-2"
TIMED_OUT = ev.ReasoningDone(**TREE, status="timeout", answer=SECRET, reason=SECRET)


def recovered(resumed):
    return ev.AgentRecovered(incarnation=2, reason=DIED, resumed=resumed)


# fmt: off
SEQUENCES = {
    "an answer": ([START, REQUEST, BEGUN, ANSWER, END], [
        (AGENT, None,  0, 4, "finished", None),
        (CHAT,  AGENT, 1, 3, "finished", None),
    ]),
    "a call": ([START, REQUEST, ANSWER, call(1), returned(1), REQUEST, ANSWER, END], [
        (AGENT, None,  0, 7, "finished", None),
        (CHAT,  AGENT, 1, 2, "finished", None),
        (TOOL,  AGENT, 3, 4, "finished", None),
        (CHAT,  AGENT, 5, 6, "finished", None),
    ]),
    "parallel calls": (
        [START, REQUEST, ANSWER, call(1), call(2, "grep"), returned(2, ok=False, name="grep"),
         returned(1), END], [
        (AGENT, None,  0, 7, "finished", None),
        (CHAT,  AGENT, 1, 2, "finished", None),
        (TOOL,  AGENT, 3, 6, "finished", None),
        ("execute_tool grep", AGENT, 4, 5, "failed", "tool_error"),
    ]),
    "a call that a plugin blocks": ([START, REQUEST, ANSWER, BLOCKED, returned(1, ok=False), END], [
        (AGENT, None,  0, 5, "finished", None),
        (CHAT,  AGENT, 1, 2, "finished", None),
    ]),
    "a retry": ([START, REQUEST, BEGUN, FAILED, ev.StreamReset(), RETRY, REQUEST, ANSWER, END], [
        (AGENT, None,  0, 8, "finished", None),
        (CHAT,  AGENT, 1, 3, "failed",   "Timeout"),
        (CHAT,  AGENT, 6, 7, "finished", None),
    ]),
    "an error": ([START, REQUEST, FAILED, ERROR], [
        (AGENT, None,  0, 3, "failed", "RateLimitError"),
        (CHAT,  AGENT, 1, 2, "failed", "Timeout"),
    ]),
    "an error without a name": ([START, ODD_ERROR], [
        (AGENT, None,  0, 1, "failed", "_OTHER"),
    ]),
    "an abort of a request": ([START, REQUEST, ABORT], [
        (AGENT, None,  0, 2, "aborted", None),
        (CHAT,  AGENT, 1, 2, "aborted", None),
    ]),
    "an abort of an answer": ([START, REQUEST, BEGUN, CUT, ABORT], [
        (AGENT, None,  0, 4, "aborted", None),
        (CHAT,  AGENT, 1, 3, "aborted", None),
    ]),
    "an abort at a limit": ([START, LIMIT], [
        (AGENT, None,  0, 1, "aborted", "max_turns_exceeded"),
    ]),
    "an abort of calls": ([START, call(1), call(2), ABORT, killed(2), GONE, killed(1), START], [
        (AGENT, None,  0, 3, "aborted", None),
        (TOOL,  AGENT, 1, 6, "killed",  "killed"),
        (TOOL,  AGENT, 2, 4, "killed",  "killed"),
        (AGENT, None,  7, 8, "stopped", None),
    ]),
    "an abort that leaves a call": ([START, call(1), ABORT, START, END], [
        (AGENT, None,  0, 2, "aborted", None),
        (TOOL,  AGENT, 1, 2, "aborted", None),
        (AGENT, None,  3, 4, "finished", None),
    ]),
    "an abort of nothing": ([ev.AgentAbort(reason="enough")], []),
    "a call that steering ends": ([START, call(1), killed(1, "steered"), REQUEST, ANSWER, END], [
        (AGENT, None,  0, 5, "finished", None),
        (TOOL,  AGENT, 1, 2, "killed",   "killed"),
        (CHAT,  AGENT, 3, 4, "finished", None),
    ]),
    "a crash in a request": ([recovered("stream"), ev.StreamReset(), REQUEST, ANSWER, END], [
        (AGENT, None,  0, 4, "finished", None),
        (CHAT,  AGENT, 2, 3, "finished", None),
    ]),
    "a crash in a call": ([recovered("tools"), returned(1, ok=False), call(2), returned(2), END], [
        (AGENT, None,  0, 4, "finished", None),
        (TOOL,  AGENT, 2, 3, "finished", None),
    ]),
    "a crash between cycles": ([recovered("idle"), START, END], [
        ("session.restart", None, 0, 0, None, None),
        (AGENT, None,  1, 2, "finished", None),
    ]),
    "the last of many crashes": (
        [recovered("idle"), ev.AgentAbort(reason="crashed(signal)", command_id="c-1")], [
        ("session.restart", None, 0, 0, None, None),
        (AGENT, None,  1, 1, "aborted", "crashed"),
    ]),
    "the end of a session in a call": ([START, call(1)], [
        (AGENT, None,  0, 2, "stopped", None),
        (TOOL,  AGENT, 1, 2, "stopped", None),
    ]),
    "a cycle whose end was missed": ([START, REQUEST, START, END], [
        (AGENT, None,  0, 2, "unknown", None),
        (CHAT,  AGENT, 1, 2, "unknown", None),
        (AGENT, None,  2, 3, "finished", None),
    ]),
    "an answer that was missed": ([START, REQUEST, REQUEST, ANSWER, END], [
        (AGENT, None,  0, 4, "finished", None),
        (CHAT,  AGENT, 1, 2, "unknown",  None),
        (CHAT,  AGENT, 2, 3, "finished", None),
    ]),
    "a result that was missed": ([START, call(1), call(1), END], [
        (AGENT, None,  0, 3, "finished", None),
        (TOOL,  AGENT, 1, 2, "unknown",  None),
        (TOOL,  AGENT, 2, 3, "finished", None),
    ]),
    "a beginning that was missed": ([ANSWER, call(1), END], [
        (AGENT, None,  0, 2, "finished", None),
        (CHAT,  AGENT, 0, 0, "finished", None),
        (TOOL,  AGENT, 1, 2, "finished", None),
    ]),
    "what comes when nothing runs": (
        [FAILED, BEGUN, returned(1), killed(1), RETRY, PipelineRun(
            hook="after_turn", duration_ms=1, plugins=1)], [
        ("tool.exec", None, 2, 2, None, None),
        ("llm.retry", None, 4, 4, None, None),
    ]),
    "a run of a strategy": (
        [START, call(1), branch(1), branch(2, parent_id="b-1"), thought(2, "Timeout: 3 s"),
         thought(1), SCORE, PRUNE, ev.ReasoningDone(**TREE, status="done", answer=SECRET),
         returned(1), END], [
        (AGENT,    None,  0, 10, "finished", None),
        (TOOL,     AGENT, 1, 9, "finished", None),
        (RUN,      TOOL,  2, 8, "finished", None),
        (BRANCH_1, RUN,   2, 5, "finished", None),
        (BRANCH_2, RUN,   3, 4, "failed", "Timeout"),
    ]),
    "a run that is cut off": ([START, call(1), branch(1), TIMED_OUT, returned(1), END], [
        (AGENT,    None,  0, 5, "finished", None),
        (TOOL,     AGENT, 1, 4, "finished", None),
        (RUN,      TOOL,  2, 3, "timeout", "timeout"),
        (BRANCH_1, RUN,   2, 3, "timeout", None),
    ]),
    "an abort of a run": ([START, call(1), branch(1), ABORT, killed(1), thought(1), TIMED_OUT], [
        (AGENT,    None,  0, 3, "aborted", None),
        (TOOL,     AGENT, 1, 4, "killed", "killed"),
        (RUN,      TOOL,  2, 3, "aborted", None),
        (BRANCH_1, RUN,   2, 3, "aborted", None),
    ]),
    "a run whose end was missed": ([START, call(1), branch(1), branch(1), returned(1), END], [
        (AGENT,    None,  0, 5, "finished", None),
        (TOOL,     AGENT, 1, 4, "finished", None),
        (RUN,      TOOL,  2, 4, "unknown", None),
        (BRANCH_1, RUN,   2, 3, "unknown", None),
        (BRANCH_1, RUN,   3, 4, "unknown", None),
    ]),
    "a run that is killed": ([START, call(1), branch(1), killed(1), END], [
        (AGENT,    None,  0, 4, "finished", None),
        (TOOL,     AGENT, 1, 3, "killed", "killed"),
        (RUN,      TOOL,  2, 3, "killed", "killed"),
        (BRANCH_1, RUN,   2, 3, "killed", "killed"),
    ]),
    "branches that end behind a killed run": ([
        START, call(1), branch(1), killed(1), thought(1), TIMED_OUT, END,
    ], [
        (AGENT,    None,  0, 6, "finished", None),
        (TOOL,     AGENT, 1, 3, "killed", "killed"),
        (RUN,      TOOL,  2, 3, "killed", "killed"),
        (BRANCH_1, RUN,   2, 3, "killed", "killed"),
    ]),
    "a crash in a run": ([recovered("tools"), thought(1), SCORE, TIMED_OUT, END], [
        (AGENT,    None,  0, 4, "finished", None),
        (RUN,      AGENT, 1, 3, "timeout", "timeout"),
    ]),
    "a sleep": ([START, END, ev.AgentHibernated(), ev.AgentWoken(incarnation=2)], [
        (AGENT, None,  0, 1, "finished", None),
    ]),
}
# fmt: on


@pytest.mark.parametrize(("heard", "outlines"), SEQUENCES.values(), ids=SEQUENCES)
def test_spans_of_a_sequence(heard, outlines, drawing_of):
    """Name, parent, begin, end, outcome and error of each span; nothing stays open."""
    assert drawing_of().play(*heard).end(len(heard)).outlines == outlines


EVERYTHING = [event for heard, _ in SEQUENCES.values() for event in heard]


@pytest.mark.parametrize("heard", [heard for heard, _ in SEQUENCES.values()], ids=SEQUENCES)
def test_content_stays_here(heard, drawing_of):
    """No prompt, answer, argument, result or text of an error is recorded unless wanted."""
    drawing = drawing_of().play(*heard).end(len(heard))

    assert "launch code" not in repr((drawing.spans, drawing.measures))


PARENTS = {RUN: (AGENT, TOOL), BRANCH_1: (RUN,), BRANCH_2: (RUN,)}
"""Of the spans that are not of a cycle."""


@settings(max_examples=300)
@given(
    heard=st.lists(st.sampled_from(EVERYTHING), max_size=40),
    ends=st.booleans(),
    captures=st.booleans(),
)
def test_any_sequence_keeps_the_rules(heard, ends, captures, drawing_of):
    """Events may be missing or double; each span is opened once, used while it is open, closed."""
    drawing = drawing_of(captures=captures).play(*heard)
    if ends:
        drawing.play(END, START, start=len(heard))
    drawing.end(len(heard) + 2)

    assert all(span.end is not None for span in drawing.spans)
    assert all(span.parent in PARENTS.get(span.name, (None, AGENT)) for span in drawing.spans)


def test_every_event_of_a_span_is_taken():
    """An event whose class names a span needs a span_note, or a row in _ROWS of its tracker.py."""
    assert {*(kind for kind in declared(ev.Event) if kind.span), PipelineRun} == TRACKED


def test_a_note_names_fields_that_there_are():
    """It is in a span that its class names, and holds no content."""
    noted = [kind for kind in declared(ev.Event) if kind.span_note is not None]

    assert noted
    for kind in noted:
        assert kind.span
        assert {*kind.span_note.attributes} <= {*kind.__struct_fields__} - {*kind.content_fields}
