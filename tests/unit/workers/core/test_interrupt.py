"""How a running cycle is steered and aborted, in each state."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import PROMPT_CHARS_MAX, Abort, AwaitCycle, Steer, SteerReceipt
from cmdc_runtime.errors import InvalidText, QueueFull
from cmdc_runtime.events import (
    AgentAbort,
    PromptDropped,
    PromptReceived,
    RequestCut,
    SteeringApplied,
    SteeringReceived,
    ToolExecutionEnd,
    ToolKilled,
)
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.hooks import BeforeSteering, kind_of
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message
from workers.core.budget import Grant
from workers.core.children import Child
from workers.core.conversation import repair, uncertain_calls
from workers.core.inputs import (
    ApprovalRequest,
    CompactWanted,
    CycleExpired,
    FirstChunk,
    QuestionAsked,
    StreamFailed,
    SubagentWanted,
    ThoughtArrived,
)
from workers.core.records import (
    CutSpent,
    CycleEnded,
    CycleStarted,
    MessageAdded,
    PromptDiscarded,
    Steered,
    ToolEnded,
)
from workers.core.state import Memory, State, ToolFacts
from workers.core.step import (
    Answer,
    AnswerTool,
    AskAboutSteering,
    CallModel,
    CancelCalls,
    CancelModel,
    Complete,
    EndSubagents,
)

ASKED = RequireApproval(hint="sure?")
EXPIRED = CycleExpired("p-1", 10**9)
BUSY = [state for state in State if state is not State.IDLE]
ASKING = [State.RUNNING, State.STREAMING]
every_state = pytest.mark.parametrize("state", State)
every_busy_state = pytest.mark.parametrize("state", BUSY)


def killed(session):
    return [event.call_id for event in session.events(ToolKilled)]


def waited_for(session, call_id="a"):
    """Return the session with a subagent that the call waits for."""
    return session.report(SubagentWanted, call_id, f"{call_id}:sub-1", "any", "do it")


# --- steering -----------------------------------------------------------------------------------


def test_steering_an_idle_session_is_a_prompt(session):
    """It opens a cycle, whose command id is the reference."""
    after = session.new().give(Steer(text="go"), "s-1")

    assert after.of(Complete) == [Complete("s-1", SteerReceipt(ref="s-1", opened=True))]
    assert after.records() == [CycleStarted(command_id="s-1", text="go", at_ms=7)]
    assert after.events(PromptReceived) == [
        PromptReceived(text="go", queued=False, command_id="s-1")
    ]


@every_busy_state
def test_steering_is_written_down_before_it_is_acknowledged(session, state):
    """The running work keeps its number: nothing is asked or run anew because of it."""
    after = session.at(state, immune=frozenset({"read", "write"})).give(Steer(text="left"), "s-1")

    assert after.records() == [Steered(ref="s-1", text="left")]
    assert after.of(Complete) == [Complete("s-1", SteerReceipt(ref="s-1", opened=False))]
    assert after.events() == [SteeringReceived(ref="s-1", status="queued", text="left")]
    assert (after.state, after.of(CallModel)) == (state, [])
    assert [one.text for one in after.memory.steering] == ["left"]


@every_state
@pytest.mark.parametrize(
    "text", ["", " \n\t", "x" * (PROMPT_CHARS_MAX + 1)], ids=["empty", "white", "long"]
)
def test_steering_needs_text_of_a_bounded_size(session, state, text):
    """As a prompt does; what is refused ends no call and changes nothing."""
    before = session.at(state)
    after = before.give(Steer(text=text))

    assert (after.state, after.memory) == (before.state, before.memory)
    assert [type(effect.outcome) for effect in after.effects] == [InvalidText]


@every_busy_state
def test_full_steering_is_refused_and_reported(session, state):
    """The bound is reached exactly; the refused one kills no call."""
    full = session.at(state, max_steering_queue=1, immune=frozenset({"read", "write"}))
    full = full.give(Steer(text="one"), "s-1")
    refused = full.give(Steer(text="two"), "s-2")

    assert (refused.state, refused.memory) == (full.state, full.memory)
    assert [type(settled.outcome) for settled in refused.of(Complete)] == [QueueFull]
    assert [event.status for event in refused.events()] == ["rejected_full"]
    assert len(refused.effects) == 2


def test_steering_that_is_refused_ends_no_call(session):
    """There is no room for what it says; what it would have ended goes on."""
    batch = session.at(State.EXECUTING_TOOLS, max_steering_queue=1, immune=frozenset({"write"}))
    full = waited_for(batch).give(Steer(text="one"), "s-1")
    refused = full.give(Steer(text="two", scope="tree"), "s-2")

    assert full.state is State.EXECUTING_TOOLS
    assert (killed(refused), refused.of(EndSubagents)) == ([], [])
    assert refused.stands_as(full)


def test_steering_is_given_as_one_message_between_turns(session):
    """Two steerings, in the order of their times, before the next request; they wait no more."""
    steered = (
        session.at(State.RUNNING).give(Steer(text="one"), "s-1").give(Steer(text="two"), "s-2")
    )
    after = steered.call("read:a").end("a")
    said = after.memory.messages[-1]

    assert (said.role, said.content) == ("user", "one\n\ntwo")
    assert said.metadata == {"steering": ["s-1", "s-2"]}
    assert after.events(SteeringApplied) == [SteeringApplied(count=2)]
    assert MessageAdded(message=said) in after.records()
    assert after.of(CallModel)[0].messages[-1] == said
    assert after.memory.steering == ()


def test_steering_at_the_end_of_an_answer_goes_on_with_the_cycle(session):
    """The answer that came meanwhile does not end it."""
    after = session.at(State.RUNNING).give(Steer(text="no, left"), "s-1").answer("right")

    assert after.state is State.RUNNING
    assert after.memory.cycle.command_id == "p-1"
    assert [said.content for said in after.memory.messages] == ["go", "right", "no, left"]


def test_steering_ends_the_calls_that_may_be_ended(session):
    """An immune call and one that has ended are left alone; the batch waits for the immune one."""
    batch = session.at(State.RUNNING, immune=frozenset({"write"}))
    batch = batch.call("read:a", "write:b", "read:c").begin("a", "b", "c").end("c")
    after = batch.give(Steer(text="left"), "s-1")

    assert after.of(CancelCalls) == [CancelCalls(("a",))]
    assert [(event.call_id, event.reason) for event in after.events(ToolKilled)] == [
        ("a", "steered")
    ]
    assert [ended.message.call_id for ended in after.records(ToolEnded)] == ["a"]
    assert after.state is State.EXECUTING_TOOLS
    assert after.end("b").of(CallModel)[0].messages[-1].content == "left"


def test_steering_that_ends_the_whole_batch_is_given_at_once(session):
    """There is nothing to wait for; each call has a result that says why."""
    after = session.at(State.EXECUTING_TOOLS).give(Steer(text="left"), "s-1")
    results = after.memory.messages[-3:-1]

    assert after.state is State.RUNNING
    assert [(said.call_id, said.is_error) for said in results] == [("a", True), ("b", True)]
    assert "something to say" in results[0].content
    assert after.of(CallModel)[0].messages[-1].content == "left"


@pytest.mark.parametrize(("scope", "ends"), [("session", []), ("tree", ["a"])])
def test_steering_ends_subagents_only_when_it_is_for_the_tree(session, scope, ends):
    """A call that waits for one is left alone otherwise, whatever its name."""
    batch = waited_for(session.at(State.EXECUTING_TOOLS, immune=frozenset({"write"})))
    after = batch.give(Steer(text="left", scope=scope), "s-1")

    assert killed(after) == ends
    assert after.of(EndSubagents) == ([EndSubagents(("s.1",))] if ends else [])


def test_steering_outranks_prompts_that_wait(session):
    """What came too late for its cycle opens the next one, ahead of the queue."""
    busy = session.at(State.RUNNING, max_turns=1).prompt("then", "p-2")
    after = busy.give(Steer(text="left"), "s-1").call("read:a").end("a")

    assert after.events(AgentAbort)[0].reason == "max_turns_exceeded"
    assert after.memory.cycle.command_id == "s-1"
    assert [queued.command_id for queued in after.memory.queue] == ["p-2"]
    assert after.of(CallModel)[0].messages[-1].content == "left"


def test_the_latest_prompt_stays_the_one_that_waits(session):
    """Late steering that opens a cycle before it does not become what ``AwaitCycle`` means."""
    busy = session.at(State.RUNNING).prompt("then", "p-2").give(Steer(text="left"), "s-1")
    after = busy.give(Abort(clear_queue=False))

    assert after.memory.cycle.command_id == "s-1"
    assert after.memory.latest_prompt == "p-2"


# --- aborts -------------------------------------------------------------------------------------


@every_state
def test_an_abort_is_published_before_anything_is_done(session, state):
    """Published behind the ends of its calls, settled once; nothing is left open."""
    busy = session.at(state)
    if state is not State.IDLE:
        busy = busy.prompt("next", "p-2")
    after = busy.give(Abort(reason="enough"))

    command_id = None if state is State.IDLE else "p-1"
    assert after.is_announced()
    assert after.events(AgentAbort) == [AgentAbort(reason="enough", command_id=command_id)]
    assert after.of(Complete) == [Complete("c", None)]
    assert after.state is State.IDLE
    assert (after.memory.cycle, after.memory.calls, after.memory.queue) == (None, (), ())
    assert repair(after.memory.messages) == after.memory.messages


@every_busy_state
def test_what_was_under_way_is_late_after_an_abort(session, state):
    """The work is cancelled right after the event, and its number is never current again."""
    before = session.at(state)
    after = before.give(Abort(kill_tools="all"))

    assert after.of(CancelModel) == [CancelModel()]
    assert after.memory.work > before.memory.work
    assert after.records()[-1] == CycleEnded(command_id="p-1", outcome="aborted")


@every_state
def test_an_abort_whose_reason_cannot_be_kept_is_refused(session, state):
    """Nothing is ended, and the caller gets an error; what can be kept is published as it is."""
    before = session.at(state)
    refused = before.give(Abort(reason=[float("inf")]))
    taken = before.give(Abort(reason={"by": ["ops", 7]}))
    (settled,) = refused.of(Complete)

    assert (refused.state, refused.memory, refused.events()) == (before.state, before.memory, [])
    assert "inf is not a finite number" in str(settled.outcome)
    assert taken.events(AgentAbort)[0].reason == {"by": ["ops", 7]}


def test_an_abort_keeps_what_was_said_so_far(session):
    """The partial answer stays in the history, marked as interrupted."""
    after = session.at(State.STREAMING).give(Abort())
    partial = after.memory.messages[-1]

    assert (partial.role, partial.content) == ("assistant", "part")
    assert partial.metadata == {"interrupted": True}
    assert after.records()[0] == MessageAdded(message=partial)


def test_what_there_was_of_an_answer_is_counted_about(session):
    """Its request was paid, though nobody reports how much."""
    streaming = session.at(State.STREAMING)
    cut = streaming.give(Abort(reason="enough"))
    (reported,) = cut.events(RequestCut)

    assert reported.usage.completion_tokens == 1
    assert reported.usage.total_tokens == reported.usage.prompt_tokens + 1
    assert cut.memory.usage == streaming.memory.usage + reported.usage
    assert CutSpent(usage=reported.usage) in cut.records()


def test_a_request_counts_with_its_prompt_and_what_was_thought(session):
    """Also where nothing of its answer was shown; one that is not sent counts nothing."""
    silent = session.at(State.RUNNING)
    thinks = silent.report(FirstChunk)
    for text in ("hmm ", "so. "):
        thinks = thinks.report(ThoughtArrived, text * 100)
    (asked,) = silent.give(Abort()).events(RequestCut)
    (thought,) = thinks.give(Abort()).events(RequestCut)
    waiting = silent.report(StreamFailed, FailureKind.TRANSIENT, "busy", 8)

    assert asked.usage.prompt_tokens == thought.usage.prompt_tokens > 0
    assert (asked.usage.completion_tokens, thought.usage.completion_tokens) == (0, 200)
    assert waiting.give(Abort()).events(RequestCut) == []


def test_an_abort_keeps_what_might_have_become_a_tag(session):
    """Text that was held back for its end is part of what was said."""
    aborted = session.at(State.STREAMING).speak(" <stat").give(Abort())

    assert aborted.memory.messages[-1].content == "part <stat"


def test_an_abort_of_a_silent_request_keeps_no_empty_answer(session):
    """Where nothing was said there is no message."""
    after = session.at(State.RUNNING).give(Abort())

    assert [message.role for message in after.memory.messages] == ["user"]


@pytest.mark.parametrize(
    ("kill", "ended"), [("all", ["b", "c"]), ("killable", ["c"]), ("none", [])], ids=str
)
def test_an_abort_ends_the_calls_it_may(session, kill, ended):
    """A finished call keeps its result; each open one has an error, whether it was ended or not."""
    batch = session.at(State.RUNNING, immune=frozenset({"write"}))
    batch = batch.call("read:a", "write:b", "read:c").begin("a", "b", "c").end("a")
    after = batch.give(Abort(kill_tools=kill))
    first, *others = after.memory.messages[-3:]

    assert killed(after) == ended
    assert after.of(CancelCalls) == ([CancelCalls(tuple(ended))] if ended else [])
    assert (first.content, first.is_error) == ("of a", False)
    assert [said.call_id for said in others if "may still have run" not in said.content] == ended
    assert all(said.is_error for said in others)


@pytest.mark.parametrize("kill", ["all", "killable", "none"])
def test_an_abort_ends_what_has_not_begun(session, kill):
    """A call that waits for its turn would begin in a cycle that is over, immune or not."""
    batch = session.at(State.EXECUTING_TOOLS, immune=frozenset({"read", "write"}))
    after = batch.begin("a").give(Abort(kill_tools=kill))

    assert "b" in killed(after)
    assert ("a" in killed(after)) == (kill == "all")


@pytest.mark.parametrize(
    "order",
    [Abort(kill_tools="all"), Abort(kill_tools="none"), Steer(text="rather"), EXPIRED],
    ids=["killed", "left", "steered", "out of time"],
)
def test_a_write_that_is_interrupted_is_uncertain(session, order):
    """Whether it was ended or left alone; a read is not, nor what had not begun."""
    batch = session.new(cycle_timeout_s=1).prompt().call("read:a", "write:b", "write:c")
    batch = batch.begin("a", "b")
    after = batch.post(order) if order is EXPIRED else batch.give(order)
    ended = after.events(ToolExecutionEnd)

    assert [reported.call_id for reported in ended if reported.uncertain] == ["b"]
    assert [one.call_id for one in uncertain_calls(after.memory)] == ["b"]
    assert uncertain_calls(after.rebuilt()) == uncertain_calls(after.memory)


def test_a_killed_call_says_why(session):
    """The caller's reason, or that it was an abort."""
    batch = session.at(State.EXECUTING_TOOLS)

    assert {reported.reason for reported in batch.give(Abort()).events(ToolKilled)} == {"aborted"}
    assert {reported.reason for reported in batch.give(Abort(reason="x")).events(ToolKilled)} == {
        "x"
    }


