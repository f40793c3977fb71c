"""How a memory changes, whoever changes it."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import PROMPT_CHARS_MAX
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from workers.core import runs
from workers.core.budget import Grant
from workers.core.children import Branch, Child
from workers.core.conversation import (
    NOTES,
    PUBLISHED_CHARS_MAX,
    REPAIR,
    STEERING,
    cycle_result,
    find_call,
    find_loop,
    find_outcome,
    form_of,
    is_running,
    newest,
    next_id,
    place,
    result_of,
    result_place,
    since,
    spend,
    tool_names,
    uncertain_calls,
    waiting,
)
from workers.core.evolve import (
    begin_call,
    close_cycle,
    count_answer,
    discard,
    end_call,
    enqueue,
    open_cycle,
    say,
)
from workers.core.loops import Loop, fingerprint
from workers.core.message_content import text_problem
from workers.core.records import Approval
from workers.core.state import (
    OUTCOMES_MAX,
    Memory,
    PendingAsk,
    Policy,
    QueuedPrompt,
    Steering,
)

ONE, TWO = QueuedPrompt("p-1", "one"), QueuedPrompt("p-2", "two")
LEFT = Steering("s-1", "left")
USED = TokenUsage(total_tokens=1)


def asking(*call_ids, memory=None):
    calls = tuple(ToolCall(call_id=call_id, name="tool") for call_id in call_ids)
    message = Message(role="assistant", tool_calls=calls)
    return say(open_cycle(memory or Memory(), ONE, 1), message)


def answered(memory, text="fine"):
    message = Message(id=next_id(memory), role="assistant", content=text)
    return say(memory, message)


def ended(memory, call_id, text="fine"):
    return end_call(memory, result_of(memory, call_id, text, is_error=False))


# --- cycles and prompts -------------------------------------------------------------------------


def test_a_cycle_begins_with_its_prompt():
    """The prompt is the user's message and no longer in the queue; others wait on."""
    queued = enqueue(enqueue(Memory(), ONE), TWO)
    memory = open_cycle(queued, ONE, 1)

    assert [(said.role, said.content) for said in memory.messages] == [("user", "one")]
    assert (memory.queue, memory.cycle.first) == ((TWO,), 0)
    assert memory.cycle.command_id == "p-1"


def test_a_prompt_may_carry_metadata():
    """It goes into the user's message."""
    memory = open_cycle(Memory(), QueuedPrompt("p-1", "go", {"approval_id": "approval-3"}), 1)

    assert memory.messages[0].metadata == {"approval_id": "approval-3"}


def test_the_latest_prompt_is_the_last_accepted():
    """A queued prompt is later than whatever opens a cycle before it."""
    queued = enqueue(enqueue(Memory(), ONE), TWO)
    guided = QueuedPrompt("s-1", "left", {STEERING: ["s-1"]})

    assert queued.latest_prompt == open_cycle(queued, ONE, 1).latest_prompt == "p-2"
    assert open_cycle(queued, guided, 1).latest_prompt == "p-2"
    assert open_cycle(Memory(), ONE, 1).latest_prompt == "p-1"


def test_a_new_cycle_begins_without_a_loop():
    """What the calls before it were is no part of it."""
    memory = close_cycle(ended(asking("a"), "a"), "finished", None)

    assert len(memory.call_hashes) == 1
    assert open_cycle(memory, TWO, 1).call_hashes == ()


def test_a_cycle_is_billed_for_what_it_used():
    """The session's usage goes on; a cycle's outcome has its own part."""
    used = TokenUsage(prompt_tokens=3, total_tokens=3, cost_usd=0.5)
    first = close_cycle(spend(open_cycle(Memory(), ONE, 1), used), "finished", None)
    second = close_cycle(spend(open_cycle(first, TWO, 1), used), "failed", "why")

    assert [seen.usage for seen in second.outcomes] == [used, used]
    assert second.usage.prompt_tokens == 6
    assert (second.cycle, second.calls) == (None, ())


