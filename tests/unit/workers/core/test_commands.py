"""What a command does in each state: the table itself, prompts, waits and questions.

Interruptions, people and hot tools have modules, and so test modules, of their own.
"""

from itertools import product

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import (
    PROMPT_CHARS_MAX,
    Abort,
    AwaitCycle,
    Command,
    ForgetWait,
    GetMessages,
    GetStatus,
    LoadOwnCheckpoint,
    NextPage,
    Prompt,
    PromptReceipt,
    SaveCheckpoint,
    Steer,
)
from cmdc_runtime.errors import CollectTimeout, InvalidText, Overloaded, QueueFull, UsageError
from cmdc_runtime.events import AgentStart, PromptReceived
from cmdc_runtime.messages import OpeningCall, TokenUsage
from workers.core import commands, results
from workers.core.inputs import Order, WaitExpired
from workers.core.records import CycleStarted, PromptQueued
from workers.core.state import OUTCOMES_MAX, WAITERS_MAX, Cycle, Memory, State, Waiter
from workers.core.step import (
    Answer,
    AnswerMessages,
    AnswerPage,
    AnswerStatus,
    AskBackend,
    CallModel,
    Complete,
    MakeCheckpoint,
    Refuse,
)

COMMANDS = Command.__subclasses__()
BUSY = [state for state in State if state is not State.IDLE]
every_state = pytest.mark.parametrize("state", State)


def test_every_state_knows_every_command():
    """The table is total: what is missing is reported with the file to edit."""
    missing = set(product(State, COMMANDS)) - set(commands.HANDLERS)

    assert missing == set(), (
        f"missing: {sorted((state.value, command.__name__) for state, command in missing)}"
        " -> add a row in workers/core/commands.py"
    )
    assert len(commands.HANDLERS) == len(State) * len(COMMANDS)


def test_a_prompt_opens_a_cycle(session):
    """The prompt is settled, published, recorded, and the model is asked with it."""
    after = session.new().prompt("go", "p-1")

    assert after.state is State.RUNNING
    assert after.effects[0] == Complete("p-1", PromptReceipt(queued=False, command_id="p-1"))
    assert after.events(PromptReceived) == [
        PromptReceived(text="go", queued=False, command_id="p-1")
    ]
    assert after.events(AgentStart) == [AgentStart(command_id="p-1")]
    assert after.records() == [CycleStarted(command_id="p-1", text="go", at_ms=7)]
    assert [message.content for message in after.of(CallModel)[0].messages] == ["go"]
    assert after.memory.latest_prompt == after.memory.cycle.command_id == "p-1"


@pytest.mark.parametrize("state", BUSY)
def test_a_prompt_waits_while_a_cycle_runs(session, state):
    """It is recorded before it is acknowledged, and the running work goes on."""
    before = session.at(state)
    after = before.prompt("then", "p-2")

    assert after.records() == [PromptQueued(command_id="p-2", text="then")]
    assert after.of(Complete) == [Complete("p-2", PromptReceipt(queued=True, command_id="p-2"))]
    assert after.events(PromptReceived)[0].queued
    assert (after.state, after.memory.work) == (state, before.memory.work)
    assert [queued.text for queued in after.memory.queue] == ["then"]


@pytest.mark.parametrize("state", BUSY)
def test_a_full_queue_takes_no_prompt(session, state):
    """The bound is reached exactly, and the refused prompt leaves no trace."""
    full = session.at(state, max_queued_prompts=2).prompt("more", "p-2").prompt("more", "p-3")
    refused = full.prompt("too much", "p-4")

    assert len(full.memory.queue) == 2
    assert (refused.state, refused.memory) == (full.state, full.memory)
    assert [type(effect.outcome) for effect in refused.effects] == [QueueFull]