def test_a_thread_is_abandoned(session):
    """It cannot be ended: the event says so, once it runs; what it returns counts for nothing."""
    memory = Memory(model="x:m", tools=(ToolFacts("slow", isolation="thread"),))
    batch = session.new(memory).prompt().call("slow:a", "slow:b", "gone:c").begin("a", "c")
    after = batch.give(Abort(reason="x"))

    assert [reported.reason for reported in after.events(ToolKilled)] == ["abandoned", "x", "x"]


@pytest.mark.parametrize("kill", ["all", "killable", "none"])
def test_a_question_to_the_user_ends_with_its_cycle(session, kill):
    """Nobody will answer to a cycle that is over, so the call that asks is always ended."""
    batch = session.at(State.EXECUTING_TOOLS, immune=frozenset({"read", "write"}))
    asking = batch.report(QuestionAsked, "a", "a:ask-1", "which?", ())
    after = asking.give(Abort(kill_tools=kill))

    assert "a" in killed(after)
    assert after.memory.asks == ()


@pytest.mark.parametrize("kill", ["all", "none"])
@pytest.mark.parametrize("children", [True, False])
def test_an_abort_ends_subagents_unless_asked_not_to(session, kill, children):
    """Only ``children`` decides; one that is left alone runs on and is still counted."""
    after = waited_for(session.at(State.EXECUTING_TOOLS)).give(
        Abort(kill_tools=kill, children=children)
    )

    assert ("a" in killed(after)) == children
    assert "a" in [one for effect in after.of(CancelCalls) for one in effect.call_ids]
    assert after.of(EndSubagents) == ([EndSubagents(("s.1",))] if children else [])
    assert [child.session_id for child in after.memory.children] == ["s.1"]