def test_an_end_of_a_cycle_ends_what_belongs_to_it():
    """Questions and answers; steering and prompts wait on."""
    busy = replace(
        enqueue(open_cycle(Memory(), ONE, 1), TWO),
        steering=(LEFT,),
        asks=(PendingAsk("a:ask-1", "a"),),
        answers=((PendingAsk("a:ask-2", "a"), "x"),),
    )
    memory = close_cycle(busy, "aborted", None)

    assert (memory.asks, memory.answers) == ((), ())
    assert (memory.steering, memory.queue) == ((LEFT,), (TWO,))


def test_an_outcome_has_the_messages_of_its_cycle():
    """Those it added, and the text of its last answer."""
    first = close_cycle(answered(open_cycle(Memory(), ONE, 1), "1"), "finished", None)
    second = close_cycle(answered(open_cycle(first, TWO, 1), "2"), "finished", None)
    results = [cycle_result(second, find_outcome(second, prompt)) for prompt in ("p-1", "p-2")]

    assert [result.text for result in results] == ["1", "2"]
    assert [[said.content for said in result.messages] for result in results] == [
        ["one", "1"],
        ["two", "2"],
    ]


@pytest.mark.parametrize("gone", range(5))
def test_an_outcome_outlives_a_compaction(gone):
    """It has the messages that are left of its cycle, and those of no other one."""
    first = close_cycle(answered(open_cycle(Memory(), ONE, 1), "1"), "finished", None)
    second = close_cycle(answered(open_cycle(first, TWO, 1), "2"), "finished", None)
    left = replace(second, messages=second.messages[gone:], base=gone)
    results = [cycle_result(left, find_outcome(left, prompt)) for prompt in ("p-1", "p-2")]
    contents = [said.content for result in results for said in result.messages]

    assert contents == ["one", "1", "two", "2"][gone:]


def test_what_waits_may_be_dropped():
    """A prompt or a steering; who waits for it learns that it never ran."""
    busy = replace(enqueue(enqueue(Memory(), ONE), TWO), steering=(LEFT,))
    memory = discard(discard(busy, "p-1"), "s-1")
    result = cycle_result(memory, find_outcome(memory, "p-1"))

    assert (result.outcome, result.text, result.messages) == ("dropped", "", ())
    assert (memory.queue, memory.steering) == ((TWO,), ())
    assert find_outcome(memory, "s-1").outcome == "dropped"


def test_what_waits_is_listed_in_its_order():
    """Steering first."""
    busy = replace(enqueue(Memory(), ONE), steering=(LEFT,))

    assert waiting(busy) == (("s-1", "left"), ("p-1", "one"))


def test_only_the_latest_outcomes_are_remembered():
    """The bound holds, and the oldest leaves first."""
    memory = Memory()
    for number in range(OUTCOMES_MAX + 1):
        memory = close_cycle(
            open_cycle(memory, QueuedPrompt(f"p-{number}", "x"), 1), "failed", "why"
        )

    assert len(memory.outcomes) == OUTCOMES_MAX
    assert find_outcome(memory, "p-0") is None
    assert find_outcome(memory, f"p-{OUTCOMES_MAX}") is not None


# --- messages -----------------------------------------------------------------------------------


def test_messages_are_numbered_by_their_place():
    """The ids follow from the history, so that a replay gives the same; compactions count."""
    memory = answered(open_cycle(Memory(), ONE, 1))
    shorter = replace(memory, messages=memory.messages[1:], base=1)

    assert [said.id for said in memory.messages] == ["m-1", "m-2"]
    assert place(shorter) == place(memory) == 2
    assert next_id(shorter) == "m-3"


def test_steering_that_is_given_waits_no_more():
    """Its message names what it holds; other steering, and odd metadata, change nothing."""
    memory = replace(Memory(), steering=(LEFT, Steering("s-2", "right")))
    after = say(memory, Message(role="user", metadata={STEERING: ["s-1"]}))
    odd = say(memory, Message(role="user", metadata={STEERING: "s-1"}))

    assert [one.ref for one in after.steering] == ["s-2"]
    assert odd.steering == memory.steering


