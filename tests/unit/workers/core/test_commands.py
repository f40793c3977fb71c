"""What a command does in each state."""

from dataclasses import replace
from itertools import product

import pytest

from cmdc_runtime.commands import (
    PROMPT_CHARS_MAX,
    Abort,
    AwaitCycle,
    Command,
    GetMessages,
    GetStatus,
    Prompt,
    PromptReceipt,
)
from cmdc_runtime.errors import InvalidText, Overloaded, QueueFull, UsageError
from cmdc_runtime.events import AgentAbort, AgentStart, PromptDropped, PromptReceived, ToolKilled
from cmdc_runtime.messages import Message, ToolCall
from workers.core import commands, results
from workers.core.assemble import Reply
from workers.core.records import CycleEnded, CycleStarted, PromptDiscarded, PromptQueued, Said
from workers.core.repair import repair
from workers.core.state import (
    OUTCOMES_MAX,
    WAITERS_MAX,
    Answer,
    CallModel,
    CancelWork,
    FirstChunk,
    Keep,
    Memory,
    Order,
    Policy,
    Publish,
    Refuse,
    Settle,
    State,
    Step,
    StreamEnded,
    TellStatus,
    TextArrived,
    ToolReturned,
)

COMMANDS = Command.__subclasses__()
BUSY = [state for state in State if state is not State.IDLE]
CALLS = (ToolCall(call_id="a", name="one"), ToolCall(call_id="b", name="two"))
every_state = pytest.mark.parametrize("state", State)


def give(step, command, command_id="c"):
    return commands.apply(step.state, step.memory, Order(command_id, command, at_ms=7))


def report(step, kind, *rest):
    return results.apply(step.state, step.memory, kind(step.memory.work, *rest))


def at(state, **policy):
    """Return a session in ``state``, brought there by the tables themselves."""
    step = Step(State.IDLE, Memory(policy=Policy(**policy), model="m"))
    if state is State.IDLE:
        return step
    step = give(step, Prompt(text="go"), "p-1")
    if state is State.RUNNING:
        return step
    step = report(report(step, FirstChunk), TextArrived, "part")
    if state is State.STREAMING:
        return step
    return report(step, StreamEnded, Reply("", None, CALLS, None, "tool_calls"), 3)


def of(step, kind):
    return [effect for effect in step.effects if isinstance(effect, kind)]


def events(step, kind):
    return [effect.event for effect in of(step, Publish) if isinstance(effect.event, kind)]


def records(step):
    return [effect.record for effect in of(step, Keep)]


def test_every_state_knows_every_command():
    """The table is total: what is missing is told with the file to edit."""
    missing = set(product(State, COMMANDS)) - set(commands.HANDLERS)

    assert missing == set(), (
        f"missing: {sorted((state, command.__name__) for state, command in missing)}"
        " -> add a row in workers/core/commands.py"
    )
    assert len(commands.HANDLERS) == len(State) * len(COMMANDS)


def test_a_prompt_opens_a_cycle():
    """The prompt is settled, told, recorded, and the model is asked with it."""
    step = give(at(State.IDLE), Prompt(text="go"), "p-1")

    assert step.state is State.RUNNING
    assert step.effects[0] == Settle("p-1", PromptReceipt(queued=False, command_id="p-1"))
    assert events(step, PromptReceived) == [
        PromptReceived(text="go", queued=False, command_id="p-1")
    ]
    assert events(step, AgentStart) == [AgentStart(command_id="p-1")]
    assert records(step) == [CycleStarted(command_id="p-1", text="go", at_ms=7)]
    assert [message.content for message in of(step, CallModel)[0].messages] == ["go"]
    assert step.memory.latest_prompt == step.memory.cycle.command_id == "p-1"


@pytest.mark.parametrize("state", BUSY)
def test_a_prompt_waits_while_a_cycle_runs(state):
    """It is recorded before it is acknowledged, and the running work goes on."""
    before = at(state)
    step = give(before, Prompt(text="then"), "p-2")

    assert records(step) == [PromptQueued(command_id="p-2", text="then")]
    assert of(step, Settle) == [Settle("p-2", PromptReceipt(queued=True, command_id="p-2"))]
    assert events(step, PromptReceived)[0].queued
    assert (step.state, step.memory.work) == (state, before.memory.work)
    assert [queued.text for queued in step.memory.queue] == ["then"]


