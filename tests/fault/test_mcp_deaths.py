"""What is written of MCP servers is there once, whoever dies at it."""

import pytest

from tests.e2e.mcp_servers import call, declared, result_of

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 120.0
ATTACHED = "mcp_servers_changed"
SEEN = "mcp_tools_seen"
KEPT = "call_kept"


def armed_at(armed, write, moment):
    armed("mcp", f"agent.*{write}*.{moment}:1=agent")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_server_is_attached_once(own_daemon, armed, scripted, moment):
    """The command comes again where it was not written, and the model has the tools."""
    own_daemon.start()
    model = scripted(call("add", a=1, b=2), "Done.")
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="mcp", restart_delay=(0.0, 0.05))
        armed_at(armed, ATTACHED, moment)
        session.attach_mcp_server(declared())
        names = [one.name for one in session.status().mcp_servers]
        session.run("go", timeout=TURN_S)
        found, incarnation = result_of(session).content, session.status().incarnation
        session.stop()

    assert names == ["tests"]
    assert (found, incarnation) == ("3", 2)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_tools_are_seen_once(own_daemon, armed, scripted, moment):
    """The next process starts the server again and lists the same: nothing needs approval."""
    own_daemon.start()
    model = scripted(call("add", a=1, b=2), "Done.")
    with own_daemon.client() as client:
        session = client.create_agent(
            model=model,
            session_id="mcp",
            restart_delay=(0.0, 0.05),
            mcp_servers=[declared()],
        )
        armed_at(armed, SEEN, moment)
        session.run("go", timeout=TURN_S)
        found, waiting = result_of(session).content, session.status().pending_approvals
        incarnation = session.status().incarnation
        session.stop()

    assert (found, waiting) == ("3", ())
    assert incarnation == 2


@pytest.mark.parametrize(
    ("death", "goes_on"),
    [("before:1", False), ("after:1", True), ("before:2", True), ("after:2", False)],
)
def test_a_call_goes_on_while_its_question_is_kept(own_daemon, armed, scripted, death, goes_on):
    """From behind the first write to before the second, by which an answer is there already."""
    own_daemon.start()
    model = scripted(call("ask"), "Done.")
    with own_daemon.client() as client:
        session = client.create_agent(
            model=model,
            session_id="mcp",
            restart_delay=(0.0, 0.05),
            mcp_servers=[declared()],
        )
        armed("mcp", f"agent.*{KEPT}*.{death}=agent")
        with session.subscribe(types=["ask_user", "agent_end"]) as stream:
            session.prompt("go")
            event = stream.get(TURN_S).event
            if event.kind == "ask_user":
                session.user_respond(event.ref, {"name": "Ann", "age": "7"})
            assert session.collect_reply(timeout=TURN_S) == "Done."
        found, incarnation = result_of(session), session.status().incarnation
        session.stop()

    assert incarnation == 2
    assert ("name='Ann'" in found.content, found.is_error) == (goes_on, not goes_on)