@every_state
@pytest.mark.parametrize("kind", [Prompt, Steer])
@pytest.mark.parametrize(
    "text", ["", " \n\t", "x" * (PROMPT_CHARS_MAX + 1)], ids=["empty", "white", "long"]
)
def test_a_text_for_the_model_is_never_empty_and_has_a_bound(session, state, kind, text):
    """White space and what is too long are refused in every state, and nothing changes."""
    before = session.at(state)
    after = before.give(kind(text=text))

    assert (after.state, after.memory) == (before.state, before.memory)
    assert [type(effect.outcome) for effect in after.effects] == [InvalidText]


@every_state
def test_a_form_that_no_answer_can_have_is_refused(session, state):
    """With what is wrong with it, and nothing changes."""
    before = session.at(state)
    after = before.give(Prompt(text="go", response_format={"type": "nothing"}), "p-9")
    (refused,) = after.effects

    assert after.stands_as(before)
    assert isinstance(refused.outcome, UsageError)
    assert str(refused.outcome).startswith("prompt: response_format: ")
    assert "nothing" in str(refused.outcome)


@every_state
@pytest.mark.parametrize("form", [None, {"type": "integer"}], ids=["none", "integer"])
def test_a_prompt_may_ask_for_a_form(session, state, form):
    """It is kept with the prompt, to be that of the cycle's answer."""
    after = session.at(state).give(Prompt(text="then", response_format=form), "p-9")
    (kept,) = after.records(CycleStarted) + after.records(PromptQueued)

    assert (kept.command_id, kept.response_format) == ("p-9", form)


def test_what_is_wrong_with_a_call_is_reported_before_its_form(session):
    """One error names one thing."""
    call = OpeningCall(name="no name")
    before = session.new()
    for form in (None, {"type": "integer"}, {"type": "nothing"}):
        after = before.give(Prompt(text="go", call=call, response_format=form), "p-9")
        (refused,) = after.effects

        assert str(refused.outcome).startswith("prompt: call: name: ")
        assert after.stands_as(before)


def test_awaiting_a_past_cycle_is_answered_at_once(session):
    """By its id, and as the latest one."""
    ended = session.at(State.STREAMING).give(Abort(reason="stop"))
    for prompt_id in ("p-1", None):
        (answer,) = ended.give(AwaitCycle(prompt_id=prompt_id), "w").effects

        assert (answer.id, answer.value.outcome, answer.value.text) == ("w", "aborted", "part")


@pytest.mark.parametrize("prompt_id", ["p-1", "p-2", None])
def test_awaiting_an_open_cycle_is_answered_once_at_its_end(session, prompt_id):
    """Running or queued; None means the latest prompt, which is the queued one."""
    waiting = session.at(State.STREAMING).prompt("next", "p-2")
    waiting = waiting.give(AwaitCycle(prompt_id=prompt_id), "w")
    ended = waiting.give(Abort(clear_queue=False))
    over = ended.give(Abort())

    assert waiting.effects == ()
    assert len(ended.of(Answer)) == (prompt_id == "p-1")
    assert len(ended.of(Answer)) + len(over.of(Answer)) == 1
    assert over.memory.waiters == ()


def test_awaiting_before_any_prompt_is_refused(session):
    """There is no cycle to wait for, and perhaps there never is; nobody waits then."""
    after = session.new().give(AwaitCycle(), "w")
    (refusal,) = after.effects

    assert (refusal.id, type(refusal.error)) == ("w", UsageError)
    assert "no prompt was given yet" in str(refusal.error)
    assert after.memory.waiters == ()


@every_state
def test_awaiting_an_unknown_prompt_is_refused(session, state):
    """A wait that nothing can end is an error at once."""
    (refusal,) = session.at(state).give(AwaitCycle(prompt_id="p-404"), "w").effects

    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, UsageError)


def test_awaiting_steering_that_joins_a_cycle_is_refused(session):
    """It has no end of its own: nobody would ever answer who waits for it."""
    steered = session.at(State.RUNNING).give(Steer(text="left"), "s-1")
    (refusal,) = steered.give(AwaitCycle(prompt_id="s-1"), "w").effects

    assert isinstance(refusal, Refuse)