@pytest.mark.parametrize("state", BUSY)
def test_a_full_queue_takes_no_prompt(state):
    """The bound is reached exactly, and the refused prompt leaves no trace."""
    step = at(state, max_queued_prompts=2)
    for number in (2, 3):
        step = give(step, Prompt(text="more"), f"p-{number}")
    refused = give(step, Prompt(text="too much"), "p-4")

    assert len(step.memory.queue) == 2
    assert (refused.state, refused.memory) == (step.state, step.memory)
    assert [type(effect.outcome) for effect in refused.effects] == [QueueFull]


@every_state
@pytest.mark.parametrize(
    "text", ["", " \n\t", "x" * (PROMPT_CHARS_MAX + 1)], ids=["empty", "white", "long"]
)
def test_a_prompt_needs_text_of_a_bounded_size(state, text):
    """White space and what is too long are refused in every state, and nothing changes."""
    before = at(state)
    step = give(before, Prompt(text=text))

    assert (step.state, step.memory) == (before.state, before.memory)
    assert [type(effect.outcome) for effect in step.effects] == [InvalidText]


@every_state
def test_an_abort_is_told_before_anything_is_done(state):
    """Observers hear of it first, in every state; it is settled once and leaves nothing open."""
    busy = at(state)
    if state is not State.IDLE:
        busy = give(busy, Prompt(text="next"), "p-2")
    step = give(busy, Abort(reason="enough"))

    assert isinstance(step.effects[0], Publish)
    assert step.effects[0].event == AgentAbort(
        reason="enough", command_id=None if state is State.IDLE else "p-1"
    )
    assert len(events(step, AgentAbort)) == 1
    assert of(step, Settle) == [Settle("c", None)]
    assert step.state is State.IDLE
    assert (step.memory.cycle, step.memory.calls, step.memory.queue) == (None, (), ())
    assert repair(step.memory.messages) == step.memory.messages


@pytest.mark.parametrize("state", BUSY)
def test_what_was_under_way_is_late_after_an_abort(state):
    """The work is cancelled right after the event, and its number is never current again."""
    before = at(state)
    step = give(before, Abort(kill_tools="all"))

    assert step.effects[1] == CancelWork("all")
    assert step.memory.work > before.memory.work
    assert records(step)[-1] == CycleEnded(command_id="p-1", outcome="aborted")


def test_an_abort_keeps_what_was_said_so_far():
    """The partial answer stays in the history, marked as interrupted."""
    step = give(at(State.STREAMING), Abort())
    partial = step.memory.messages[-1]

    assert (partial.role, partial.content) == ("assistant", "part")
    assert partial.metadata == {"interrupted": True}
    assert records(step)[0] == Said(message=partial)


def test_an_abort_keeps_what_might_have_become_a_tag():
    """Text that was held back for its end is part of what was said."""
    step = report(at(State.STREAMING), TextArrived, " <stat")
    aborted = give(step, Abort())

    assert aborted.memory.messages[-1].content == "part <stat"


def test_an_abort_of_a_silent_request_keeps_no_empty_answer():
    """Where nothing was said there is no message."""
    step = give(at(State.RUNNING), Abort())

    assert [message.role for message in step.memory.messages] == ["user"]


@pytest.mark.parametrize(("kill", "killed"), [("killable", ["b"]), ("none", [])])
def test_an_abort_gives_open_calls_a_result(kill, killed):
    """A finished call keeps its result; an open one is told as killed, unless it is left alone."""
    one_done = report(at(State.EXECUTING_TOOLS), ToolReturned, "a", True, "fine", 4)
    step = give(one_done, Abort(kill_tools=kill))
    first, second = step.memory.messages[-2:]

    assert [event.call_id for event in events(step, ToolKilled)] == killed
    assert (first.call_id, first.content, first.is_error) == ("a", "fine", False)
    assert (second.call_id, second.is_error) == ("b", True)
    assert ("may still have run" in second.content) == (kill == "none")


def test_an_abort_drops_the_queue_and_says_so():
    """Each dropped prompt is told, recorded and answered to who waits for it."""
    step = give(at(State.RUNNING), Prompt(text="next"), "p-2")
    step = give(step, AwaitCycle(prompt_id="p-2"), "w")
    step = give(step, Abort())

    assert events(step, PromptDropped) == [PromptDropped(text="next", command_id="p-2")]
    assert PromptDiscarded(command_id="p-2") in records(step)
    assert [(answer.id, answer.value.outcome) for answer in of(step, Answer)] == [("w", "dropped")]
    assert [seen.outcome for seen in step.memory.outcomes] == ["dropped", "aborted"]


