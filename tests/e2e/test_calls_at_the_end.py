"""A session that is stopped while its calls run: each one that has begun is reported as over."""

import os
import signal
import threading
from collections import defaultdict
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.plugins import HumanApproval
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0
STARTED, BLOCKED, ENDED = "tool_execution_start", "tool_blocked", "tool_execution_end"


def wait_in(path):
    """Leave word that it runs, then wait for ever."""
    with Path(path).open("a") as file:
        file.write("x")
    threading.Event().wait()
    return "never"


@cmdc.tool(effects="read")
def reads(path: str) -> str:
    """Wait for ever."""
    return wait_in(path)


@cmdc.tool(effects="write")
def writes(path: str) -> str:
    """Wait for ever."""
    return wait_in(path)


@cmdc.tool(effects="write", isolation="thread")
def threaded(path: str) -> str:
    """Wait for ever where nobody can end it."""
    return wait_in(path)


TOOLS = [reads, writes, threaded]


def heard_of(stream):
    """Return what a stream reports of each call, up to the session's end."""
    found = defaultdict(list)
    for envelope in stream:
        event = envelope.event
        if event.kind in {STARTED, BLOCKED, ENDED, "tool_killed"}:
            found[event.name].append(event)
    return found


def kinds(found):
    return {name: [event.kind for event in heard] for name, heard in found.items()}


@pytest.fixture
def busy(agent, scripted, tmp_path, poll):
    """Make sessions of which each tool that is named runs."""

    def begin(*names, **options):
        uses = [ToolUse(name, {"path": str(tmp_path / name)}) for name in names]
        model = scripted(ToolCalls(*uses), default="next")
        session = agent(model, **{"tools": TOOLS, **options})
        stream = session.subscribe(since=0)
        session.prompt("Go.")
        bound = options.get("max_parallel_tools", len(names))
        assert poll(lambda: all((tmp_path / name).exists() for name in names[:bound]))
        return session, stream

    return begin


def test_calls_that_run_at_the_stop_are_over(busy):
    """One start and one end; of what writes nobody knows what it did."""
    session, stream = busy("reads", "writes", "threaded")
    session.stop()
    found = heard_of(stream)
    ends = {name: heard[-1] for name, heard in found.items()}

    assert sorted(found) == ["reads", "threaded", "writes"]
    assert all(heard == [STARTED, "tool_killed", ENDED] for heard in kinds(found).values())
    assert [ends[name].uncertain for name in ("reads", "writes", "threaded")] == [False, True, True]
    assert {one.ok for one in ends.values()} == {False}
    assert {one.text.splitlines()[0] for one in ends.values()} == {
        "Error: the call was ended because the session was stopped."
    }
    assert {heard[1].reason for heard in found.values()} == {"stopped", "abandoned"}


def test_a_call_that_has_not_begun_is_not_made(busy):
    """It waits for its place; nobody will make it."""
    session, stream = busy("reads", "writes", max_parallel_tools=1)
    session.stop()
    found = heard_of(stream)

    assert kinds(found) == {"reads": [STARTED, "tool_killed", ENDED], "writes": [BLOCKED, ENDED]}
    assert found["writes"][0].reason == "stopped"
    assert not found["writes"][1].uncertain


def test_a_call_that_waits_for_a_person_goes_on_waiting(agent, scripted, tmp_path):
    """It has not begun, and what was saved of the session still asks."""
    use = ToolCalls(ToolUse("shell", {"command": "touch a"}))
    held = HumanApproval(mode="hold")
    session = agent(scripted(use), tools=["shell"], plugins=[held], working_dir=str(tmp_path))
    with session.subscribe(types=["approval_required"]) as asked:
        session.prompt("Go.")
        asked.get(TURN_S)
    stream = session.subscribe(since=0)
    session.stop()

    assert kinds(heard_of(stream)) == {}


@pytest.fixture
def here(tmp_path, poll):
    """Where a call leaves word, and how that is awaited."""
    return tmp_path / "child", poll


@pytest.mark.parametrize("way", ["stop", "death"])
def test_a_subagent_that_ends_with_its_parent_ends_its_calls(way, agent, client, scripted, here):
    """Whether its parent is stopped, or its parent's process dies."""
    path, poll = here
    task = ToolUse("task", {"subagent_type": "helper", "description": "Wait."})
    call = ToolUse("writes", {"path": str(path)})
    session = agent(
        scripted(ToolCalls(task), default="next"),
        subagents=[cmdc.SubAgent("helper", "Waits.", tools=TOOLS, model=scripted(ToolCalls(call)))],
        max_restarts=1,
    )
    session.prompt("Go.")
    assert poll(path.exists)
    (child,) = [one for one in client.list_sessions() if one.parent_id == session.id]
    stream = client.subscribe(child.session_id, since=0)
    if way == "stop":
        session.stop()
    else:
        os.kill(session.status().pid, signal.SIGKILL)

    assert kinds(heard_of(stream)) == {"writes": [STARTED, "tool_killed", ENDED]}


def test_a_process_that_is_killed_says_nothing(busy):
    """Its successor does; without one the end of the session is the end of all."""
    session, stream = busy("reads", max_restarts=0)
    os.kill(session.status().pid, signal.SIGKILL)

    assert kinds(heard_of(stream)) == {"reads": [STARTED]}