def test_what_plugins_had_to_say_is_given_once():
    """Their message takes it all."""
    after = say(replace(Memory(), notes=("mind",)), Message(role="user", metadata={NOTES: True}))

    assert after.notes == ()


def test_a_wish_for_another_form_is_counted():
    """For the running cycle, and for none where there is none."""
    wish = Message(role="user", metadata={REPAIR: True})

    assert say(open_cycle(Memory(), ONE, 1), wish).cycle.repairs == 1
    assert open_cycle(Memory(), ONE, 1).cycle.repairs == 0
    assert say(Memory(), wish).cycle is None


@pytest.mark.parametrize(
    ("own", "found"), [(None, {"type": "integer"}), ({"type": "string"}, {"type": "string"})]
)
def test_the_form_of_an_answer_is_that_of_its_prompt(own, found):
    """Else that of the session, which is the form of any cycle to come."""
    resting = Memory(policy=Policy(response_format={"type": "integer"}))
    memory = open_cycle(resting, QueuedPrompt("p-1", "go", response_format=own), 1)

    assert form_of(memory) == found
    assert form_of(resting) == {"type": "integer"}
    assert form_of(open_cycle(Memory(), ONE, 1)) is form_of(Memory()) is None


def test_calls_leave_fingerprints():
    """All but those of tools that may be repeated."""
    policy = Policy(loop_exempt=frozenset({"y"}))
    calls = (ToolCall(call_id="a", name="x"), ToolCall(call_id="b", name="y"))
    memory = say(Memory(policy=policy), Message.assistant("", calls))

    assert memory.call_hashes == (fingerprint("x", {}, None),)


def test_the_end_of_a_cycle_publishes_the_newest_messages():
    """What is published at once has a bound; the last message is always there."""
    small = Message(role="user", content="x")
    large = Message(role="user", content="x" * PUBLISHED_CHARS_MAX)

    assert newest((small, small)) == (small, small)
    assert newest((large, small)) == (small,)
    assert newest((small, large)) == (large,)
    assert newest((small, large, small)) == (small,)
    assert newest(()) == ()


def test_messages_between_two_places():
    """As many as are left of them."""
    said = tuple(Message(role="user", content=str(number)) for number in range(3, 8))
    memory = Memory(messages=said, base=3)

    assert since(memory, 4, 6) == said[1:3]
    assert since(memory, 0) == said
    assert since(memory, 0, 2) == ()


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("", True),
        (" \n", True),
        ("x", False),
        ("x" * (PROMPT_CHARS_MAX + 1), True),
        ("x" * PROMPT_CHARS_MAX, False),
    ],
    ids=["empty", "white", "text", "long", "just as long as it may be"],
)
def test_a_text_for_the_model(text, is_wrong):
    """It says something, within a bound."""
    assert (text_problem(text) is not None) == is_wrong


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_results_move_in_together(order):
    """None is in the conversation before the last one came; then they stand in call order."""
    before = asking("a", "b")
    half = ended(before, order[0])
    whole = end_call(half, result_of(half, order[1], "y", is_error=True))

    assert half.messages == before.messages
    assert [said.call_id for said in whole.messages[-2:]] == ["a", "b"]
    assert [said.id for said in whole.messages[-2:]] == ["m-3", "m-4"]
    assert whole.calls == ()


def test_a_result_has_a_place_before_it_is_there():
    """That of its call; of an unknown call, the next one."""
    asked = asking("a", "b")

    assert [result_place(asked, call_id) for call_id in ("a", "b", "z")] == [3, 4, 3]
    assert result_of(asked, "z", "x", is_error=True).id == "m-3"


def test_a_notice_is_added_to_the_result():
    """The model reads it behind what the tool said."""
    asked = asking("a")
    asked = replace(asked, calls=(replace(asked.calls[0], notice="Notice"),))

    assert result_of(asked, "a", "fine", is_error=False).content == "fine\n\nNotice"