@pytest.mark.parametrize("state", BUSY)
def test_an_abort_may_keep_the_queue(state):
    """Then the next prompt's cycle begins, after the old work was cancelled."""
    step = give(give(at(state), Prompt(text="next"), "p-2"), Abort(clear_queue=False))
    kinds = [type(effect) for effect in step.effects]

    assert step.state is State.RUNNING
    assert step.memory.cycle.command_id == "p-2"
    assert kinds.index(CancelWork) < kinds.index(CallModel)
    assert events(step, PromptDropped) == []


def test_awaiting_a_past_cycle_is_answered_at_once():
    """By its id, and as the latest one."""
    ended = give(at(State.STREAMING), Abort(reason="stop"))
    for prompt_id in ("p-1", None):
        (answer,) = give(ended, AwaitCycle(prompt_id=prompt_id), "w").effects

        assert (answer.id, answer.value.outcome, answer.value.text) == ("w", "aborted", "part")


@pytest.mark.parametrize("prompt_id", ["p-1", "p-2", None])
def test_awaiting_an_open_cycle_is_answered_once_at_its_end(prompt_id):
    """Running or queued; None means the latest prompt, which is the queued one."""
    step = give(at(State.STREAMING), Prompt(text="next"), "p-2")
    waiting = give(step, AwaitCycle(prompt_id=prompt_id), "w")
    ended = give(waiting, Abort(clear_queue=False))
    over = give(ended, Abort())

    assert waiting.effects == ()
    assert len(of(ended, Answer)) == (prompt_id == "p-1")
    assert len(of(ended, Answer)) + len(of(over, Answer)) == 1
    assert over.memory.waiters == ()


def test_awaiting_before_any_prompt_waits_for_the_first():
    """There is no latest prompt yet, so it is the one to come."""
    step = give(at(State.IDLE), AwaitCycle(), "w")
    step = give(give(step, Prompt(text="go"), "p-1"), Abort())

    assert [(answer.id, answer.value.outcome) for answer in of(step, Answer)] == [("w", "aborted")]


@every_state
def test_awaiting_an_unknown_prompt_is_refused(state):
    """A wait that nothing can end is an error at once."""
    (refusal,) = give(at(state), AwaitCycle(prompt_id="p-404"), "w").effects

    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, UsageError)


def test_only_so_many_ends_are_remembered():
    """The oldest outcome is forgotten first, and asking for it is refused."""
    step = at(State.IDLE)
    for number in range(OUTCOMES_MAX + 1):
        step = give(give(step, Prompt(text="go"), f"p-{number}"), Abort())

    assert len(step.memory.outcomes) == OUTCOMES_MAX
    assert isinstance(give(step, AwaitCycle(prompt_id="p-0")).effects[0], Refuse)
    assert isinstance(give(step, AwaitCycle(prompt_id="p-1")).effects[0], Answer)


def test_only_so_many_callers_wait():
    """One more is refused as overload; who asks again takes the place that it has."""
    step = at(State.RUNNING)
    waiters = tuple((f"w-{number}", "p-1") for number in range(WAITERS_MAX - 1))
    step = give(step._replace(memory=replace(step.memory, waiters=waiters)), AwaitCycle(), "last")
    (refusal,) = give(step, AwaitCycle(), "one more").effects

    assert len(step.memory.waiters) == WAITERS_MAX
    assert isinstance(refusal.error, Overloaded)


def test_asking_again_does_not_wait_twice():
    """A client that lost its connection asks under the same id and gets one answer."""
    step = give(give(at(State.RUNNING), AwaitCycle(), "w"), AwaitCycle(), "w")

    assert step.memory.waiters == (("w", "p-1"),)


@every_state
def test_questions_change_nothing(state):
    """Status and messages are answered in every state, and the work goes on."""
    before = at(state, system_prompt="be kind")
    status, messages = give(before, GetStatus()), give(before, GetMessages())

    assert status.effects == (TellStatus("c"),)
    assert messages.effects[0].value[1:] == before.memory.messages
    assert messages.effects[0].value[0] == Message(
        id=commands.SYSTEM_MESSAGE, role="system", content="be kind"
    )
    assert status[:2] == messages[:2] == (before.state, before.memory)


def test_no_system_prompt_is_no_message():
    """An empty system message is not made up."""
    (answer,) = give(at(State.RUNNING), GetMessages()).effects

    assert [message.role for message in answer.value] == ["user"]
