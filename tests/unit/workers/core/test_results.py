"""What the model's answers, silences and failures lead to in each state.

The table itself is tested here too. What running tools report is in
``test_results_tool_reports.py``, what becomes of a summary in ``test_shrink.py``, what loaded tools
do in ``test_toolset.py``.
"""

from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cmdc_runtime import events
from cmdc_runtime.commands import Abort, AttachPlugin, AttachTools, Steer
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.packed_code import Packed
from workers.core import results
from workers.core.assemble import Reply
from workers.core.budget import Budget, Grant
from workers.core.children import Child
from workers.core.inputs import (
    ANY_WORK,
    ApprovalExpired,
    ApprovalRequest,
    BranchDropped,
    BranchTask,
    BranchWanted,
    ClientCallDropped,
    ClientCallWanted,
    CompactWanted,
    CycleExpired,
    DelegationDropped,
    FirstChunk,
    GuardrailsAnswered,
    HistoryFiltered,
    McpServerReported,
    McpToolsListed,
    Order,
    PluginAskedModel,
    PluginDelegated,
    PluginLoaded,
    PluginsAborted,
    PluginsAnswered,
    PluginsReported,
    QuestionAsked,
    Result,
    RetryDue,
    SteeringAnswered,
    Stopped,
    StreamEnded,
    StreamFailed,
    StreamSilent,
    SubagentDone,
    SubagentWanted,
    Summarized,
    SummaryFailed,
    TextArrived,
    ThoughtArrived,
    ToolBegun,
    ToolEmitted,
    ToolKept,
    ToolRefused,
    ToolReturned,
    ToolsLoaded,
    ToolStepReported,
    Tripped,
    WaitExpired,
)
from workers.core.records import Approval, CycleEnded, MessageAdded, TurnSpent
from workers.core.retry import Backoff
from workers.core.state import (
    Answering,
    AskingPlugins,
    Calling,
    Compacting,
    HandingOver,
    Memory,
    PendingAsk,
    PendingHandoff,
    PluginFacts,
    State,
    Summarizing,
    Waiter,
)
from workers.core.step import AnswerTool, CallModel, Publish, RunTools, Sleep, Summarize
from workers.core.tags import FoundTag, Tag
from workers.core.verdict import Aborted, Verdict

