"""MCP servers of a session whose daemon is killed: kept with their agent, or gone with it."""

import pytest

from tests.e2e.mcp_servers import call, declared, result_of
from tests.ended import has_ended
from tests.fault.conftest import poll_for

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 120.0


def started(own_daemon, model, left, **given):
    """Return the pids of a session's server and of what that has left behind."""
    own_daemon.start()
    with own_daemon.client() as client:
        server = declared(env={"SERVER_LEAVES": str(left)}, **given)
        session = client.create_agent(model=model, session_id="mcp", mcp_servers=[server])
        session.run("go", timeout=TURN_S)
        return int(result_of(session).content), int(left.read_text())


def test_an_agent_that_is_taken_over_keeps_its_servers(own_daemon, scripted, tmp_path):
    """The next daemon's session has the same process of the server."""
    own_daemon.grace = 60.0
    model = scripted(call("pid"), "Done.", call("pid", "c2"), "Done again.")
    pid, stray = started(own_daemon, model, tmp_path / "left")
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.client() as client:
        client.run("mcp", "again", timeout=TURN_S)
        same = next(one.content for one in client.messages("mcp") if one.call_id == "c2")
        client.stop("mcp")

    assert int(same) == pid
    assert poll_for(lambda: has_ended(pid) and has_ended(stray))


def test_an_agent_that_does_not_wait_takes_its_servers_along(own_daemon, scripted, tmp_path):
    """Nothing of them is left when nobody takes it over."""
    pid, stray = started(own_daemon, scripted(call("pid"), "Done."), tmp_path / "left")
    own_daemon.kill()

    assert poll_for(lambda: has_ended(pid) and has_ended(stray))


def test_a_shared_server_ends_with_its_daemon_and_the_next_one_has_another(
    own_daemon, scripted, tmp_path
):
    """The agent that is taken over asks the next daemon for it; nothing of the first is left."""
    own_daemon.grace = 60.0
    model = scripted(call("pid"), "Done.", call("pid", "c2"), "Done again.")
    left = tmp_path / "left"
    pid, stray = started(own_daemon, model, left, share="daemon")
    left.unlink()
    own_daemon.kill()
    gone = poll_for(lambda: has_ended(pid) and has_ended(stray))
    own_daemon.start()
    with own_daemon.client() as client:
        client.run("mcp", "again", timeout=TURN_S)
        other = next(one.content for one in client.messages("mcp") if one.call_id == "c2")
        second = int(left.read_text())
        client.stop("mcp")
    own_daemon.kill()

    assert gone
    assert int(other) != pid
    assert poll_for(lambda: has_ended(int(other)) and has_ended(second))
