"""Each tool call is reported twice: that it starts or is not made, then once that it is over."""

import os
import signal
import threading
from collections import defaultdict
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0
STARTED, BLOCKED, ENDED = "tool_execution_start", "tool_blocked", "tool_execution_end"


@cmdc.tool(effects="read")
def quick(note: str = "") -> str:
    """Return at once."""
    return f"done {note}"


@cmdc.tool(effects="read")
def stay(path: str) -> str:
    """Wait for ever, unless the file is there."""
    with Path(path).open("a") as file:
        file.write("x")
    if Path(path).read_text() == "x":
        threading.Event().wait()
    return "left"


@cmdc.tool(effects="write")
def stay_writing(path: str) -> str:
    """Wait for ever."""
    with Path(path).open("a") as file:
        file.write("x")
    threading.Event().wait()
    return "never"


@cmdc.tool(effects="read", timeout=0.2)
def too_long() -> str:
    """Wait for ever."""
    threading.Event().wait()
    return "never"


@cmdc.tool(effects="read", max_retries=0)
def fall() -> str:
    """Die."""
    os._exit(3)


@cmdc.tool(needs_approval=True)
def gated() -> str:
    """Wait for a person."""
    return "opened"


TOOLS = [quick, stay, stay_writing, too_long, fall, gated]


def kinds_of_calls(session):
    """Return what was reported of each call of the session, and check that there are no others."""
    with session.subscribe(since=0) as stream:
        last, found = session.last_index(), []
        while not found or found[-1].index < last:
            found.append(stream.get(TURN_S))
    reported = defaultdict(list)
    for envelope in found:
        if envelope.event.kind in {STARTED, BLOCKED, ENDED}:
            reported[envelope.event.call_id].append(envelope.event.kind)
    asked = [
        call.call_id
        for envelope in found
        if isinstance(envelope.event, events.ResponseComplete)
        for call in envelope.event.message.tool_calls
    ]
    assert sorted(reported) == sorted(asked)
    return [reported[call_id] for call_id in asked]


def test_calls_that_are_made_and_that_are_not(agent, scripted, plugin_of):
    """An unknown tool, arguments that do not fit or are no JSON, a plugin's and a person's no."""

    def guard(event, _context):
        return cmdc.BlockTool("not this") if event.args.get("note") == "bad" else None

    calls = ToolCalls(
        ToolUse("quick", {"note": "a"}),
        ToolUse("quick", {"note": "bad"}),
        ToolUse("quick", {"nota": 1}),
        ToolUse("quick", "{no json"),
        ToolUse("nobody", {}),
        ToolUse("too_long", {}),
        ToolUse("fall", {}),
        ToolUse("gated", {}),
    )
    session = agent(scripted(calls), tools=TOOLS, plugins=[plugin_of(before_tool=guard)])
    session.run("Go.", timeout=TURN_S)

    assert kinds_of_calls(session) == [
        [STARTED, ENDED],
        *[[BLOCKED, ENDED]] * 4,
        *[[STARTED, ENDED]] * 2,
        [BLOCKED, ENDED],
    ]


@pytest.mark.parametrize("kill_tools", ["killable", "none"])
def test_calls_of_an_aborted_cycle(agent, scripted, tmp_path, poll, kill_tools):
    """The one that runs, ended or left alone, and the one that waits for its place."""
    path = tmp_path / "log"
    calls = ToolCalls(ToolUse("stay", {"path": str(path)}), ToolUse("quick", {}))
    session = agent(scripted(calls, "next"), tools=TOOLS, max_parallel_tools=1)
    session.prompt("Go.")
    assert poll(path.exists)
    session.abort(kill_tools=kill_tools)
    session.run("Next.", timeout=TURN_S)

    assert kinds_of_calls(session) == [[STARTED, ENDED], [BLOCKED, ENDED]]


def test_calls_that_are_ended_for_steering(agent, scripted, tmp_path, poll):
    """A steering ends them; the model has their results."""
    path = tmp_path / "log"
    calls = ToolCalls(ToolUse("stay", {"path": str(path)}), ToolUse("quick", {}))
    session = agent(scripted(calls, "next"), tools=TOOLS, max_parallel_tools=1)
    session.prompt("Go.")
    assert poll(path.exists)
    session.steer("Rather not.")
    session.collect_reply(timeout=TURN_S)

    assert kinds_of_calls(session) == [[STARTED, ENDED], [BLOCKED, ENDED]]


def test_calls_that_outlive_their_process(agent, scripted, tmp_path, poll):
    """One is made again and one is uncertain: neither has a second start."""
    again, once = tmp_path / "again", tmp_path / "once"
    calls = ToolCalls(
        ToolUse("stay", {"path": str(again)}), ToolUse("stay_writing", {"path": str(once)})
    )
    session = agent(scripted(calls, "next"), tools=TOOLS)
    session.prompt("Go.")
    assert poll(lambda: again.exists() and once.exists())
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.collect_reply(timeout=TURN_S)

    assert (again.read_text(), once.read_text()) == ("xx", "x")
    assert kinds_of_calls(session) == [[STARTED, ENDED]] * 2


def test_calls_of_a_cycle_that_is_given_up(agent, scripted, tmp_path, poll):
    """What ran when its process died is over, and what had not begun is not made."""
    path = tmp_path / "log"
    calls = ToolCalls(ToolUse("stay_writing", {"path": str(path)}), ToolUse("quick", {}))
    session = agent(scripted(calls), tools=TOOLS, max_parallel_tools=1, max_cycle_crashes=1)
    session.prompt("Go.")
    assert poll(path.exists)
    os.kill(session.agent_pid(), signal.SIGKILL)
    with pytest.raises(cmdc.AgentAborted):
        session.collect_reply(timeout=TURN_S)

    assert kinds_of_calls(session) == [[STARTED, ENDED], [BLOCKED, ENDED]]


def test_calls_that_loop_or_that_a_plugin_ends(agent, scripted, plugin_of):
    """The batch that ends its cycle is reported as well."""
    loop = [ToolCalls(ToolUse("quick", {}))] * 3
    session = agent(scripted(*loop), tools=TOOLS, loop_threshold=2, loop_abort=3)
    with pytest.raises(cmdc.AgentAborted):
        session.run("Go.", timeout=TURN_S)
    ending = plugin_of(after_response=cmdc.Abort("no"))
    other = agent(scripted(loop[0]), tools=TOOLS, plugins=[ending])
    with pytest.raises(cmdc.AgentAborted):
        other.run("Go.", timeout=TURN_S)

    assert kinds_of_calls(session) == [*[[STARTED, ENDED]] * 2, [BLOCKED, ENDED]]
    assert kinds_of_calls(other) == [[BLOCKED, ENDED]]