ENDS = events.AgentEnd | events.AgentAbort | events.AgentError
USED = TokenUsage(prompt_tokens=2, total_tokens=2)
DONE = Reply("", None, (), USED, "stop")
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
    Summarized: ("short", USED, None, 9),
    SummaryFailed: ("no", 9),
    HistoryFiltered: ("b", (), 9),
    GuardrailsAnswered: (Tripped("guard", "no"), 9),
    ToolBegun: ("a", 9),
    ApprovalRequest: ("a", RequireApproval(hint="sure?"), 9),
    ToolReturned: ("a", True, "fine", 9),
    ToolEmitted: ("a", "news", 1),
    ToolStepReported: ("a", events.PluginEvent(name="reasoning_thought", payload=None)),
    ToolKept: ("a", b"here", 1),
    QuestionAsked: ("a", "a:ask-1", "which?", ()),
    ClientCallWanted: ("a", "a:client-1", "o-1", {"n": 1}),
    ClientCallDropped: ("a", "a:client-1"),
    CompactWanted: ("a", "a:compact-1", "long"),
    SubagentWanted: ("a", "a:sub-1", "any", "do it"),
    BranchWanted: ("a", "a:branch-b1", BranchTask("do it"), "digest"),
    BranchDropped: ("a", "a:branch-b1"),
    PluginsAnswered: (Verdict(), 9),
    PluginsAborted: (Aborted("plugin", "no"), 9),
    ToolRefused: ("a", "no", 9),
}
STEER = Steer(text="left")
PACKED = Packed(kind="ref", label="guard", ref="guard")
OF_SESSION = {
    PluginLoaded: PluginLoaded(
        "c", AttachPlugin(plugin=PACKED), PluginFacts("guard", frozenset(), PACKED), Verdict()
    ),
    PluginAskedModel: PluginAskedModel("judge", "x:m", USED),
    PluginDelegated: PluginDelegated("judge", "plugin:judge-1", "any", "do it"),
    DelegationDropped: DelegationDropped("a:sub-1"),
    ApprovalExpired: ApprovalExpired("approval-1", 9),
    CycleExpired: CycleExpired("p-1", 10**9),
    WaitExpired: WaitExpired(9),
    McpServerReported: McpServerReported("files", "ready", 2),
    McpToolsListed: McpToolsListed("files", {"mcp__files__read": "d"}),
    Stopped: Stopped(9),
    SubagentDone: SubagentDone("s.1", True, "done", USED),
    ToolsLoaded: ToolsLoaded("c", AttachTools(tools=()), ()),
    PluginsReported: PluginsReported(Verdict(interventions=("mind",))),
    SteeringAnswered: SteeringAnswered(Order("s-1", STEER, 9), STEER, Verdict()),
}
IDLE, RUNNING, STREAMING, TOOLS = State
REQUEST, CYCLE = (RUNNING, STREAMING), (RUNNING, STREAMING, TOOLS)
ACTS = {
    FirstChunk: (RUNNING,),
    TextArrived: (STREAMING,),
    ThoughtArrived: (STREAMING,),
    StreamSilent: REQUEST,
    StreamEnded: (STREAMING,),
    StreamFailed: REQUEST,
    RetryDue: (RUNNING,),
    Summarized: (RUNNING, TOOLS),
    SummaryFailed: (RUNNING, TOOLS),
    HistoryFiltered: (RUNNING,),
    GuardrailsAnswered: REQUEST,
    PluginsAnswered: (RUNNING, TOOLS),
    PluginsAborted: CYCLE,
    CycleExpired: CYCLE,
    **dict.fromkeys((ToolBegun, ApprovalRequest, ToolRefused, ToolReturned), (TOOLS,)),
    **dict.fromkeys((ToolEmitted, ToolStepReported, QuestionAsked, CompactWanted), (TOOLS,)),
    ToolKept: (TOOLS,),
    **dict.fromkeys((SubagentWanted, BranchWanted, BranchDropped), (TOOLS,)),
    **dict.fromkeys((ClientCallWanted, ClientCallDropped), (TOOLS,)),
    Stopped: CYCLE,
    **dict.fromkeys((PluginsReported, PluginAskedModel, PluginDelegated), tuple(State)),
    **dict.fromkeys((DelegationDropped, SubagentDone, ApprovalExpired), tuple(State)),
    WaitExpired: tuple(State),
    **dict.fromkeys((McpServerReported, McpToolsListed), tuple(State)),
    **dict.fromkeys((SteeringAnswered, PluginLoaded, ToolsLoaded), tuple(State)),
}
"""Where each result changes something, or is published, while it is of the work under way."""
CELLS = [(state, kind) for kind, states in ACTS.items() for state in states]
LONG = tuple(Message(id=f"old-{n}", role="user", content="old") for n in range(12))


def prompted(session, **policy):
    return session.at(State.RUNNING, **policy)


def streaming(session, **policy):
    return prompted(session, **policy).report(FirstChunk)


BUSY = {"running": prompted, "streaming": streaming}
every_request = pytest.mark.parametrize("begin", BUSY.values(), ids=BUSY)


def long(session, **policy):
    """Return a running session whose conversation can be compacted."""
    return session.new(Memory(model="x:m", messages=LONG), **policy).prompt("go", "p-1")


def with_memory(session, **changed):
    return session.remembering(replace(session.memory, **changed))


SUMMARIES = (Summarized, SummaryFailed)


def prepared(session, state):
    """Return a session in ``state`` that waits for whatever may come there."""
    child = Child("s.1", "a", "a:sub-1", Grant())
    return with_memory(
        session.at(state, cycle_timeout_s=1.0),
        children=(child,),
        mcp_servers=(McpServer("files", command=["files"]),),
        approvals=(
            Approval(
                id="approval-1", call_id="x", tool="t", args={}, requested_at_ms=1, due_at_ms=5
            ),
        ),
        waiters=(Waiter("w", "p-1", due_ms=5),),
        asks=(PendingAsk("a:client-1", "a", "o-1"),),
        handoff=PendingHandoff("t", "b"),
    )


WANTED = Compacting(1, "size")
WAITS_FOR = {
    (State.RUNNING, PluginsAnswered): AskingPlugins("before_prompt"),
    (State.RUNNING, HistoryFiltered): HandingOver("b"),
    (State.EXECUTING_TOOLS, PluginsAnswered): Calling(WANTED, is_judged=True),
    **dict.fromkeys(((State.RUNNING, one) for one in SUMMARIES), Summarizing(WANTED)),
    **dict.fromkeys(((State.EXECUTING_TOOLS, one) for one in SUMMARIES), Calling(WANTED)),
}
"""What a session is doing that such a result comes to, where its state does not say it."""