def test_a_batch_that_goes_round_in_circles_is_warned():
    """The last watched call of it warns the model, and a rebuilt memory says the same."""
    policy = Policy(loop_threshold=2, loop_abort=3, loop_exempt=frozenset({"free"}))
    call = ToolCall(call_id="a", name="tool")
    free = ToolCall(call_id="b", name="free")
    memory = open_cycle(Memory(policy=policy), ONE, 1)
    once = say(memory, Message(role="assistant", tool_calls=(call,)))
    twice = say(once, Message(role="assistant", tool_calls=(call, free)))
    thrice = say(twice, Message(role="assistant", tool_calls=(call,)))
    exempt = say(twice, Message(role="assistant", tool_calls=(free,)))

    assert [bool(open_.notice) for open_ in once.calls] == [False]
    assert [bool(open_.notice) for open_ in twice.calls] == [True, False]
    assert find_loop(twice) == Loop("repeat", "tool", 2)
    assert [bool(open_.notice) for open_ in thrice.calls] == [False]  # it is not made at all
    assert find_loop(thrice) == Loop("repeat", "tool", 3)
    assert find_loop(exempt) is None


def test_a_first_result_stays():
    """A second one of the same call changes nothing."""
    once = ended(asking("a", "b"), "a", "first")

    assert end_call(once, result_of(once, "a", "second", is_error=True)) == once


def test_a_call_that_runs_again_has_a_new_start():
    """After a crash the time of the second attempt counts; a result keeps it."""
    memory = begin_call(begin_call(asking("a", "b"), "a", 5), "a", 9)
    memory = ended(memory, "a")

    assert find_call(memory, "a").started_at_ms == 9
    assert find_call(memory, "b").started_at_ms is None
    assert find_call(memory, "z") is None


def test_a_call_runs_until_it_has_a_result():
    """What nobody called does not run either."""
    memory = ended(asking("a", "b"), "a")

    assert [is_running(memory, call_id) for call_id in ("a", "b", "z")] == [False, True, False]


def test_steps_that_a_call_reports_are_counted():
    """Each for itself."""
    memory = runs.count_step(runs.count_step(asking("a", "b"), "a"), "a")

    assert [open_.steps for open_ in memory.calls] == [2, 0]


def test_every_call_of_the_conversation_has_its_tools_name():
    """Those of answers before the last one too."""
    assert tool_names(asking("b", memory=asking("a"))) == {"a": "tool", "b": "tool"}


def test_a_call_uses_up_one_approval():
    """Of several that are alike; one that is not there is none."""
    memory = replace(asking("a", "b"), granted=("x", "y", "x"))

    assert begin_call(memory, "a", 5, "x").granted == ("y", "x")
    assert begin_call(memory, "a", 5, "z").granted == memory.granted
    assert begin_call(memory, "a", 5).granted == memory.granted


def test_what_a_call_waits_for_ends_with_it():
    """Its questions and answers are gone; its subagents run on for nobody."""
    memory = replace(
        asking("a", "b"),
        asks=(PendingAsk("a:ask-2", "a"), PendingAsk("b:ask-1", "b")),
        answers=((PendingAsk("a:ask-1", "a"), "x"),),
        approvals=(
            Approval(
                id="held", call_id="a", tool="tool", args={}, requested_at_ms=1, ref="a:approval"
            ),
            Approval(
                id="of another",
                call_id="b",
                tool="tool",
                args={},
                requested_at_ms=1,
                ref="b:approval",
            ),
            Approval(id="that ended it", call_id="a", tool="tool", args={}, requested_at_ms=1),
        ),
        branches=tuple(
            Branch(f"{call_id}:b1", call_id, "digest", BranchAnswer(ok=True, text="", usage=USED))
            for call_id in "ab"
        ),
        children=(Child("s.1", "a", "a:sub-1", Grant()), Child("s.2", "b", "b:sub-1", Grant())),
    )
    after = ended(memory, "a")

    assert [ask.ref for ask in after.asks] == ["b:ask-1"]
    assert [one.id for one in after.approvals] == ["of another", "that ended it"]
    assert [one.ref for one in after.branches] == ["b:b1"]
    assert after.answers == ()
    assert [child.ref for child in after.children] == [None, "b:sub-1"]


