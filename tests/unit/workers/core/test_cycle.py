"""How a cycle begins, asks, and ends in one of its three ways.

What an answer leads to, in a loop or in the wrong form, is in ``test_cycle_answers.py``.
"""

import pytest
from msgspec.structs import replace

from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    AgentResumed,
    AgentStart,
    PromptReceived,
    RequestStart,
    SteeringApplied,
)
from cmdc_runtime.extensions.hooks import AfterResponse, BeforePrompt, kind_of
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message, OpeningCall, TokenUsage, ToolCall
from cmdc_runtime.reasons import MaxTurnsExceeded, PluginAborted, ProviderTimeout
from tests.unit.workers.core.conftest import taken
from workers.core import cycle
from workers.core.budget import Budget
from workers.core.evolve import count_answer, enqueue, open_cycle, say
from workers.core.inputs import StreamFailed, ToolReturned
from workers.core.records import CycleEnded, CycleStarted
from workers.core.state import (
    Answering,
    Asking,
    AskingPlugins,
    Memory,
    PluginFacts,
    Policy,
    QueuedPrompt,
    Resting,
    State,
    Steering,
    Streaming,
    Waiter,
)
from workers.core.step import (
    Answer,
    AskPlugins,
    CallModel,
    ExitProcess,
    Publish,
    Summarize,
    WriteRecord,
)
from workers.core.verdict import Aborted

ONE, TWO = QueuedPrompt("p-1", "one"), QueuedPrompt("p-2", "two")
LEFT = Steering("s-1", "left")
CALLS = (ToolCall(call_id="a", name="x"), ToolCall(call_id="b", name="y"))
ENDINGS = {
    "finished": (lambda step: cycle.finish(step, 5), AgentEnd, None),
    "aborted": (lambda step: cycle.end_at_limit(step, "why", 5), AgentAbort, "why"),
    "failed": (lambda step: cycle.fail(step, "why", 5, retryable=True), AgentError, "why"),
}
every_ending = pytest.mark.parametrize("outcome", ENDINGS)


def running(**policy):
    return taken(cycle.start, Memory(policy=Policy(**policy), model="m"), ONE, 1).memory


def answered(**policy):
    memory = count_answer(running(**policy), TokenUsage())
    return replace(memory, activity=Resting())


def of(step, kind):
    return [effect for effect in step.effects if isinstance(effect, kind)]


def records(step):
    return [effect.record for effect in of(step, WriteRecord)]


def events(step, kind=object):
    return [sent.event for sent in of(step, Publish) if isinstance(sent.event, kind)]


# --- begin --------------------------------------------------------------------------------------


def test_a_start_asks_the_model():
    """One record, one request with the prompt, the first turn of the cycle."""
    step = taken(cycle.start, Memory(model="m"), ONE, 1)
    (call,) = of(step, CallModel)

    assert records(step) == [CycleStarted(command_id="p-1", text="one", at_ms=1)]
    assert (step.state, step.memory.turns_begun, step.memory.turns) == (State.RUNNING, 1, 0)
    assert (call.work, call.model) == (step.memory.work, "m")
    assert [said.content for said in call.messages] == ["one"]


def test_a_queued_prompt_was_received():
    """The event says whether it waits."""
    step = taken(cycle.receive, Memory(), ONE, queued=True)

    assert events(step) == [PromptReceived(text="one", queued=True, command_id="p-1")]


@pytest.mark.parametrize("trigger", ["tool_approved", "tool_rejected"])
def test_a_cycle_that_a_decision_opens_says_so(trigger):
    """Before anything else is published of it."""
    prompt = QueuedPrompt("c-1", "go on", {"approval_id": "approval-3", "trigger": trigger})
    sent = events(taken(cycle.start, Memory(), prompt, 1))

    assert sent[0] == AgentResumed(trigger=trigger, approval_id="approval-3")
    assert sent[1] == AgentStart(command_id="c-1")


def test_a_cycle_may_be_opened_again():
    """After a crash, with only its prompt: plugins that listen hear of it once more."""
    hooks = frozenset({kind_of(BeforePrompt)})
    asked = taken(
        cycle.open_again, open_cycle(Memory(plugins=(PluginFacts("p", hooks),)), ONE, 1), 5
    )
    unasked = taken(cycle.open_again, open_cycle(Memory(), ONE, 1), 5)

    assert [one.hook for one in of(asked, AskPlugins)] == [BeforePrompt("one")]
    assert records(asked) == records(unasked) == []
    assert len(of(unasked, CallModel)) == 1


