"""What running calls report: they begin, ask, want something, and return."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cmdc_runtime.commands import (
    AnswerToolCall,
    ClientAnswer,
    Steer,
    TakeToolCall,
    UserRespond,
)
from cmdc_runtime.errors import AskNotFound
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    ApprovalRequired,
    AskUser,
    ClientToolCalled,
    PluginEvent,
    SubagentEnd,
    SubagentStart,
    TodoChange,
    ToolBlocked,
    ToolCallUnknown,
    ToolExecutionEnd,
    ToolExecutionMetrics,
    ToolExecutionStart,
)
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.messages import TokenUsage, ToolCall
from workers.core import records
from workers.core.budget import Budget, Grant
from workers.core.inputs import (
    ApprovalRequest,
    BranchTask,
    BranchWanted,
    ClientCallDropped,
    ClientCallWanted,
    QuestionAsked,
    SubagentDone,
    SubagentWanted,
    ToolBegun,
    ToolEmitted,
    ToolReturned,
    ToolStepReported,
)
from workers.core.loops import fingerprint
from workers.core.records import (
    Approval,
    ApprovalRequested,
    SubagentSpawned,
    SubagentSpent,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    UserAnswered,
    UserAsked,
)
from workers.core.state import PendingAsk, State
from workers.core.step import (
    AnswerTool,
    CallModel,
    Complete,
    EndSubagents,
    Publish,
    RunSubagent,
    RunTools,
    WriteRecord,
)

ASKED = RequireApproval(hint="sure?")
WRITES = RequireApproval(hint="writes x")
SPENT = TokenUsage(prompt_tokens=5, total_tokens=5, cost_usd=0.5)
REPORTS = {
    ToolBegun: (9,),
    ApprovalRequest: (ASKED, 9),
    ToolReturned: (True, "again", 9),
    ToolEmitted: ("news", 1),
    ToolStepReported: (PluginEvent(name="reasoning_thought", payload=None),),
    QuestionAsked: ("x:ask-1", "which?", ()),
    ClientCallWanted: ("x:client-1", "o-1", {}),
    SubagentWanted: ("x:sub-1", "any", "do it"),
    BranchWanted: ("x:branch-b1", BranchTask("do it"), "digest"),
}


def executing(session, *calls, **policy):
    return session.at(State.RUNNING, **policy).call(*(calls or ("read:a", "write:b")))


def delegating(session, *call_ids, **policy):
    """Return a session whose calls wait for a subagent each."""
    after = executing(session, "read:a", "read:b", "write:c", **policy)
    for call_id in call_ids:
        after = after.report(SubagentWanted, call_id, f"{call_id}:sub-1", "any", "do it")
    return after


@given(arrival=st.permutations("abcd"))
def test_results_are_stored_in_call_order(session, arrival):
    """Four calls need four results, whatever order they come in; then the model is asked."""
    after = executing(session, *(f"read:{call_id}" for call_id in "abcd"))
    for count, call_id in enumerate(arrival, 1):
        after = after.end(call_id)

        assert (after.state is State.EXECUTING_TOOLS) == (count < 4)
        assert len(after.records(ToolEnded)) == 1
    (asked,) = after.of(CallModel)

    assert [message.call_id for message in asked.messages[-4:]] == [*"abcd"]
    assert after.memory.calls == ()


@pytest.mark.parametrize("kind", REPORTS)
@pytest.mark.parametrize("call_id", ["a", "z"], ids=["over", "unknown"])
def test_what_a_call_that_is_over_reports_is_late(session, kind, call_id):
    """Also what nobody called: nothing is published, written down or started because of it."""
    before = executing(session).end("a")
    after = before.report(kind, call_id, *REPORTS[kind])

    assert after.is_unchanged(before)


def test_a_call_is_written_down_before_it_is_published(session):
    """The record comes first, then the start with the tool's own words, then its time."""
    after = executing(session).report(ToolBegun, "a", 100, "reads")
    started = ToolExecutionStart(name="read", call_id="a", args={}, summary="reads")
    metrics = ToolExecutionMetrics(name="read", call_id="a", meta={"started_at_ms": 100})

    assert after.effects[0] == WriteRecord(ToolStarted(call_id="a", at_ms=100))
    assert after.events() == [started, metrics]


