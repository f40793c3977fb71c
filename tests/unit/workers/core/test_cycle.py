"""How a cycle begins, asks, and ends in one of its three ways."""

from dataclasses import replace

import pytest

from cmdc_runtime.commands import CycleResult
from cmdc_runtime.events import AgentAbort, AgentEnd, AgentError, PromptReceived, RequestStart
from cmdc_runtime.messages import Message, ToolCall
from workers.core import cycle
from workers.core.conversation import enqueue, open_cycle, say
from workers.core.records import CycleEnded, CycleStarted, ToolEnded
from workers.core.state import (
    Answer,
    Answering,
    CallModel,
    Keep,
    Memory,
    Policy,
    Publish,
    QueuedPrompt,
    RunTools,
    State,
    Step,
)

ONE, TWO = QueuedPrompt("p-1", "one"), QueuedPrompt("p-2", "two")
CALLS = (ToolCall(call_id="a", name="x"), ToolCall(call_id="b", name="y"))
ENDINGS = {
    "finished": (lambda memory: cycle.finish(memory, 5), AgentEnd, None),
    "aborted": (lambda memory: cycle.abort(memory, "why", 5), AgentAbort, "why"),
    "failed": (lambda memory: cycle.fail(memory, "why", 5, retryable=True), AgentError, "why"),
}
every_ending = pytest.mark.parametrize("outcome", ENDINGS)


def running(**policy):
    return cycle.start(Memory(policy=Policy(**policy), model="m"), ONE, 1).memory


def of(step, kind):
    return [effect for effect in step.effects if isinstance(effect, kind)]


def records(step):
    return [effect.record for effect in of(step, Keep)]


def test_effects_keep_their_order():
    """What was said before a step comes before what it says."""
    first, second = Publish(AgentAbort()), Publish(AgentAbort(reason="x"))
    step = cycle.then(Step(State.IDLE, Memory(), (second,)), [first])

    assert step.effects == (first, second)


def test_a_start_asks_the_model():
    """One record, one request with the prompt, the first turn of the cycle."""
    step = cycle.start(Memory(model="m"), ONE, 1)
    (call,) = of(step, CallModel)

    assert records(step) == [CycleStarted(command_id="p-1", text="one", at_ms=1)]
    assert (step.state, step.memory.cycle.turns, step.memory.turns) == (State.RUNNING, 1, 1)
    assert (call.work, call.model) == (step.memory.work, "m")
    assert [said.content for said in call.messages] == ["one"]


def test_a_request_is_told_with_what_is_sent():
    """The count is that of the repaired conversation."""
    memory = say(running(), Message.assistant("", CALLS))
    step = cycle.ask_again(memory)

    assert step.effects[0] == Publish(RequestStart(model="m", messages=4))
    assert len(of(step, CallModel)[0].messages) == 4


def test_asking_again_is_no_new_turn():
    """A retry has a new work number and the same turn; the answer so far is the caller's."""
    memory = replace(running(), answering=Answering(retries=2))
    step = cycle.ask_again(memory)

    assert step.memory == replace(memory, work=memory.work + 1)


def test_a_new_turn_starts_with_no_answer():
    """Nothing of the answer before it is left."""
    memory = replace(running(), answering=Answering(retries=2, text="old"))
    step = cycle.ask(memory, 5)

    assert step.memory.answering == Answering()
    assert step.memory.cycle.turns == 2


def test_turns_are_bounded():
    """The turn that would be one too many aborts the cycle instead."""
    step = cycle.ask(running(max_turns=1), 5)

    assert of(step, CallModel) == []
    assert step.effects[0].event == AgentAbort(reason="max_turns_exceeded", command_id="p-1")


def test_tools_run_as_one_batch():
    """They get a number of their own and are told how many they are."""
    memory = say(running(), Message.assistant("", CALLS))
    step = cycle.call_tools(memory, CALLS)

    assert of(step, RunTools) == [RunTools(memory.work + 1, 1, "m", CALLS)]
    assert (step.state, step.effects[0].event.count) == (State.EXECUTING_TOOLS, 2)


@every_ending
def test_an_ending_is_told_recorded_and_remembered_once(outcome):
    """One event, one record, one outcome, one answer to who waits; then the agent rests."""
    end, event, reason = ENDINGS[outcome]
    memory = replace(running(), waiters=(("w", "p-1"), ("other", "p-9")))
    step = end(memory)
    (answer,) = of(step, Answer)

    assert [type(told.event) for told in of(step, Publish)] == [event]
    assert step.effects[0].event.command_id == "p-1"
    assert records(step) == [CycleEnded(command_id="p-1", outcome=outcome, reason=reason)]
    assert (answer.id, answer.value.outcome, answer.value.reason) == ("w", outcome, reason)
    assert [seen.outcome for seen in step.memory.outcomes] == [outcome]
    assert step.memory.waiters == (("other", "p-9"),)
    assert (step.state, step.memory.cycle) == (State.IDLE, None)
    assert step.memory.work > memory.work


@every_ending
def test_the_next_prompt_follows_an_ending(outcome):
    """The oldest leaves the queue; its cycle is recorded after the end of the one before."""
    later = QueuedPrompt("p-3", "three")
    step = ENDINGS[outcome][0](enqueue(enqueue(running(), TWO), later))

    assert [type(record) for record in records(step)] == [CycleEnded, CycleStarted]
    assert (step.state, step.memory.queue) == (State.RUNNING, (later,))
    assert step.memory.cycle.command_id == "p-2"


def test_the_end_tells_what_the_cycle_added():
    """Messages of earlier cycles are not told again."""
    earlier = cycle.finish(say(running(), Message.assistant("1")), 5).memory
    later = say(open_cycle(earlier, TWO), Message.assistant("2"))
    (ended,) = of(cycle.finish(later, 5), Publish)

    assert [said.content for said in ended.event.messages] == ["two", "2"]


def test_open_calls_can_be_given_results():
    """Those that have one keep it; the batch is whole afterwards, in call order."""
    memory = say(running(), Message.assistant("", CALLS))
    memory, _ = cycle.give_results(memory, "gone")
    again, nothing = cycle.give_results(memory, "gone")

    assert [said.call_id for said in memory.messages[-2:]] == ["a", "b"]
    assert (again, nothing) == (memory, ())


def test_a_result_that_is_there_stays():
    """Only the open call is given the error."""
    memory = say(running(), Message.assistant("", CALLS))
    calls = (replace(memory.calls[0], result=Message.tool_result("a", "fine")), memory.calls[1])
    memory, effects = cycle.give_results(replace(memory, calls=calls), "gone")

    assert [said.content for said in memory.messages[-2:]] == ["fine", "gone"]
    assert [type(kept.record) for kept in effects] == [ToolEnded]


def test_a_queued_prompt_was_received():
    """The event says whether it waits."""
    assert cycle.receive(ONE, queued=True) == Publish(
        PromptReceived(text="one", queued=True, command_id="p-1")
    )


def test_who_waits_for_no_prompt_gets_the_latest_end():
    """Nobody is answered where nothing ended."""
    memory = Memory(waiters=(("any", None), ("one", "p-1")))
    first, last = CycleResult(outcome="dropped"), CycleResult(outcome="aborted")
    answered = cycle.answer_waiters(memory, ("p-8", first), ("p-9", last))

    assert answered.effects == (Answer("any", last),)
    assert cycle.answer_waiters(memory) == Step(State.IDLE, memory)
