"""What a new process makes of the journal that it finds."""

from dataclasses import replace

import pytest

from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentRecovered,
    StreamReset,
    ToolExecutionEnd,
)
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.reasons import Signal
from workers.core.rebuild import FOLD, replay, resume
from workers.core.records import (
    RECORDS,
    CycleEnded,
    CycleStarted,
    PromptDiscarded,
    PromptQueued,
    Resumed,
    Said,
    ToolEnded,
    ToolStarted,
    TurnSpent,
)
from workers.core.repair import repair
from workers.core.state import CallModel, Keep, Memory, Policy, Publish, RunTools, State

KILLED = Signal(number=9, name="SIGKILL")
STARTED = CycleStarted(command_id="p-1", text="go", at_ms=1)
ASKING = Said(
    message=Message.assistant(
        "", (ToolCall(call_id="r", name="read"), ToolCall(call_id="w", name="write"))
    )
)
DONE = Said(message=Message.assistant("done"))
NEXT = PromptQueued(command_id="p-2", text="next")


def memory_of(*records, **policy):
    policy = Policy(repeatable=frozenset({"read"}), **policy)
    return replay(Memory(policy=policy, model="m"), records)


def resumed(*records, **policy):
    return resume(memory_of(*records, **policy), 2, KILLED, 9)


def began(call_id):
    return ToolStarted(call_id=call_id, at_ms=5)


def ended(call_id):
    return ToolEnded(message=Message.tool_result(call_id, "fine"))


def of(step, kind):
    return [effect for effect in step.effects if isinstance(effect, kind)]


def events(step, kind):
    return [told.event for told in of(step, Publish) if isinstance(told.event, kind)]


def kept(step):
    return [effect.record for effect in of(step, Keep)]


def said_of(step):
    return events(step, AgentRecovered)[0].resumed


def test_every_record_is_folded():
    """A record without a row would be lost at the next crash."""
    missing = set(RECORDS) - set(FOLD)

    assert missing == set(), f"{missing} -> add a row in workers/core/rebuild.py"


def test_a_journal_becomes_a_memory():
    """Every kind of record leaves its mark."""
    used = TokenUsage(prompt_tokens=3, total_tokens=3)
    memory = memory_of(
        STARTED,
        Resumed(incarnation=2),
        NEXT,
        PromptQueued(command_id="p-3", text="never"),
        PromptDiscarded(command_id="p-3"),
        ASKING,
        TurnSpent(usage=used),
        began("w"),
        ended("r"),
    )

    assert [said.role for said in memory.messages] == ["user", "assistant"]
    assert (memory.cycle.crashes, memory.cycle.turns, memory.turns) == (1, 1, 1)
    assert (memory.usage, memory.latest_prompt) == (used, "p-3")
    assert [queued.command_id for queued in memory.queue] == ["p-2"]
    assert [(call.started_at_ms, call.result is None) for call in memory.calls] == [
        (None, False),
        (5, True),
    ]
    assert [seen.outcome for seen in memory.outcomes] == ["dropped"]


def test_an_idle_session_stays_idle():
    """The end of a cycle is final, and a note of a crash at rest counts nothing."""
    over = CycleEnded(command_id="p-1", outcome="finished")
    step = resumed(STARTED, DONE, over, Resumed(incarnation=2))

    assert (step.state, kept(step), said_of(step)) == (State.IDLE, [], "idle")
    assert len(step.effects) == 1


def test_a_prompt_that_was_queued_at_rest_gets_its_cycle():
    """The process died between one cycle and the next."""
    step = resumed(STARTED, DONE, NEXT, CycleEnded(command_id="p-1", outcome="finished"))

    assert (step.state, step.memory.cycle.command_id) == (State.RUNNING, "p-2")


