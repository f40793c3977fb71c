"""A call whose outcome nobody knows is uncertain, whatever cut it short; no other call is."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
ANSWER = "Done."
UNCERTAIN = "It may or may not have taken effect"


def note(log):
    """Note the process that runs the call."""
    with Path(log).open("a") as file:
        file.write(f"{os.getpid()} ")


def begin(log):
    """Note it, and wait for its end."""
    note(log)
    threading.Event().wait()


@cmdc.tool(effects="write")
def change(log: str) -> str:
    """Change something for ever."""
    begin(log)
    return "never"


@cmdc.tool(effects="read")
def look(log: str) -> str:
    """Look for ever."""
    begin(log)
    return "never"


@cmdc.tool(effects="write", timeout=0.5)
def change_late() -> str:
    """Change something for longer than it may."""
    threading.Event().wait()
    return "never"


@cmdc.tool(effects="read", timeout=0.5)
def look_late() -> str:
    """Look for longer than it may."""
    threading.Event().wait()
    return "never"


@cmdc.tool(effects="write", isolation="task")
async def change_here(log: str) -> str:
    """Change something in the agent's loop."""
    note(log)
    await asyncio.get_running_loop().create_future()
    return "never"


@cmdc.tool(effects="write", needs_approval=True)
def gated() -> str:
    """Wait for a person."""
    return "never"


@cmdc.tool(effects="write")
def fail() -> str:
    """Say that nothing was done."""
    raise cmdc.ToolError("nothing was done")


@cmdc.tool(effects="write")
def leave() -> str:
    """End the process."""
    os._exit(3)


TOOLS = [change, look, change_late, look_late, change_here, gated, fail, leave]


@pytest.fixture
def begun(agent, scripted, tmp_path, poll):
    """Start a session whose calls, of these tools, run for ever; another waits for its place."""

    def start(*names):
        logs = [tmp_path / name for name in names]
        uses = [ToolUse(log.name, {"log": str(log)}) for log in logs]
        model = scripted(ToolCalls(*uses, ToolUse("fail", {})), default=ANSWER)
        session = agent(model, tools=TOOLS, max_parallel_tools=len(names))
        session.prompt("Go.")
        assert poll(lambda: all(log.exists() and log.read_text() for log in logs))
        return session, [int(log.read_text().split()[0]) for log in logs]

    return start


def uncertain_calls(session):
    """Return the names of what is uncertain, as events, results and the status all report it."""
    with session.subscribe(since=0) as stream:
        last, found = session.last_index(), []
        while not found or found[-1].index < last:
            found.append(stream.get(TURN_S))
    ended = [one.event for one in found if isinstance(one.event, events.ToolExecutionEnd)]
    results = {one.call_id: one.content for one in session.messages() if one.role == "tool_result"}
    reported = [one for one in ended if one.uncertain]

    assert {one.call_id: one.text for one in ended} == results
    assert all((UNCERTAIN in one.text) == one.uncertain for one in ended)
    listed = {(one.name, one.call_id) for one in session.status().uncertain}
    assert listed == {(one.name, one.call_id) for one in reported}
    return sorted(one.name for one in reported)


def test_calls_that_outlast_their_time(agent, scripted):
    """What they did until then is not known; of a read it does not matter."""
    calls = ToolCalls(ToolUse("change_late", {}), ToolUse("look_late", {}))
    session = agent(scripted(calls, ANSWER), tools=TOOLS)
    session.run("Go.", timeout=TURN_S)

    assert uncertain_calls(session) == ["change_late"]


@pytest.mark.parametrize("kill_tools", ["all", "none"])
def test_calls_of_an_aborted_cycle(begun, kill_tools):
    """Those that were ended and those that run on alike, but for what had not begun."""
    session, _ = begun("change", "look", "change_here")
    session.abort(kill_tools=kill_tools)

    assert uncertain_calls(session) == ["change", "change_here"]


def test_calls_that_are_ended_for_steering(begun):
    """The model reads it before it goes on, and so does the next process."""
    session, _ = begun("change", "look", "change_here")
    session.steer("Rather not.")
    session.collect_reply(timeout=TURN_S)
    assert uncertain_calls(session) == ["change", "change_here"]

    os.kill(session.agent_pid(), signal.SIGKILL)
    session.run("Go on.", timeout=TURN_S)

    assert uncertain_calls(session) == ["change", "change_here"]


def test_a_call_whose_process_is_killed(begun):
    """The agent lives, and says so."""
    session, (pid,) = begun("change")
    os.kill(pid, signal.SIGKILL)
    session.collect_reply(timeout=TURN_S)

    assert uncertain_calls(session) == ["change"]


def test_calls_that_end_by_themselves_or_never_begin(agent, scripted, plugin_of):
    """A process that exits knows, and reports nothing; a failure is reported, a refusal certain."""

    def guard(event, _context):
        return cmdc.BlockTool("not this") if event.name == "change" else None

    names = ("leave", "fail", "gated", "nobody", "change")
    calls = ToolCalls(*(ToolUse(name, {}) for name in names))
    session = agent(scripted(calls), tools=TOOLS, plugins=[plugin_of(before_tool=guard)])
    session.run("Go.", timeout=TURN_S)

    assert uncertain_calls(session) == ["leave"]
