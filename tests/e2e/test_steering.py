"""``steer`` in every state: given to the model between turns, once, in order, and never lost."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
POLL_S = 0.02
RACES = 20


def note(log, text):
    with Path(log).open("a") as file:
        file.write(f"{text} ")


def noted(log):
    return log.read_text().split() if log.exists() else []


def wait_for(path):
    never = threading.Event()
    while not Path(path).exists():
        never.wait(POLL_S)


@cmdc.tool
def burn(log: str) -> str:
    """Note the process and burn its processor for ever."""
    note(log, os.getpid())
    while True:
        sum(range(10_000))


@cmdc.tool
async def nap() -> str:
    """Wait for ever, as a task."""
    await asyncio.Event().wait()
    return "never"


@cmdc.tool(isolation="thread")
def loiter() -> str:
    """Wait for ever, in a thread."""
    threading.Event().wait()
    return "never"


@cmdc.tool(effects="read")
def keep(log: str, end: str) -> str:
    """Note the process and wait until the file ``end`` is there."""
    note(log, os.getpid())
    wait_for(end)
    return "kept"


def event_of(stream, kind):
    """Read a stream up to the first event of a kind and return it."""
    while True:
        event = stream.get(TURN_S).event
        if isinstance(event, kind):
            return event


def only(kind, envelopes):
    return [one.event for one in envelopes if isinstance(one.event, kind)]


def sent(model, number):
    """Return what request ``number`` held after the system prompt: roles and texts."""
    said = model.wait_request(number)["messages"]
    return [(one["role"], one.get("content")) for one in said if one["role"] != "system"]


def kill(session):
    os.kill(session.agent_pid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "case",
    [((Hold(), "One."), "running"), ((Text("On"), Hold(), "e."), "streaming")],
    ids=["running", "streaming"],
)
def test_steering_during_the_last_answer_goes_on_with_the_cycle(
    agent, scripted, cycle_of, poll, case
):
    """The request under way ends as it would; then the same cycle asks again, and ends once."""
    answer, state = case
    model = scripted(answer, "Two.")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    assert poll(lambda: session.status().state == state)
    ref = session.steer("Left.")
    waiting = session.status().queued_steering
    model.release()
    found = cycle_of(stream)

    assert waiting == 1
    assert sent(model, 2) == [("user", "Go."), ("assistant", "One."), ("user", "Left.")]
    received = events.SteeringReceived(ref=ref, status="queued", text="Left.")
    assert only(events.SteeringReceived, found) == [received]
    kinds = [one.event.kind for one in found]
    assert kinds.count("agent_start") == kinds.count("agent_end") == 1
    at = kinds.index("steering_applied")
    assert kinds[at - 1 : at + 2] == ["response_complete", "steering_applied", "request_start"]
    assert session.collect_reply(timeout=TURN_S) == "Two."
    assert session.messages()[3].metadata["steering"] == [ref]
    assert session.status().queued_steering == 0


def test_steering_ends_what_may_be_ended_and_waits_for_the_rest(agent, scripted, poll, tmp_path):
    """Process, task and thread give way at once; an immune call goes on, and its result counts."""
    log, immune, end = tmp_path / "log", tmp_path / "immune", tmp_path / "end"
    calls = (
        ToolUse("burn", {"log": str(log)}),
        ToolUse("nap", {}),
        ToolUse("keep", {"log": str(immune), "end": str(end)}),
        ToolUse("loiter", {}),
    )
    model = scripted(ToolCalls(*calls), "Left it is.")
    session = agent(model, tools=[burn, nap, keep, loiter], interrupt_immune_tools=["keep"])
    stream = session.subscribe()
    session.prompt("Go.")
    assert poll(lambda: noted(log) and noted(immune))
    burning, kept = (psutil.Process(int(noted(path)[0])) for path in (log, immune))
    session.steer("Left.")
    killed = [event_of(stream, events.ToolKilled) for _ in range(3)]
    _, left = psutil.wait_procs([burning], TURN_S)
    still = [one.name for one in session.status().pending_tools]
    session.steer("And slowly.")

    assert [(one.name, one.reason) for one in killed] == [
        ("burn", "steered"),
        ("nap", "steered"),
        ("loiter", "abandoned"),
    ]
    assert (left, still, kept.is_running()) == ([], ["keep"], True)
    end.touch()
    ended = iter(lambda: event_of(stream, events.ToolExecutionEnd), None)
    assert next(one.text for one in ended if one.name == "keep") == "kept"
    assert event_of(stream, events.SteeringApplied).count == 2
    assert session.collect_reply(timeout=TURN_S) == "Left it is."
    *_, first, second, third, fourth, steered = sent(model, 2)
    assert third == ("tool", "kept")
    assert all("the user has something to say" in text for _, text in (first, second, fourth))
    assert steered == ("user", "Left.\n\nAnd slowly.")
    assert len(model.requests) == 2


def test_call_that_has_not_begun_never_begins(agent, scripted, tmp_path, poll):
    """A killable call that waits for its turn in the batch is ended like one that runs."""
    log, immune, end = tmp_path / "log", tmp_path / "immune", tmp_path / "end"
    first = ToolUse("keep", {"log": str(immune), "end": str(end)})
    model = scripted(ToolCalls(first, ToolUse("burn", {"log": str(log)})), "Done.")
    session = agent(
        model, tools=[keep, burn], interrupt_immune_tools=["keep"], max_parallel_tools=1
    )
    session.prompt("Go.")
    assert poll(lambda: noted(immune))
    session.steer("Left.")
    end.touch()

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert noted(log) == []


def test_steering_has_a_bound(agent, scripted, cycle_of):
    """Three may wait for a turn's end and go as one message; the fourth is refused, reported."""
    model = scripted((Hold(), "One."), "Two.")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    refs = [session.steer(text) for text in ("First.", "Second.", "Third.")]
    with pytest.raises(cmdc.QueueFull):
        session.steer("Fourth.")
    model.release()
    found = cycle_of(stream)

    assert sent(model, 2)[-1] == ("user", "First.\n\nSecond.\n\nThird.")
    received = only(events.SteeringReceived, found)
    assert [one.status for one in received] == ["queued"] * 3 + ["rejected_full"]
    assert ([one.ref for one in received[:3]], received[3].text) == (refs, "Fourth.")
    assert only(events.SteeringApplied, found) == [events.SteeringApplied(count=3)]


