"""What our own work reports, and what comes of it in each state."""

from dataclasses import fields, replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.commands import Prompt
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    ContextOverflow,
    MessageDelta,
    MessageStart,
    ResponseComplete,
    Retry,
    StatusUpdate,
    StreamReset,
    StreamStalled,
    ThinkingDelta,
    ThinkingStart,
    TitleGenerated,
    ToolCallUnknown,
    ToolExecutionEnd,
    ToolExecutionMetrics,
    ToolExecutionStart,
)
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import TokenUsage, ToolCall
from workers.core import commands, results
from workers.core.assemble import Reply
from workers.core.records import CycleEnded, ToolEnded, ToolStarted, TurnSpent
from workers.core.retry import Backoff
from workers.core.state import (
    CallModel,
    FirstChunk,
    Keep,
    Memory,
    Order,
    Policy,
    Publish,
    Result,
    RetryDue,
    RunTools,
    Sleep,
    State,
    Step,
    StreamEnded,
    StreamFailed,
    StreamSilent,
    TextArrived,
    ThoughtArrived,
    ToolBegun,
    ToolReturned,
)

ENDS = AgentEnd | AgentAbort | AgentError
DONE = Reply("", None, (), TokenUsage(prompt_tokens=2, total_tokens=2), "stop")
KINDS = get_args(Result)
TRANSIENT, PERMANENT = FailureKind.TRANSIENT, FailureKind.PERMANENT
OVERFLOW, TIMEOUT = FailureKind.OVERFLOW, FailureKind.TIMEOUT
INPUTS = {
    FirstChunk: (),
    TextArrived: ("hi",),
    ThoughtArrived: ("hm",),
    StreamSilent: (30.0,),
    StreamEnded: (DONE, 9),
    StreamFailed: (PERMANENT, "no", 9),
    RetryDue: (9,),
    ToolBegun: ("a", 9),
    ToolReturned: ("a", True, "fine", 9),
}


def calling(*call_ids):
    calls = tuple(ToolCall(call_id=call_id, name=f"tool_{call_id}") for call_id in call_ids)
    return Reply("", None, calls, None, "tool_calls")


def report(step, kind, *rest):
    return results.apply(step.state, step.memory, kind(step.memory.work, *rest))


def prompted(**policy):
    memory = Memory(policy=Policy(**policy), model="m")
    order = Order("p-1", Prompt(text="go"), at_ms=1)
    return commands.apply(State.IDLE, memory, order)


def streaming(**policy):
    return report(prompted(**policy), FirstChunk)


def executing(*call_ids, **policy):
    return report(streaming(**policy), StreamEnded, calling(*call_ids), 2)


def at(state):
    step = {
        State.IDLE: lambda: report(streaming(), StreamEnded, DONE, 9),
        State.RUNNING: prompted,
        State.STREAMING: streaming,
        State.EXECUTING_TOOLS: lambda: executing("a", "b"),
    }[state]()
    assert step.state is state
    return step


def events(step, kind):
    seen = (effect.event for effect in step.effects if isinstance(effect, Publish))
    return [event for event in seen if isinstance(event, kind)]


def records(step, kind):
    seen = (effect.record for effect in step.effects if isinstance(effect, Keep))
    return [record for record in seen if isinstance(record, kind)]


def of(step, kind):
    return [effect for effect in step.effects if isinstance(effect, kind)]


def test_every_result_has_a_row():
    """A result that no state takes is work for nothing."""
    without = set(KINDS) - {kind for _, kind in results.TRANSITIONS}

    assert without == set(), f"{without} -> add a row in workers/core/results.py"
    assert set(INPUTS) == set(KINDS)


@pytest.mark.parametrize(("state", "kind"), results.TRANSITIONS)
def test_every_row_can_be_reached(state, kind):
    """A row that real inputs come to does something there."""
    before = at(state)
    after = report(before, kind, *INPUTS[kind])

    assert after != Step(before.state, before.memory)


@given(st.sampled_from(State), st.sampled_from(KINDS), st.integers(-3, 9))
def test_a_late_result_changes_nothing(state, kind, work):
    """Of other work in any state, or of the current work where the state has no row."""
    before = at(state)
    is_current = work == before.memory.work
    result = kind(work, *INPUTS[kind])
    after = results.apply(before.state, before.memory, result)

    if not is_current or (state, kind) not in results.TRANSITIONS:
        assert after == Step(before.state, before.memory)


def test_every_result_names_its_work():
    """Without the number a late one could not be told from a current one."""
    assert [fields(kind)[0].name for kind in KINDS] == ["work"] * len(KINDS)


