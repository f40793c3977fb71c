"""Monitors while agents, daemons and clients die: everybody hears of each end once, in order."""

import json
import os
import signal
import subprocess
import sys
import threading

import msgspec
import pytest

from cmdc_runtime.reasons import Normal, Other, Signal

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0
SOON_S = 0.1
KILLED = Signal(number=9, name="SIGKILL")
RESTARTED = Other(detail="the daemon was restarted")
NAMES = tuple(f"busy-{number}" for number in range(8))
SLEEPER = "sleeper"
APART_S = 0.02
"""Between two kills: when the daemon is killed, too, it has reported some, and others not yet."""

AWAY = """
import json, sys
import cmdc_runtime as cmdc

with cmdc.Client(sys.argv[1]) as client:
    monitors = [client.monitor(name, persistent=True) for name in sys.argv[2:]]
    print("set", flush=True)
    for monitor in monitors:
        down = None
        while down is None or down.restarting:
            down = monitor.wait()
            print(json.dumps([down.session_id, down.incarnation, str(down.reason)]), flush=True)
"""


@pytest.fixture
def away(own_daemon):
    """Start a client in a process of its own that monitors sessions, and stop it when it does."""
    started = []

    def start(*names):
        process = subprocess.Popen(
            [sys.executable, "-c", AWAY, str(own_daemon.address), *names],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "set\n"
        process.send_signal(signal.SIGSTOP)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_each_end_is_heard_once_whoever_dies(own_daemon, scripted, away, poll):
    """By a client that is there, and by one that was stopped all the while."""
    options = {"model": scripted(default="fine"), "restart_delay": (0.0, 0.0)}
    own_daemon.start()
    with own_daemon.client() as client:
        busy = [client.create_agent(session_id=name, **options) for name in NAMES]
        sleeper = client.create_agent(session_id=SLEEPER, hibernate_after=SOON_S, **options)
        once = [session.monitor() for session in busy]
        always = [session.monitor(persistent=True) for session in (*busy, sleeper)]
        process = away(*NAMES, SLEEPER)
        assert poll(lambda: sleeper.agent_pid() is None, TURN_S)
        for session in busy:
            os.kill(session.agent_pid(), signal.SIGKILL)
            threading.Event().wait(APART_S)
        own_daemon.kill()
        own_daemon.start()
        for session in (*busy, sleeper):
            session.stop()
        heard = [heard_by(monitor) for monitor in always]
        firsts = [monitor.wait(TURN_S) for monitor in once]
        process.send_signal(signal.SIGCONT)
        seen = [json.loads(line) for line in process.stdout]

    for downs in heard[:-1]:
        assert [down.incarnation for down in downs] == [*range(1, len(downs) + 1)], downs
        assert {str(down.reason) for down in downs[:-1]} <= {str(KILLED), str(RESTARTED)}
        assert (downs[-1].reason, downs[-1].restarting) == (Normal(), False)
    assert [down.reason for down in heard[-1]] == [Normal()]  # it had no process to lose
    assert firsts == [
        msgspec.structs.replace(downs[0], ref=first.ref)
        for downs, first in zip(heard[:-1], firsts, strict=True)
    ]
    assert seen == [
        [down.session_id, down.incarnation, str(down.reason)] for downs in heard for down in downs
    ]


def heard_by(monitor):
    """Return all that a persistent monitor hears, and check that it is over then."""
    downs = [monitor.wait(TURN_S)]
    while downs[-1].restarting:
        downs.append(monitor.wait(TURN_S))
    assert monitor.wait(0) == downs[-1]
    return downs
