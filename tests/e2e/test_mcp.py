"""MCP servers of a session: its model calls their tools, and nothing of them is left behind."""

import os
import signal
import sys

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.e2e.mcp_servers import TURN_S, call, declared, result_of, states, status_of
from tests.ended import has_ended

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = pytest.mark.process

SOON_S = 10.0
"""For what does not wait for a server, whose time is TURN_S."""


@pytest.fixture(name="left")
def _left(tmp_path):
    """The variables of a server that leaves a process behind, and that one's number."""
    path = tmp_path / "left"
    return {"SERVER_LEAVES": str(path)}, lambda: int(path.read_text())


def test_a_tool_of_a_server_is_called(agent, scripted):
    """The first request waits for the server, and the model has its tools."""
    session = agent(scripted(call("add", a=2, b=3), "Five."), mcp_servers=[declared()])
    before = status_of(session)

    reply = session.run("go", timeout=TURN_S)

    assert before.state == "declared"
    assert reply.text == "Five."
    assert result_of(session).content == "5"
    after = status_of(session)
    assert (after.name, after.state, after.problem) == ("tests", "ready", "")
    assert "mcp__tests__say_it" in after.tools


def test_a_name_is_sanitised(agent, scripted):
    """The server gets its own name of the tool."""
    session = agent(scripted(call("say_it", text="hello"), "Done."), mcp_servers=[declared()])
    session.run("go", timeout=TURN_S)

    assert result_of(session).content == "hello"


def test_allow_leaves_the_others_out(agent, scripted):
    """The model has the tools that are named; one that the server has not is reported."""
    server = declared(allow=["add", "nothing"])
    session = agent(scripted(call("pid"), "Done."), mcp_servers=[server])
    session.run("go", timeout=TURN_S)

    assert "there is no tool named 'mcp__tests__pid'" in result_of(session).content
    assert status_of(session).tools == ("mcp__tests__add",)
    assert "allow names nothing" in status_of(session).problem


def test_a_failure_of_a_tool_is_an_error_that_the_model_reads(agent, scripted):
    """So are arguments that do not fit, which do not reach the server."""
    calls = ToolCalls(
        ToolUse("mcp__tests__fail", {"text": "no luck"}, id="c1"),
        ToolUse("mcp__tests__add", {"a": 1}, id="c2"),
    )
    session = agent(scripted(calls, "Done."), mcp_servers=[declared()])
    session.run("go", timeout=TURN_S)

    assert result_of(session, "c1").is_error
    assert "no luck" in result_of(session, "c1").content
    assert "Invalid arguments for mcp__tests__add" in result_of(session, "c2").content


def test_a_server_that_ends_in_a_call_is_an_error_and_comes_again(agent, scripted):
    """The call fails with how it ended, an event reports it, and the next request has it again."""
    model = scripted(call("die"), call("add", "c2", a=1, b=1), "Done.")
    session = agent(model, mcp_servers=[declared()])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        heard = states(stream, "restarting")

    assert "ended during this call: it was killed by signal 9" in result_of(session).content
    assert result_of(session, "c2").content == "2"
    assert heard == ["connecting", "ready", "restarting"]


def test_a_program_that_is_not_there_fails_at_once(agent, scripted):
    """The request goes without it, and the status says why."""
    server = cmdc.McpServer("tests", command=["/nowhere/at-all"], timeout=TURN_S)
    session = agent(scripted("Alone."), mcp_servers=[server])

    assert session.run("go", timeout=TURN_S).text == "Alone."
    assert status_of(session).state == "failed"
    assert "cannot run /nowhere/at-all" in status_of(session).problem


def test_what_a_server_says_at_its_end_is_reported(agent, scripted):
    """One that always ends is started again a bounded number of times."""
    code = "import sys; sys.exit('no licence')"
    server = cmdc.McpServer("tests", command=[sys.executable, "-c", code], timeout=TURN_S)
    session = agent(scripted("Alone."), mcp_servers=[server])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        heard = states(stream, "failed")

    assert heard == ["connecting", "restarting"] * 3 + ["connecting", "failed"]
    assert "it exited with status 1: no licence" in status_of(session).problem