def beginning(verb):
    """Return the step in which a cycle begins without a budget, and what waits meanwhile."""
    memory = Memory(policy=Policy(budget=Budget(max_total_tokens=1)), queue=(TWO,))
    if verb is cycle.start:
        return taken(verb, memory, ONE, 5)
    opened = open_cycle(memory, ONE, 1)
    if verb is cycle.begin:
        opened = replace(opened, activity=AskingPlugins("before_prompt"))
    return taken(verb, opened, 5)


@pytest.mark.parametrize("verb", [cycle.start, cycle.begin, cycle.open_again])
def test_a_cycle_that_ends_as_it_begins_makes_way_for_what_waits(verb):
    """What plugins asked a model, or a subagent, may have used up the budget since its prompt.

    Nothing else would begin the next one.
    """
    step = beginning(verb)

    assert [event.command_id for event in events(step, AgentAbort)] == ["p-1", "p-2"]
    assert (step.state, step.memory.queue) == (State.IDLE, ())


# --- ask the model ------------------------------------------------------------------------------


def test_a_request_is_published_with_what_is_sent():
    """The count is that of the repaired conversation."""
    memory = say(running(), Message.assistant("", CALLS))
    step = taken(cycle.ask_again, memory)

    assert step.outgoing[0] == Publish(RequestStart(model="m", messages=4))
    assert len(of(step, CallModel)[0].messages) == 4


def test_asking_again_is_no_new_turn():
    """A retry has a new work number and the same turn; the answer so far is the caller's."""
    memory = replace(running(), activity=Asking(Answering(retries=2)))
    step = taken(cycle.ask_again, memory)

    assert step.memory == replace(memory, work=memory.work + 1)


def test_a_new_turn_starts_with_no_answer():
    """Nothing of the answer before it is left."""
    memory = replace(answered(), activity=Streaming(Answering(retries=2, text="old")))
    step = taken(cycle.ask, memory, 5)

    assert step.memory.answering == Answering()
    assert step.memory.turns_begun == 2


def test_a_turn_begins_with_the_steering_that_waits():
    """It is said before the request goes out, and written down."""
    step = taken(cycle.ask, replace(running(), steering=(LEFT, Steering("s-2", "right"))), 5)
    (record,) = records(step)

    assert record.message.content == "left\n\nright"
    assert of(step, CallModel)[0].messages[-1] == record.message
    assert events(step, SteeringApplied) == [SteeringApplied(count=2)]
    assert step.memory.steering == ()


def test_a_turn_begins_with_what_plugins_have_to_say():
    """As one message of their own, ahead of steering."""
    step = taken(cycle.ask, replace(running(), notes=("mind", "the gap"), steering=(LEFT,)), 5)

    assert [kept.message.content for kept in records(step)] == ["mind\n\nthe gap", "left"]
    assert step.memory.notes == ()


def test_a_large_conversation_is_compacted_first():
    """Where something can go; else it is sent as it is."""
    old = tuple(Message(id=f"m-{n}", role="user", content="x" * 50) for n in range(12))
    policy = Policy(window_of=lambda _model: 100)
    long = taken(cycle.start, Memory(policy=policy, messages=old), ONE, 1)
    short = taken(cycle.start, Memory(policy=policy, messages=old[:1] * 8), ONE, 1)
    one = taken(cycle.start, Memory(policy=policy), replace(ONE, text="x" * 500), 1)

    assert (len(of(long, Summarize)), of(long, CallModel)) == (1, [])
    assert long.memory.compacting.trigger == "size"
    assert [one.work for one in of(long, Summarize)] == [long.memory.work] == [one.memory.work]
    assert len(of(short, Summarize)) == 1
    assert (of(one, Summarize), len(of(one, CallModel))) == ([], 1)


def test_plugins_are_asked_of_a_request_when_its_conversation_is_compacted():
    """What they see is what is sent."""
    old = tuple(Message(id=f"m-{n}", role="user", content="x" * 50) for n in range(12))
    policy = Policy(window_of=lambda _model: 100)
    plugins = (PluginFacts("p", frozenset({"before_request"})),)
    heard = Memory(policy=policy, messages=old, plugins=plugins)
    step = taken(cycle.start, heard, ONE, 1)

    assert (len(of(step, Summarize)), of(step, AskPlugins), of(step, CallModel)) == (1, [], [])


