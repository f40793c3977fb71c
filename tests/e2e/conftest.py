"""One real daemon for all tests of this folder, and what they need to use it.

A session is stopped by the test's ``agent`` fixture and a model's server by ``scripted``; when a
test file is done, no session and no process beyond the daemon's own may be left.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel

READY_S = 60.0
STOP_S = 20.0
TURN_S = 20.0
"""For anything that a session does in a test, the machine being busy."""
POLL_S = 0.02
SPARES = 2


def poll(condition, timeout=TURN_S):
    """Return the first true answer of ``condition``, asked again and again until the time is up."""
    never = threading.Event()
    for _ in range(round(timeout / POLL_S)):
        if found := condition():
            return found
        never.wait(POLL_S)
    return condition()


class Daemon:
    """A daemon in a process of its own."""

    def __init__(self, directory):
        self.address = directory / "r"
        self.log_path = directory / "daemon.log"
        command = [sys.executable, "-P", "-m", "supervisor", "--spares", str(SPARES)]
        command += ["--runtime-dir", str(self.address), "--state-dir", str(directory / "state")]
        ready, ready_child = os.pipe()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-fd", str(ready_child)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(ready_child,),
                start_new_session=True,
            )
        os.close(ready_child)
        with os.fdopen(ready) as pipe:
            answer = json.loads(pipe.readline() or "{}")
        assert answer.get("ready"), f"{answer} {self.log()}"
        self.pid = self.process.pid

    def log(self):
        """Return what it wrote."""
        return self.log_path.read_text()

    def below(self):
        """Return the living processes that it started, directly or not."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [one for one in psutil.Process(self.pid).children(True) if is_alive(one)]
        return []

    def close(self):
        """End it and return whether everything that it started ended with it."""
        below = self.below()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_S)
        _, left = psutil.wait_procs(below, STOP_S)
        return left


def is_alive(process):
    """Say whether a process runs and is no zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    """The daemon that all tests here share; none of them ends it."""
    found = Daemon(tmp_path_factory.mktemp("d"))
    yield found
    assert found.process.poll() is None, found.log()
    assert found.close() == []
    assert [one.name for one in found.address.iterdir()] == []


@pytest.fixture(scope="session")
def client(daemon):
    """A client of the shared daemon."""
    with cmdc.Client(daemon.address) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left(daemon, client):
    """When a file is done, the daemon has its own processes again and no session."""
    yield
    # The nursery, the resource tracker and the spares.
    assert poll(lambda: len(daemon.below()) <= 2 + SPARES), daemon.below()
    assert client.list_sessions() == []


@pytest.fixture
def scripted():
    """Make scripted models that are closed at the test's end."""
    with contextlib.ExitStack() as stack:
        yield lambda *steps, **more: stack.enter_context(ScriptedModel(steps, **more))


@pytest.fixture
def agent(client):
    """Make sessions of the shared daemon that are stopped at the test's end."""
    with contextlib.ExitStack() as stack:

        def create(model, **options):
            return stack.enter_context(client.create_agent(model=model, **options))

        yield create


def cycle_events(stream, ends=("agent_end", "agent_abort", "agent_error")):
    """Return the envelopes up to the end of the running cycle."""
    found = [stream.get(TURN_S)]
    while found[-1].event.kind not in ends:
        found.append(stream.get(TURN_S))
    return found


@pytest.fixture(name="cycle_of")
def _cycle_of():
    """Read a stream up to the end of the running cycle."""
    return cycle_events


@pytest.fixture(name="poll")
def _poll():
    """Wait for a condition of the operating system."""
    return poll
