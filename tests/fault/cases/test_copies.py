"""Tools and plugins that fork, and whose child comes back: it answers nothing, and is gone."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
WAIT_S = 10.0
WAYS = {"returns": 0, "exits": 3, "raises": 1}
"""What the child does, and its exit status."""


def forked(way):
    """Return the child's pid; the child comes back in one of the ways."""
    pid = os.fork()
    if pid:
        return pid
    if way == "exits":
        sys.exit(WAYS[way])
    if way == "raises":
        raise ValueError("of the child")
    return 0


def status_of(pid):
    """Return the exit status of a child, which is bound to end."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)  # tidy: it is the tool's own, and bounded
    return "it lives"


def shown(pid):
    """Return which of the two this is."""
    return f"parent of {status_of(pid)}" if pid else "child"


@cmdc.tool(effects="write")
def in_process(way: str) -> str:
    """Fork in a process of its own."""
    return shown(forked(way))


@cmdc.tool(effects="write", isolation="thread")
def in_thread(way: str) -> str:
    """Fork in a thread."""
    return shown(forked(way))


@cmdc.tool(effects="write", isolation="task")
async def in_task(way: str) -> str:
    """Fork in the agent's own loop."""
    return shown(forked(way))


@cmdc.tool(effects="write", isolation="task")
async def in_task_and_waits(way: str) -> str:
    """Fork there, and have the child wait for the loop."""
    pid = forked(way)
    await asyncio.sleep(0)
    return shown(pid)


@cmdc.tool(effects="write", isolation="task")
async def in_callback() -> str:
    """Fork in a task and in a callback that nobody looks after."""
    loop, pids = asyncio.get_running_loop(), []

    async def fork():
        pids.append(os.fork())

    await asyncio.wait((asyncio.create_task(fork()),))
    loop.call_soon(lambda: pids.append(os.fork()))
    await asyncio.sleep(0)
    return ", ".join(map(shown, pids))


@cmdc.tool(effects="read")
def pooled() -> str:
    """Have forks do the work that never come back."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map(abs, [-1, -2])
    shown = subprocess.run([sys.executable, "-c", "print(3)"], capture_output=True, check=True)
    return f"{found} {shown.stdout.decode().strip()}"


TOOLS = [in_process, in_thread, in_task, in_task_and_waits]


@pytest.mark.fault_case("F84")
def test_forks_that_never_come_back_do_their_work(agent, scripted):
    """Those of multiprocessing and subprocess are what they were."""
    session = agent(scripted(ToolCalls(ToolUse("pooled", {})), "done"), tools=[pooled])
    reply = session.run("Go.", timeout=TURN_S)
    [result] = [one.content for one in reply.messages if one.role == "tool_result"]

    assert result == "[1, 2] 3"


class Forking(cmdc.Plugin):
    """Forks at each prompt, as the prompt says, and while it observes."""

    fail = "closed"

    def before_prompt(self, event, context):
        """Fork in a thread."""
        return cmdc.Emit("forked", shown(forked(event.text)))

    async def before_request(self, event, context):
        """Fork in the loop."""
        return cmdc.Emit("forked", shown(forked("returns")))

    def observe(self, event, context):
        """Hear of the prompt's cycle."""
        if isinstance(event, cmdc.events.AgentStart):
            shown(forked("returns"))


@pytest.mark.fault_case("F84")
@pytest.mark.parametrize("way", WAYS)
def test_a_call_is_answered_by_who_was_given_it(way, agent, scripted, audit):
    """Wherever it runs, and each time; what the child printed of its end is in the log."""
    audit.log_says = ("Traceback",) if way == "raises" else ()
    calls = ToolCalls(*(ToolUse(tool.name, {"way": way}) for tool in TOOLS))
    session = agent(scripted(calls, calls, "done"), tools=TOOLS)
    pid = session.agent_pid()
    reply = session.run("Go.", timeout=TURN_S)
    results = [one.content for one in reply.messages if one.role == "tool_result"]

    assert reply.text == "done"
    assert results == [f"parent of {WAYS[way]}"] * 2 * len(TOOLS)
    assert session.agent_pid() == pid


@pytest.mark.fault_case("F84")
def test_a_copy_that_comes_back_to_the_loop_ends(agent, scripted):
    """It is no agent, though it has all that an agent has."""
    model = scripted(ToolCalls(ToolUse("in_callback", {})), "done")
    session = agent(model, tools=[in_callback])
    reply = session.run("Go.", timeout=TURN_S)
    [result] = [one.content for one in reply.messages if one.role == "tool_result"]

    assert (result, reply.text) == ("parent of 0, parent of 0", "done")


@pytest.mark.fault_case("F84")
@pytest.mark.parametrize("way", WAYS)
def test_a_hook_is_answered_by_who_was_asked(way, agent, scripted, audit):
    """And an observer's child hears no more than its parent."""
    audit.log_says = ("Traceback",) if way == "raises" else ()
    session = agent(scripted("done"), plugins=[Forking])
    found = []
    with session.stream_events(way) as stream:
        found += [one for one in stream if isinstance(one, cmdc.events.PluginEvent)]

    assert [one.payload for one in found] == [f"parent of {WAYS[way]}", "parent of 0"]
    assert session.status().restarts == 0
