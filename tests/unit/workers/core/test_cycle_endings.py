"""How a cycle is closed: who hears of it, what is written down, which callers are answered."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import CycleResult
from cmdc_runtime.events import AgentAbort
from cmdc_runtime.extensions.hooks import AfterTurn, kind_of
from cmdc_runtime.messages import Message, TokenUsage
from tests.unit.workers.core.conftest import taken
from workers.core.conversation import spend
from workers.core.cycle import announce_abort, answer_waiters, close
from workers.core.evolve import open_cycle, say
from workers.core.inputs import ANY_WORK
from workers.core.records import CycleEnded
from workers.core.state import (
    Answering,
    Asking,
    AskingPlugins,
    Compacting,
    Memory,
    PluginFacts,
    Policy,
    QueuedPrompt,
    State,
    Streaming,
    Waiter,
)
from workers.core.step import Answer, AskPlugins, Publish, Step, WriteRecord

USED = TokenUsage(total_tokens=3)


def running(**policy):
    plugins = (PluginFacts("p", policy.pop("hooks", frozenset())),)
    memory = Memory(policy=Policy(**policy), plugins=plugins)
    opened = open_cycle(memory, QueuedPrompt("p-1", "go"), at_ms=10)
    return spend(say(opened, Message.assistant("yes")), USED)


def test_an_end_is_written_down_and_answered():
    """What is still under way is late from then on."""
    memory = replace(running(), waiters=(Waiter("w", "p-1"),), activity=Asking())
    step = taken(close, memory, "aborted", "why", 15, state=State.RUNNING)
    kept, answer = step.effects

    assert kept == WriteRecord(CycleEnded(command_id="p-1", outcome="aborted", reason="why"))
    assert (answer.id, answer.value.outcome, answer.value.text) == ("w", "aborted", "yes")
    assert (step.memory.cycle, step.memory.waiters) == (None, ())
    assert (step.state, step.memory.work) == (State.IDLE, memory.work + 1)
    assert (step.memory.turns_begun, step.memory.turns) == (0, 0)  # that turn has no answer


def test_nothing_waits_for_plugins_or_a_summary_any_more():
    """Nor does the next cycle."""
    wanted = Compacting(2, "size")
    memory = replace(running(), activity=AskingPlugins("before_compact", wanted))
    after = taken(close, memory, "failed", "why", 15).memory

    assert (after.compacting, after.point) == (None, None)


@pytest.mark.parametrize(
    ("outcome", "heard"), [("finished", "finished"), ("aborted", "aborted"), ("failed", "aborted")]
)
@pytest.mark.parametrize(("at_ms", "duration_ms"), [(15, 5), (3, 0)], ids=["later", "steps back"])
def test_plugins_hear_of_each_end_once(outcome, heard, at_ms, duration_ms):
    """With what the cycle added and used; nothing waits for what they say."""
    memory = running(hooks=frozenset({kind_of(AfterTurn)}))
    step = taken(close, memory, outcome, "why", at_ms)

    assert step.effects[-1] == AskPlugins(
        ANY_WORK,
        AfterTurn(
            outcome=heard,
            abort_reason="why",
            messages_diff=memory.messages,
            token_usage_diff=USED,
            started_at_ms=10,
            ended_at_ms=at_ms,
            duration_ms=duration_ms,
        ),
    )


def test_an_abort_names_its_prompt():
    """And its reason, if it has one."""
    step = taken(announce_abort, running(), None)

    assert step.effects == (Publish(AgentAbort(reason=None, command_id="p-1")),)


def test_who_waits_for_no_prompt_gets_the_latest_end():
    """Nobody is answered where nothing ended."""
    memory = Memory(waiters=(Waiter("any"), Waiter("one", "p-1")))
    first, last = CycleResult(outcome="dropped"), CycleResult(outcome="aborted")
    answered = taken(answer_waiters, memory, ("p-8", first), ("p-9", last))

    assert answered.effects == (Answer("any", last),)
    assert taken(answer_waiters, memory) == Step(memory)


def test_half_an_answer_goes_with_its_cycle():
    """The next one may be aborted before it asks a model: it does not say it again."""
    memory = replace(running(), activity=Streaming(Answering(text="half", retries=2)))
    after = taken(close, memory, "failed", "why", 15).memory

    assert after.answering == Answering()