def test_turns_are_bounded():
    """The turn that would be one too many aborts the cycle instead; steering opens the next."""
    step = taken(cycle.ask, answered(max_turns=1), 5)
    guided = taken(cycle.ask, replace(answered(max_turns=1), steering=(LEFT,)), 5)

    assert of(step, CallModel) == []
    assert step.effects[0].event == AgentAbort(reason="max_turns_exceeded", command_id="p-1")
    assert guided.effects[0] == step.effects[0]
    assert (guided.memory.cycle.command_id, guided.memory.steering) == ("s-1", ())


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (Budget(max_total_tokens=100), TokenUsage(), "max_total_tokens_exceeded"),
        (Budget(max_cost_usd=1.0), TokenUsage(cost_usd=1.0), "max_cost_usd_exceeded"),
    ],
    ids=["tokens", "cost"],
)
def test_a_request_beyond_the_budget_is_not_made(budget, spent, reason):
    """The cycle is aborted with the name of the limit, and no turn is counted."""
    policy = Policy(budget=budget, price_of=lambda *_: 0.01)
    step = taken(cycle.start, Memory(policy=policy, usage=spent), ONE, 1)

    assert [event.reason for event in events(step, AgentAbort)] == [reason]
    assert (step.state, step.memory.turns, of(step, CallModel)) == (State.IDLE, 0, [])


def test_a_long_queue_without_a_budget_ends_prompt_by_prompt():
    """Each has an end of its own, however many there are: none of it is kept on the stack."""
    many = 500
    policy = Policy(budget=Budget(max_total_tokens=1))
    waiting = tuple(QueuedPrompt(f"p-{number}", "x") for number in range(many))
    step = taken(cycle.next_prompt, Memory(policy=policy, queue=waiting, steering=(LEFT,)), 5)

    assert [event.command_id for event in events(step, AgentAbort)] == [
        "s-1",
        *(prompt.command_id for prompt in waiting),
    ]
    assert (step.state, step.memory.queue) == (State.IDLE, ())


# --- tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_blocked", "steering", "rests"),
    [(False, (), False), (True, (), True), (True, (LEFT,), False)],
    ids=["open", "blocked", "steered"],
)
def test_a_batch_is_followed_by_a_request_or_by_rest(is_blocked, steering, rests):
    """It rests where a call waits for a person, unless the user has more to say."""
    memory = running()
    memory = replace(memory, steering=steering, cycle=replace(memory.cycle, is_blocked=is_blocked))
    step = taken(cycle.after_batch, memory, 5)

    assert (step.state is State.IDLE) == rests
    assert bool(events(step, AgentEnd)) == rests


# --- end ----------------------------------------------------------------------------------------


@every_ending
def test_an_ending_is_published_recorded_and_remembered_once(outcome):
    """One event, one record, one outcome, one answer to who waits; then the agent rests."""
    end, event, reason = ENDINGS[outcome]
    memory = replace(running(), waiters=(Waiter("w", "p-1"), Waiter("other", "p-9")))
    step = taken(end, memory)
    (answer,) = of(step, Answer)

    assert [type(sent) for sent in events(step)] == [event]
    assert step.effects[0].event.command_id == "p-1"
    assert records(step) == [CycleEnded(command_id="p-1", outcome=outcome, reason=reason)]
    assert (answer.id, answer.value.outcome, answer.value.reason) == ("w", outcome, reason)
    assert [seen.outcome for seen in step.memory.outcomes] == [outcome]
    assert step.memory.waiters == (Waiter("other", "p-9"),)
    assert (step.state, step.memory.cycle) == (State.IDLE, None)
    assert step.memory.work > memory.work


@every_ending
def test_the_next_prompt_follows_an_ending(outcome):
    """The oldest leaves the queue; its cycle is recorded after the end of the one before."""
    later = QueuedPrompt("p-3", "three")
    step = taken(ENDINGS[outcome][0], enqueue(enqueue(running(), TWO), later))

    assert [type(record) for record in records(step)] == [CycleEnded, CycleStarted]
    assert (step.state, step.memory.queue) == (State.RUNNING, (later,))
    assert step.memory.cycle.command_id == "p-2"


