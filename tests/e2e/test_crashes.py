"""``kill -9`` of an agent at every point of a cycle: what was accepted is done, once."""

import os
import signal
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Signal
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
ANSWER = "It has three lines, and every one of them is short."
KILLED = Signal(number=9, name="SIGKILL")


def kill(session, number=signal.SIGKILL):
    os.kill(session.agent_pid(), number)


def kinds(envelopes):
    return [envelope.event.kind for envelope in envelopes]


def only(kind, envelopes):
    return [envelope.event for envelope in envelopes if isinstance(envelope.event, kind)]


def text_of(envelopes):
    """Add up the answer's text as a reader does: a reset discards what came before it."""
    text = ""
    for envelope in envelopes:
        match envelope.event:
            case cmdc.events.MessageDelta(delta=delta):
                text += delta
            case cmdc.events.StreamReset() | cmdc.events.RequestStart():
                text = ""
    return text


def read_until(stream, kind, found):
    while not found or not isinstance(found[-1].event, kind):
        found.append(stream.get(TURN_S))


def logged(path):
    return path.read_text().split() if path.exists() else []


@cmdc.tool(effects="read")
def look(log: str, *, context: cmdc.Context) -> str:
    """Note the incarnation that looks; the first one then waits for its end."""
    with Path(log).open("a") as file:
        file.write(f"{context.incarnation} ")
    if context.incarnation == 1:
        threading.Event().wait()
    return f"seen by {context.incarnation}"


@cmdc.tool(effects="read")
def glance(log: str) -> str:
    """Note that somebody looks."""
    with Path(log).open("a") as file:
        file.write("x ")
    return "seen"


@cmdc.tool(effects="write")
def change(log: str, *, context: cmdc.Context) -> str:
    """Note the incarnation that changes something; the first one then waits for its end."""
    with Path(log).open("a") as file:
        file.write(f"{context.incarnation} ")
    if context.incarnation == 1:
        threading.Event().wait()
    return f"changed by {context.incarnation}"


def test_kill_in_mid_stream_loses_no_index_and_no_text(agent, scripted, cycle_of):
    """The iterator goes on without a gap or a repeat and ends with the whole answer."""
    model = scripted((Text(ANSWER[:20], chunk_chars=4), Hold(), ANSWER[20:]), ANSWER)
    session = agent(model)
    stream = session.subscribe()
    session.prompt("How many?")
    found = []
    read_until(stream, cmdc.events.MessageDelta, found)
    model.wait_held()
    kill(session)
    found += cycle_of(stream)

    assert [envelope.index for envelope in found] == [*range(1, len(found) + 1)]
    recovered = cmdc.events.AgentRecovered(incarnation=2, reason=KILLED, resumed="stream")
    assert only(cmdc.events.AgentRecovered, found) == [recovered]
    after = kinds(found)[kinds(found).index("agent_recovered") :]
    assert after[:3] == ["agent_recovered", "stream_reset", "request_start"]
    assert text_of(found) == ANSWER
    assert session.collect_reply() == ANSWER
    assert [message.role for message in session.messages()] == ["system", "user", "assistant"]


def test_call_that_waits_for_the_reply_outlives_the_agent(agent, scripted):
    """``run`` returns the answer that the next process got."""
    model = scripted((Hold(), "never"), ANSWER)
    session = agent(model)
    session.prompt("Go.")
    model.wait_held()
    kill(session)

    assert session.collect_reply(timeout=TURN_S) == ANSWER
    assert session.status().incarnation == 2
    assert session.status().restarts == 1


def test_read_tool_runs_again_after_a_kill(agent, scripted, cycle_of, tmp_path, poll):
    """A call that only reads is simply made again, and the model gets its one result."""
    log = tmp_path / "log"
    model = scripted(ToolCalls(ToolUse("look", {"log": str(log)})), ANSWER)
    session = agent(model, tools=[look])
    stream = session.subscribe()
    session.prompt("Look.")
    assert poll(lambda: logged(log) == ["1"])
    kill(session)
    found = cycle_of(stream)

    assert logged(log) == ["1", "2"]
    assert [envelope.index for envelope in found] == [*range(1, len(found) + 1)]
    (recovered,) = only(cmdc.events.AgentRecovered, found)
    assert (recovered.reason, recovered.resumed) == (KILLED, "tools")
    (ended,) = only(cmdc.events.ToolExecutionEnd, found)
    assert (ended.ok, ended.text) == (True, "seen by 2")
    roles = [message.role for message in session.messages()]
    assert roles == ["system", "user", "assistant", "tool_result", "assistant"]
    model.assert_complete()


def test_write_tool_is_not_run_twice(agent, scripted, cycle_of, tmp_path, poll):
    """A call that may have taken effect is not repeated: the model reads that it is uncertain."""
    log = tmp_path / "log"
    model = scripted(ToolCalls(ToolUse("change", {"log": str(log)})), ANSWER)
    session = agent(model, tools=[change])
    stream = session.subscribe()
    session.prompt("Change.")
    assert poll(lambda: logged(log) == ["1"])
    kill(session)
    found = cycle_of(stream)

    assert logged(log) == ["1"]
    (ended,) = only(cmdc.events.ToolExecutionEnd, found)
    assert not ended.ok
    assert "may or may not have taken effect" in ended.text
    read = model.requests[-1]["messages"][-1]
    assert (read["role"], read["content"]) == ("tool", ended.text)
    assert session.collect_reply() == ANSWER
    model.assert_complete()
    (uncertain,) = session.status().uncertain
    assert ended.uncertain
    assert (uncertain.name, uncertain.call_id) == (ended.name, ended.call_id)