def test_steering_comes_before_the_prompts_that_wait(agent, scripted):
    """A prompt waits for the end of the cycle; what steers the cycle does not."""
    model = scripted((Hold(), "One."), "Steered.", "Two.")
    session = agent(model)
    session.prompt("First.")
    model.wait_held()
    session.prompt("Second.")
    session.steer("Left.")
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "Two."
    asked = [text for role, text in sent(model, 3) if role == "user"]
    assert asked == ["First.", "Left.", "Second."]


@pytest.mark.parametrize("text", ["", " \n", 7], ids=["empty", "white", "number"])
def test_steering_is_a_text(agent, scripted, text):
    """What is none is refused, and nothing is published or asked because of it."""
    model = scripted((Hold(), "One."))
    session = agent(model)
    session.prompt("Go.")
    model.wait_held()
    with pytest.raises(cmdc.InvalidText):
        session.steer(text)
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "One."
    assert len(model.requests) == 1


def test_steering_that_waits_outlives_the_process(agent, scripted, cycle_of):
    """The next process sends it with the request that it makes again, and sends it once."""
    model = scripted((Text("Half "), Hold(), "never"), "Left it is.")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    session.steer("Left.")
    session.steer("Slowly.")
    kill(session)
    found = cycle_of(stream)

    assert sent(model, 2) == [("user", "Go."), ("user", "Left.\n\nSlowly.")]
    assert only(events.SteeringApplied, found) == [events.SteeringApplied(count=2)]
    assert session.collect_reply(timeout=TURN_S) == "Left it is."
    assert len(model.requests) == 2


def test_steering_outlives_the_process_of_an_immune_call(agent, scripted, tmp_path, poll):
    """What was ended stays ended, the immune call runs again, and then the model reads it."""
    log, immune, end = tmp_path / "log", tmp_path / "immune", tmp_path / "end"
    calls = (
        ToolUse("burn", {"log": str(log)}),
        ToolUse("keep", {"log": str(immune), "end": str(end)}),
    )
    model = scripted(ToolCalls(*calls), "Left it is.")
    session = agent(model, tools=[burn, keep], interrupt_immune_tools=["keep"])
    session.prompt("Go.")
    assert poll(lambda: noted(log) and noted(immune))
    session.steer("Left.")
    kill(session)
    assert poll(lambda: len(noted(immune)) == 2)
    end.touch()

    assert session.collect_reply(timeout=TURN_S) == "Left it is."
    *_, ended, kept, steered = sent(model, 2)
    assert "the user has something to say" in ended[1]
    assert (kept, steered) == (("tool", "kept"), ("user", "Left."))
    assert len(noted(log)) == 1


def test_steering_that_meets_the_end_of_a_cycle_is_not_lost(agent, scripted, poll):
    """It goes on with the cycle or opens the next one: each text reaches the model, once."""
    model = scripted(default="Yes.")
    session = agent(model, max_steering_queue=RACES)
    texts = []
    for number in range(RACES):
        session.prompt("Go.")
        session.steer(f"Steering {number}.")
        texts.append(f"Steering {number}.")
    assert poll(lambda: session.status().state == "idle")
    asked = [one.content for one in session.messages() if one.role == "user"]
    steered = [text for text in "\n\n".join(asked).split("\n\n") if text != "Go."]

    assert steered == texts