def test_an_abort_ends_no_subagents_of_earlier_cycles(session):
    """One that was left running belongs to nobody, also where the model uses a call id again."""
    left = waited_for(session.at(State.EXECUTING_TOOLS)).give(Abort(children=False))
    after = left.prompt("again", "p-2").call("read:a").give(Abort())

    assert killed(after) == ["a"]
    assert after.of(EndSubagents) == []


def test_an_abort_drops_what_waits_and_says_so(session):
    """Steerings and prompts: each is published, recorded, and answered to who waits for it."""
    busy = session.at(State.RUNNING).prompt("next", "p-2").give(Steer(text="left"), "s-1")
    after = busy.give(AwaitCycle(prompt_id="p-2"), "w").give(Abort())

    assert after.events(PromptDropped) == [
        PromptDropped(text="left", command_id="s-1"),
        PromptDropped(text="next", command_id="p-2"),
    ]
    assert [record.command_id for record in after.records(PromptDiscarded)] == ["s-1", "p-2"]
    assert [(answer.id, answer.value.outcome) for answer in after.of(Answer)] == [("w", "dropped")]
    assert [seen.outcome for seen in after.memory.outcomes] == ["dropped", "dropped", "aborted"]
    assert (after.memory.steering, after.memory.queue) == ((), ())