STEP = PluginEvent(name="reasoning_thought", payload={"id": "t1"})


def test_a_step_is_recorded_and_published_at_once(session):
    """Whoever dies: either both are there, or neither."""
    after = executing(session).begin("a").report(ToolStepReported, "a", STEP)

    assert after.effects == (WriteRecord(records.ToolStepRecorded(call_id="a")), Publish(STEP))
    assert after.rebuilt().calls == after.memory.calls


def test_a_call_that_runs_again_knows_what_it_has_reported(session):
    """It reports none twice, however many processes it takes; another call has its own count."""
    reported = (
        executing(session, "read:a", "read:b").begin("a", "b").report(ToolStepReported, "a", STEP)
    )
    again = reported.report(ToolStepReported, "a", STEP).crash()

    assert [run.steps_before for run in again.of(RunTools)] == [{"a": 2}]
    assert again.report(ToolStepReported, "a", STEP).memory.calls[0].steps == 3


def test_a_clock_that_steps_back_makes_no_negative_duration(session):
    """Times are wall times; the duration stops at 0."""
    begun = executing(session).report(ToolBegun, "a", 100)
    after = begun.report(ToolReturned, "a", False, "bad", 40)

    assert after.events(ToolExecutionMetrics)[0].meta == {
        "started_at_ms": 100,
        "ended_at_ms": 40,
        "duration_ms": 0,
    }
    assert after.events(ToolExecutionEnd) == [
        ToolExecutionEnd(name="read", call_id="a", ok=False, text="bad")
    ]


def test_an_unknown_tool_is_reported(session):
    """It never began, so it has no times; the batch goes on as with any other error."""
    after = executing(session, "gone:a")
    after = after.report(ToolReturned, "a", False, "no such tool", 5, is_unknown=True)

    assert after.events(ToolCallUnknown) == [ToolCallUnknown(name="gone", call_id="a")]
    assert [event.reason for event in after.events(ToolBlocked)] == ["unknown_tool"]


def test_a_call_with_bad_arguments_is_reported_as_not_made(session):
    """It has returned without a beginning; its tool is known."""
    after = executing(session, "read:a").report(ToolReturned, "a", False, "n: no number", 5)

    assert [event.reason for event in after.events(ToolBlocked)] == ["invalid_arguments"]
    assert after.events(ToolCallUnknown) == []
    assert after.events(ToolExecutionMetrics) == []
    assert after.state is State.RUNNING


def test_the_last_turn_ends_the_cycle(session):
    """``max_turns`` requests are made and not one more; the history stays valid."""
    after = executing(session, "read:a", max_turns=1).end("a")

    assert after.of(CallModel) == []
    assert (after.state, after.events(AgentAbort)[0].reason) == (State.IDLE, "max_turns_exceeded")
    assert after.memory.messages[-1].call_id == "a"


def test_what_a_call_emits_is_published(session):
    """Under its own name, while it runs."""
    after = executing(session).report(ToolEmitted, "a", "news", {"n": 1})

    assert after.events() == [PluginEvent(name="news", payload={"n": 1})]
    assert len(after.effects) == 1


# --- effects ------------------------------------------------------------------------------------


def test_a_tool_can_replace_the_todos(session):
    """They are remembered, written down and published."""
    todos = [{"content": "sow", "status": "pending"}]
    after = executing(session).end("a", effect=("update_todos", {"todos": todos}))

    assert after.memory.todos == tuple(todos)
    assert after.records(TodosChanged) == [TodosChanged(todos=tuple(todos))]
    assert after.events(TodoChange) == [TodoChange(session_id="s", todos=tuple(todos))]


@pytest.mark.parametrize(
    "effect",
    [("mine", [1]), ("update_todos", {"todos": 3}), ("update_todos", None)],
    ids=["unknown", "wrong form", "nothing"],
)
def test_an_effect_that_is_not_the_kernels_is_published_as_it_is(session, effect):
    """Its name is the tool's own; the call has its result all the same."""
    after = executing(session).end("a", effect=effect)

    assert after.events(PluginEvent) == [PluginEvent(name=effect[0], payload=effect[1])]
    assert after.memory.todos == ()
    assert after.memory.calls[0].result.content == "of a"


