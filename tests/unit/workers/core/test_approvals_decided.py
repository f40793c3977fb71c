"""What people decide: approvals, rejections, and answers to questions."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import Abort, Approve, Prompt, Reject, UserRespond
from cmdc_runtime.errors import ApprovalNotFound, AskNotFound, QueueFull
from cmdc_runtime.events import AgentResumed, ToolApproved, ToolRejected, UserResponded
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.messages import ToolCall
from tests.unit.workers.core.conftest import taken
from workers.core import tool_calls
from workers.core.approvals import ARGUMENTS_CHARS_MAX
from workers.core.inputs import ApprovalRequest, QuestionAsked
from workers.core.records import ApprovalDecided, CycleStarted, PromptQueued, UserAnswered
from workers.core.state import State
from workers.core.step import AnswerTool, CallModel, Complete, RunTools

ASKED = RequireApproval(hint="sure?")
CALL = ToolCall(call_id="a", name="write", arguments={"path": "x"})
ID = "approval-3"
BUSY = [state for state in State if state is not State.IDLE]
every_state = pytest.mark.parametrize("state", State)
every_busy_state = pytest.mark.parametrize("state", BUSY)


def waiting(session, call=CALL):
    """Return a session at rest, with a call that waits for a person."""
    return session.at(State.RUNNING).call(call).report(ApprovalRequest, call.call_id, ASKED, 9)


def at(session, state):
    """Return a session in ``state`` with an approval that waits."""
    resting = waiting(session)
    if state is State.IDLE:
        return resting
    running = resting.prompt("meanwhile", "p-2")
    if state is State.RUNNING:
        return running
    return running.speak("x") if state is State.STREAMING else running.call("read:b")


def remembering(session, **changes):
    """Return the session with another memory."""
    return session.remembering(replace(session.memory, **changes))


# --- approvals ----------------------------------------------------------------------------------


def test_an_approval_lets_the_model_make_the_call(session):
    """It is asked to, in a cycle of its own; the very same call then needs nobody's approval."""
    after = waiting(session).give(Approve(approval_id=ID), "c-1")
    again = after.call(ToolCall(call_id="n", name="write", arguments={"path": "x"}))
    (begun,) = after.records(CycleStarted)

    assert after.records()[0] == ApprovalDecided(approval_id=ID, decision="approve_once")
    assert after.events(AgentResumed) == [AgentResumed(trigger="tool_approved", approval_id=ID)]
    assert after.events(ToolApproved) == [ToolApproved(approval_id=ID)]
    assert after.of(Complete) == [Complete("c-1", "c-1")]
    given = {"approval_id": ID, "trigger": "tool_approved"}
    assert (begun.command_id, begun.metadata) == ("c-1", given)
    assert '{"path":"x"} was approved' in after.of(CallModel)[0].messages[-1].content
    assert again.of(RunTools)[0].approved == {"n"}


DECIDED = {"approve_once": "given since", "approve_always": "given since", "reject": "rejected"}


def result(session, call_id="a"):
    """Return what the model reads as the result of a call, at the latest request."""
    messages = session.of(CallModel)[-1].messages
    return next(one.content for one in messages if one.call_id == call_id)


@every_state
@pytest.mark.parametrize("decision", DECIDED)
@pytest.mark.parametrize("crashes", [False, True], ids=["live", "rebuilt"])
def test_a_decision_is_what_the_model_reads_next(session, state, decision, crashes):
    """In the result of the call, whatever opens the next request; and in the next process."""
    before = at(session, state)
    if decision == "reject":
        decided = before.give(Reject(approval_id=ID), "c-1")
    else:
        decided = before.give(Approve(approval_id=ID, kind=decision, auto_resume=False), "c-1")
    memory = decided.rebuilt() if crashes else decided.memory
    (given,) = [one.content for one in memory.messages if one.call_id == "a"]

    assert DECIDED[decision] in given
    assert ID in given
    assert "waits for a person" not in given


def test_each_of_several_approvals_is_reported(session):
    """With one resumption: the model hears of all that were decided."""
    two = ToolCall(call_id="b", name="write", arguments={"path": "y"})
    resting = session.at(State.RUNNING).call(CALL, two)
    for call_id in ("a", "b"):
        resting = resting.report(ApprovalRequest, call_id, ASKED, 9)
    first, second = (one.id for one in resting.memory.approvals)
    decided = resting.give(Approve(approval_id=first, auto_resume=False), "c-1")
    resumed = decided.give(Approve(approval_id=second), "c-2")

    assert ["given since" in result(resumed, one) for one in ("a", "b")] == [True, True]
    assert resumed.call(CALL, two).of(RunTools)[0].approved == {"a", "b"}


