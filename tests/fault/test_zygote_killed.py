"""``kill -9`` of the zygote and of spares: agents live on, and new ones come all the same."""

import contextlib
import os
import signal

import psutil
import pytest

from cmdc_runtime.reasons import Normal, Signal

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
WARM_S = 60.0
KILLED = Signal(number=9, name="SIGKILL")


@pytest.fixture(scope="module")
def client(shared_daemon):
    """A client of a daemon whose zygote the tests here kill."""
    shared_daemon.start()
    with shared_daemon.client() as found:
        yield found


@pytest.fixture
def agent(client):
    """Make sessions that are stopped at the test's end."""
    with contextlib.ExitStack() as stack:
        yield lambda model: stack.enter_context(client.create_agent(model=model))


def zygote_of(client):
    (zygote,) = [node for node in client.tree().children if node.id == "nursery"]
    return zygote


def test_agents_outlive_their_zygote(client, agent, scripted, poll):
    """Agents live on without it, and their ends are reported as before."""
    model = scripted(default="fine")
    sessions = [agent(model) for _ in range(3)]
    assert poll(lambda: zygote_of(client).state == "ready")
    old = psutil.Process(zygote_of(client).pid)
    old.kill()
    assert poll(lambda: zygote_of(client).pid not in (None, old.pid), 60.0)
    assert [session.run("1", timeout=60.0).text for session in sessions] == ["fine"] * 3
    assert [session.status().incarnation for session in sessions] == [1] * 3
    monitors = [session.monitor() for session in sessions]
    os.kill(sessions[0].agent_pid(), signal.SIGKILL)
    os.kill(sessions[1].agent_pid(), signal.SIGSEGV)
    sessions[2].stop()
    reasons = [monitor.wait(TURN_S).reason for monitor in monitors]
    new = agent(model)
    answers = [one.run("2", timeout=60.0).text for one in (*sessions[:2], new)]
    assert poll(lambda: zygote_of(client).state == "ready", 60.0)

    assert reasons == [KILLED, Signal(number=11, name="SIGSEGV"), Normal()]
    assert answers == ["fine"] * 3


def test_start_in_the_moment_of_the_zygotes_death_succeeds(client, agent, scripted, poll):
    """A session that is asked for when the zygote has just died waits for the next one."""
    model = scripted(default="fine")
    assert poll(lambda: zygote_of(client).state == "ready")
    os.kill(zygote_of(client).pid, signal.SIGKILL)
    sessions = [agent(model) for _ in range(4)]  # more than there are spares

    assert [session.run("1", timeout=60.0).text for session in sessions] == ["fine"] * 4


def test_dead_spare_is_no_failed_start(client, agent, scripted, poll):
    """A spare that was killed is replaced: ``create_agent`` does not get a dead process."""
    model = scripted(default="fine")
    assert poll(lambda: zygote_of(client).state == "ready")
    zygote = psutil.Process(zygote_of(client).pid)
    for _ in range(5):
        assert poll(lambda: len(zygote.children()) >= 2)
        spares = zygote.children()
        for spare in spares:
            spare.kill()
        psutil.wait_procs(spares, TURN_S)
        with client.create_agent(model=model) as session:
            assert session.run("1", timeout=60.0).text == "fine"