# --- approvals ----------------------------------------------------------------------------------


def test_a_call_that_needs_approval_does_not_run(session):
    """Its result says that it waits; the person is asked with all there is to decide by."""
    call = ToolCall(call_id="a", name="write", arguments={"path": "x"})
    after = executing(session, call, "read:b").report(
        ApprovalRequest, "a", RequireApproval(hint="writes x"), 9
    )

    assert after.events(ToolBlocked)[0].reason == "approval_required"
    assert after.events(ApprovalRequired) == [
        ApprovalRequired(
            id="approval-3",
            tool="write",
            args={"path": "x"},
            hint="writes x",
            requested_at_ms=9,
            session_id="s",
            call_id="a",
        )
    ]
    assert [type(record) for record in after.records()] == [ApprovalRequested, ToolEnded]
    assert after.memory.approvals == (
        Approval(id="approval-3", call_id="a", tool="write", args={"path": "x"}, requested_at_ms=9),
    )
    assert "approval-3" in after.memory.calls[0].result.content
    assert after.state is State.EXECUTING_TOOLS


def test_the_cycle_rests_where_a_call_waits_for_a_person(session):
    """The rest of the batch runs to its end; then the agent is idle, with nothing asked."""
    after = executing(session).report(ApprovalRequest, "b", ASKED, 9).end("a")

    assert after.state is State.IDLE
    assert len(after.events(AgentEnd)) == 1
    assert after.of(CallModel) == []


def test_a_batch_may_wait_for_two_approvals(session):
    """Each has an id of its own."""
    after = executing(session)
    after = after.report(ApprovalRequest, "b", ASKED, 9).report(
        ApprovalRequest, "a", RequireApproval(hint=""), 9
    )

    assert [one.id for one in after.memory.approvals] == ["approval-4", "approval-3"]
    assert after.state is State.IDLE


def test_steering_outranks_an_approval(session):
    """The cycle goes on with what the user says; the approval can still be given."""
    waiting = executing(session, immune=frozenset({"read"})).report(
        ApprovalRequest, "b", RequireApproval(hint=""), 9
    )
    after = waiting.give(Steer(text="left"), "s-1").end("a")

    assert after.state is State.RUNNING
    assert after.of(CallModel)[0].messages[-1].content == "left"
    assert len(after.memory.approvals) == 1


def test_an_approval_is_used_up_when_its_call_begins(session):
    """It is good for one call of the same tool with the same arguments."""
    granted = fingerprint("write", {}, None)
    idle = session.new()
    idle = idle.remembering(replace(idle.memory, granted=(granted,)))
    batch = idle.prompt().call("write:a", "write:b")
    after = batch.begin("a")

    assert batch.of(RunTools)[0].approved == {"a"}
    assert after.records() == [ToolStarted(call_id="a", at_ms=9, granted=granted)]
    assert after.memory.granted == ()
    assert after.begin("b").records() == [ToolStarted(call_id="b", at_ms=9)]


# --- questions ----------------------------------------------------------------------------------


def test_a_question_is_put_to_the_user(session):
    """It is written down, published, and remembered until somebody answers."""
    after = executing(session).report(QuestionAsked, "a", "a:ask-1", "which?", ("x", "y"))

    assert after.records() == [UserAsked(ref="a:ask-1", call_id="a")]
    assert after.events() == [
        AskUser(session_id="s", question="which?", options=("x", "y"), ref="a:ask-1")
    ]
    assert after.memory.asks == (PendingAsk("a:ask-1", "a"),)


def test_a_question_that_was_answered_before_a_crash_is_not_asked_again(session):
    """The call that runs again asks under the same reference and is answered at once."""
    batch = executing(session)
    memory = replace(batch.memory, answers=((PendingAsk("a:ask-1", "a"), "x"),))
    before = batch.remembering(memory)
    after = before.report(QuestionAsked, "a", "a:ask-1", "which?", ())
    other = before.report(QuestionAsked, "a", "a:ask-2", "and?", ())

    assert after.effects == (AnswerTool("a:ask-1", "x"),)
    assert [event.ref for event in other.events(AskUser)] == ["a:ask-2"]