# --- the table ----------------------------------------------------------------------------------


def test_every_result_is_played():
    """None is forgotten here, and none that no state takes is work for nothing."""
    assert {*INPUTS, *OF_SESSION} == set(KINDS) == set(ACTS)
    assert set(results.TRANSITIONS) == set(CELLS), "-> workers/core/results.py"


@pytest.mark.parametrize(("state", "kind"), CELLS)
def test_a_result_acts_where_it_can_come(session, state, kind):
    """It does something in each state that real inputs come to with it."""
    before = prepared(session, state)
    before = with_memory(before, activity=WAITS_FOR.get((state, kind), before.memory.activity))
    if kind in OF_SESSION:
        after = before.post(OF_SESSION[kind])
    else:
        after = before.report(kind, *INPUTS[kind])

    assert not after.is_unchanged(before)


@given(state=st.sampled_from(State), kind=st.sampled_from([*INPUTS]), work=st.integers(0, 9))
def test_a_late_result_changes_nothing(session, state, kind, work):
    """Of other work in any state, or of the current work where the state has no row."""
    before = prepared(session, state)
    after = before.post(kind(work, *INPUTS[kind]))

    if work != before.memory.work or (state, kind) not in CELLS:
        assert (after.state, after.memory) == (before.state, before.memory)
        assert {type(effect) for effect in after.step.effects} <= {AnswerTool}


@pytest.mark.parametrize(
    "kind", [QuestionAsked, ClientCallWanted, CompactWanted, SubagentWanted, BranchWanted]
)
def test_a_call_that_an_abort_left_running_waits_for_nothing(session, kind):
    """What it asks for belongs to a cycle that is over: it gets an error at once."""
    idle = session.at(State.IDLE)
    (answer,) = idle.post(kind(7, *INPUTS[kind])).step.effects

    assert isinstance(answer, AnswerTool)
    assert "over" in answer.error


def test_every_result_names_its_work():
    """Without the number a late one could not be distinguished from a current one."""
    assert [fields(kind)[0].name for kind in INPUTS] == ["work"] * len(INPUTS)
    assert [result.work for result in OF_SESSION.values()] == [ANY_WORK] * len(OF_SESSION)


# --- what the model says ------------------------------------------------------------------------


def test_text_is_shown_as_it_comes(session):
    """One start, then the pieces; tags are taken out and published beside them."""
    one = streaming(session).report(TextArrived, "a<status>looking</status>b")
    two = one.report(TextArrived, "c<title>T</title><sta")
    end = two.report(StreamEnded, DONE, 5)

    assert len(one.events(events.MessageStart)) == 1
    assert [event.text for event in one.events(events.StatusUpdate)] == ["looking"]
    assert [event.delta for event in one.events(events.MessageDelta)] == ["ab"]
    assert two.events(events.MessageStart) == []
    assert [event.title for event in two.events(events.TitleGenerated)] == ["T"]
    assert [event.delta for event in end.events(events.MessageDelta)] == ["<sta"]
    assert end.events(events.ResponseComplete)[0].message.content == "abc<sta"


def test_text_that_filters_have_read_is_shown_as_they_leave_it(session):
    """Tags are taken out already: what looks like one is text, and an emptied one is not shown."""
    found = (FoundTag(Tag.STATUS, ""), FoundTag(Tag.TITLE, "T"))
    after = streaming(session).report(TextArrived, "<status>b</status>", found)

    assert after.events(events.StatusUpdate) == []
    assert [event.title for event in after.events(events.TitleGenerated)] == ["T"]
    assert [event.delta for event in after.events(events.MessageDelta)] == ["<status>b</status>"]


@pytest.mark.parametrize(("reason", "kept"), [("length", "length"), (None, "")])
def test_an_answer_says_why_it_is_over(session, reason, kept):
    """As the provider said it, empty where it did not."""
    after = streaming(session).report(StreamEnded, Reply("", None, (), USED, reason), 5)
    (said,) = after.records(MessageAdded)

    assert said.message.metadata == {"finish_reason": kept}


def test_an_answer_that_a_limit_cannot_count_is_reported_once(session):
    """Until a cost is known again, or where no limit wants it, there is nothing new to say."""
    costly = {"budget": Budget(max_cost_usd=1.0), "price_of": lambda *_: 0.01}
    first = prompted(session, **costly).call("read:a")
    second = first.end("a").answer()
    free = prompted(session).answer()

    assert first.events(events.CostUnknown) == [events.CostUnknown(model="x:m")]
    assert second.events(events.CostUnknown) == free.events(events.CostUnknown) == []


