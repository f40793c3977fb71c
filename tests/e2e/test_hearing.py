"""What the sessions of a run publish is heard, for the test of the whole event catalogue."""

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_every_session_is_heard(agent, scripted, heard, poll):
    """Nobody has to subscribe to it, and ephemeral events count as well."""
    session = agent(scripted("hello"))
    session.run("Hi.", timeout=20.0)

    assert poll(lambda: "AgentEnd" in heard.get(session.id, ()))
    assert {"AgentStart", "MessageDelta"} <= heard[session.id]