def test_write_tool_that_has_ended_keeps_its_result(agent, scripted, cycle_of, tmp_path, poll):
    """Of a batch, what has ended keeps its result, and only the rest is made up for."""
    done, open_ = tmp_path / "done", tmp_path / "open"
    done.write_text("0 ")
    calls = (
        ToolUse("note", {"log": str(done)}),
        ToolUse("look", {"log": str(open_)}),
    )

    @cmdc.tool(effects="write")
    def note(log: str) -> str:
        """Note a call."""
        with Path(log).open("a") as file:
            file.write("x ")
        return "noted"

    model = scripted(ToolCalls(*calls), ANSWER)
    session = agent(model, tools=[note, look])
    stream = session.subscribe()
    session.prompt("Both.")
    found = []
    read_until(stream, cmdc.events.ToolExecutionEnd, found)
    assert poll(lambda: logged(open_) == ["1"])
    kill(session)
    found += cycle_of(stream)

    assert (logged(done), logged(open_)) == (["0", "x"], ["1", "2"])
    results = [message for message in session.messages() if message.role == "tool_result"]
    assert [message.content for message in results] == ["noted", "seen by 2"]
    assert [envelope.index for envelope in found] == [*range(1, len(found) + 1)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "terminate"])
def test_queued_prompts_outlive_a_signal(agent, scripted, number):
    """Every prompt that was accepted is answered, in the order in which they came.

    A SIGTERM that the daemon did not send is no stop either: a service manager may send it to all.
    """
    model = scripted((Hold(), "never"), "one", "two", "three")
    session = agent(model)
    monitor = session.monitor()
    receipts = [session.prompt(text) for text in ("1", "2", "3")]
    model.wait_held()
    kill(session, number)
    down = monitor.wait(TURN_S)

    assert (down.reason, down.restarting) == (Signal(number=number, name=number.name), True)
    assert [receipt.queued for receipt in receipts] == [False, True, True]
    assert session.collect_reply(timeout=TURN_S) == "three"
    said = [(message.role, message.content) for message in session.messages()[1:]]
    assert said == [
        ("user", "1"),
        ("assistant", "one"),
        ("user", "2"),
        ("assistant", "two"),
        ("user", "3"),
        ("assistant", "three"),
    ]
    model.assert_complete()


def test_kill_when_idle_keeps_the_conversation(agent, scripted, poll):
    """A session that rests comes back with all that was said, and its indexes go on."""
    model = scripted("one", "two")
    session = agent(model)
    session.run("1", timeout=TURN_S)
    before, index = session.messages(), session.last_index()
    stream = session.subscribe()
    kill(session)
    recovered = stream.get(TURN_S)

    assert (recovered.index, recovered.event.kind) == (index + 1, "agent_recovered")
    assert recovered.event.resumed == "idle"
    assert session.messages() == before
    assert session.run("2", timeout=TURN_S).text == "two"
    sent = [message["content"] for message in model.requests[-1]["messages"][1:]]
    assert sent == ["1", "one", "2"]


def test_prompt_sent_while_no_process_lives_is_answered(agent, scripted, poll):
    """A prompt is accepted between two processes, too, and served by the next one."""
    model = scripted("one", "two")
    session = agent(model, restart_delay=(0.3, 0.3))
    session.run("1", timeout=TURN_S)
    kill(session)
    assert poll(lambda: session.status().incarnation == 2)
    kill(session)  # only the second restart is delayed
    assert poll(lambda: session.agent_pid() is None)
    receipt = session.prompt("2")

    assert not receipt.queued
    assert session.collect_reply(timeout=TURN_S) == "two"
    assert session.status().incarnation == 3


@pytest.mark.parametrize("after", range(1, 15))
def test_kill_after_any_event_of_a_cycle(agent, scripted, tmp_path, after):
    """Wherever in a cycle the kill comes, the conversation is the same, and no index is missing."""
    log = tmp_path / "log"

    def say(request):
        """Go by the conversation, since a kill may make a request come twice."""
        has_result = request["messages"][-1]["role"] == "tool"
        return ANSWER if has_result else ToolCalls(ToolUse("glance", {"log": str(log)}))

    session = agent(scripted(default=say), tools=[glance])
    stream = session.subscribe()
    session.prompt("Look.")
    while stream.get(TURN_S).index < after:
        pass
    kill(session)

    assert session.collect_reply(timeout=TURN_S) == ANSWER
    said = [(message.role, message.content) for message in session.messages()[1:]]
    assert said == [
        ("user", "Look."),
        ("assistant", ""),
        ("tool_result", "seen"),
        ("assistant", ANSWER),
    ]
    assert set(logged(log)) == {"x"}
    again = session.subscribe(since=0)
    found = [again.get(TURN_S) for _ in range(session.last_index())]
    assert [envelope.index for envelope in found] == [*range(1, len(found) + 1)]
    for once in ("prompt_received", "agent_start", "agent_end"):
        assert kinds(found).count(once) == 1


def test_two_crashes_in_one_cycle_end_the_cycle_and_not_the_session(agent, scripted, cycle_of):
    """A prompt that kills its process twice is given up; the session is idle and usable."""
    model = scripted((Hold(), "never"), (Hold(), "never"), "fine")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Poison.")
    for n in (1, 2):
        model.wait_held()
        kill(session)
        model.wait_abandoned(n)
    found = cycle_of(stream)

    assert found[-1].event.reason == f"crashed({KILLED})"
    assert [envelope.index for envelope in found] == [*range(1, len(found) + 1)]
    assert [event.resumed for event in only(cmdc.events.AgentRecovered, found)] == [
        "stream",
        "idle",
    ]
    assert session.status().state == "idle"
    assert session.run("Again.", timeout=TURN_S).text == "fine"
