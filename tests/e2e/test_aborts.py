"""``abort`` in every state: announced at once, nothing left running, the session usable."""

import asyncio
import time
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, Stall, Text, ToolCalls, ToolUse

TURN_S = 20.0
ANNOUNCED_S = 2.0
"""Tens of milliseconds on an idle machine; the bound is for a busy one."""
HALF = "The first half of it, "


@cmdc.tool(effects="write")
async def wait_for_ever() -> str:
    """Wait as a task."""
    await asyncio.Event().wait()
    return "never"


@cmdc.tool(effects="write")
def burn(path: str) -> str:
    """Burn the processor in a thread until the file is there."""
    while not Path(path).exists():
        sum(range(10_000))
    return "burnt"


def abort_and_check(session, stream, cycle_of, **options):
    """Abort, and return the events up to the announcement, which comes soon."""
    started_s = time.monotonic()
    session.abort(reason="enough", **options)
    found = cycle_of(stream)
    assert time.monotonic() - started_s < ANNOUNCED_S
    assert found[-1].event.kind == "agent_abort"
    assert found[-1].event.reason == "enough"
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.collect_reply()
    assert caught.value.reason == "enough"
    assert session.status().state == "idle"
    return [envelope.event for envelope in found]


def check_usable(session, model):
    """Send the next prompt: it is answered, over a conversation that providers accept."""
    assert session.run("Next.", timeout=TURN_S).text == "next"
    sent = model.requests[-1]["messages"]
    for position, message in enumerate(sent):
        for offset, call in enumerate(message.get("tool_calls") or (), 1):
            answer = sent[position + offset]
            assert (answer["role"], answer["tool_call_id"]) == ("tool", call["id"])
    model.assert_complete()


@pytest.mark.parametrize("first", [Hold(), Stall()], ids=["held", "stalled"])
def test_abort_before_the_first_byte(agent, scripted, cycle_of, first):
    """A request that nobody answers ends, at the provider too."""
    model = scripted((Hold(), "never") if first == Hold() else first, "next")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_request()
    abort_and_check(session, stream, cycle_of)
    model.wait_abandoned()

    assert [message.role for message in session.messages()] == ["system", "user"]
    check_usable(session, model)


def test_abort_in_mid_stream_keeps_what_was_said(agent, scripted, cycle_of):
    """The half answer stays in the conversation and says that it is one."""
    model = scripted((Text(HALF), Hold(), "never"), "next")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    said = ""
    while said != HALF:
        event = stream.get(TURN_S).event
        said += event.delta if isinstance(event, cmdc.events.MessageDelta) else ""
    abort_and_check(session, stream, cycle_of)
    model.wait_abandoned()
    partial = session.messages()[-1]

    assert (partial.role, partial.content) == ("assistant", HALF)
    assert partial.metadata["interrupted"] is True
    check_usable(session, model)


def test_abort_while_a_retry_waits(agent, scripted, cycle_of):
    """The delay before a retry is part of the cycle, and ends with it."""
    model = scripted(Stall(), "next")
    session = agent(
        model, stall_after=0.5, stall_timeout=1.0, retry_base_delay=60.0, retry_max_delay=60.0
    )
    stream = session.subscribe()
    session.prompt("Go.")
    while stream.get(TURN_S).event.kind != "retry":
        pass
    abort_and_check(session, stream, cycle_of)

    check_usable(session, model)


def test_abort_ends_a_command_and_all_its_processes(agent, scripted, cycle_of, poll, tmp_path):
    """A shell command goes with everything that it started."""
    command = "sleep 300 & sleep 300; echo never"
    model = scripted(ToolCalls(ToolUse("shell", {"command": command})), "next")
    session = agent(model, tools=[cmdc.tools.Shell], working_dir=tmp_path)
    stream = session.subscribe()
    process = psutil.Process(session.agent_pid())
    session.prompt("Go.")
    assert poll(lambda: len(process.children(recursive=True)) >= 3)
    below = process.children(recursive=True)
    events = abort_and_check(session, stream, cycle_of)
    _, left = psutil.wait_procs(below, TURN_S)

    assert left == []
    assert process.children(recursive=True) == []
    assert [event.name for event in events if event.kind == "tool_killed"] == ["shell"]
    check_usable(session, model)


def test_abort_ends_an_async_tool(agent, scripted, cycle_of):
    """A tool that is a task is cancelled."""
    model = scripted(ToolCalls(ToolUse("wait_for_ever", {})), "next")
    session = agent(model, tools=[wait_for_ever])
    stream = session.subscribe()
    session.prompt("Go.")
    while stream.get(TURN_S).event.kind != "tool_execution_start":
        pass
    assert [tool.name for tool in session.status().pending_tools] == ["wait_for_ever"]
    abort_and_check(session, stream, cycle_of)

    assert session.status().pending_tools == ()
    check_usable(session, model)


def test_abort_leaves_a_thread_alone_and_its_result_out(agent, scripted, cycle_of, tmp_path):
    """A thread cannot be ended: it burns on, and what it returns is discarded."""
    end = tmp_path / "end"
    model = scripted(ToolCalls(ToolUse("burn", {"path": str(end)})), "next")
    session = agent(model, tools=[burn])
    stream = session.subscribe()
    session.prompt("Go.")
    while stream.get(TURN_S).event.kind != "tool_execution_start":
        pass
    abort_and_check(session, stream, cycle_of)
    check_usable(session, model)
    end.touch()

    assert "burnt" not in [message.content for message in session.messages()]


def test_abort_drops_the_queue_unless_asked_otherwise(agent, scripted, cycle_of):
    """The waiting prompts go with the cycle, each with an event, or stay and are served."""
    model = scripted((Hold(), "never"), (Hold(), "never"), "kept")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("1")
    model.wait_held()
    dropped = session.prompt("2")
    session.abort()
    found = cycle_of(stream)
    gone = stream.get(TURN_S).event

    assert found[-1].event.kind == "agent_abort"
    assert (gone.kind, gone.command_id) == ("prompt_dropped", dropped.command_id)
    with pytest.raises(cmdc.AgentAborted, match="dropped"):
        session.collect_reply()
    model.wait_abandoned()
    session.prompt("3")
    model.wait_held()
    session.prompt("4")
    session.abort(clear_queue=False)
    assert session.collect_reply(timeout=TURN_S) == "kept"
    model.assert_complete()


def test_abort_when_idle_is_reported_and_changes_nothing(agent, scripted):
    """An observer that missed the end of a cycle learns that nothing runs."""
    model = scripted("one", "next")
    session = agent(model)
    session.run("1", timeout=TURN_S)
    before = session.messages()
    stream = session.subscribe()
    session.abort(reason="just in case")
    event = stream.get(TURN_S).event

    assert (event.kind, event.reason) == ("agent_abort", "just in case")
    assert session.messages() == before
    check_usable(session, model)


def test_aborts_from_everywhere_at_once_are_harmless(agent, scripted):
    """However an abort and the end of a cycle meet, the session answers the next prompt."""
    model = scripted(default="next")
    session = agent(model)
    for _ in range(20):
        session.prompt("Go.")
        session.abort()

    assert session.run("Next.", timeout=TURN_S).text == "next"
