"""MCP servers that come and go while a session lives, and tools that are not what they were."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from tests.e2e.mcp_servers import TURN_S, call, declared, result_of, states, status_of
from tests.ended import has_ended

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = pytest.mark.process


def test_a_server_is_attached_and_detached(agent, scripted, poll):
    """Its tools are there from the next request on, and it ends when it is detached."""
    session = agent(scripted(call("pid"), "Done.", call("pid", "c2"), "Gone."))
    session.attach_mcp_server(declared())
    before = status_of(session)
    session.run("go", timeout=TURN_S)
    pid = int(result_of(session).content)

    session.detach_mcp_server("tests")

    assert before.state == "declared"
    assert session.status().mcp_servers == ()
    assert poll(lambda: has_ended(pid))
    session.run("again", timeout=TURN_S)
    assert "there is no tool named 'mcp__tests__pid'" in result_of(session, "c2").content


def test_what_cannot_be_attached_or_detached_is_refused(agent, scripted):
    """With an error that names it."""
    session = agent(scripted("Hello."), mcp_servers=[declared()])

    with pytest.raises(cmdc.AlreadyAttached, match="'tests'"):
        session.attach_mcp_server(declared())
    with pytest.raises(cmdc.UsageError, match=r"server\.name"):
        session.attach_mcp_server(declared("no name"))
    with pytest.raises(cmdc.McpServerNotFound, match="servers: tests"):
        session.detach_mcp_server("other")


def test_an_attached_server_is_kept_by_the_journal(agent, scripted, poll):
    """A process that comes after a crash has it."""
    session = agent(scripted(call("add", a=1, b=1), "Done."))
    session.attach_mcp_server(declared())
    killed = session.agent_pid()
    os.kill(killed, signal.SIGKILL)
    assert poll(lambda: session.agent_pid() not in {None, killed})
    session.run("go", timeout=TURN_S)

    assert result_of(session).content == "2"


def test_a_tool_that_is_another_one_needs_approval_again(agent, scripted):
    """Its calls wait for a person, who sees what it is now."""
    model = scripted(
        *(call("grow", name="bigger"), call("bigger", "c2"), "Done."),
        *(call("grow", "c3", name="bigger", text="Also sends your files away."), "Changed."),
        *(call("bigger", "c4"), "Allowed."),
    )
    session = agent(model, mcp_servers=[declared()])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        session.run("go", timeout=TURN_S)
        for _ in ("its first list", "with a tool more", "with another one"):
            states(stream, "ready")
        session.prompt("go")
        while (event := stream.get(TURN_S).event).kind != "approval_required":
            pass

    assert result_of(session, "c2").content == "I am bigger"
    assert event.tool == "mcp__tests__bigger"


def test_no_change_is_missed_before_a_server_listens(agent, scripted):
    """Its tools are listed when it does, so that whatever changes from then on is reported."""
    late = declared(env={"SERVER_LISTENS_LATE": "0.5"})
    model = scripted(call("grow", name="bigger"), call("bigger", "c2"), "Done.")
    session = agent(model, mcp_servers=[late])
    session.run("go", timeout=TURN_S)

    assert result_of(session, "c2").content == "I am bigger"


def test_a_session_is_resumed_with_other_servers(agent, scripted, client):
    """Those that are given take the place of those that it had; without, it keeps its own."""
    model = scripted("Hello.")
    session = agent(model, mcp_servers=[declared()])
    session.attach_mcp_server(declared("more"))
    session.run("go", timeout=TURN_S)
    names = [one.name for one in session.status().mcp_servers]

    with client.resume_session(session.id, new_id=f"{session.id}-kept") as kept:
        same = [one.name for one in kept.status().mcp_servers]
    with client.resume_session(
        session.id, new_id=f"{session.id}-other", mcp_servers=[declared("other")]
    ) as other:
        given = [one.name for one in other.status().mcp_servers]

    assert (names, same, given) == (["tests", "more"], ["tests", "more"], ["other"])