def test_only_so_many_ends_are_remembered(session):
    """The oldest outcome is forgotten first, and asking for it is refused."""
    after = session.new()
    for number in range(OUTCOMES_MAX + 1):
        after = after.prompt("go", f"p-{number}").give(Abort())

    assert len(after.memory.outcomes) == OUTCOMES_MAX
    assert isinstance(after.give(AwaitCycle(prompt_id="p-0")).effects[0], Refuse)
    assert isinstance(after.give(AwaitCycle(prompt_id="p-1")).effects[0], Answer)


def test_only_so_many_callers_wait(session):
    """One more is refused as overload; who asks again takes the place that it has."""
    running = session.at(State.RUNNING)
    waiters = tuple(Waiter(f"w-{number}", "p-1") for number in range(WAITERS_MAX - 1))
    full = running.remembering(replace(running.memory, waiters=waiters))
    full = full.give(AwaitCycle(), "last")
    (refusal,) = full.give(AwaitCycle(), "one more").effects

    assert len(full.memory.waiters) == WAITERS_MAX
    assert isinstance(refusal.error, Overloaded)


@every_state
def test_who_has_waited_long_enough_waits_no_more(session, state):
    """It gets an error in every state, and makes room; nothing else changes."""
    before = session.at(state)
    order = Order("short", AwaitCycle(prompt_id="p-9", within_s=60.5), 1_000)
    waiters = (Waiter("for ever"), Waiter("long", None, 61_501), Waiter("short", "p-9", 61_500))
    memory = replace(before.memory, waiters=waiters)
    step = results.apply(memory, WaitExpired(61_500))
    (refused,) = step.effects

    assert _waits(order) == Waiter("short", "p-9", 61_500)
    assert (refused.id, type(refused.error)) == ("short", CollectTimeout)
    assert step.state is state
    assert step.memory == replace(memory, waiters=waiters[:2])


def _waits(order):
    """Return who waits when ``order`` was taken while its cycle ran."""
    busy = Memory(cycle=Cycle("p-9", 0, TokenUsage(), started_at_ms=1))
    return commands.apply(busy, order).memory.waiters[-1]


def test_asking_again_does_not_wait_twice(session):
    """A client that lost its connection asks under the same id and gets one answer."""
    after = session.at(State.RUNNING).give(AwaitCycle(), "w").give(AwaitCycle(), "w")

    assert after.memory.waiters == (Waiter("w", "p-1"),)


def test_a_wait_that_is_given_up_ends_at_once(session):
    """Nobody else's does; one that is over already is none to end."""
    waiting = session.at(State.RUNNING).give(AwaitCycle(), "w").give(AwaitCycle(), "other")
    after = waiting.give(ForgetWait(wait_id="w"), "f")
    again = after.give(ForgetWait(wait_id="w"), "g")

    assert [(type(one), one.id) for one in after.effects] == [(Refuse, "w"), (Answer, "f")]
    assert [one.id for one in after.memory.waiters] == ["other"]
    assert (again.effects, again.memory) == ((Answer("g", None),), after.memory)


@every_state
def test_questions_change_nothing(session, state):
    """Status and messages are answered by the shell in every state, and the work goes on."""
    before = session.at(state)
    status, messages = before.give(GetStatus()), before.give(GetMessages())

    page = before.give(NextPage(page_id="page-1", offset=3))
    saved = before.give(SaveCheckpoint(label="before", metadata={"by": "me"}))

    asked = before.give(LoadOwnCheckpoint(checkpoint_id="c-1"))

    assert asked.effects == (AskBackend("c", LoadOwnCheckpoint(checkpoint_id="c-1")),)
    assert asked.stands_as(before)
    assert page.effects == (AnswerPage("c", "page-1", 3),)
    assert saved.effects == (MakeCheckpoint("c", "before", {"by": "me"}),)
    assert page.stands_as(before)
    assert saved.stands_as(before)
    assert status.effects == (AnswerStatus("c"),)
    assert messages.effects == (AnswerMessages("c"),)
    assert status.stands_as(before)
    assert messages.stands_as(before)