# --- counters -----------------------------------------------------------------------------------


def test_turns_count_for_the_session_and_the_cycle():
    """Outside of a cycle only the session's count; a new turn waits for nobody."""
    opened = open_cycle(count_answer(Memory(), TokenUsage()), ONE, 1)
    blocked = replace(opened, cycle=replace(opened.cycle, is_blocked=True))
    inside = count_answer(blocked, TokenUsage())

    assert (inside.turns, inside.cycle.turns, inside.cycle.is_blocked) == (2, 1, False)
    assert count_answer(Memory(), TokenUsage()).cycle is None


def test_the_size_of_a_conversation_is_what_the_provider_counted():
    """With how many messages that was; one that does not count leaves what was known."""
    memory = count_answer(open_cycle(Memory(), ONE, 1), TokenUsage(total_tokens=9))

    assert memory.context == (9, 1)
    assert count_answer(memory, TokenUsage()).context == (9, 1)


@pytest.mark.parametrize(("cost_usd", "is_costed"), [(0.5, True), (None, False)])
def test_an_answer_says_whether_costs_are_known(cost_usd, is_costed):
    """The model has answered either way."""
    memory = count_answer(Memory(), TokenUsage(total_tokens=1, cost_usd=cost_usd))

    assert (memory.has_answered, memory.is_costed) == (True, is_costed)


def test_equal_calls_of_one_batch_count_once():
    """Six in one answer are no loop yet: the model has not seen what any of them gives."""
    calls = tuple(ToolCall(call_id=f"c-{n}", name="tool", arguments={}) for n in range(6))
    said = Message(id="m", role="assistant", content="", tool_calls=calls)
    memory = say(Memory(policy=Policy(loop_threshold=2, loop_abort=3), model="m"), said)

    assert find_loop(memory) is None
    assert len(memory.call_hashes) == 1


def test_steering_that_is_dropped_waits_no_more():
    """What else waits goes on waiting."""
    memory = replace(Memory(), steering=(Steering("s-1", "left"), Steering("s-2", "right")))

    assert waiting(discard(memory, "s-1")) == (("s-2", "right"),)


def test_what_just_fits_into_a_frame_is_published():
    """One character more, and the oldest message is left out."""
    half = Message.user("x" * (PUBLISHED_CHARS_MAX // 2))
    rest = Message.user("y" * (PUBLISHED_CHARS_MAX - PUBLISHED_CHARS_MAX // 2 - 12))  # around both
    one_more = Message.user(rest.content + "y")

    assert newest((half, rest)) == (half, rest)
    assert newest((half, one_more)) == (one_more,)


def test_only_results_are_uncertain():
    """Whoever else has the word in what goes with a message."""
    prompt = Message(id="m-1", role="user", content="?", metadata={"uncertain": True})
    result = Message(id="m-2", role="tool_result", content="?", metadata={"uncertain": True})

    assert uncertain_calls(Memory(messages=(prompt, result))) == (result,)


def test_a_result_of_a_batch_that_runs_may_be_uncertain():
    """Before it stands in the conversation; what runs on or is certain is not listed."""
    memory = asking("a", "b", "c")
    for call_id, metadata in (("a", {"uncertain": True}), ("b", {})):
        said = Message(id="m-2", role="tool_result", call_id=call_id, metadata=metadata)
        memory = end_call(memory, said)

    assert [one.call_id for one in uncertain_calls(memory)] == ["a"]


def test_the_text_of_an_outcome_is_the_last_that_the_model_said():
    """Also where steering came behind it that was not answered."""
    begun = answered(open_cycle(Memory(), QueuedPrompt("p-1", "go"), 1), "almost")
    closed = close_cycle(say(begun, Message.user("hurry")), "aborted", "enough")

    assert cycle_result(closed, find_outcome(closed, "p-1")).text == "almost"