def test_text_is_shown_as_it_comes():
    """One start, then the pieces; tags are taken out and told beside them."""
    step = streaming()
    one = report(step, TextArrived, "a<status>looking</status>b")
    two = report(one, TextArrived, "c<title>T</title><sta")
    end = report(two, StreamEnded, DONE, 5)

    assert len(events(one, MessageStart)) == 1
    assert [event.text for event in events(one, StatusUpdate)] == ["looking"]
    assert [event.delta for event in events(one, MessageDelta)] == ["ab"]
    assert events(two, MessageStart) == []
    assert [event.title for event in events(two, TitleGenerated)] == ["T"]
    assert [event.delta for event in events(end, MessageDelta)] == ["<sta"]
    assert events(end, ResponseComplete)[0].message.content == "abc<sta"


def test_thinking_is_shown_beside_the_text():
    """One start, and no word of it gets into the answer."""
    one = report(streaming(), ThoughtArrived, "x")
    two = report(one, ThoughtArrived, "y")
    reply = Reply("", "xy", (), None, None)
    message = events(report(two, StreamEnded, reply, 5), ResponseComplete)[0].message

    assert len(events(one, ThinkingStart) + events(two, ThinkingStart)) == 1
    assert [event.delta for event in events(two, ThinkingDelta)] == ["y"]
    assert (message.content, message.thinking) == ("", "xy")


def test_an_answer_without_calls_ends_the_cycle():
    """It is stored, paid for, and told once."""
    step = report(report(streaming(), TextArrived, "hello"), StreamEnded, DONE, 5)
    (ended,) = events(step, ENDS)

    assert (step.state, step.memory.cycle) == (State.IDLE, None)
    assert [message.content for message in ended.messages] == ["go", "hello"]
    assert ended.usage == step.memory.usage == DONE.usage
    assert records(step, TurnSpent) == [TurnSpent(usage=DONE.usage)]
    assert [seen.outcome for seen in step.memory.outcomes] == ["finished"]


@given(st.permutations("abcd"))
def test_results_are_stored_in_call_order(arrival):
    """Four calls need four results, whatever order they come in; then the model is asked."""
    step = executing(*"abcd")
    for count, call_id in enumerate(arrival, 1):
        step = report(step, ToolReturned, call_id, True, f"of {call_id}", 5)

        assert (step.state is State.EXECUTING_TOOLS) == (count < 4)
        assert len(records(step, ToolEnded)) == 1
    (asked,) = of(step, CallModel)

    assert [message.call_id for message in asked.messages[-4:]] == [*"abcd"]
    assert step.memory.calls == ()


def test_a_call_has_one_result():
    """A second result, and one of a call that nobody made, are dropped."""
    step = report(executing("a", "b"), ToolReturned, "a", True, "first", 5)
    for again in ("a", "z"):
        after = report(step, ToolReturned, again, True, "again", 6)

        assert after == Step(step.state, step.memory)
    assert report(step, ToolBegun, "z", 6) == Step(step.state, step.memory)


def test_a_call_is_written_down_before_it_is_told():
    """The record comes first, then the start and its time."""
    step = report(executing("a"), ToolBegun, "a", 100)
    started = ToolExecutionStart(name="tool_a", call_id="a", args={})

    assert step.effects[0] == Keep(ToolStarted(call_id="a", at_ms=100))
    assert events(step, ToolExecutionStart) == [started]
    assert events(step, ToolExecutionMetrics)[0].meta == {"started_at_ms": 100}


def test_a_clock_that_steps_back_makes_no_negative_duration():
    """Times are wall times; the duration stops at 0."""
    begun = report(executing("a"), ToolBegun, "a", 100)
    step = report(begun, ToolReturned, "a", False, "bad", 40)

    assert events(step, ToolExecutionMetrics)[0].meta == {
        "started_at_ms": 100,
        "ended_at_ms": 40,
        "duration_ms": 0,
    }
    assert events(step, ToolExecutionEnd) == [
        ToolExecutionEnd(name="tool_a", call_id="a", ok=False, text="bad")
    ]


def test_an_unknown_tool_is_told():
    """It never began, so it has no times; the batch goes on as with any other error."""
    result = ToolReturned(0, "a", ok=False, text="no such tool", at_ms=5, is_unknown=True)
    step = executing("a")
    step = results.apply(step.state, step.memory, replace(result, work=step.memory.work))

    assert events(step, ToolCallUnknown) == [ToolCallUnknown(name="tool_a", call_id="a")]
    assert events(step, ToolExecutionMetrics) == []
    assert step.state is State.RUNNING


