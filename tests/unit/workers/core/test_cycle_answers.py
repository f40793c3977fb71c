"""What an answer leads to: calls, unless they go in circles, or an end, if its form is right."""

from msgspec.structs import replace

from cmdc_runtime.events import AgentAbort, AgentEnd, AgentError, LoopDetected
from cmdc_runtime.messages import Message
from tests.unit.workers.core.conftest import taken
from workers.core import cycle
from workers.core.conversation import repair
from workers.core.evolve import open_cycle, say
from workers.core.records import MessageAdded, ToolEnded
from workers.core.state import Memory, Policy, QueuedPrompt, State, Steering
from workers.core.step import CallModel, RunTools

NUMBER = {"type": "integer"}
LEFT = Steering("s-1", "left")


# --- loops --------------------------------------------------------------------------------------


def looped(session, *names, **policy):
    """Return a session whose model called each of ``names``, one after the other."""
    after = session.at(State.RUNNING, **policy)
    for number, name in enumerate(names):
        after = after.call(f"{name}:c-{number}")
        if number + 1 < len(names):
            after = after.end(f"c-{number}")
    return after


def test_a_loop_is_reported_to_the_model_and_to_observers(session):
    """From the threshold on; the call is still made, and its result carries the notice."""
    before = looped(session, "read", "read", loop_threshold=3)
    after = before.end("c-1").call("read:c-2")
    ended = after.end("c-2")
    result = ended.records(ToolEnded)[0].message

    assert before.events(LoopDetected) == []
    assert after.events(LoopDetected) == [LoopDetected(type="repeat", name="read", count=3)]
    assert len(after.of(RunTools)) == 1
    assert result.content.startswith("of c-2\n\nNotice: ")
    assert not result.is_error


def test_a_loop_that_goes_on_ends_the_cycle(session):
    """The last calls are not made; the history stays valid."""
    after = looped(session, *["read", "write"] * 3, loop_threshold=2, loop_abort=3)

    assert after.events(LoopDetected) == [LoopDetected(type="cycle", name="write", count=3)]
    assert [event.reason for event in after.events(AgentAbort)] == ["loop_detected"]
    assert (after.state, after.of(RunTools)) == (State.IDLE, [])
    assert "not made" in after.memory.messages[-1].content
    assert repair(after.memory.messages) == after.memory.messages


def test_a_tool_that_may_be_repeated_is_no_loop(session):
    """Neither by itself, nor for the loop that came before it: the notice is not its."""
    exempt = frozenset({"write"})
    itself = looped(session, "write", "write", "write", loop_exempt=exempt)
    behind = looped(session, "read", "read", "read", "write", loop_exempt=exempt)
    both = looped(session, "read", "read", loop_exempt=exempt).end("c-1").call("read:c", "write:d")

    assert itself.events(LoopDetected) == behind.events(LoopDetected) == []
    assert both.events(LoopDetected) == [LoopDetected(type="repeat", name="read", count=3)]
    assert [bool(open_.notice) for open_ in both.memory.calls] == [True, False]


# --- the form of an answer ----------------------------------------------------------------------


def test_an_answer_in_the_right_form_ends_the_cycle(session):
    """Nothing more is asked."""
    after = session.at(State.RUNNING, response_format=NUMBER).answer("42")

    assert (after.state, len(after.events(AgentEnd))) == (State.IDLE, 1)


def test_an_answer_in_the_wrong_form_is_asked_for_once_more(session):
    """The model reads what is wrong, in a message that is marked and written down."""
    asked = session.at(State.RUNNING, response_format=NUMBER).answer("many")
    wish = asked.memory.messages[-1]
    after = asked.answer("42")

    assert asked.records(MessageAdded)[-1].message == wish
    assert (wish.role, wish.metadata) == ("user", {"repair": True})
    assert "required format" in asked.of(CallModel)[0].messages[-1].content
    assert [seen.outcome for seen in after.memory.outcomes] == ["finished"]


def test_a_second_wrong_answer_fails_the_cycle(session):
    """Once is what there is; the next cycle may be asked again."""
    policy = {"response_format": NUMBER}
    failed = session.at(State.RUNNING, **policy).answer("many").answer("lots")
    later = failed.prompt("again", "p-2").answer("many")
    (error,) = failed.events(AgentError)

    assert error.reason.startswith("response_format: ")
    assert error.reason.endswith("; the answer was 'lots'")
    assert not error.retryable
    assert failed.state is State.IDLE
    assert later.state is State.RUNNING


def test_steering_comes_before_the_form_of_an_answer():
    """The answer was to something else; the next one is looked at."""
    opened = open_cycle(Memory(policy=Policy(response_format=NUMBER)), QueuedPrompt("p-1", "go"), 1)
    memory = replace(say(opened, Message.assistant("many")), steering=(LEFT,))
    step = taken(cycle.conclude, memory, 5)
    (call,) = [effect for effect in step.effects if isinstance(effect, CallModel)]

    assert [said.content for said in call.messages[-2:]] == ["many", "left"]
    assert step.memory.cycle.repairs == 0