def test_thinking_is_shown_beside_the_text(session):
    """One start, and no word of it gets into the answer."""
    one = streaming(session).report(ThoughtArrived, "x")
    two = one.report(ThoughtArrived, "y")
    ended = two.report(StreamEnded, Reply("", "xy", (), None, None), 5)
    message = ended.events(events.ResponseComplete)[0].message

    assert one.events() == [events.ThinkingStart(), events.ThinkingDelta(delta="x")]
    assert two.events() == [events.ThinkingDelta(delta="y")]
    assert (message.content, message.thinking) == ("", "xy")


def test_an_answer_without_calls_ends_the_cycle(session):
    """It is stored, paid for, and published once, with what its request took."""
    after = prompted(session).answer("hello", USED)
    (ended,) = after.events(ENDS)

    assert (after.state, after.memory.cycle) == (State.IDLE, None)
    assert [message.content for message in ended.messages] == ["go", "hello"]
    assert ended.usage == after.memory.usage == USED
    assert after.records(TurnSpent) == [TurnSpent(usage=USED)]
    assert after.events(events.ResponseComplete)[0].usage == USED
    assert [seen.outcome for seen in after.memory.outcomes] == ["finished"]


def test_an_answer_that_is_whole_is_not_said_again(session):
    """By an abort while plugins are asked about it: what was streamed is in the conversation."""
    asked = session.new(hooks={"after_response"}).prompt().answer("hello")
    after = asked.give(Abort())

    assert asked.memory.answering == Answering()
    assert [message.content for message in after.memory.messages] == ["go", "hello"]
    assert after.memory.usage == asked.memory.usage


def test_the_size_of_the_conversation_is_remembered(session):
    """As the provider counted it, for so many messages; about so large where it does not say."""
    counted = prompted(session).answer("hello", USED)
    uncounted = counted.prompt("more", "p-2").answer("yes", None)

    assert counted.memory.context == (2, 2)
    assert uncounted.memory.context == (4, 4)


def test_an_answer_with_calls_runs_them(session):
    """As one batch of the running turn."""
    after = prompted(session).call("read:a", "write:b")
    (run,) = after.of(RunTools)

    assert after.state is State.EXECUTING_TOOLS
    assert (run.turn, run.model) == (1, "x:m")
    assert [call.call_id for call in run.calls] == ["a", "b"]


# --- silence and failure ------------------------------------------------------------------------


@every_request
def test_silence_is_reported(session, begin):
    """Before and between chunks; the request goes on."""
    before = begin(session)
    after = before.report(StreamSilent, 30.0)

    published = (Publish(events.StreamStalled(elapsed_s=30.0)),)
    assert after.stands_as(before)
    assert after.effects == published


@every_request
@pytest.mark.parametrize(
    ("kind", "retries", "ending"),
    [
        (TRANSIENT, 2, (events.AgentError, "failed", "why")),
        (TIMEOUT, 2, (events.AgentAbort, "aborted", "provider_timeout")),
        (PERMANENT, 0, (events.AgentError, "failed", "why")),
        (FailureKind.UNREACHABLE, 0, (events.AgentError, "failed", "why")),
        (OVERFLOW, 0, (events.AgentAbort, "aborted", "context_overflow")),
    ],
    ids=["transient", "timeout", "permanent", "unreachable", "overflow"],
)
def test_a_failure_is_retried_as_its_kind_allows(session, begin, kind, retries, ending):
    """Then the cycle ends: one event, one record, one outcome."""
    event, outcome, reason = ending
    after, asked, ends, kept = begin(session, max_retries=2), 0, [], []
    for _ in range(retries + 1):
        after = after.report(StreamFailed, kind, "why", 9)
        ends += after.events(ENDS)
        kept += after.records(CycleEnded)
        if after.of(Sleep):
            after = after.report(RetryDue, 9)
            asked += len(after.of(CallModel))

    assert asked == retries
    assert [type(seen) for seen in ends] == [event]
    assert ends[0].reason == reason
    assert kept == [CycleEnded(command_id="p-1", outcome=outcome, reason=reason)]
    assert [(seen.outcome, seen.reason) for seen in after.memory.outcomes] == [(outcome, reason)]
    assert after.state is State.IDLE


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failure_is_reported_before_what_is_done_about_it(session, kind):
    """Each one and why, also where nobody gives up."""
    after = streaming(session).report(StreamFailed, kind, "why", 9)

    assert after.events()[0] == events.StreamError(reason="why")