def test_a_late_server_joins_later(agent, scripted, tmp_path, poll):
    """A request waits for its time and goes without; a later one has its tools."""
    file = tmp_path / "now"
    server = declared(timeout=0.2, env={"SERVER_WAITS": str(file)})
    model = scripted("Alone.", call("add", a=1, b=2), "Done.")
    session = agent(model, mcp_servers=[server])

    assert session.run("go", timeout=TURN_S).text == "Alone."
    assert status_of(session).state == "connecting"
    file.touch()
    assert poll(lambda: status_of(session).state == "ready", TURN_S)
    session.run("again", timeout=TURN_S)
    assert result_of(session).content == "3"


def test_an_abort_waits_for_no_server(agent, scripted, tmp_path):
    """The request that waited is never sent, and the next one is."""
    file = tmp_path / "now"
    server = declared(env={"SERVER_WAITS": str(file)})
    session = agent(scripted("Only once."), mcp_servers=[server])
    with session.subscribe() as stream:
        session.prompt("go")
        states(stream, "connecting")
        session.abort()
        with pytest.raises(cmdc.AgentAborted):
            session.collect_reply(timeout=SOON_S)
    file.touch()

    assert session.run("again", timeout=TURN_S).text == "Only once."


def test_the_environment_is_from_a_list(agent, scripted):
    """A server has what tools have, the marks of its session and its own variables."""
    server = declared(env={"SERVER_SAYS": "hello"})
    session = agent(scripted(call("variables"), "Done."), mcp_servers=[server])
    session.run("go", timeout=TURN_S)
    names = result_of(session).content.split()

    assert {"SERVER_SAYS", "CMDC_SESSION_ID", "CMDC_INCARNATION", "PATH"} <= {*names}
    assert [name for name in names if "KEY" in name or name.startswith("LITELLM")] == []


def test_progress_is_published(agent, scripted, tmp_path):
    """An event says how far a call is."""
    file = tmp_path / "now"
    session = agent(scripted(call("slow", until=str(file)), "Done."), mcp_servers=[declared()])
    with session.subscribe(types=["plugin_event"]) as stream:
        session.prompt("go")
        event = stream.get(TURN_S).event
        file.touch()
        session.collect_reply(timeout=TURN_S)

    assert event.name == "mcp_progress"
    assert (event.payload["progress"], event.payload["total"]) == (1, 2)
    assert result_of(session).content == "done"


def test_a_server_that_is_killed_leaves_nothing(agent, scripted, left, poll):
    """What it has started, in whatever session and environment, ends with it."""
    env, number = left
    session = agent(scripted(call("pid"), "Done."), mcp_servers=[declared(env=env)])
    session.run("go", timeout=TURN_S)
    pid, stray = int(result_of(session).content), number()

    os.kill(pid, signal.SIGKILL)

    assert poll(lambda: has_ended(pid) and has_ended(stray))


def test_an_agent_that_is_killed_leaves_nothing_and_lists_again(agent, scripted, left, poll):
    """Its servers end with it, strays too; the next process starts its own."""
    env, number = left
    model = scripted(call("pid"), "Done.", call("pid", "c2"), "Done again.")
    session = agent(model, mcp_servers=[declared(env=env)])
    session.run("go", timeout=TURN_S)
    pid, stray = int(result_of(session).content), number()
    killed = session.agent_pid()

    os.kill(killed, signal.SIGKILL)

    assert poll(lambda: has_ended(pid) and has_ended(stray))
    assert poll(lambda: session.agent_pid() not in {None, killed})
    session.run("again", timeout=TURN_S)
    assert int(result_of(session, "c2").content) != pid


def test_a_session_that_stops_leaves_nothing(agent, scripted, left, poll):
    """Servers are asked to end, and their strays are ended."""
    env, number = left
    session = agent(scripted(call("pid"), "Done."), mcp_servers=[declared(env=env)])
    session.run("go", timeout=TURN_S)
    pid, stray = int(result_of(session).content), number()

    session.stop()

    assert poll(lambda: has_ended(pid) and has_ended(stray))
