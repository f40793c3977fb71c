"""The daemon of the pytest plugin: alone, watched, and gone with all that it had."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cmdc_runtime.runtime_dir import KEYS
from cmdc_runtime.testing.daemon import DaemonProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]

WAIT_S = 20.0
OF_THE_DAEMON = """
import sys
from cmdc_runtime.testing.daemon import DaemonProcess

daemon = DaemonProcess()
print(daemon.pid, daemon.address.parent, flush=True)
sys.stdin.read()
"""
OF_CHAOS = """
import sys
from cmdc_runtime.testing import Chaos

with Chaos(kill="agent", at="before_cycle_end") as chaos:
    print(chaos.daemon.pid, chaos.daemon.address.parent, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(name="daemon")
def _daemon(monkeypatch):
    """A daemon of the test's own, started in an environment that would break it."""
    monkeypatch.setenv("CMDC_SPARES", "many")
    monkeypatch.setenv("CMDC_NO_SUCH_OPTION", "1")
    return DaemonProcess()


def test_what_is_left_is_reported_and_ended(daemon):
    """A process and a socket that outlive the daemon fail the run, and are cleared away."""
    environment = {"CMDC_ADDRESS": str(daemon.address)}
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        env=environment,
        stdin=subprocess.PIPE,
    )
    with socket.socket(socket.AF_UNIX) as left, sleeper:
        left.bind(str(daemon.address / "left.sock"))
        with pytest.raises(AssertionError) as caught:
            daemon.close()
        sleeper.wait(WAIT_S)

    assert f"a process is left: pid {sleeper.pid}" in str(caught.value)
    assert "a file is left: run/left.sock" in str(caught.value)
    assert (sleeper.returncode, daemon.address.exists()) == (-signal.SIGKILL, False)


def test_the_keys_of_a_session_that_is_alive_are_nothing_left(monkeypatch):
    """As its history is, they are for the next daemon; they go with the directories."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-script")
    daemon = DaemonProcess()
    daemon.client().create_agent(model="openai:gpt-4o-mini", session_id="alive")
    kept = daemon.address / KEYS / "alive"

    assert "sk-of-the-script" in kept.read_text()
    daemon.close()
    assert not daemon.address.exists()


@pytest.mark.fault
def test_daemon_that_died_is_reported(daemon):
    """A daemon that a test took away fails the run, with its log."""
    pidfd = os.pidfd_open(daemon.pid)
    os.kill(daemon.pid, signal.SIGKILL)
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    os.close(pidfd)

    with pytest.raises(AssertionError, match=r"ended before, with status -9(?s:.*)started"):
        daemon.close()


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
@pytest.mark.parametrize("program", [OF_THE_DAEMON, OF_CHAOS], ids=["daemon", "chaos"])
def test_a_run_of_tests_that_is_killed_leaves_nothing(program, number):
    """Daemon, zygote and spares end with the process that runs the tests; the folder goes too."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        pid, base = owner.stdout.readline().split()
        top = psutil.Process(int(pid))
        known = [top, *top.children(recursive=True)]
        owner.send_signal(number)
    _, left = psutil.wait_procs(known, WAIT_S)
    for one in left:
        one.kill()

    assert (owner.returncode, left) == (-number, [])
    assert not Path(base).exists()


def test_importing_the_fakes_needs_no_pytest():
    """Whoever scripts a model outside of a test needs no pytest for it."""
    probe = "import cmdc_runtime.testing, sys; sys.exit('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], timeout=WAIT_S, check=False)

    assert done.returncode == 0