def test_an_approval_is_good_for_one_call(session):
    """Once it has begun, the next one waits for a person again."""
    after = waiting(session).give(Approve(approval_id=ID), "c-1")
    used = after.call(CALL).begin("a").end("a").call(CALL)

    assert used.of(RunTools)[0].approved == frozenset()


@pytest.mark.parametrize(
    "call",
    [
        ToolCall(call_id="a", name="write", arguments={"path": "y"}),
        ToolCall(call_id="a", name="read", arguments={"path": "x"}),
    ],
    ids=["arguments", "tool"],
)
def test_an_approval_is_good_for_the_very_same_call(session, call):
    """Not for other arguments, and not for another tool."""
    after = waiting(session).give(Approve(approval_id=ID), "c-1").call(call)

    assert after.of(RunTools)[0].approved == frozenset()


def test_a_tool_may_be_approved_for_good(session):
    """Any call of it then runs, with whatever arguments; no other tool does."""
    after = waiting(session).give(Approve(approval_id=ID, kind="approve_always"), "c-1")
    again = after.call("write:n", "write:m", "read:o")

    assert after.memory.always_approved == {("write", "")}
    assert after.memory.granted == ()
    assert again.of(RunTools)[0].approved == {"n", "m"}


def test_two_calls_of_a_batch_need_two_leaves(session):
    """The first of them has it."""
    after = waiting(session).give(Approve(approval_id=ID), "c-1")
    twin = ToolCall(call_id="b", name="write", arguments={"path": "x"})

    assert after.call(CALL, twin).of(RunTools)[0].approved == {"a"}


def test_an_approval_may_be_given_without_a_cycle(session):
    """The session stays at rest; the next prompt meets the approval."""
    after = waiting(session).give(Approve(approval_id=ID, auto_resume=False), "c-1")

    assert (after.state, after.events(AgentResumed)) == (State.IDLE, [])
    assert after.of(Complete) == [Complete("c-1", None)]
    assert after.prompt("go on", "p-2").call(CALL).of(RunTools)[0].approved == {"a"}


@every_busy_state
@pytest.mark.parametrize("kind", [Approve, Reject])
def test_a_decision_does_not_disturb_a_running_cycle(session, state, kind):
    """It is written down, published and answered; the work goes on."""
    before = at(session, state)
    after = before.give(kind(approval_id=ID, auto_resume=False), "c-1")

    assert [type(record) for record in after.records()] == [ApprovalDecided]
    assert after.of(Complete) == [Complete("c-1", None)]
    assert (after.memory.approvals, after.memory.queue) == ((), ())
    assert (after.state, after.memory.work) == (state, before.memory.work)


@every_busy_state
@pytest.mark.parametrize(
    ("kind", "trigger"), [(Approve, "tool_approved"), (Reject, "tool_rejected")]
)
def test_a_decision_that_resumes_waits_for_the_end_of_the_cycle(session, state, kind, trigger):
    """The model reads of it in a cycle of its own, which follows and outlives a crash."""
    before = at(session, state)
    after = before.give(kind(approval_id=ID, auto_resume=True), "c-1")
    ended = after.give(Abort(clear_queue=False), "c-2")

    assert [type(record) for record in after.records()] == [ApprovalDecided, PromptQueued]
    assert after.of(Complete) == [Complete("c-1", "c-1")]
    assert (after.state, after.memory.work) == (state, before.memory.work)
    assert after.events(AgentResumed) == []
    assert after.rebuilt().queue == after.memory.queue
    assert ended.events(AgentResumed) == [AgentResumed(trigger=trigger, approval_id=ID)]
    assert ended.memory.cycle.command_id == "c-1"


@every_busy_state
@pytest.mark.parametrize("kind", [Approve, Reject])
def test_a_decision_that_cannot_resume_is_not_made(session, state, kind):
    """The queue is full: the approval waits on, and may be decided later or without resuming."""
    before = at(session, state)
    before = before.give(Prompt(text="full"), "p-9")
    before = remembering(before, policy=replace(before.memory.policy, max_queued_prompts=1))
    after = before.give(kind(approval_id=ID, auto_resume=True), "c-1")

    assert [type(settled.outcome) for settled in after.effects] == [QueueFull]
    assert after.memory == before.memory


@every_state
@pytest.mark.parametrize("kind", [Approve, Reject])
@pytest.mark.parametrize("auto_resume", [True, False])
def test_what_nobody_waits_for_is_an_error(session, state, kind, auto_resume):
    """Never asked, or decided already; the error names those that do wait."""
    before = at(session, state)
    after = before.give(kind(approval_id="approval-9", auto_resume=auto_resume))
    decided = before.give(Reject(approval_id=ID)).give(
        kind(approval_id=ID, auto_resume=auto_resume)
    )

    for refused in (after, decided):
        (settled,) = refused.effects
        assert isinstance(settled.outcome, ApprovalNotFound)
    assert after.memory == before.memory
    assert ID in str(after.effects[0].outcome)
    assert "none" in str(decided.effects[0].outcome)