@pytest.mark.parametrize("before", [(), (DONE,)], ids=["first", "later"])
def test_a_request_is_sent_again(before):
    """Observers discard what they saw of it; the prompt is asked as if nothing had been."""
    first = (STARTED, *before, CycleEnded(command_id="p-1", outcome="failed")) if before else ()
    step = resumed(*first, CycleStarted(command_id="p-9", text="well?", at_ms=2))
    (call,) = of(step, CallModel)

    assert (step.state, said_of(step)) == (State.RUNNING, "stream")
    assert call.messages[-1].content == "well?"
    assert kept(step) == [Resumed(incarnation=2)]
    assert len(events(step, StreamReset)) == 1


def test_an_answer_that_is_there_is_not_asked_for_again():
    """Only the end of the cycle was missing."""
    step = resumed(STARTED, DONE)

    assert of(step, CallModel) == []
    assert (step.state, len(events(step, AgentEnd))) == (State.IDLE, 1)
    assert [seen.outcome for seen in step.memory.outcomes] == ["finished"]


def test_calls_that_never_started_run():
    """Nothing was done yet, so even a write may."""
    step = resumed(STARTED, ASKING)

    assert [call.call_id for call in of(step, RunTools)[0].calls] == ["r", "w"]
    assert (step.state, said_of(step)) == (State.EXECUTING_TOOLS, "tools")


def test_only_a_repeatable_call_runs_again():
    """The other one may have taken effect: its result says so, and it is never run again."""
    step = resumed(STARTED, ASKING, began("r"), began("w"))
    (told,) = events(step, ToolExecutionEnd)
    (note, result) = kept(step)

    assert [call.call_id for call in of(step, RunTools)[0].calls] == ["r"]
    assert (told.call_id, told.ok) == ("w", False)
    assert "may or may not" in result.message.content
    assert (note, result.message.is_error) == (Resumed(incarnation=2), True)


def test_a_batch_that_is_over_asks_the_model():
    """Of one result and one uncertain call nothing is left to run."""
    step = resumed(STARTED, ASKING, began("r"), began("w"), ended("r"))

    assert of(step, RunTools) == []
    assert [said.call_id for said in of(step, CallModel)[0].messages[-2:]] == ["r", "w"]


def test_a_finished_call_is_not_run_again():
    """Its result is there."""
    step = resumed(STARTED, ASKING, began("w"), ended("w"))

    assert [call.call_id for call in of(step, RunTools)[0].calls] == ["r"]
    assert events(step, ToolExecutionEnd) == []


@pytest.mark.parametrize("records", [(), (ASKING, began("w"))], ids=["asking", "in tools"])
def test_a_cycle_that_kills_its_process_is_aborted(records):
    """The second crash of one cycle is the last: the history is whole, the next prompt runs."""
    crash = Resumed(incarnation=2)
    once = resumed(STARTED, NEXT, *records, max_cycle_crashes=2)
    twice = resumed(STARTED, NEXT, *records, crash, max_cycle_crashes=2)
    (aborted,) = events(twice, AgentAbort)

    assert events(once, AgentAbort) == []
    assert aborted.reason == f"crashed({KILLED})"
    assert aborted.command_id == "p-1"
    assert of(twice, RunTools) == []
    assert twice.memory.cycle.command_id == "p-2"
    assert repair(twice.memory.messages) == twice.memory.messages


def test_crashes_are_counted_for_each_cycle():
    """The next prompt is not to blame for the one before."""
    step = resumed(STARTED, Resumed(incarnation=2), NEXT, max_cycle_crashes=2)

    assert (step.memory.cycle.command_id, step.memory.cycle.crashes) == ("p-2", 0)


def test_the_turns_of_a_cycle_stay_bounded_across_a_crash():
    """Turns that were used before it count."""
    spent = TurnSpent(usage=TokenUsage())
    step = resumed(STARTED, ASKING, spent, ended("r"), ended("w"), max_turns=1)

    assert events(step, AgentAbort)[0].reason == "max_turns_exceeded"


def test_replay_starts_from_the_memory_that_is_given():
    """The history that a session was created with comes before its own."""
    first = Memory(messages=(Message.user("before"), Message.assistant("yes")))
    memory = replay(first, [STARTED])

    assert memory.cycle.first == 2
    assert memory == replay(replace(first), [STARTED])
