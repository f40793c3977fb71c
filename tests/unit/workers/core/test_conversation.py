"""How a memory changes, whoever changes it."""

import pytest

from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from workers.core.conversation import (
    TOLD_CHARS_MAX,
    begin_call,
    close_cycle,
    count_turn,
    cycle_result,
    discard,
    end_call,
    enqueue,
    find_call,
    find_outcome,
    newest,
    next_id,
    open_cycle,
    result_of,
    say,
    spend,
)
from workers.core.state import OUTCOMES_MAX, Memory, QueuedPrompt

ONE, TWO = QueuedPrompt("p-1", "one"), QueuedPrompt("p-2", "two")


def asking(*call_ids):
    calls = tuple(ToolCall(call_id=call_id, name="tool") for call_id in call_ids)
    message = Message(role="assistant", tool_calls=calls)
    return say(open_cycle(Memory(), ONE), message)


def answered(memory, text="fine"):
    message = Message(id=next_id(memory), role="assistant", content=text)
    return say(memory, message)


def test_a_cycle_begins_with_its_prompt():
    """The prompt is the user's message and no longer in the queue; others wait on."""
    queued = enqueue(enqueue(Memory(), ONE), TWO)
    memory = open_cycle(queued, ONE)

    assert [(said.role, said.content) for said in memory.messages] == [("user", "one")]
    assert (memory.queue, memory.cycle.first) == ((TWO,), 0)
    assert memory.cycle.command_id == "p-1"


def test_the_latest_prompt_is_the_last_accepted():
    """A queued prompt is later than the one whose cycle begins before it."""
    queued = enqueue(enqueue(Memory(), ONE), TWO)

    assert queued.latest_prompt == open_cycle(queued, ONE).latest_prompt == "p-2"
    assert open_cycle(Memory(), ONE).latest_prompt == "p-1"


def test_messages_are_numbered_by_their_place():
    """The ids follow from the history, so that a replay gives the same."""
    memory = answered(open_cycle(Memory(), ONE))

    assert [said.id for said in memory.messages] == ["m-1", "m-2"]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_results_move_in_together(order):
    """None is in the conversation before the last one came; then they stand in call order."""
    before = asking("a", "b")
    half = end_call(before, result_of(before, order[0], "x", is_error=False))
    whole = end_call(half, result_of(half, order[1], "y", is_error=True))

    assert half.messages == before.messages
    assert [said.call_id for said in whole.messages[-2:]] == ["a", "b"]
    assert [said.id for said in whole.messages[-2:]] == ["m-3", "m-4"]
    assert whole.calls == ()


def test_a_first_result_stays():
    """A second one of the same call changes nothing."""
    asked = asking("a", "b")
    once = end_call(asked, result_of(asked, "a", "first", is_error=False))

    assert end_call(once, result_of(once, "a", "second", is_error=True)) == once


def test_a_call_that_runs_again_has_a_new_start():
    """After a crash the time of the second attempt counts; a result keeps it."""
    memory = begin_call(begin_call(asking("a", "b"), "a", 5), "a", 9)
    memory = end_call(memory, result_of(memory, "a", "fine", is_error=False))

    assert find_call(memory, "a").started_at_ms == 9
    assert find_call(memory, "b").started_at_ms is None
    assert find_call(memory, "z") is None


def test_turns_count_for_the_session_and_the_cycle():
    """Outside of a cycle only the session's count."""
    inside = count_turn(open_cycle(count_turn(Memory()), ONE))

    assert (inside.turns, inside.cycle.turns) == (2, 1)
    assert count_turn(Memory()).cycle is None


def test_a_cycle_is_billed_for_what_it_used():
    """The session's usage goes on; a cycle's outcome has its own part."""
    used = TokenUsage(prompt_tokens=3, total_tokens=3, cost_usd=0.5)
    first = close_cycle(spend(open_cycle(Memory(), ONE), used), "finished", None)
    second = close_cycle(spend(open_cycle(first, TWO), used), "failed", "why")

    assert [seen.usage for seen in second.outcomes] == [used, used]
    assert second.usage.prompt_tokens == 6
    assert (second.cycle, second.calls) == (None, ())


def test_an_outcome_has_the_messages_of_its_cycle():
    """Those it added, and the text of its last answer."""
    first = close_cycle(answered(open_cycle(Memory(), ONE), "1"), "finished", None)
    second = close_cycle(answered(open_cycle(first, TWO), "2"), "finished", None)
    results = [cycle_result(second, find_outcome(second, prompt)) for prompt in ("p-1", "p-2")]

    assert [result.text for result in results] == ["1", "2"]
    assert [[said.content for said in result.messages] for result in results] == [
        ["one", "1"],
        ["two", "2"],
    ]


def test_a_dropped_prompt_has_an_outcome_without_messages():
    """Who waits for it learns that it never ran."""
    memory = discard(enqueue(enqueue(Memory(), ONE), TWO), "p-1")
    result = cycle_result(memory, find_outcome(memory, "p-1"))

    assert (result.outcome, result.text, result.messages) == ("dropped", "", ())
    assert memory.queue == (TWO,)


def test_only_the_latest_outcomes_are_remembered():
    """The bound holds, and the oldest leaves first."""
    memory = Memory()
    for number in range(OUTCOMES_MAX + 1):
        memory = close_cycle(open_cycle(memory, QueuedPrompt(f"p-{number}", "x")), "failed", "why")

    assert len(memory.outcomes) == OUTCOMES_MAX
    assert find_outcome(memory, "p-0") is None
    assert find_outcome(memory, f"p-{OUTCOMES_MAX}") is not None


def test_the_end_of_a_cycle_tells_the_newest_messages():
    """What is told at once has a bound; the last message is always there."""
    small = Message(role="user", content="x")
    large = Message(role="user", content="x" * TOLD_CHARS_MAX)

    assert newest((small, small)) == (small, small)
    assert newest((large, small)) == (small,)
    assert newest((small, large)) == (large,)
    assert newest((small, large, small)) == (small,)
    assert newest(()) == ()