@every_state
def test_a_rejection_grants_nothing(session, state):
    """The call's result said already that it was not made; the next such call waits again."""
    after = at(session, state).give(Reject(approval_id=ID), "c-1")

    assert after.records() == [ApprovalDecided(approval_id=ID, decision="reject")]
    assert after.events() == [ToolRejected(approval_id=ID)]
    assert (after.memory.approvals, after.memory.granted) == ((), ())
    assert (after.state, after.memory.always_approved) == (state, frozenset())


def test_a_rejection_may_go_on_without_the_call(session):
    """Then the model reads so, in a cycle of its own."""
    after = waiting(session).give(Reject(approval_id=ID, auto_resume=True), "c-1")

    assert after.state is State.RUNNING
    assert after.events(AgentResumed) == [AgentResumed(trigger="tool_rejected", approval_id=ID)]
    assert after.of(Complete) == [Complete("c-1", "c-1")]
    assert "was rejected" in after.of(CallModel)[0].messages[-1].content


def test_long_arguments_are_not_given_in_full(session):
    """The model has made the call itself; the reminder has a bound."""
    call = ToolCall(call_id="a", name="write", arguments={"text": "x" * 100_000})
    after = waiting(session, call).give(Approve(approval_id=ID), "c-1")

    assert len(after.of(CallModel)[0].messages[-1].content) < ARGUMENTS_CHARS_MAX + 200


@pytest.mark.parametrize(("more", "is_whole"), [(0, True), (1, False)])
def test_arguments_that_just_fit_are_given_in_full(session, more, is_whole):
    """One character more, and the end of them is left out."""
    text = "x" * (ARGUMENTS_CHARS_MAX - len('{"text":""}') + more)
    call = ToolCall(call_id="a", name="write", arguments={"text": text})
    after = waiting(session, call).give(Approve(approval_id=ID), "c-1")
    given = after.of(CallModel)[0].messages[-1].content

    assert (f'"{text}"}} was approved' in given) is is_whole
    assert ("…" in given) is not is_whole


def test_an_approved_call_that_runs_again_has_its_approval(session):
    """It was used up when the call began; a second approval of the same kind is still there."""
    call = ToolCall(call_id="b", name="read", arguments={"path": "x"})
    once = waiting(session, call).give(Approve(approval_id=ID, auto_resume=False), "c-1")
    twice = once.prompt("again", "p-2").call(replace_id(call, "c"))
    granted = twice.memory.granted
    twice = remembering(twice, granted=(*granted, *granted)).begin("c")
    again = twice.take(taken(tool_calls.call_tools, twice.memory, (replace_id(call, "c"),)))

    assert twice.memory.granted == granted
    assert again.of(RunTools)[0].approved == {"c"}
    assert again.begin("c").memory.granted == granted


def replace_id(call, call_id):
    return ToolCall(call_id=call_id, name=call.name, arguments=call.arguments)


# --- answers ------------------------------------------------------------------------------------


def asking(session):
    batch = session.at(State.EXECUTING_TOOLS)
    return batch.report(QuestionAsked, "a", "a:ask-1", "which?", ("x", "y"))


def test_an_answer_reaches_the_call_that_waits(session):
    """It is written down before the call has it, so that a crash asks nobody twice."""
    after = asking(session).give(UserRespond(ref="a:ask-1", response={"n": 1}), "c-1")

    assert after.records() == [UserAnswered(ref="a:ask-1", response={"n": 1})]
    assert after.events() == [UserResponded(session_id="s", ref="a:ask-1", response={"n": 1})]
    assert after.of(Complete) == [Complete("c-1", None)]
    assert after.of(AnswerTool) == [AnswerTool("a:ask-1", {"n": 1})]
    assert after.memory.asks == ()


@every_state
def test_an_answer_to_nothing_is_an_error(session, state):
    """No question of this reference waits; nothing changes."""
    before = session.at(state)
    after = before.give(UserRespond(ref="a:ask-1", response="x"))

    assert after.memory == before.memory
    assert [type(settled.outcome) for settled in after.effects] == [AskNotFound]


@pytest.mark.parametrize("ending", ["answered", "call over", "aborted"])
def test_a_question_waits_no_longer_than_its_call(session, ending):
    """After an answer, the end of the call or of its cycle there is nothing to answer."""
    before = asking(session)
    answer = UserRespond(ref="a:ask-1", response="x")
    after = {
        "answered": lambda: before.give(answer),
        "call over": lambda: before.end("a"),
        "aborted": lambda: before.give(Abort()),
    }[ending]()
    late = after.give(answer)

    assert [type(settled.outcome) for settled in late.effects] == [AskNotFound]
