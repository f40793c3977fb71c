"""MCP servers that sessions share: one process for all, and nobody sees or harms another."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from tests.e2e.mcp_servers import TURN_S, call, declared, result_of, states, status_of
from tests.ended import has_ended

pytest.importorskip("mcp", reason="the extra mcp is not installed")
OLDER = [sys.executable, str(Path(__file__).parents[1] / "mcp" / "older.py")]
"""A server of the older era, which is small."""
COUNT = 10
CROWD_S = 3 * TURN_S
"""For the sessions of a crowd to be ready, each of which loads the protocol's SDK."""
pytestmark = [pytest.mark.process, pytest.mark.timeout(4 * CROWD_S)]


def shared(**given):
    return declared(share="daemon", **{"command": OLDER, "timeout": CROWD_S, **given})


def pid_of(session, call_id="c1"):
    found = result_of(session, call_id).content

    assert found.isdecimal(), f"{found}; {status_of(session)}"
    return int(found)


def host_of(server):
    """Return the host of a server: it is above the launcher, which is above the server."""
    return psutil.Process(server).parent().ppid()


def naming(path):
    """Return the processes that have a path in their command."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(path) in one.cmdline():
                found.append(one.pid)
    return found


@pytest.fixture(name="pair")
def _pair(agent, scripted):
    """Start two sessions that have called the same server; each has more steps."""

    def start(one, other, **given):
        found = [
            agent(scripted(call("pid"), "Done.", *more), mcp_servers=[shared(**given)])
            for more in (one, other)
        ]
        for session in found:
            session.run("go", timeout=CROWD_S)
        first, second = map(pid_of, found)

        assert first == second
        return (*found, first)

    return start


def test_sessions_have_one_server(agent, scripted):
    """Each has its own answers, under numbers that all of them use."""
    sessions = [
        agent(scripted(call("pid"), call("era", "c2"), "Done."), mcp_servers=[shared()])
        for _ in range(COUNT)
    ]
    for session in sessions:
        session.prompt("go")
    for session in sessions:
        session.collect_reply(timeout=CROWD_S)

    assert len({pid_of(session) for session in sessions}) == 1
    assert {result_of(one, "c2").content for one in sessions} == {"2025-11-25"}
    assert {status_of(one).share for one in sessions} == {"daemon"}


def test_the_newer_era_is_shared_alike(agent, scripted):
    """Its handshake is another one, and its news of a list are subscriptions."""
    server = declared(share="daemon", timeout=CROWD_S)
    models = [
        scripted(call("pid"), "Done.", call("grow", "c2", name="more"), "Done."),
        scripted(call("pid"), "Done.", call("add", "c2", a=1, b=2), "Done."),
    ]
    first, second = [agent(one, mcp_servers=[server]) for one in models]
    for session in (first, second):
        session.run("go", timeout=CROWD_S)
    with second.subscribe() as stream:
        first.run("grow", timeout=CROWD_S)
        while "mcp__tests__more" not in status_of(second).tools:
            assert stream.get(CROWD_S).event is not None
    second.run("add", timeout=CROWD_S)

    assert pid_of(first) == pid_of(second)
    assert result_of(second, "c2").content == "3"


def test_another_environment_is_another_server(agent, scripted, client):
    """Nothing is shared that is not the same; the tree shows both."""
    first, second = [
        agent(scripted(call("pid"), "Done."), mcp_servers=[shared(env={"SERVER_SAYS": said})])
        for said in ("one", "other")
    ]
    for session in (first, second):
        session.run("go", timeout=CROWD_S)
    (servers,) = [one for one in client.tree().children if one.id == "mcp_servers"]

    assert pid_of(first) != pid_of(second)
    assert {host_of(pid_of(one)) for one in (first, second)} <= {
        one.pid for one in servers.children
    }


def test_a_server_has_no_mark_of_a_session(agent, scripted):
    """Its environment is what all declare; what it starts is found by the host's own mark."""
    session = agent(scripted(call("pid"), "Done."), mcp_servers=[shared()])
    session.run("go", timeout=CROWD_S)
    found = psutil.Process(pid_of(session)).environ()

    assert found["CMDC_SESSION_ID"].startswith("@mcp-")
    assert session.session_id not in found.values()