# --- calls that the program of their tool makes ---------------------------------------------------

OWNED = PendingAsk("a:client-1", "a", "o-1")
GONE = {"ok": False, "value": None, "effect": None, "error": None}


def called(session):
    """Return a session with a call that its tool's program is to make."""
    return executing(session).report(ClientCallWanted, "a", "a:client-1", "o-1", {"n": 1})


def test_a_call_is_put_to_the_program_of_its_tool(session):
    """It is written down, published with its arguments, and remembered until it is answered."""
    after = called(session)
    (call,) = after.events(ClientToolCalled)

    assert after.records() == [UserAsked(ref="a:client-1", call_id="a", owner="o-1")]
    assert (call.name, call.ref, call.owner, call.args) == ("read", "a:client-1", "o-1", {"n": 1})
    assert after.memory.asks == (OWNED,)


def test_a_call_is_put_to_its_program_by_its_own_name(session):
    """Whatever else the batch calls before it."""
    after = executing(session).report(ClientCallWanted, "b", "b:client-1", "o-1", {})
    (call,) = after.events(ClientToolCalled)

    assert (call.name, call.call_id) == ("write", "b")


def test_a_program_takes_a_call_and_answers(session):
    """Taking it is reported to the call; the answer is written down first."""
    before = called(session)
    taken = before.give(TakeToolCall(ref="a:client-1"), "t-1")
    answered = taken.give(
        AnswerToolCall(ref="a:client-1", outcome=ClientAnswer(ok=True, value="fine")), "t-2"
    )
    answer = GONE | {"ok": True, "value": "fine"}

    assert AnswerTool("a:client-1:taken", value=True) in taken.effects
    assert taken.records() == []
    assert taken.of(Complete) == [Complete("t-1", None)]
    assert answered.records() == [UserAnswered(ref="a:client-1", response=answer)]
    assert answered.of(Complete) == [Complete("t-2", None)]
    assert AnswerTool("a:client-1", answer) in answered.effects
    assert answered.memory.asks == ()


def test_a_call_that_nobody_has_taken_is_dropped_for_good(session):
    """Who comes later learns that nobody waits, and so does not make it."""
    dropped = called(session).report(ClientCallDropped, "a", "a:client-1")
    late = dropped.give(TakeToolCall(ref="a:client-1"), "t-1")
    (said,) = [one for one in late.effects if isinstance(one, Complete)]

    assert AnswerTool("a:client-1", GONE) in dropped.effects
    assert isinstance(said.outcome, AskNotFound)
    assert dropped.report(ClientCallDropped, "a", "a:client-1").effects == ()


def test_a_call_that_asks_again_gets_the_answer_of_before(session):
    """It was answered, and its process died before the end of the call."""
    answer = GONE | {"ok": True, "value": "fine"}
    before = executing(session)
    before = before.remembering(replace(before.memory, answers=((OWNED, answer),)))
    after = before.report(ClientCallWanted, "a", "a:client-1", "o-1", {"n": 1})

    assert after.effects == (AnswerTool("a:client-1", answer),)


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        (called, UserRespond(ref="a:client-1", response="x")),
        (None, TakeToolCall(ref="a:ask-1")),
        (None, AnswerToolCall(ref="a:ask-1", outcome=ClientAnswer(ok=True))),
    ],
)
def test_people_and_programs_do_not_answer_for_each_other(session, asked, command):
    """A question to the user is none to a program, nor the other way round."""
    questioned = executing(session).report(QuestionAsked, "a", "a:ask-1", "which?", ())
    before = questioned if asked is None else asked(session)
    after = before.give(command, "r-1")
    (said,) = [one for one in after.effects if isinstance(one, Complete)]

    assert isinstance(said.outcome, AskNotFound)
    assert after.memory.asks == before.memory.asks


# --- subagents ----------------------------------------------------------------------------------


