"""How a cycle is closed: who is told, what is written down, which callers are answered."""

from dataclasses import replace

import pytest

from cmdc_runtime.commands import CycleResult
from cmdc_runtime.events import AgentAbort
from cmdc_runtime.extensions.hooks import AfterTurn, kind_of
from cmdc_runtime.messages import Message, TokenUsage
from workers.core.conversation import count_answer, count_turn, open_cycle, say, spend
from workers.core.effects import Answer, Consult, Keep, Publish, Step
from workers.core.endings import aborted, answer_waiters, close
from workers.core.inputs import ANY_WORK
from workers.core.records import CycleEnded
from workers.core.state import Answering, Memory, PluginFacts, Policy, QueuedPrompt, State, Waiter

USED = TokenUsage(total_tokens=3)
TOLD = AgentAbort(reason="why", command_id="p-1")


def running(**policy):
    plugins = (PluginFacts("p", policy.pop("hooks", frozenset())),)
    memory = Memory(policy=Policy(**policy), plugins=plugins)
    opened = open_cycle(memory, QueuedPrompt("p-1", "go"), at_ms=10)
    return spend(say(opened, Message.assistant("yes")), USED)


def test_an_end_is_told_written_down_and_answered():
    """In this order; what is still under way is late from then on."""
    memory = replace(running(), waiters=(Waiter("w", "p-1"),))
    after, effects = close(memory, "aborted", "why", (TOLD, 15))
    told, kept, answer = effects

    assert told == Publish(TOLD)
    assert kept == Keep(CycleEnded(command_id="p-1", outcome="aborted", reason="why"))
    assert (answer.id, answer.value.outcome, answer.value.text) == ("w", "aborted", "yes")
    assert (after.cycle, after.waiters) == (None, ())
    assert after.work == memory.work + 1


def test_a_turn_without_an_answer_ends_uncounted():
    """Nothing is recorded of it: the process after this one would not know of it."""
    memory = running()
    asking, answered = count_turn(memory), count_answer(count_turn(memory), USED)

    assert close(asking, "aborted", "why", (TOLD, 15))[0].turns == 0
    assert close(answered, "aborted", "why", (TOLD, 15))[0].turns == 1


@pytest.mark.parametrize(
    ("outcome", "told"), [("finished", "finished"), ("aborted", "aborted"), ("failed", "aborted")]
)
@pytest.mark.parametrize(("at_ms", "duration_ms"), [(15, 5), (3, 0)], ids=["later", "steps back"])
def test_plugins_hear_of_each_end_once(outcome, told, at_ms, duration_ms):
    """With what the cycle added and used; nothing waits for what they say."""
    memory = running(hooks=frozenset({kind_of(AfterTurn)}))
    _, effects = close(memory, outcome, "why", (TOLD, at_ms))

    assert effects[-1] == Consult(
        ANY_WORK,
        AfterTurn(
            outcome=told,
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
    assert aborted(running(), None) == AgentAbort(reason=None, command_id="p-1")


def test_who_waits_for_no_prompt_gets_the_latest_end():
    """Nobody is answered where nothing ended."""
    memory = Memory(waiters=(Waiter("any"), Waiter("one", "p-1")))
    first, last = CycleResult(outcome="dropped"), CycleResult(outcome="aborted")
    answered = answer_waiters(memory, ("p-8", first), ("p-9", last))

    assert answered.effects == (Answer("any", last),)
    assert answer_waiters(memory) == Step(State.IDLE, memory)


def test_half_an_answer_goes_with_its_cycle():
    """The next one may be aborted before it asks a model: it does not say it again."""
    memory = replace(running(), answering=Answering(text="half", retries=2))
    after, _ = close(memory, "failed", "why", (TOLD, 15))

    assert after.answering == Answering()