@every_busy_state
def test_an_abort_may_keep_the_queue(session, state):
    """Then the next prompt's cycle begins, after the old work was cancelled."""
    after = session.at(state).prompt("next", "p-2").give(Abort(clear_queue=False))
    kinds = [type(effect) for effect in after.effects]

    assert after.state is State.RUNNING
    assert after.memory.cycle.command_id == "p-2"
    assert kinds.index(CancelModel) < kinds.index(CallModel)
    assert after.events(PromptDropped) == []


def test_an_abort_answers_the_call_that_waits_for_a_summary(session):
    """That is ended too, and the call is left running: it must not wait for ever."""
    old = tuple(Message(id=f"old-{n}", role="user", content="old") for n in range(12))
    batch = session.new(Memory(model="x:m", messages=old)).prompt().call("compact_conversation:a")
    waiting = batch.report(CompactWanted, "a", "a:compact-1", "long")
    (reported,) = waiting.give(Abort()).of(AnswerTool)

    assert (reported.ref, reported.value) == ("a:compact-1", None)
    assert "aborted" in reported.error


@pytest.mark.parametrize("state", BUSY)
def test_plugins_that_listen_hear_of_steering_first(session, state):
    """It does not count before they have answered."""
    before = session.at(state, hooks=frozenset({kind_of(BeforeSteering)}))
    after = before.give(Steer(text="left"), "s-1")

    assert [type(effect) for effect in after.effects] == [AskAboutSteering]
    assert after.memory == before.memory


def test_an_abort_leaves_approvals_to_be_decided(session):
    """A person may still say what becomes of the call; that its cycle is over changes nothing."""
    waiting = session.at(State.EXECUTING_TOOLS).report(
        ApprovalRequest, "b", RequireApproval(hint="sure?"), 9
    )

    assert waiting.give(Abort()).memory.approvals == waiting.memory.approvals


def test_a_child_of_nobody_is_not_steered(session):
    """A call is one that waits for a subagent only as long as it is the one it waits for."""
    child = Child("s.9", "a", None, Grant())
    batch = session.at(State.EXECUTING_TOOLS)
    memory = replace(batch.memory, children=(child,))
    after = batch.remembering(memory).give(Steer(text="left"), "s-1")

    assert killed(after) == ["a", "b"]
    assert after.of(EndSubagents) == []
