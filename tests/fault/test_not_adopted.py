"""An agent that the next daemon does not take over ends with all that it has started."""

import msgspec
import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import runtime_dir
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.ended import has_ended

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
ALL = "setsid sleep 300 & sleep 301 & sleep 302"


@pytest.fixture
def own_daemon(own_daemon):
    """Return directories whose agents wait for the next daemon."""
    own_daemon.grace = 60.0
    return own_daemon


def test_its_commands_do_not_run_beside_the_next_process(own_daemon, scripted, poll):
    """Of a shell in the middle of its work nothing is left when the model is asked again.

    Nor is the agent in the registry, where it would be looked for by each daemon that comes.
    """
    model = scripted(ToolCalls(ToolUse("shell", {"command": ALL})), "two")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1", tools=[cmdc.tools.Shell])
        session.prompt("Sleep.")
        agent = psutil.Process(session.agent_pid())
        assert poll(lambda: len(sleepers(agent)) == 3)
        left = [agent, *sleepers(agent)]
        own_daemon.kill()
        (entry,) = runtime_dir.registrations(own_daemon.address)
        runtime_dir.register(
            own_daemon.address, msgspec.structs.replace(entry, wire=entry.wire - 1)
        )
        own_daemon.start()
        assert session.collect_reply(timeout=TURN_S) == "two"
        assert session.status().incarnation == 2
        registered = [one.incarnation for one in runtime_dir.registrations(own_daemon.address)]
    assert registered == [2]
    assert [one for one in left if not has_ended(one)] == []


def sleepers(agent):
    """Return the sleeps that an agent has started."""
    return [one for one in agent.children(recursive=True) if one.name() == "sleep"]
