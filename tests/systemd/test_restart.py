"""The daemon is restarted, killed and replaced by systemd under agents that go on."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ScriptedModel, Text, ToolCalls, ToolUse

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
PROCESSES = 8
"""Daemon, zygote, tracker, two spares, the agent, and the two that the command starts."""


@pytest.fixture
def sleepy():
    """A model that wants a command that does not end."""
    steps = [ToolCalls(ToolUse("shell", {"command": "setsid sleep 300 & sleep 300"}))]
    with ScriptedModel(steps, default="fine") as scripted:
        yield scripted


@pytest.fixture
def model():
    """A model that speaks on while there is no daemon."""
    with ScriptedModel([(Text("before "), Hold(), Text("after"))], default="fine") as scripted:
        yield scripted


def agent_of(client, session):
    """Return what says whether it is the same process still."""
    status = client.status(session)
    return status.pid, status.incarnation, status.restarts


@pytest.mark.parametrize("how", ["restart", "KILL", "ABRT"])
def test_agents_outlive_their_daemon(service, model, how):
    """Same process, same incarnation, and the answer that was under way is whole."""
    with service.client() as client:
        session = client.create_agent(model=model)
        stream = client.subscribe(session)
        client.prompt(session, "Go.")
        model.wait_held()
        before, daemon = agent_of(client, session), service.pid()
        if how == "restart":
            service.booted.systemctl("restart", service.unit)
        else:
            service.signal(how, daemon)
        assert service.wait_restarted(daemon)
        model.release()
        assert client.collect_reply(session, timeout=TURN_S) == "before after"
        assert agent_of(client, session) == before
        seen = []
        while not seen or seen[-1].event.kind != "agent_end":
            seen.append(stream.get(TURN_S))
        client.stop(session)
    indexes = [one.index for one in seen]
    assert indexes == list(range(indexes[0], indexes[0] + len(indexes)))


def test_a_stop_leaves_nothing_even_of_a_daemon_that_hangs(service, sleepy, poll):
    """The daemon is killed at its deadline; what it leaves is ended behind it."""
    with service.client() as client:
        session = client.create_agent(model=sleepy, tools=[cmdc.tools.Shell])
        client.prompt(session, "Sleep.")
        assert poll(lambda: len(service.booted.cgroup()) >= PROCESSES)
    service.change("TimeoutStopSec=1")
    try:
        service.signal("STOP", service.pid())
        service.stop()
        assert service.booted.cgroup() == []
    finally:
        service.change("")
        service.forget()
