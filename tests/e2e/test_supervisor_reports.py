"""What the supervision tree reports on its own topic."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.events import SupervisorReport

TURN_S = 20.0


def test_crash_and_restart_are_reported_with_all_facts(client, agent, scripted, heard):
    """Who watches the topic sees the end, the budget and the next start of every child."""
    with client.subscribe("_supervisor") as stream:
        session = agent(scripted(default="fine"), restart_delay=(0.0, 0.0))
        pid = session.status().pid  # it answers: a death before that would not be charged
        os.kill(pid, signal.SIGKILL)
        assert session.run("1", timeout=TURN_S).text == "fine"
        reported = []
        while len(reported) < 3:
            event = stream.get(TURN_S).event
            if isinstance(event, SupervisorReport) and event.supervisor.endswith(session.id):
                reported += [event] if event.child == "agent" else []
    heard.setdefault("_supervisor", set()).update(type(one).__name__ for one in reported)

    assert [one.report for one in reported] == ["progress", "child_terminated", "progress"]
    ended = reported[1]
    assert (ended.pid, ended.generation, ended.restarts) == (pid, 1, 1)
    assert (ended.in_window, ended.max_restarts, ended.next_attempt_s) == (1, 3, 0.0)
    assert ended.reason == "killed by signal 9 (SIGKILL)"
    assert ended.supervisor == f"root/sessions/session:{session.id}"


def test_topic_is_no_session(client):
    """It can be followed, and nothing else."""
    with pytest.raises(cmdc.InvalidSession, match="no session"):
        client.prompt("_supervisor", "hello")
    with client.subscribe_all() as stream, pytest.raises(TimeoutError):
        stream.get(0.0)
