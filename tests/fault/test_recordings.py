"""The input of a daemon's supervision tree is written down on demand, and plays again the same."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.process]

ROOT = Path(__file__).parents[2]
TURN_S = 30.0


def test_record_of_a_crash_plays_again_as_it_was(own_daemon, scripted, poll):
    """SIGUSR1 writes it; today's tree decides as the daemon's did."""
    model = scripted(default="fine")
    pid = own_daemon.start()
    with own_daemon.client() as client, client.create_agent(model=model) as session:
        monitor = session.monitor()
        os.kill(session.agent_pid(), signal.SIGKILL)
        monitor.wait(TURN_S)
        assert session.run("1", timeout=TURN_S).text == "fine"
        os.kill(pid, signal.SIGUSR1)
        folder = own_daemon.place / "state" / "recordings"
        assert poll(lambda: "recording.written" in own_daemon.log.read_text())
        (record,) = folder.iterdir()
    played = subprocess.run(
        [sys.executable, "-m", "scripts.simulate", "--replay", str(record)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TURN_S,
        check=False,
    )

    assert played.returncode == 0, played.stdout + played.stderr
    assert "exited" in played.stdout
    assert record.stat().st_mode & 0o777 == 0o600
