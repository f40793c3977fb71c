"""A session begins and ends once, with all of its past, whoever dies while it is asked for."""

import functools
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import cmdc_runtime as cmdc
from tests.fault.reviving import reviving

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("point", ["create.before", "create.after", "began.after"])
def test_daemon_killed_while_a_session_starts(own_daemon, armed, scripted, point):
    """The caller gets its session, which is there once, and nobody else's."""
    own_daemon.start()
    armed("s-1", f"{point}:1=daemon")
    with own_daemon.client() as client:
        make = functools.partial(client.create_agent, model=scripted(default="fine"))
        session, deaths = reviving(own_daemon, lambda: make(session_id="s-1"))

        assert deaths == (point != "began.after")
        assert session.run("Go.", timeout=TURN_S).text == "fine"
        with pytest.raises(cmdc.SessionExists):
            make(session_id="s-1")
        session.stop()


def past_of(client, session_id):
    """Return the durable events of a session, by their indexes."""
    last, found = client.last_index(session_id), []
    with client.subscribe(session_id, since=0) as stream:
        while not found or found[-1].index < last:
            found.append(stream.get(TURN_S))
    return {one.index: one.event for one in found if one.event.durable}


def bring(client, frames):
    """Begin with the session of a file, which is given once more where its parts are gone."""
    try:
        client._run(lambda calls: calls.bring(frames, None))
    except cmdc.UsageError:
        client._run(lambda calls: calls.bring(frames, None))


BEGINNINGS = {"resumed": lambda client, _frames: client.resume_session("s-1"), "imported": bring}


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("point", ["restore.before", "restore.after"])
@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_daemon_killed_while_a_session_begins_with_a_past(
    own_daemon, armed, scripted, begin, point
):
    """It has all of its past or is not there; who asks again gets the one that there is."""
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=scripted(default="fine"), session_id="s-1")
        for _ in range(3):
            session.run("Go.", timeout=TURN_S)
        session.checkpoint(label="here")
        events, saved = past_of(client, "s-1"), client.list_checkpoints("s-1")
        session.stop()
        frames = []
        client._run(lambda calls: calls.export("s-1", frames.append))
        armed("s-1", f"{point}:1=daemon")
        _, deaths = reviving(own_daemon, lambda: begin(client, frames))
        now = past_of(client, "s-1")

        assert deaths == 1
        assert {index: now.get(index) for index in events} == events
        assert client.list_checkpoints("s-1") == saved
        assert client.run("s-1", "Go.", timeout=TURN_S).text == "fine"
        client.stop("s-1")


@pytest.mark.usefixtures("_quick")
def test_daemon_killed_while_a_session_is_stopped(own_daemon, armed, scripted):
    """A stop that has its answer holds for the next daemon; one that was repeated has one, too."""
    own_daemon.start()
    with own_daemon.client() as client:
        model = scripted(default="fine")
        for point in ("ended.before", "ended.after"):
            client.create_agent(model=model, session_id=point)
        for point in ("ended.before", "ended.after"):
            armed(point, f"{point}:1=daemon")
            _, deaths = reviving(own_daemon, functools.partial(client.stop, point, reason="enough"))

            assert (point, deaths) == (point, 1)
            with pytest.raises(cmdc.SessionNotAlive):
                client.status(point)
        own_daemon.kill()
        own_daemon.start()
        assert client.list_sessions() == []


@pytest.mark.usefixtures("_quick")
def test_what_is_recorded_is_published_though_daemon_and_agent_die(
    own_daemon, armed, scripted, poll
):
    """The events of a step are in the journal with it; nobody is left who could send them again."""
    own_daemon.start()
    with own_daemon.client() as client, ThreadPoolExecutor(1) as pool:
        session = client.create_agent(model=scripted(default="fine"), session_id="s-1")
        pid = session.agent_pid()
        armed("s-1", "append.cycle_started*.after:1=daemon")
        asked = pool.submit(session.prompt, "Go.")
        assert poll(lambda: own_daemon.process.poll() is not None)
        os.kill(pid, signal.SIGKILL)
        own_daemon.start()
        asked.result(TURN_S)
        assert session.collect_reply(timeout=TURN_S) == "fine"
        events = past_of(client, "s-1")
        session.stop()

    assert [events[index].kind for index in (1, 2)] == ["prompt_received", "agent_start"]
    assert [one.kind for one in events.values()].count("agent_start") == 1