@pytest.mark.parametrize(("kind", "retryable"), [(TRANSIENT, True), (PERMANENT, False)])
def test_an_error_says_whether_later_may_work(session, kind, retryable):
    """A provider that is down may come back; a wrong key will not."""
    after = streaming(session, max_retries=0).report(StreamFailed, kind, "why", 9)

    assert after.events(events.AgentError)[0].retryable == retryable


@pytest.mark.parametrize(
    ("kind", "resets"), [(None, 0), (TextArrived, 1), (ThoughtArrived, 1)], ids=str
)
@pytest.mark.parametrize("failure", [TRANSIENT, OVERFLOW])
def test_what_was_shown_of_a_failed_answer_is_taken_back(session, kind, resets, failure):
    """Only where something was shown; the next attempt starts from nothing."""
    after = long(session).report(FirstChunk)
    after = after if kind is None else after.report(kind, "part")
    after = after.report(StreamFailed, failure, "broke", 9)

    assert len(after.events(events.StreamReset)) == resets
    assert after.memory.answering.text == ""
    assert not after.memory.answering.is_text_started


def test_the_delay_is_published_and_kept(session):
    """The event and the timer name the same delay; the attempt is a number from 1."""
    backoff = Backoff(base_s=2.0, cap_s=60.0, jitter=0.5)
    before = prompted(session, backoff=backoff)
    after = before.report(StreamFailed, TRANSIENT, "busy", 9, chance=1.0)

    assert after.of(Sleep) == [Sleep(after.memory.work, 3.0)]
    assert after.events(events.Retry) == [events.Retry(attempt=1, delay_ms=3000, reason="busy")]


@every_request
def test_a_retry_has_a_number_that_no_work_had(session, begin):
    """What the failed request, or any work before it, still reports is late."""
    before = begin(session)
    after = before.report(StreamFailed, TRANSIENT, "busy", 9)

    assert after.memory.work > before.memory.work


def test_retries_are_counted_for_each_request(session):
    """An answer makes the next request of the cycle start counting anew."""
    after = prompted(session, max_retries=1).report(StreamFailed, TRANSIENT, "busy", 9)
    after = after.report(RetryDue, 9).call("read:a").end("a")
    after = after.report(StreamFailed, TRANSIENT, "busy", 9)

    assert after.events(events.Retry)[0].attempt == 1


def test_an_overflow_is_compacted_once(session):
    """Observers learn that the conversation did not fit; a second overflow ends the cycle."""
    first = long(session).report(StreamFailed, OVERFLOW, "too long", 9)
    again = first.report(Summarized, "short", USED, None, 9)
    second = again.report(StreamFailed, OVERFLOW, "still too long", 9)

    assert first.events(events.ContextOverflow) == [events.ContextOverflow(reason="too long")]
    assert (first.state, len(first.of(Summarize)), first.of(CallModel)) == (State.RUNNING, 1, [])
    assert len(again.of(CallModel)[0].messages) < len(LONG)
    assert second.of(Summarize) == []
    assert [event.reason for event in second.events(events.AgentAbort)] == ["context_overflow"]


def test_a_retry_after_a_compaction_may_not_compact_again(session):
    """It is once for each turn, however many requests that takes."""
    after = long(session).report(StreamFailed, OVERFLOW, "too long", 9)
    after = after.report(Summarized, "short", USED, None, 9)
    after = after.report(StreamFailed, TRANSIENT, "busy", 9).report(RetryDue, 9)
    after = after.report(StreamFailed, OVERFLOW, "too long", 9)

    assert [event.reason for event in after.events(events.AgentAbort)] == ["context_overflow"]


def test_the_next_turn_may_compact_again(session):
    """What a tool brought may be too much anew."""
    after = long(session).report(StreamFailed, OVERFLOW, "too long", 9)
    after = after.report(Summarized, "short", USED, None, 9).call("read:a").end("a")
    after = after.report(StreamFailed, OVERFLOW, "too long", 9)

    assert len(after.of(Summarize)) == 1


def test_a_failed_request_leaves_no_message(session):
    """What it had said is discarded with it, and is not in the history of the next one."""
    failed = prompted(session).speak("part").report(StreamFailed, PERMANENT, "no", 9)
    after = failed.prompt("again", "p-2").answer("whole")

    assert failed.records(MessageAdded) == []
    assert [said.content for said in after.memory.messages] == ["go", "again", "whole"]