def test_a_call_starts_a_subagent(session):
    """Under an id that names its parent; what it may spend is reserved."""
    after = delegating(session, "a", budget=Budget(max_total_tokens=3003))
    grant = Grant(1000, None)

    assert after.of(RunSubagent) == [RunSubagent("s.1", "any", "do it", grant)]
    assert after.records() == [
        SubagentSpawned(child_id="s.1", call_id="a", ref="a:sub-1", tokens=1000)
    ]
    assert after.events() == [
        SubagentStart(call_id="a", subagent_type="any", child_session_id="s.1", description="do it")
    ]
    assert [(child.session_id, child.grant) for child in after.memory.children] == [("s.1", grant)]
    assert after.memory.spawns == 1


def test_the_budget_is_shared_by_the_calls_that_may_delegate(session):
    """Calls of the same tool get equal parts, whoever asks first; the parent keeps one too."""
    after = delegating(session, "a", "b", budget=Budget(max_total_tokens=3003))

    assert [child.grant.tokens for child in after.memory.children] == [1000, 1000]


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ({"subagents": frozenset()}, "max_depth"),
        ({"subagents": frozenset({"one", "two"})}, "'any', only one, two"),
        ({"max_children": 1}, "max_children: 1"),
        ({"max_spawns": 1}, "max_spawns: 1"),
    ],
    ids=["depth", "type", "breadth", "number"],
)
def test_a_subagent_too_many_is_refused(session, policy, word):
    """The call gets an error that names the limit, and nothing is started."""
    after = delegating(session, "a", "b", **policy)
    (refused,) = after.effects

    assert isinstance(refused, AnswerTool)
    assert word in refused.error


def test_a_subagent_without_a_budget_is_refused(session):
    """What is left is not enough for it and for the parent, who has to read its answer."""
    batch = executing(session, budget=Budget(max_total_tokens=300))
    memory = replace(batch.memory, usage=TokenUsage(total_tokens=299))
    spent = batch.remembering(memory)
    (refused,) = spent.report(SubagentWanted, "a", "a:sub-1", "any", "do it").effects

    assert "max_total_tokens_exceeded" in refused.error


@pytest.mark.parametrize(
    ("ok", "answer"),
    [(True, AnswerTool("a:sub-1", "text")), (False, AnswerTool("a:sub-1", error="text"))],
)
def test_a_subagent_that_is_done_answers_its_call(session, ok, answer):
    """What it used is its parent's too, and what it was granted is free again."""
    before = delegating(session, "a")
    after = before.post(SubagentDone("s.1", ok, "text", SPENT))

    assert after.effects[-1] == answer
    assert after.records() == [SubagentSpent(child_id="s.1", usage=SPENT)]
    assert after.events() == [
        SubagentEnd(call_id="a", child_session_id="s.1", ok=ok, text="text", usage=SPENT)
    ]
    assert after.memory.usage == before.memory.usage + SPENT
    assert after.memory.children == ()


def test_a_subagent_is_counted_once(session):
    """A second report of its end changes nothing."""
    done = delegating(session, "a").post(SubagentDone("s.1", True, "text", SPENT))

    assert done.post(SubagentDone("s.1", True, "text", SPENT)).is_unchanged(done)


def test_a_call_that_ends_without_its_subagent_ends_it(session):
    """It has run out of time: nobody waits for the answer, but what was used is still counted."""
    after = delegating(session, "a", "b").end("a")
    done = after.post(SubagentDone("s.1", True, "text", SPENT))

    assert after.of(EndSubagents) == [EndSubagents(("s.1",))]
    assert done.of(AnswerTool) == []
    assert done.memory.usage.cost_usd == 0.5


def test_a_call_that_runs_again_gets_no_answer_of_an_earlier_subagent(session):
    """After a crash it asks under the same reference, and waits for the new one."""
    before = delegating(session, "a").begin("a")
    again = before.crash()
    again = again.report(SubagentWanted, "a", "a:sub-1", "any", "do it")
    old = again.post(SubagentDone("s.1", False, "it ended with its parent", SPENT))
    new = old.post(SubagentDone("s.2", True, "text", SPENT))

    assert old.of(AnswerTool) == []
    assert new.of(AnswerTool) == [AnswerTool("a:sub-1", "text")]
