"""A session with children: they end with its process, whatever ends it, and before the next one."""

import os
import signal

import msgspec
import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.client.sync.session import Session
from cmdc_runtime.errors import TransientError
from cmdc_runtime.reasons import Normal, Shutdown, Signal
from cmdc_runtime.testing import Hold

TURN_S = 20.0
REAPED_S = 1.0
"""For the zygote to reap what has ended: its end is reported when the kernel reports it."""
KILLED = Signal(number=9, name="SIGKILL")
PARENT_ENDED = Shutdown(detail="the parent's process ended")


@pytest.fixture
def child(client):
    """Make sessions that belong to another one."""

    def start(parent, model, incarnation=None, **options):
        request = start_request(None, {"model": model, "restart": "temporary", **options})
        parent_id = parent if isinstance(parent, str) else parent.id
        request = msgspec.structs.replace(
            request, parent_id=parent_id, parent_incarnation=incarnation
        )
        return Session(client._run(Exchange.start, request), client)

    return start


def process_of(session):
    return psutil.Process(session.agent_pid())


def is_up_as(session, incarnation):
    status = session.status()
    return (status.incarnation, status.state) == (incarnation, "idle")


def node(tree, id_):
    """Return the node of this id below ``tree``."""
    if tree.id == id_:
        return tree
    return next((found for one in tree.children if (found := node(one, id_))), None)


def test_stop_ends_the_whole_subtree(agent, child, scripted):
    """When ``stop`` returns, no process of the session, its children and theirs is left."""
    model = scripted(default="fine")
    parent = agent(model)
    sessions = [parent, *(child(parent, model) for _ in range(2))]
    sessions.append(child(sessions[-1], model))
    monitors = [session.monitor() for session in sessions]
    processes = [process_of(session) for session in sessions]
    parent.stop()

    assert psutil.wait_procs(processes, REAPED_S)[1] == []
    downs = [monitor.wait(TURN_S) for monitor in monitors]
    assert [down.reason for down in downs] == [Normal(), *[PARENT_ENDED] * 3]
    assert [down.restarting for down in downs] == [False] * 4


def test_children_of_a_crash_are_gone_before_the_next_process(
    agent, child, scripted, poll, cmdc_daemon
):
    """As in ``rest_for_one``: an incarnation never meets the children of an earlier one."""
    model = scripted(default="fine")
    parent = agent(model)
    one = child(parent, model)
    other = child(one, model)
    monitors = [one.monitor(), other.monitor()]
    processes = [process_of(one), process_of(other)]
    os.kill(parent.agent_pid(), signal.SIGKILL)

    assert poll(lambda: is_up_as(parent, 2))
    assert psutil.wait_procs(processes, REAPED_S)[1] == []
    assert [monitor.wait(TURN_S).reason for monitor in monitors] == [PARENT_ENDED] * 2
    begun = f"incarnation=2 pid={parent.agent_pid()} session_id={parent.id}"
    assert poll(lambda: begun in cmdc_daemon.log_text())  # it is written by a thread of its own
    log = cmdc_daemon.log_text()
    for ended in (one, other):
        (end,) = (line for line in log.splitlines() if "process.ended" in line and ended.id in line)
        assert log.index(end) < log.index(begun)


def test_child_that_hangs_holds_the_next_process_up_and_no_longer_than_its_grace(
    agent, client, child, scripted, poll
):
    """A child that does not end politely is killed after its grace; the parent waits for that."""
    model = scripted(default="fine")
    parent = agent(model)
    hanging = child(parent, model, shutdown=1.0)
    monitor, parent_monitor = hanging.monitor(), parent.monitor()
    process = process_of(hanging)
    process.suspend()
    os.kill(parent.agent_pid(), signal.SIGKILL)
    heard = parent_monitor.wait(TURN_S)

    assert (heard.reason, heard.restarting) == (KILLED, True)
    assert process.is_running()
    states = {one.session_id: (one.state, one.pid) for one in client.list_sessions()}
    assert states[parent.id] == ("restarting", None)
    assert monitor.wait(TURN_S).reason == KILLED
    assert poll(lambda: is_up_as(parent, 2))


def test_stop_of_a_hanging_child_is_bounded_by_the_callers_time(agent, child, scripted):
    """The children have the same time as the process itself."""
    model = scripted(default="fine")
    parent = agent(model)
    hanging = child(parent, model, shutdown=60.0)
    monitor = hanging.monitor()
    process_of(hanging).suspend()
    parent.stop(timeout=0.4)

    assert monitor.wait(0).reason == KILLED


def test_busy_child_is_ended_too(agent, child, scripted):
    """An answer under way is no reason to live on."""
    model = scripted((Hold(), "never"), default="fine")
    parent = agent(model)
    busy = child(parent, model)
    busy.prompt("Go.")
    model.wait_held()
    monitor = busy.monitor()
    os.kill(parent.agent_pid(), signal.SIGKILL)

    assert monitor.wait(TURN_S).reason == PARENT_ENDED


def test_parent_that_stays_down_takes_its_children_along(agent, child, scripted, poll):
    """Its monitors hear of the end at once, and a new one of the same id finds nothing left."""
    model = scripted(default="fine")
    parent = agent(model, restart="temporary")
    one = child(parent, model)
    monitor, child_monitor = parent.monitor(), one.monitor()
    os.kill(parent.agent_pid(), signal.SIGKILL)

    assert monitor.wait(TURN_S).reason == KILLED
    assert parent.monitor().wait(TURN_S).reason == KILLED
    assert child_monitor.wait(TURN_S).reason == PARENT_ENDED
    with pytest.raises(cmdc.SessionNotAlive):
        parent.status()


def test_child_that_ends_leaves_its_parent_alone(agent, child, scripted):
    """A child is started and ended at will; its parent's process goes on."""
    model = scripted(default="fine")
    parent = agent(model)
    one, other = child(parent, model), child(parent, model)
    os.kill(one.agent_pid(), signal.SIGKILL)
    assert one.monitor().wait(TURN_S).reason == KILLED
    other.stop()

    assert parent.run("Still there?", timeout=TURN_S).text == "fine"
    assert parent.status().incarnation == 1


def test_tree_shows_children_below_their_parent(agent, client, child, scripted):
    """The tree is what ends together."""
    model = scripted(default="fine")
    parent = agent(model)
    one = child(parent, model)
    shown = node(client.tree(), f"session:{parent.id}")

    assert node(shown, f"session:{one.id}").state == "up"
    assert one.status().parent_id == parent.id
    parent.stop()


def test_child_of_nobody_is_refused(agent, child, scripted, poll):
    """The error says what is wrong with the parent."""
    model = scripted(default="fine")
    gone = agent(model)
    gone.stop()
    parent = agent(model)
    os.kill(parent.agent_pid(), signal.SIGKILL)
    assert poll(lambda: is_up_as(parent, 2))

    with pytest.raises(cmdc.InvalidSession, match="never"):
        child("never-seen", model)
    with pytest.raises(cmdc.SessionNotAlive):
        child(gone, model)
    with pytest.raises(TransientError, match="incarnation 2"):
        child(parent, model, incarnation=1)
    assert child(parent, model, incarnation=2).status().state == "idle"