@every_ending
def test_late_steering_follows_an_ending_before_any_prompt(outcome):
    """All of it opens one cycle, under the reference of the first."""
    memory = replace(enqueue(running(), TWO), steering=(LEFT, Steering("s-2", "right")))
    step = taken(ENDINGS[outcome][0], memory)
    (begun,) = [record for record in records(step) if isinstance(record, CycleStarted)]

    assert (begun.command_id, begun.text) == ("s-1", "left\n\nright")
    assert begun.metadata == {"steering": ["s-1", "s-2"]}
    assert (step.memory.steering, step.memory.queue) == ((), (TWO,))
    assert events(step, SteeringApplied) == [SteeringApplied(count=2)]


def test_the_end_reports_what_the_cycle_added():
    """Messages of earlier cycles are not reported again."""
    earlier = taken(cycle.finish, say(running(), Message.assistant("1")), 5).memory
    later = say(open_cycle(earlier, TWO, 1), Message.assistant("2"))
    (ended,) = of(taken(cycle.finish, later, 5), Publish)

    assert [said.content for said in ended.event.messages] == ["two", "2"]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("max_turns_exceeded", MaxTurnsExceeded(max_turns=1)),
        ("provider_timeout", ProviderTimeout(model="x:m", seconds=120.0)),
    ],
)
def test_a_limit_may_end_the_process(session, condition, reason):
    """Where the options say so: after the cycle's end is published, and with no further cycle."""

    def brought_to_it(**policy):
        begun = session.at(State.RUNNING, max_turns=1, max_retries=0, **policy)
        begun = begun.prompt("then", "p-2")
        if condition == "max_turns_exceeded":
            return begun.call("read:a").end("a")
        return begun.report(StreamFailed, FailureKind.TIMEOUT, "silent", 9)

    lives, ends = brought_to_it(), brought_to_it(exit_on=frozenset({condition}))

    assert (lives.of(ExitProcess), lives.memory.cycle.command_id) == ([], "p-2")
    assert ends.effects[-1] == ExitProcess(reason)
    assert ends.events(AgentAbort)[0].reason == condition
    assert (ends.state, ends.records()[-1].outcome) == (State.IDLE, "aborted")


def test_a_plugins_abort_may_end_the_process():
    """Else the next prompt has its turn."""
    wish = Aborted("guard", "no")
    lives = taken(cycle.end_by_plugin, enqueue(running(), TWO), wish, 5)
    exit_on = frozenset({"plugin_aborted"})
    ends = taken(cycle.end_by_plugin, enqueue(running(exit_on=exit_on), TWO), wish, 5)

    assert [event.reason for event in events(lives, AgentAbort)] == ["no"]
    assert lives.memory.cycle.command_id == "p-2"
    assert ends.effects[-1] == ExitProcess(PluginAborted(plugin="guard", why="no"))


def test_only_the_named_conditions_end_the_process():
    """Another limit leaves it alive."""
    step = taken(
        cycle.end_at_limit, running(exit_on=frozenset({"loop_detected"})), "loop_detected", 5
    )

    assert of(step, ExitProcess) == []


def test_a_cycle_is_reported_with_what_it_has_used_itself(session):
    """Not with what the session had used before."""
    second = session.new().prompt("one", "p-1").answer().prompt("two", "p-2").answer()
    (ended,) = second.events(AgentEnd)

    assert (ended.usage.total_tokens, second.memory.usage.total_tokens) == (3, 6)


def test_plugins_are_asked_about_the_answer(session):
    """The last message, whatever stands before it."""
    after = session.new(hooks={"after_response"}).prompt().answer("done")
    (asked,) = after.of(AskPlugins)

    assert asked.hook == AfterResponse(after.memory.messages[-1])
    assert asked.hook.message.content == "done"


def test_a_call_in_place_of_a_request_fails_for_good(session):
    """The same prompt would make the same call."""
    begun = session.new(opening_call=OpeningCall(name="read")).prompt()
    after = begun.report(ToolReturned, begun.memory.calls[0].call.call_id, False, "no", 10)

    assert [(sent.reason, sent.retryable) for sent in after.events(AgentError)] == [("no", False)]