def test_one_sessions_call_holds_up_no_other(pair, tmp_path):
    """While it waits, another one is answered; its abort is sent to the server, and ends it."""
    started, cancelled = tmp_path / "started", tmp_path / "cancelled"
    wait = call("wait", "c2", started=str(started), cancelled=str(cancelled))
    slow, quick, pid = pair([wait, "Done."], [call("steps", "c2"), "Done.", call("pid", "c3"), "D"])
    slow.prompt("wait")
    with quick.subscribe(types=["plugin_event"]) as stream, slow.subscribe() as other:
        quick.run("steps", timeout=CROWD_S)
        steps = [stream.get(TURN_S).event.payload["progress"] for _ in range(3)]
        slow.abort()
        heard = []
        while "agent_abort" not in heard:
            heard.append(other.get(TURN_S).event.kind)
    quick.run("pid", timeout=CROWD_S)

    assert steps == [1, 2, 3]
    assert "plugin_event" not in heard
    assert pid_of(quick, "c3") == pid


def test_an_agent_that_is_killed_takes_its_own_calls_along(pair, tmp_path, poll):
    """The server is asked to give them up, and serves the others as before."""
    started, cancelled = tmp_path / "started", tmp_path / "cancelled"
    wait = call("wait", "c2", started=str(started), cancelled=str(cancelled))
    killed, other, pid = pair([wait, "Done."], [call("pid", "c2"), "Done."])
    killed.prompt("wait")

    assert poll(started.exists, TURN_S)
    os.kill(killed.agent_pid(), signal.SIGKILL)
    assert poll(cancelled.exists, TURN_S)
    other.run("go", timeout=CROWD_S)
    assert pid_of(other, "c2") == pid


@pytest.mark.parametrize("victim", ["server", "host"])
def test_a_death_is_an_error_of_the_calls_and_another_server_comes(pair, tmp_path, poll, victim):
    """All sessions hear of it and have the same new one; nothing of the old one is left."""
    left = tmp_path / "left"
    started, cancelled = tmp_path / "started", tmp_path / "cancelled"
    wait = call("wait", "c2", started=str(started), cancelled=str(cancelled))
    calling, idle, pid = pair(
        [wait, "Sorry.", call("pid", "c3"), "Done."],
        [call("pid", "c3"), "Done."],
        command=[*OLDER, "--leave", str(left)],
    )
    strays = [one for one in naming(left) if one != pid]
    host = host_of(pid)
    calling.prompt("wait")

    assert poll(started.exists, TURN_S)
    with idle.subscribe() as stream:
        os.kill(pid if victim == "server" else host, signal.SIGKILL)
        heard = states(stream, "restarting")
    calling.collect_reply(timeout=CROWD_S)
    for session in (calling, idle):
        session.run("again", timeout=CROWD_S)

    why = "killed by signal 9" if victim == "server" else "its host is gone"
    assert heard == ["restarting"]
    assert why in result_of(calling, "c2").content
    assert pid_of(calling, "c3") == pid_of(idle, "c3") != pid
    assert strays
    assert poll(lambda: all(map(has_ended, [pid, host, *strays])), TURN_S)


def test_a_server_ends_when_nobody_has_it(agent, scripted, tmp_path, poll):
    """A while behind the last session, with what it has left behind and its host."""
    left = tmp_path / "left"
    server = shared(command=[*OLDER, "--leave", str(left)])
    session = agent(scripted(call("pid"), "Done."), mcp_servers=[server])
    session.run("go", timeout=CROWD_S)
    pid = pid_of(session)
    pids = [host_of(pid), *naming(left)]

    session.stop()

    assert len(pids) >= 3
    assert not has_ended(pid)
    assert poll(lambda: all(map(has_ended, pids)), CROWD_S)


def test_a_program_that_is_not_there_fails_at_once(agent, scripted):
    """As one of a session's own does."""
    server = cmdc.McpServer("tests", command=["/nowhere/at-all"], timeout=CROWD_S, share="daemon")
    session = agent(scripted("Alone."), mcp_servers=[server])

    assert session.run("go", timeout=CROWD_S).text == "Alone."
    assert status_of(session).state == "failed"
    assert "cannot run /nowhere/at-all" in status_of(session).problem


@pytest.mark.parametrize("sandbox", [cmdc.sandbox.Landlock(), cmdc.sandbox.Bubblewrap()])
def test_a_sandbox_that_confines_shares_nothing(agent, scripted, sandbox):
    """The declaration is refused, and the ways out are named."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        agent(scripted("No."), mcp_servers=[shared()], sandbox=sandbox)

    assert 'mcp_servers[0].share="daemon": the sandbox' in str(caught.value)
    assert "leave share out" in str(caught.value)


def test_a_server_that_is_attached_is_shared_too(pair):
    """It is one process with those that were declared at the start."""
    first, second, pid = pair([call("pid", "c2"), "Done."], [])
    first.detach_mcp_server("tests")
    first.attach_mcp_server(shared())
    first.run("go", timeout=CROWD_S)

    assert pid_of(first, "c2") == pid
    assert status_of(second).state == "ready"