def test_the_last_turn_ends_the_cycle():
    """``max_turns`` requests are made and not one more; the history stays valid."""
    step = executing("a", max_turns=1)
    step = report(step, ToolReturned, "a", True, "fine", 5)
    (ended,) = events(step, ENDS)

    assert of(step, CallModel) == []
    assert (step.state, ended.reason) == (State.IDLE, "max_turns_exceeded")
    assert step.memory.messages[-1].call_id == "a"


@pytest.mark.parametrize("begin", [prompted, streaming], ids=["running", "streaming"])
def test_silence_is_told(begin):
    """Before and between chunks; the request goes on."""
    before = begin()
    step = report(before, StreamSilent, 30.0)

    assert step == Step(before.state, before.memory, (Publish(StreamStalled(elapsed_s=30.0)),))


@pytest.mark.parametrize("begin", [prompted, streaming], ids=["running", "streaming"])
@pytest.mark.parametrize(
    ("kind", "retries", "ending"),
    [
        (TRANSIENT, 2, (AgentError, "failed", "why")),
        (TIMEOUT, 2, (AgentAbort, "aborted", "provider_timeout")),
        (PERMANENT, 0, (AgentError, "failed", "why")),
        (OVERFLOW, 0, (AgentAbort, "aborted", "context_overflow")),
    ],
    ids=["transient", "timeout", "permanent", "overflow"],
)
def test_a_failure_is_retried_as_its_kind_allows(begin, kind, retries, ending):
    """Then the cycle ends: one event, one record, one outcome."""
    event, outcome, reason = ending
    step, asked, ends, kept = begin(max_retries=2), 0, [], []
    for _ in range(retries + 1):
        step = report(step, StreamFailed, kind, "why", 9)
        ends += events(step, ENDS)
        kept += records(step, CycleEnded)
        if of(step, Sleep):
            step = report(step, RetryDue, 9)
            asked += len(of(step, CallModel))

    assert asked == retries
    assert [type(seen) for seen in ends] == [event]
    assert ends[0].reason == reason
    assert kept == [CycleEnded(command_id="p-1", outcome=outcome, reason=reason)]
    assert [(seen.outcome, seen.reason) for seen in step.memory.outcomes] == [(outcome, reason)]
    assert step.state is State.IDLE


@pytest.mark.parametrize(("kind", "retryable"), [(TRANSIENT, True), (PERMANENT, False)])
def test_an_error_says_whether_later_may_work(kind, retryable):
    """A provider that is down may come back; a wrong key will not."""
    step = report(streaming(max_retries=0), StreamFailed, kind, "why", 9)

    assert events(step, AgentError)[0].retryable == retryable


def test_an_overflow_is_told_as_such():
    """Observers learn that the conversation is what did not fit."""
    step = report(prompted(), StreamFailed, OVERFLOW, "too long", 9)

    assert events(step, ContextOverflow) == [ContextOverflow(reason="too long")]


@pytest.mark.parametrize(
    ("kind", "resets"), [(None, 0), (TextArrived, 1), (ThoughtArrived, 1)], ids=str
)
def test_what_was_shown_of_a_failed_answer_is_taken_back(kind, resets):
    """Only where something was shown; the next attempt starts from nothing."""
    step = streaming() if kind is None else report(streaming(), kind, "part")
    step = report(step, StreamFailed, TRANSIENT, "broke", 9)

    assert len(events(step, StreamReset)) == resets
    assert step.memory.answering.text == ""


def test_the_delay_is_told_and_kept():
    """The event and the timer name the same delay; the attempt is a number from 1."""
    backoff = Backoff(base_s=2.0, cap_s=60.0, jitter=0.5)
    before = prompted(backoff=backoff)
    failed = StreamFailed(before.memory.work, TRANSIENT, "busy", 9, chance=1.0)
    step = results.apply(before.state, before.memory, failed)

    assert of(step, Sleep) == [Sleep(step.memory.work, 3.0)]
    assert events(step, Retry) == [Retry(attempt=1, delay_ms=3000, reason="busy")]


def test_retries_are_counted_for_each_request():
    """An answer makes the next request of the cycle start counting anew."""
    step = report(prompted(max_retries=1), StreamFailed, TRANSIENT, "busy", 9)
    step = report(report(step, RetryDue, 9), FirstChunk)
    step = report(step, StreamEnded, calling("a"), 9)
    assert of(step, RunTools)[0].turn == 1
    step = report(step, ToolReturned, "a", True, "fine", 9)
    step = report(step, StreamFailed, TRANSIENT, "busy", 9)

    assert events(step, Retry)[0].attempt == 1
